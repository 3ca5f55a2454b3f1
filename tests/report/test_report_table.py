"""Rows as CSV, Parquet and JSON, by file ending."""

import io
from typing import Literal

import msgspec
import pytest

from scalewise.report.table import columns_of, file_bytes, to_csv, to_json, to_parquet

COLUMNS = {"name": str, "size": int, "rate": float, "tie": bool}
ROWS = [{"name": "a", "size": 8, "rate": 0.5, "tie": True},
        {"name": "b", "size": None, "rate": None, "tie": False}]  # fmt: skip


class Record(msgspec.Struct):
    name: str
    kind: Literal["chip", "network"]
    size: int | None
    rate: float | None = None
    terms: dict[str, float] = {}


def test_columns_are_the_types_of_fields():
    found = columns_of(Record, leave=("terms",))
    assert found == {"name": str, "kind": str, "size": int, "rate": float}


def test_csv_is_empty_where_nothing_is_known():
    assert to_csv(ROWS, COLUMNS) == "name,size,rate,tie\na,8,0.5,true\nb,,,false\n"
    assert to_csv([], COLUMNS) == "name,size,rate,tie\n"


def test_parquet_has_types_without_rows():
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(io.BytesIO(to_parquet(ROWS, COLUMNS)))
    assert frame.to_dicts() == ROWS
    empty = polars.read_parquet(io.BytesIO(to_parquet([], COLUMNS)))
    assert empty.schema == frame.schema


def test_files_by_ending():
    asked = {"rows": lambda: ROWS, "columns": COLUMNS, "plain": lambda: {"a": 1}}
    assert file_bytes(".csv", **asked) == to_csv(ROWS, COLUMNS).encode()
    assert file_bytes(".json", **asked) == to_json({"a": 1}).encode() == b'{\n  "a": 1\n}\n'
    assert file_bytes(".html", page=lambda: "<p>") == b"<p>"
    with pytest.raises(ValueError, match=r"no writer for \.svg"):
        file_bytes(".svg", **asked)
