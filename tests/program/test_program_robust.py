"""Programs that misbehave: each ends in one sentence, and nothing of it stays behind."""

import tempfile
from pathlib import Path

import pytest

from capturing import NET
from scalewise.program.capture.spec import CaptureSpec
from scalewise.program.run import CaptureError, adapter_of, capture_program
from waiting import until

LOOP = (
    """
import os, sys, torch
from torch import nn
"""
    + NET
    + """
def step():
    model(torch.zeros(2, 4, dtype=torch.long)).sum().backward()
    optimizer.step()

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
)

CATCHES = (
    LOOP
    + """
while True:
    try:
        step()
    except BaseException:
        pass
"""
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a capture keeps its files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield tmp_path
    assert list(temporary.iterdir()) == []


def ended(folder, text, **limits):
    """What a capture of a script says."""
    script = folder / "train.py"
    script.write_text(text)
    spec = CaptureSpec(adapter="script", world=4, arguments=(str(script),))
    with pytest.raises(CaptureError) as caught:
        capture_program(spec, **limits)
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_a_program_that_hangs(folder):
    text = "import time\nwhile True:\n    time.sleep(0.1)\n"
    assert "took longer than" in ended(folder, text, seconds=0.05)


@pytest.mark.parametrize("how", ["os._exit(3)", "os.abort()"])
def test_a_program_that_ends_its_process(folder, how):
    code = {"os._exit(3)": "with code 3", "os.abort()": "by signal 6"}[how]
    assert f"ended its process {code} before" in ended(folder, f"import os\n{how}\n")


def test_a_program_that_exits_early(folder):
    said = ended(folder, "import sys\nprint('no data')\nsys.exit(0)\n")
    assert "ended with exit code 0 before its second step" in said
    assert "no data" in said


def test_a_program_that_catches_everything(folder):
    assert "the program catches BaseException" in ended(folder, CATCHES)


def test_a_program_that_takes_all_memory(folder):
    text = "held = []\nwhile True:\n    held.append(bytearray(1 << 28))\n"
    said = ended(folder, text, memory_bytes=6 << 30)
    assert "MemoryError" in said


def test_of_much_output_the_end_is_shown(folder):
    text = "for i in range(100_000):\n    print('line', i)\nraise RuntimeError('done')\n"
    said = ended(folder, text)
    assert "RuntimeError at" in said
    assert "done" in said
    assert "line 5\n" not in said
    assert len(said) < 4000


def test_what_a_program_forks_ends_with_it(folder):
    pids = folder / "pids"
    text = (
        "import os, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(600)\n"
        f"open({str(pids)!r}, 'w').write(str(child))\n"
        "os._exit(0)\n"
    )
    assert "ended its process with code 0" in ended(folder, text)
    pid = int(pids.read_text())
    until(lambda: has_ended(pid), "the forked process")


def has_ended(pid):
    """Whether a process is gone, or a zombie that waits for whoever adopted it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def test_a_compiled_model_is_captured_eagerly_and_noted(folder):
    script = folder / "train.py"
    script.write_text(LOOP + "model = torch.compile(model)\nfor _ in range(3):\n    step()\n")
    (found,) = capture_program(CaptureSpec(adapter="script", world=4, arguments=(str(script),)))
    assert found.notes == (
        "the program compiles its model with torch.compile: it was captured in eager mode",
    )


def test_adapters_are_chosen_by_the_module_or_the_imports_of_a_script(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\nfrom transformers import Trainer\n")
    assert adapter_of(["-m", "torchtitan.train", "--module", "llama3"]) == "torchtitan"
    assert adapter_of(["-m", "mine.train"]) == "script"
    assert adapter_of([str(script)]) == "transformers"
    assert adapter_of(["absent.py"]) == "script"
