import math

import pytest

from scalewise.measure.idle import (
    LaunchNote,
    disturbance,
    journal_of,
    loop_seconds,
    note_launch,
    read_journal,
)


def note(before, after):
    return LaunchNote(seconds=8.0, before=before, after=after)


def test_the_fixed_loop_takes_time():
    assert loop_seconds() > 0.0


def test_a_slower_loop_is_a_disturbance_and_a_tenth_is_none():
    notes = {"a": note(0.010, 0.010), "b": note(0.010, 0.0105), "c": note(0.010, 0.015)}
    assert disturbance(["a"], notes) == 0.0
    assert disturbance(["b"], notes) == 0.0
    assert disturbance(["c"], notes) == pytest.approx(math.log(1.5))
    assert disturbance(["a", "c"], notes) == pytest.approx(math.log(1.25))


def test_launches_without_a_note_are_not_judged():
    assert disturbance(["x"], {}) == 0.0


def test_the_journal_is_beside_the_records(tmp_path):
    assert (
        journal_of(tmp_path) == journal_of(tmp_path / "train.jsonl") == tmp_path / "launches.json"
    )
    note_launch(journal_of(tmp_path), "a", note(0.01, 0.02))
    note_launch(journal_of(tmp_path), "b", note(0.03, 0.04))
    assert read_journal(journal_of(tmp_path)) == {"a": note(0.01, 0.02), "b": note(0.03, 0.04)}


def test_a_damaged_journal_costs_no_measurement(tmp_path):
    journal_of(tmp_path).write_text("{")
    assert read_journal(journal_of(tmp_path)) == {}
    assert disturbance("a", {"b": note(2.0, 1.0)}) == 0.0
    assert disturbance("a", {"a": note(1e-308, 1e308)}) == 0.0
    assert disturbance("a", {"a": note(math.nan, 1.0)}) == 0.0
