"""The bridge to Perfetto's trace processor: it must say so when a trace is wrong."""

import gzip
import json
import os

import pytest
from perfetto.common.exceptions import PerfettoException

from perfetto_wasm import Bridge, BridgeError, page

SLICE = {"ph": "X", "pid": 1, "tid": 2, "name": "a", "ts": 1.001, "dur": 2.002}
ERRORS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"


def written(folder, *events):
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def test_it_is_perfetto(perfetto, tmp_path):
    with perfetto.open(written(tmp_path, SLICE)) as processor:
        rows = list(processor.query("SELECT ts, dur, name, 1.5 AS half, NULL AS none FROM slice"))
    assert [vars(row) for row in rows] == [
        {"ts": 1001, "dur": 2002, "name": "a", "half": 1.5, "none": None}
    ]
    assert page().name.startswith("v")


def test_the_next_trace_replaces_the_last(perfetto, tmp_path):
    for count in (2, 3, 1):
        events = [SLICE | {"ts": 10.0 * place} for place in range(count)]
        with perfetto.open(written(tmp_path, *events)) as processor:
            assert next(iter(processor.query("SELECT COUNT(*) AS n FROM slice"))).n == count


def test_long_answers_arrive_whole(perfetto, tmp_path):
    events = [SLICE | {"ts": 10.0 * place, "name": f"{place:0200d}"} for place in range(20000)]
    with perfetto.open(written(tmp_path, *events)) as processor:
        names = [row.name for row in processor.query("SELECT name FROM slice ORDER BY ts")]
    assert names == [event["name"] for event in events]


def test_overlapping_slices_are_an_error(perfetto, tmp_path):
    with perfetto.open(written(tmp_path, SLICE, SLICE | {"ts": 2.0})) as processor:
        rows = [(row.name, row.value) for row in processor.query(ERRORS)]
    assert rows == [("slice_drop_overlapping_complete_event", 1)]


def test_a_file_cut_short_is_an_error_and_the_next_is_read(perfetto, tmp_path):
    cut = tmp_path / "cut.json"
    cut.write_text('{"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":')
    with (
        perfetto.open(cut) as processor,
        pytest.raises(PerfettoException, match="JSON trace file is incomplete"),
    ):
        processor.query("SELECT 1")
    with perfetto.open(written(tmp_path, SLICE)) as processor:
        assert len(list(processor.query("SELECT 1 AS n FROM slice"))) == 1


def test_wrong_sql_is_an_error(perfetto, tmp_path):
    with (
        perfetto.open(written(tmp_path, SLICE)) as processor,
        pytest.raises(PerfettoException, match="no such table: unheard_of"),
    ):
        processor.query("SELECT * FROM unheard_of")


def test_a_missing_program_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(BridgeError, match=r"no program `node`.*apt-get install nodejs"):
        Bridge()


def test_a_missing_page_is_named(perfetto, monkeypatch, tmp_path):
    monkeypatch.setattr("perfetto_wasm.page", lambda: tmp_path)
    with pytest.raises(BridgeError, match="did not start"):
        Bridge()
