"""Stored predictions with the source left out: round trip, and the shipped file."""

from types import SimpleNamespace

from scalewise.evidence.left_out_table import LeftOutRow, read_left_out, write_left_out
from scalewise.evidence.runs import read_runs
from scalewise.evidence.validate import JUDGED_QUALITIES


def test_round_trip(tmp_path):
    basis = SimpleNamespace(rate=1234.5678, knowledge="family", calibrated=False)
    path = write_left_out([SimpleNamespace(id="a,b", source="me", basis=basis)], tmp_path)
    assert path == tmp_path / "runs" / "left_out.csv"
    assert path.read_text() == (
        'id,source,predicted,knowledge,calibrated\n"a,b",me,1234.6,family,false\n'
    )
    assert read_left_out(path) == {
        "a,b": LeftOutRow(
            id="a,b", source="me", predicted=1234.6, knowledge="family", calibrated=False
        )
    }


def test_other_rows_are_kept(tmp_path):
    old = {
        name: LeftOutRow(
            id=name, source="me", predicted=1.0, knowledge="runs", calibrated=True
        )
        for name in ("a", "b")
    }  # fmt: skip
    basis = SimpleNamespace(rate=2.0, knowledge="family", calibrated=False)
    rows = [SimpleNamespace(id="b", source="me", basis=basis)]
    found = read_left_out(write_left_out(rows, tmp_path, kept=old))
    assert {name: row.predicted for name, row in found.items()} == {"a": 1.0, "b": 2.0}


def test_the_shipped_file_has_the_complete_runs_of_experts():
    stored = read_left_out()
    runs = {run.id for run in read_runs() if run.number("experts")
            and run.quality in JUDGED_QUALITIES}  # fmt: skip
    assert len(runs) == 149
    assert runs <= set(stored)
    # What holds for experts is known without any single source.
    assert {stored[name].knowledge for name in runs} == {"runs", "family"}


def test_the_shipped_file_has_the_complete_dense_runs():
    every = read_runs()
    experts = {run.id for run in every if run.number("experts")}
    stored = {name: row for name, row in read_left_out().items() if name not in experts}
    runs = {run.id: run for run in every if run.dense and run.quality in JUDGED_QUALITIES}
    assert set(stored) <= set(runs)
    # Degraded runs have none.
    assert len(stored) >= 1700
    assert {row.source for row in stored.values()} == {run.source for run in runs.values()}
    assert all(row.predicted > 0.0 for row in stored.values())
