"""A short run of every fuzz target, and everything that fuzzing ever found."""

import json
import random
import warnings

import flips
import fuzz_door
import fuzz_doors
import fuzz_inputs
import kills
import pytest
from hypothesis import HealthCheck, given, settings
from soak import CORPUS, Soak, packed, run, unpacked, wanted

EXAMPLES = {"verbs": 4, "commands": 8, "page": 8, "estimate": 12, "studies": 8, "measured": 4}
"""Of slow doors; others get 12. A soak has a thousand times as many."""


@pytest.mark.parametrize("name", fuzz_doors.DOORS)
def test_a_door_answers_or_refuses(name):
    door = fuzz_doors.DOORS[name]

    @settings(
        max_examples=EXAMPLES.get(name, 12), derandomize=True, deadline=None, database=None,
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
    door = fuzz_door.Door(draw=lambda _: None, run=lambda _: answer)
    with pytest.raises(fuzz_door.FindingError):
        door.check(None)


def test_a_warning_is_a_finding():
    def run(_):
        warnings.warn("divide by zero", RuntimeWarning, stacklevel=1)

    with pytest.raises(RuntimeWarning):
        fuzz_door.Door(draw=lambda _: None, run=run).check(None)


def test_flipped_bits_change_no_result():
    tally = flips.run(60, 3)
    assert tally.total() == 60
    assert {kind.partition(":")[0] for kind in tally} == {"store", "records", "results"}


def test_killed_writers_lose_nothing(tmp_path):
    draw = random.Random(5)
    assert kills.try_records(tmp_path, draw, 0) == 2
    assert sum(kills.try_catalog(tmp_path, draw) for _ in range(3)) == 3


def test_a_soak_goes_on_where_it_stopped(tmp_path):
    whole = Soak(["units", "lines"], 3)
    run(whole, 80, None)
    first = Soak(["units", "lines"], 3, tmp_path / "0.json")
    run(first, 30, None)
    first.write()
    second = Soak(["units", "lines"], 0, tmp_path / "0.json")
    run(second, 80, None)
    assert second.tallies == whole.tallies
    assert second.inputs == whole.inputs
    assert second.marks == whole.marks
    assert (second.done("units"), second.done("lines")) == (32, 48)


def test_every_door_has_its_share_of_a_million():
    counts = wanted(list(fuzz_doors.DOORS), 1_000_000)
    assert sum(counts.values()) == 1_000_000
    assert min(counts.values()) == 10_000


def test_a_finding_is_shortened_and_kept_once(tmp_path, monkeypatch, capsys):
    def fails(given):
        assert not (given["a"] and b"x" in given["b"][0])

    door = fuzz_door.Door(
        draw=lambda draw: {"a": draw.random() + 1.0, "b": [b"123x456", 7], "c": "more"}, run=fails
    )
    monkeypatch.setattr("soak.CORPUS", tmp_path)
    monkeypatch.setitem(fuzz_doors.DOORS, "bad", door)
    soak = Soak(["bad"], 1)
    run(soak, 3, None)
    assert soak.tallies["bad"]["failed"] == 3
    (line,) = (tmp_path / "bad.jsonl").read_text().splitlines()
    assert unpacked(json.loads(line)["input"])["b"] == [b"x"]
    assert "AssertionError" in capsys.readouterr().out


def test_doors_and_corpus_belong_together():
    assert {path.stem for path in CORPUS.glob("*.jsonl")} <= set(fuzz_doors.DOORS)
    assert (fuzz_inputs.SEEDS / "train.jsonl").is_file()
