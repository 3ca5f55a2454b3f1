"""Scaling curves as files: rows, pages, pictures, JSON."""

import csv
import io
import json
import xml.etree.ElementTree as ET

import msgspec
import pytest

from report_cases import WEAK, is_offline, many_groups, one_group
from scalewise.catalog import load_cluster
from scalewise.explore.points import Point
from scalewise.explore.scale import scale
from scalewise.model import load_model
from scalewise.report.scale_files import COLUMNS, scale_file, scale_page, scale_rows


def test_rows_have_every_size_of_every_curve():
    lines = scale_rows(one_group())
    assert [(row["label"], row["accelerators"]) for row in lines] == [
        (label, size)
        for label in ("fsdp", "hsdp64", "tp2", "tp8-pp16", "ddp")
        for size in (64, 1024, 8192)
    ]
    assert all(tuple(row) == tuple(COLUMNS) for row in lines)
    gap = lines[9]
    assert "does not divide 64" in gap["infeasible"]
    assert gap["tokens_per_second"] is None
    assert (gap["model"], gap["seq_len"], gap["stack"]) == ("llama-2-7b", 4096, "megatron")
    assert lines[12]["infeasible"].startswith("memory: needs")
    assert "ring latency" in lines[2]["cause"]
    assert lines[0]["cause"] is None


def test_columns_are_the_fields_of_a_point():
    assert set(Point.__struct_fields__) - set(COLUMNS) == {"terms"}
    assert (COLUMNS["accelerators"], COLUMNS["days"]) == (int, float)
    assert (COLUMNS["evaluated"], COLUMNS["strategy"]) == (int, str)


def test_csv_has_one_line_per_row():
    read = list(csv.DictReader(io.StringIO(scale_file(one_group(), ".csv").decode())))
    assert tuple(read[0]) == tuple(COLUMNS)
    assert len(read) == 15


def test_parquet_keeps_numbers_and_types():
    polars = pytest.importorskip("polars")
    read = polars.read_parquet(io.BytesIO(scale_file(one_group(), ".parquet")))
    assert read.to_dicts() == scale_rows(one_group())
    assert read["accelerators"].dtype == polars.Int64
    # Nothing was searched and no budget was given: the columns still have their types.
    assert (read["evaluated"].dtype, read["days"].dtype) == (polars.Int64, polars.Float64)
    many = polars.read_parquet(io.BytesIO(scale_file(many_groups(), ".parquet")))
    assert many["evaluated"].drop_nulls().len() > 0


def test_json_has_knees_and_defaults():
    plain = json.loads(scale_file(one_group(), ".json", share=0.5, defaults=["--seq 4096"]))
    assert plain["knee_share"] == 0.5
    assert ("fsdp", 8192) in [(knee["label"], knee["accelerators"]) for knee in plain["knees"]]
    assert plain["defaults"] == ["--seq 4096"]


def test_pictures_are_the_same_for_the_same_curves():
    pytest.importorskip("matplotlib")
    content = scale_file(one_group(), ".svg")
    assert ET.fromstring(content).tag.endswith("svg")
    assert content == scale_file(one_group(), ".svg")
    assert scale_file(one_group(), ".png")[:8] == b"\x89PNG\r\n\x1a\n"


def test_nothing_that_runs_is_drawn_empty():
    pytest.importorskip("matplotlib")
    empty = scale(load_model("llama-2-7b"), load_cluster("dgx-h100"), WEAK, ["ddp"], [8])
    assert scale_file(empty, ".png")
    assert "<h2>Infeasible sizes</h2>" in scale_page(empty)


def test_page_has_all_sentences_offline():
    pytest.importorskip("plotly")
    named = msgspec.structs.replace(one_group(), warnings=("<b>beware</b>",))
    page = scale_page(named, defaults=["something chosen"])
    assert is_offline(page)
    for text in ("<h2>Knees</h2>", "<h2>Crossovers</h2>", "<h2>Causes</h2>", "fsdp",
                 "Predicted, not measured", "something chosen", "&lt;b&gt;beware&lt;/b&gt;",
                 "<h2>Infeasible sizes</h2>"):  # fmt: skip
        assert text in page
