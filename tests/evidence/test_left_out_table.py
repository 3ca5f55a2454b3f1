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


def test_the_shipped_file_has_the_complete_dense_runs():
    stored = read_left_out()
    runs = {run.id: run for run in read_runs() if run.dense and run.quality in JUDGED_QUALITIES}
    assert set(stored) <= set(runs)
    # Degraded runs have none.
    assert len(stored) >= 1700
    assert {row.source for row in stored.values()} == {run.source for run in runs.values()}
    assert all(row.predicted > 0.0 for row in stored.values())
