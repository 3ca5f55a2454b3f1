"""Upgrades as a figure and as files."""

import csv
import io
import json
from dataclasses import replace

import pytest

from report_cases import is_offline
from scalewise.explore.sensitivity import Sensitivities
from scalewise.report.sensitivity_figure import SERIES, sensitivity_figure, sensitivity_file
from sensitivity_cases import BLANK, ROWS, row, small_step


@pytest.fixture
def found():
    return Sensitivities(today=small_step(), reoptimized=False, factor=2.0, rows=ROWS)


def test_csv(found):
    rows = list(csv.DictReader(io.StringIO(sensitivity_file(found, ".csv").decode())))
    assert len(rows) == 5
    assert rows[1]["name"] == "HBM bandwidth"
    assert float(rows[1]["gain"]) == 0.25
    assert float(rows[1]["cost_elasticity"]) == pytest.approx(0.225)
    assert rows[4]["gain"] == ""
    assert (rows[0]["reoptimized"], rows[0]["today"]) == ("false", "fsdp8-mb2")


def test_parquet_has_types_also_for_empty_columns(found):
    polars = pytest.importorskip("polars")
    content = sensitivity_file(replace(found, rows=[BLANK]), ".parquet")
    frame = polars.read_parquet(io.BytesIO(content))
    assert frame.schema["gain"] == polars.Float64
    assert frame["gain"].to_list() == [None]
    assert frame["name"].to_list() == ["HBM capacity"]


def test_json_has_the_lead_and_the_defaults(found):
    plain = json.loads(sensitivity_file(found, ".json", defaults=["--seq 4096"]))
    assert plain["lead"] == sensitivity_figure(found).lead
    assert plain["defaults"] == ["--seq 4096"]
    assert len(plain["rows"]) == 5


def test_the_figure_has_the_largest_gain_first_and_no_blanks(found):
    gains, slopes = sensitivity_figure(found).panels
    assert gains.traces[0].ys == [40.0, 25.0, 10.0, -10.0]
    assert gains.x.values[0].startswith("hop latency, 2 x (")
    assert gains.sideways
    assert [trace.name for trace in gains.traces] == [name for _, _, name, _ in SERIES]
    assert gains.y.label == "change by the upgrade (%)"
    assert slopes.y.label == "elasticity (% per %)"
    assert slopes.traces[0].ys[0] == pytest.approx(0.36)
    assert "stack megatron" in sensitivity_figure(found).notes[0]


def test_the_figure_without_power_and_price(found):
    bare = [row("HBM bandwidth", 0.2, energy_gain=None, cost_gain=None)]
    figure = sensitivity_figure(replace(found, rows=bare))
    assert {trace.name for panel in figure.panels for trace in panel.traces} == {"tok/s"}


def test_the_page_works_offline(found):
    page = sensitivity_file(found, ".html").decode()
    assert is_offline(page)
    assert len(page) > 1_000_000


def test_still_pictures(found):
    pytest.importorskip("matplotlib")
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        assert sensitivity_file(found, ending).startswith(start)
    assert sensitivity_file(found, ".svg") == sensitivity_file(found, ".svg")
    assert sensitivity_file(replace(found, rows=[BLANK]), ".svg").startswith(b"<?xml")
