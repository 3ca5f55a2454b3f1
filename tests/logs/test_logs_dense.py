"""Blocks of step lines that are read at once say what lines say one by one."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from logs.log_files import DATA
from scalewise.logs import read
from scalewise.logs.clock import clock_of
from scalewise.logs.dense import read_dense
from scalewise.logs.line import StepLine

NAMES = ("torchtitan", "megatron-lm", "deepspeed", "maxtext", "nanogpt")


def kind_of(text: bytes) -> StepLine:
    return next(each for each in read.LINES if each.dense and each.mark in text)


def step_lines(name: str) -> bytes:
    """Step lines of a sample without all others."""
    lines = (DATA / f"{name}.log").read_bytes().splitlines(keepends=True)
    marks = [each.mark for each in read.LINES if each.framework == name]
    return b"".join(line for line in lines if any(mark in line for mark in marks))


@pytest.mark.parametrize("name", NAMES)
def test_dense_blocks_are_read_as_lines_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dense.log"
    path.write_bytes(step_lines(name))
    assert read_dense(kind_of(path.read_bytes()), path.read_bytes()) is not None
    fast = read.read_log(path)
    monkeypatch.setattr(read, "LINES", tuple(replace(each, dense=False) for each in read.LINES))
    slow = read.read_log(path)
    for field in fields(slow.steps):
        one, other = getattr(fast.steps, field.name), getattr(slow.steps, field.name)
        np.testing.assert_array_equal(one, other)
    assert fast.notes == slow.notes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("old", "new"),
    [(b"\n", b"\nother\n"), (b"\n", b""), (b"\n", b"\r\n"), (b"\n", b"\0\n"), (b" ", b"\n")],
    ids=["another line", "two in one", "carriage return", "nul", "cut"],
)
def test_other_blocks_are_read_line_by_line(name: str, old: bytes, new: bytes) -> None:
    text = step_lines(name)
    assert read_dense(kind_of(text), text.replace(old, new, 1)) is None


def test_time_stamps_at_one_place_and_elsewhere() -> None:
    stamps = [b"[2026-04-06 02:59:36] ", b"[2026-04-06 03:00:01] "]
    # 20,549 days after 1970 began.
    assert clock_of(stamps).tolist() == [1775444376.0, 1775444401.0]
    moved = [b"rank 10 " + stamps[0], stamps[1]]
    assert clock_of(moved).tolist() == [1775444376.0, 1775444401.0]
    assert clock_of([b"[2026-11-07 10:00:00,714] "])[0] == pytest.approx(1794045600.714)
    twice = clock_of([stamps[0] + stamps[1], stamps[1]])
    assert np.isnan(twice[0])
    assert twice[1] == 1775444401.0
    assert np.isnan(clock_of([b"", b""])).all()
