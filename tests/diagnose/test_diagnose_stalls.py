"""What stalls of a log cost, and what they say of causes."""

from __future__ import annotations

import numpy as np
import pytest

import scalewise as sw
from logs.log_files import DATA
from scalewise.diagnosis.evidence import PADDED, Evidence, log_evidence
from scalewise.diagnosis.logs import from_log
from scalewise.diagnosis.predict import predict
from scalewise.diagnosis.stalls import stall_costs


def test_checkpoints_are_spread_over_the_steps() -> None:
    said = from_log(str(DATA / "torchtitan.log")).said
    (cost,) = stall_costs(said, 1.3182)
    # 2.77% of the time: 1.3182 s / (1 - 0.0277) * 0.0277 per step, and 1 / (1 - 0.0277) without.
    assert cost.cause == "checkpoint"
    assert cost.fraction == pytest.approx(0.02774, abs=1e-4)
    assert cost.seconds_per_step == pytest.approx(0.03762, rel=5e-3)
    assert cost.gain == pytest.approx(0.02854, rel=5e-3)


def test_the_verdict_is_about_the_steady_step() -> None:
    found = sw.diagnose(source=DATA / "torchtitan.log")
    assert found.verdict == "normal"
    assert found.runs[0].measured == pytest.approx(6207.0)
    assert [each.cause for each in found.stalls] == ["checkpoint"]
    assert found.to_dict()["stalls"][0]["mend"] == "asynchronous or rarer checkpoints"


def test_waiting_for_data_has_its_cost() -> None:
    found = sw.diagnose(
        "llama-3-8b", "oci-h100", gpus=32, strategy="fsdp32-mb1-acop", seq=8192, batch=32,
        source=DATA / "wandb.csv",
    )  # fmt: skip
    (cost,) = found.stalls
    assert cost.cause == "data"
    assert cost.fraction == pytest.approx(0.329, abs=2e-3)
    # 8,192 tokens at 4,116 tok/s per GPU are 1.990 s.
    assert cost.seconds_per_step == pytest.approx(0.329 * 1.990, rel=1e-2)


def test_steady_steps_have_no_stalls_between_them() -> None:
    e = sw.estimate("llama-3-8b", "dgx-h100", gpus=32, strategy="fsdp32-mb1", seq=8192, batch=32)
    table = predict([e], by_time=[False], by_flops=[False], judged=1)
    said = log_evidence(table, Evidence(steady=True))
    padded = table.cause == table.keys.index("padding")
    assert padded.any()
    assert np.exp(said[padded]) == pytest.approx(PADDED)
    assert not said[~padded].any()
