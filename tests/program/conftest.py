"""Most captures are forks of a process with PyTorch; test_program_robust.py starts its own."""

import subprocess
from types import SimpleNamespace

import pytest


@pytest.fixture(autouse=True)
def captures(request, monkeypatch):
    if request.path.stem not in ("test_program_script", "test_program_gloo"):
        return
    pytest.importorskip("torch", reason="needs the extra `measure`")
    import warm
    from scalewise.program import run

    forked = SimpleNamespace(**vars(subprocess) | {"Popen": warm.Popen})
    monkeypatch.setattr(run, "subprocess", forked)
