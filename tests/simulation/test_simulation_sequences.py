"""Simulated steps with packed and padded documents, MLPs in tiles, and 32 bits."""

import pytest

from scalewise.catalog import load_cluster
from scalewise.model import load_model
from scalewise.simulation.simulate import timeline
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload


@pytest.mark.parametrize(
    ("spelled", "words"),
    [
        ("fsdp16-mb2-tilemlp4", {}),
        ("fsdp8-tp2-mb1-tilemlp8-acfull", {}),
        ("zero1x4-tp2-pp2-mb1-tilemlp2", {}),
        ("fsdp16-mb1-tf32", {}),
        ("zero2x8-tp2-mb1", {"precision": "fp32"}),
        ("fsdp16-mb2", {"lengths": "100..3000"}),
        ("fsdp8-cp2-mb2", {"lengths": "600"}),
        ("zero1x8-pp2-mb2", {"lengths": "600", "batching": "padded"}),
        ("fsdp16-mb2", {"lengths": "100..3000", "batching": "bucketed"}),
    ],
)
def test_simulation_and_closed_forms_agree(spelled, words):
    cluster = load_cluster("dgx-h100", accelerators=16)
    work = Workload(seq_len=4096, global_batch=64, **words)
    step = timeline(load_model("llama-3-8b"), cluster, work, parse_strategy(spelled))
    assert step.step_seconds == pytest.approx(step.estimate.step_seconds, rel=0.02)
    peak = max(sample.value for rank in step.ranks for sample in step.memory(rank))
    assert peak == pytest.approx(step.estimate.memory_bytes, rel=1e-3)
