"""Rows as CSV and Parquet, and one answer in every file format.

    to_csv(rows, COLUMNS)               # text; COLUMNS maps names to str, int, float or bool
    to_parquet(rows, COLUMNS)           # bytes; needs the extra `data`
    file_bytes(".svg", figure=lambda: scale_figure(curves))

SI units, fractions from 0 to 1, empty cells where a value is unknown.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from scalewise.errors import require
from scalewise.report.figure import Figure
from scalewise.writing import csv_text

Columns = Mapping[str, type]
"""Types of the columns by name, in order."""
Rows = Sequence[Mapping[str, Any]]


def columns_of(type_: type, *, leave: Sequence[str] = ()) -> dict[str, type]:
    """Return the fields of a struct as columns; words of a fixed set are strings."""
    found = {}
    for name, hint in get_type_hints(type_).items():
        kind = (get_args(hint) or (hint,))[0]
        kind = str if isinstance(kind, str) or get_origin(kind) is Literal else kind
        if name not in leave:
            found[name] = kind
    return found


def to_csv(rows: Rows, columns: Columns) -> str:
    """Return rows as CSV; see `writing.csv_text`."""
    return csv_text(rows, list(columns))


def frame(rows: Rows, columns: Columns | None) -> Any:
    """Return rows as a polars DataFrame, or as a pandas one where only pandas is installed.

    Args:
        rows: One mapping per row.
        columns: Types by column, which empty columns have, too; None to infer them.

    Raises:
        MissingExtraError: If neither library is installed.
    """
    if find_spec("polars") is None and find_spec("pandas") is not None:
        names = None if columns is None else list(columns)
        return import_module("pandas").DataFrame(list(rows), columns=names)
    polars: Any = require("polars", "data")
    if columns is None:
        return polars.DataFrame(list(rows), infer_schema_length=None)
    kinds = {str: polars.String, int: polars.Int64, float: polars.Float64, bool: polars.Boolean}
    return polars.DataFrame(list(rows), schema={k: kinds[kind] for k, kind in columns.items()})


def to_parquet(rows: Rows, columns: Columns) -> bytes:
    """Return rows as a Parquet file."""
    file = io.BytesIO()
    frame(rows, columns).write_parquet(file)
    return file.getvalue()


def to_json(data: Any) -> str:
    """Return plain types as indented JSON; infinities are null."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def file_bytes(
    ending: str,
    *,
    page: Callable[[], str] | None = None,
    figure: Callable[[], Figure] | None = None,
    rows: Callable[[], Rows] | None = None,
    columns: Columns | None = None,
    plain: Callable[[], Any] | None = None,
) -> bytes:
    """Return an answer in the format of a file ending.

    Args:
        ending: .html, .svg, .png, .csv, .parquet or .json.
        page: Makes the page.
        figure: Makes the figure.
        rows: Makes the rows of data.
        columns: Columns of the rows.
        plain: Makes plain types for JSON.
    """
    if ending == ".html" and page is not None:
        return page().encode()
    if ending == ".json" and plain is not None:
        return to_json(plain()).encode()
    if rows is not None and columns is not None:
        if ending == ".csv":
            return to_csv(rows(), columns).encode()
        if ending == ".parquet":
            return to_parquet(rows(), columns)
    if figure is not None and ending in (".svg", ".png"):
        from scalewise.report.draw_matplotlib import image

        return image(figure(), "svg" if ending == ".svg" else "png")
    raise ValueError(f"no writer for {ending}")
