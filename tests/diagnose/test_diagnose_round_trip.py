"""A plan exported to a framework's configuration asks the same question when it comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from frameworks.test_frameworks_export import CONFIGS, DATA, GOLDEN, OPEN, golden
from scalewise.diagnosis.measured import parse_measured
from scalewise.diagnosis.sources import from_sources

LEFT = {"torchtitan-0.2": ("overlap_tp",), "deepspeed": ("recompute",)}
"""Facts of a strategy that the export warns of, because the program decides them."""


@pytest.mark.parametrize("target", GOLDEN)
def test_the_golden_export_is_the_question(target: str, tmp_path: Path) -> None:
    plan = golden(target)
    path = tmp_path / CONFIGS[target]
    shutil.copy(DATA / target / f"{path.name}.txt", path)
    words = {"on": "dgx-h100", "gpus": "512", "stack": GOLDEN[target][2]}
    words |= {
        name: str(value)
        for name in OPEN.get(target, ())
        if (value := getattr(plan.question, name)) is not None
    }
    found = from_sources([str(path)], words, parse_measured(["5000 tok/s"]))
    asked, usual = found.asked.estimate(), plan.estimate()
    assert asked.model.parameters == usual.model.parameters
    left = {name: getattr(plan.strategy, name) for name in LEFT.get(target, ())}
    assert str(asked.strategy.with_(**left)) == str(usual.strategy)
    assert asked.workload.global_batch == usual.workload.global_batch
    assert asked.workload.seq_len == usual.workload.seq_len
    assert asked.workload.precision == usual.workload.precision
    assert asked.stack.name == usual.stack.name
    if not left:
        rate = asked.tokens_per_second_per_accelerator
        assert rate == pytest.approx(usual.tokens_per_second_per_accelerator, rel=1e-6)
    assert found.runs[0].rate == pytest.approx(5000.0)
