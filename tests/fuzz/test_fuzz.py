"""A short run of every fuzz target, and everything that fuzzing ever found."""

import json
import warnings
from pathlib import Path

import flips
import fuzz_doors
import kills
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from soak import CORPUS, packed, unpacked

EXAMPLES = {"verbs": 4, "commands": 8, "page": 8, "estimate": 12, "studies": 8, "traces": 12}
"""Of slow doors; others get 25."""


@pytest.mark.parametrize("name", fuzz_doors.DOORS)
def test_a_door_answers_or_refuses(name):
    door = fuzz_doors.DOORS[name]

    @settings(
        max_examples=EXAMPLES.get(name, 25), derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(door.inputs())
    def check(each):
        assert door.check(each) in ("answered", "refused")

    check()


def found():
    for path in sorted(CORPUS.glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield pytest.param(path.stem, json.loads(line), id=f"{path.stem}-{number}")


@pytest.mark.parametrize(("name", "finding"), found())
def test_what_was_found_is_mended(name, finding):
    assert fuzz_doors.DOORS[name].check(unpacked(finding["input"])) in ("answered", "refused")


@pytest.mark.parametrize("value", [b"\xff\x00", {"a": [b"x", 1.5, None]}, ["fsdp", 8, "x"], "text"])
def test_the_corpus_keeps_inputs_as_they_are(value):
    assert unpacked(json.loads(json.dumps(packed(value)))) == value


@pytest.mark.parametrize(
    "answer", [{"seconds": float("nan")}, [1.0, float("inf")], {"a": {"b": (float("-inf"),)}}]
)
def test_what_is_no_number_is_a_finding(answer):
    door = fuzz_doors.Door(inputs=st.none, run=lambda _: answer)
    with pytest.raises(fuzz_doors.FindingError):
        door.check(None)


def test_a_warning_is_a_finding():
    def run(_):
        warnings.warn("divide by zero", RuntimeWarning, stacklevel=1)

    with pytest.raises(RuntimeWarning):
        fuzz_doors.Door(inputs=st.none, run=run).check(None)


def test_flipped_bits_change_no_result():
    tally = flips.run(60, 3)
    assert tally.total() == 60
    assert {kind.partition(":")[0] for kind in tally} == {"store", "records", "results"}


def test_killed_writers_lose_nothing(tmp_path):
    import random

    draw = random.Random(5)
    assert kills.try_records(tmp_path, draw, 0) == 2
    assert sum(kills.try_catalog(tmp_path, draw) for _ in range(3)) == 3


def test_doors_and_corpus_belong_together():
    assert {path.stem for path in CORPUS.glob("*.jsonl")} <= set(fuzz_doors.DOORS)
    assert Path(fuzz_doors.SEEDS / "train.jsonl").is_file()
