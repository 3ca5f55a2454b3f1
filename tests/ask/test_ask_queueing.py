"""Queue files: runs, plans beside them, what the command line sets for all."""

from datetime import date

import pytest

from scalewise.ask.question import Question
from scalewise.ask.queueing import queueing, read_queue
from scalewise.ask.state import to_toml
from scalewise.errors import InputError

TEXT = """
start = 2027-01-04
on = "dgx-h100"
gpus = 128

[[run]]
name = "base"
plan = "base.toml"

[[run]]
name = "small"
model = "llama-2-7b"
tokens = "20B"
gpus = 64

[[run]]
name = "late"
model = "llama-2-7b"
tokens = "10B"
gpus = 64
after = ["base", "small"]
earliest = 2027-01-10
"""


@pytest.fixture
def folder(tmp_path):
    plan = Question(model="llama-2-7b", on="aws-p5", gpus=128, tokens="100B", batch=1024)
    (tmp_path / "base.toml").write_text(to_toml(plan))
    (tmp_path / "queue.toml").write_text(TEXT)
    return tmp_path


def test_a_queue_of_three_runs(folder):
    found = read_queue(folder / "queue.toml", {})
    base, small, late = found.calendar.runs
    assert found.start == date(2027, 1, 4)
    assert found.cluster == "dgx-h100"
    assert (base.start.value, base.row.accelerators) == (0.0, 128)
    assert small.start == base.end
    assert late.start.value == max(small.end.value, 6.0)
    assert found.day(6.0) == date(2027, 1, 10)
    assert found.calendar.usd.value == pytest.approx(
        sum(run.row.usd.value for run in (base, small, late))
    )
    assert found.to_dict()["runs"][0]["start"] == "2027-01-04"


def test_other_sizes_of_the_cluster(folder):
    found = read_queue(folder / "queue.toml", {})
    assert [each.accelerators for each in found.others] == [256]
    assert found.notes == ("64 GPUs: run base: 128 GPUs on a cluster of 64",)
    # On 256 GPUs the small run starts at once; a run keeps its own number of GPUs.
    (large,) = found.others
    assert large.runs[1].start.value == 0.0
    assert large.runs[0].end == found.calendar.runs[0].end
    assert large.utilization < found.calendar.utilization


def test_a_run_without_gpus_takes_the_cluster():
    text = '[[run]]\nname = "a"\nmodel = "llama-2-7b"\ntokens = "20B"\n'
    found = queueing(text, None, {"on": "dgx-h100", "gpus": 64}, today=date(2027, 1, 1))
    assert found.calendar.runs[0].row.accelerators == 64
    small, large = found.others
    assert [small.runs[0].row.accelerators, large.runs[0].row.accelerators] == [32, 128]
    assert small.days.value > found.calendar.days.value > large.days.value


def test_the_command_line_stands_before_the_file(folder):
    found = read_queue(folder / "queue.toml", {"on": "oci-h100", "price": "2", "gpus": 256})
    assert found.cluster == "oci-h100"
    assert found.calendar.accelerators == 256
    assert {run.row.price.words for run in found.calendar.runs} == {"yours"}


RUN = '[[run]]\nmodel = "llama-2-7b"\ntokens = "1B"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus = 8", "the queue has no"),
        (RUN, "the queue has no gpus"),
        (f"gpus = 8\nspeed = 2\n{RUN}", "the queue has an unknown key `speed`"),
        (f"gpus = 8\n{RUN}speed = 2", "run 1 has an unknown key `speed`"),
        ("gpus = 8\n[[run]]\ntokens = '1B'", "run 1: no model"),
        ("gpus = 8\n[[run]]\nmodel = 'llama-2-7b'", "run run 1: no tokens"),
        (f"gpus = 8\n{RUN}name = 'a'\n{RUN}name = 'a'", "run a is there twice"),
        (f"gpus = 8\n{RUN}gpus = 16", "run run 1: 16 GPUs on a cluster of 8"),
        (f"gpus = 8\nstart = 'soon'\n{RUN}", "start = soon: not a date"),
        (f"gpus = 8\n{RUN}on = 'dgx-a100'\n{RUN}on = 'dgx-h100'", "several clusters"),
        ("gpus = 8\n[[run]]\nplan = 'none.toml'", "plan none.toml"),
        ("gpus = ", "the queue"),
        (f"gpus = 8\n{RUN}".replace("1B", "1e18"), "beyond the year 9999"),
    ],
)  # fmt: skip
def test_wrong_files_are_explained(text, message, tmp_path, monkeypatch):
    from pathlib import Path

    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        queueing(text, Path(), {}, today=date(2027, 1, 1))
