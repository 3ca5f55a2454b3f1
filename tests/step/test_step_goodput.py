"""Goodput of an estimate: state from its memory model, losses that add up, settings that count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalewise as sw
from scalewise.reliability import load_reliability, parse_reliability
from scalewise.step.goodput import goodput, recovery, state_bytes

LLAMA = sw.estimate("llama-2-7b", on="dgx-h100", gpus=2048, strategy="fsdp2048-mb2")
SMALL = sw.estimate("llama-2-7b", on="dgx-h100", gpus=8, strategy="fsdp8-mb1", batch=64)


def of(e, text=None):
    return goodput(e, parse_reliability(text))


def test_state_is_fourteen_bytes_per_parameter_of_adamw():
    parameters = LLAMA.model.parameters
    assert state_bytes(LLAMA) == pytest.approx(14.0 * parameters)
    for words, each in (
        ({"weights": "fp32"}, 12.0), ({"weights": "bf16"}, 10.0), ({"optimizer": "sgd"}, 6.0),
        ({"optimizer": "lion"}, 10.0),
    ):  # fmt: skip
        e = sw.estimate("llama-2-7b", on="dgx-h100", gpus=64, strategy="fsdp64-mb1", **words)
        assert state_bytes(e) == pytest.approx(each * parameters), words


def test_bloom_saves_about_its_published_size():
    e = sw.estimate("bloom-176b", on="dgx-a100", gpus=384, strategy="tp4-pp12-zero1x8-mb2")
    # Published as 2.3 TB, TB or TiB.
    assert state_bytes(e) == pytest.approx(2.47e12, rel=0.01)


def test_only_what_is_trained_is_saved():
    e = sw.estimate(
        "llama-2-7b", on="dgx-h100", gpus=8, strategy="fsdp8-mb1", batch=64, tuning="lora16"
    )
    assert state_bytes(e) == pytest.approx(14.0 * e.trained_parameters)


def test_times_of_checkpoints_and_restarts():
    usual = load_reliability("usual")
    times = recovery(LLAMA, usual, usual.failure_rate)
    assert times.write == pytest.approx(4.7 + 14.0 * 6.738e9 / 204.8e9, rel=1e-3)
    assert times.start == pytest.approx(454.0)
    # 14 bytes of a 2,048th of the parameters over PCIe 5.0.
    assert times.snapshot == pytest.approx(1.0, abs=0.01)


def test_usual_goodput():
    g = of(LLAMA)
    assert g.fraction == pytest.approx(0.9775, abs=1e-4)
    assert (g.low, g.high) == (pytest.approx(0.9558, abs=1e-4), pytest.approx(0.9864, abs=1e-4))
    assert g.mtbf / 3600.0 == pytest.approx(17.90, abs=0.01)
    assert g.interval / 60.0 == pytest.approx(13.53, abs=0.05)
    assert list(g.losses) == ["checkpoint", "rework", "restart", "planned stops", "stragglers"]


@pytest.mark.parametrize(
    "text",
    [None, "async", "spares=4", "stragglers=3%", "interval=2h", "restart=5min,checkpoint=1min"],
)
@pytest.mark.parametrize("e", [LLAMA, SMALL])
def test_losses_add_up(e, text):
    g = of(e, text)
    assert sum(g.losses.values()) == pytest.approx(1.0 - g.fraction, abs=1e-12)
    assert 0.0 < g.low <= g.fraction <= g.high <= 1.0


def test_no_failures_no_losses():
    g = of(SMALL, "rate=0")
    assert (g.fraction, g.low, g.high) == (1.0, 1.0, 1.0)
    assert g.interval is None
    assert of(SMALL, "rate=0,stragglers=2%").fraction == pytest.approx(0.98)


@given(
    st.floats(1e-4, 1e-1), st.floats(0.0, 3600.0), st.floats(0.1, 3600.0), st.booleans(),
)  # fmt: skip
def test_asynchronous_is_never_worse(rate, restart, checkpoint, small):
    text = f"rate={rate}/node-day,restart={restart}s,checkpoint={checkpoint}s"
    e = SMALL if small else LLAMA
    assert of(e, text + ",async").fraction >= of(e, text).fraction


def test_an_asynchronous_checkpoint_waits_for_the_one_before():
    g = of(LLAMA, "rate=1e-2/node-day,checkpoint=5min,async")
    assert g.asynchronous
    assert g.interval == 300.0
    assert of(LLAMA, "checkpoint=5min,interval=1min,async").interval >= 60.0
    often = of(LLAMA, "rate=1e-1/node-day,checkpoint=5min,interval=1min,async")
    assert not often.asynchronous or often.interval == 300.0
    assert g.checkpoint < 2.0


def test_spares_shorten_restarts_and_cost():
    without, four = of(LLAMA), of(LLAMA, "spares=4")
    assert without.recovery.unavailable == 1.0
    assert four.recovery.unavailable == pytest.approx(0.0478, abs=1e-4)
    assert four.recovery.restart < 0.4 * without.recovery.restart
    assert four.cost_factor == pytest.approx(1.0 + 4.0 / 256.0)
    assert without.cost_factor == 1.0
    # With too few of them the job requeues.
    assert of(LLAMA, "spares=1").recovery.restart > 0.7 * without.recovery.restart


def test_stated_numbers_are_taken():
    g = of(LLAMA, "rate=3.8e-3/node-day,restart=5min,checkpoint=20s,interval=30min")
    assert (g.recovery.restart, g.checkpoint, g.interval) == (300.0, 20.0, 1800.0)
    assert g.low == g.fraction == g.high


def test_planned_stops_cost_a_restart_without_detection():
    without, g = of(LLAMA, "planned=0"), of(LLAMA)
    assert without.losses["planned stops"] == 0.0
    share = 0.112 * (g.recovery.restart - 107.0 + g.recovery.write) / g.mtbf
    assert g.losses["planned stops"] == pytest.approx(share / (1.0 + share))
