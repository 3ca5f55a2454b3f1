"""Damaged copies of logs: every step that is read is one that was printed, or nothing is."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.log_files import DATA
from scalewise.errors import InputError
from scalewise.logs.read import read_log
from scalewise.logs.run_log import Steps

NAMES = ("torchtitan.log", "megatron-lm.log", "megatron-bridge.log", "nemo-2.log", "nemo-1.log",
         "deepspeed.log", "nanotron.log", "maxtext.log", "nanogpt.log", "litgpt.log")  # fmt: skip

COLUMNS = ("seconds", "device_tokens", "total_tokens", "samples")


def pairs(steps: Steps) -> list[set[tuple[float, float]]]:
    """Numbers of each column, with their step."""
    found = []
    for name in COLUMNS:
        column = getattr(steps, name)
        number = steps.step.astype(float)
        known = np.isfinite(column)
        values = zip(number[known].tolist(), column[known].round(9).tolist(), strict=True)
        found.append(set(values))
    return found


@st.composite
def damaged(draw: st.DrawFn, text: bytes) -> bytes:
    """A copy with up to a fifth of its lines cut, mixed, or overwritten, each once.

    Twice would leave the start of one line and the end of another, which nobody can tell from a
    whole one.
    """
    lines = text.split(b"\n")
    places = st.lists(
        st.integers(0, (len(lines) - 1) // 3), unique=True, min_size=1, max_size=len(lines) // 5 + 1
    )
    for place in sorted(draw(places), reverse=True):
        at = 3 * place
        line = lines[at]
        cut = draw(st.integers(0, len(line)))
        kind = draw(st.sampled_from(["head", "tail", "glued", "mixed", "nul", "gone"]))
        if kind == "head":
            lines[at] = line[:cut]
        elif kind == "tail":
            lines[at] = line[cut:]
        elif kind == "glued" and at + 1 < len(lines):
            lines[at : at + 2] = [line[:cut] + lines[at + 1]]
        elif kind == "mixed" and at + 1 < len(lines):
            other = lines[at + 1]
            lines[at : at + 2] = [line[:cut] + other, line[cut:]]
        elif kind == "nul":
            width = draw(st.integers(1, 64))
            lines[at] = line[:cut] + b"\0" * width + line[cut + width :]
        else:
            lines[at] = b""
    joint = draw(st.sampled_from([b"\n", b"\r\n"]))
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + joint.join(lines)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_damage_never_changes_a_number(name: str, data: st.DataObject) -> None:
    text = (DATA / name).read_bytes()
    whole = read_log(DATA / name)
    copy = data.draw(damaged(text))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        path.write_bytes(copy)
        try:
            log = read_log(path)
        except InputError as error:
            log, words = None, str(error)
    if log is None:
        assert ", line " in words or "has no step line of" in words
        return
    assert log.framework == whole.framework
    for found, known in zip(pairs(log.steps), pairs(whole.steps), strict=True):
        assert found <= known
    lines = copy.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert all(1 <= line <= len(lines) for line in (*log.steps.line.tolist(), *log.damaged))
