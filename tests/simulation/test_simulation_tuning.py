"""Frozen models: simulated steps agree with estimates, in time and in memory."""

import sys
from pathlib import Path

import numpy as np
import pytest

from timeline_cases import line

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from timeline_agreement import collect

TUNINGS = ("lora0", "lora16", "lora8-qv", "lora64-attn", "qlora16")


def test_time_and_exposed_communication_agree():
    cases = collect(120, seed=4, tunings=TUNINGS)
    for each in ([case.step for case in cases], [case.exposed for case in cases]):
        differences = np.abs(each)
        assert np.median(differences) < 0.001
        assert np.quantile(differences, 0.9) < 0.02
        assert np.quantile(differences, 0.97) < 0.05
    assert {case.estimate.workload.tuning for case in cases} == set(TUNINGS)
    assert {case.estimate.strategy.sharding for case in cases} == {
        "ddp", "zero1", "zero2", "zero3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spelled", "tuning"),
    [
        ("fsdp64-mb2", "lora16"),
        ("fsdp64-mb2-acfull", "qlora64"),
        ("ddp64-mb1", "qlora16"),
        ("zero2x8-tp8-mb1-nosp", "lora8-qv"),
        ("tp4-pp4-zero1x4-mb1", "lora16-attn"),
        ("tp4-pp4-fsdp4-mb1-acfull", "qlora16"),
    ],
)
def test_the_peak_is_the_memory_of_the_estimate(spelled, tuning):
    step = line(spelled, "llama-2-7b", batch=256, tuning=tuning)
    peak = max(sample.value for rank in step.ranks for sample in step.memory(rank))
    assert peak == pytest.approx(step.estimate.memory_bytes, rel=1e-3)


def test_adapters_and_dequantization_are_kernels_of_a_layer():
    step = line("fsdp64-mb2-acfull", "llama-2-7b", batch=256, tuning="qlora16")
    names = {piece.name for piece in step.simulation.durations.forward_block.pieces}
    assert {"adapters", "dequantize"} <= names
    names = {piece.name for piece in step.simulation.durations.backward_block.pieces}
    assert {"adapters backward", "dequantize backward", "recompute"} <= names
