"""Statistical efficiency of a batch, refusals, and the knee of weak scaling with it."""

import pytest

import scalewise as sw
from scalewise.errors import InputError
from scalewise.metrics import METRICS


def of(critical_batch, tokens="300B", model="llama-2-7b", **words):
    return sw.estimate(
        model, on="dgx-h100", gpus=64, strategy="fsdp64-mb2", batch=1024, tokens=tokens,
        critical_batch=critical_batch, **words,
    )  # fmt: skip


def test_off_unless_asked_for():
    assert of(None).statistical is None
    assert of(None).to_dict()["statistical_efficiency"] is None


def test_laws_have_a_range():
    u = of("laws").statistical
    assert u.batches == {
        "kaplan": pytest.approx(5.42e6, rel=0.01),
        "step law": pytest.approx(2.08e6, rel=0.01),
        "deepseek": pytest.approx(4.86e6, rel=0.01),
    }
    batch = 1024 * 4096
    assert u.low == pytest.approx(1.0 / (1.0 + batch / u.batches["step law"]))
    assert u.high == pytest.approx(1.0 / (1.0 + batch / u.batches["kaplan"]))
    assert u.low < u.fraction < u.high


def test_a_measured_batch_has_none_without_its_data():
    u = of("0.8Mtok,20%").statistical
    assert u.batches == {"measured": pytest.approx(4e6)}
    assert u.low == u.fraction == u.high
    assert u.fraction == pytest.approx(1.0 / (1.0 + 1024 * 4096 / 4e6))


def test_an_anchored_batch_takes_published_exponents():
    u = of("2Mtok@100B").statistical
    assert u.batches == {
        "zhang": pytest.approx(2e6 * 3.0**0.47),
        "bergsma": pytest.approx(2e6 * 3.0**0.462),
        "step law": pytest.approx(2e6 * 3.0**0.571),
    }


@pytest.mark.parametrize(
    ("critical_batch", "tokens", "model", "message"),
    [
        ("laws", "15T", "llama-2-7b", "2,230 tokens for each"),
        ("laws", "10B", "llama-2-7b", "5 to 500 tokens per parameter"),
        ("laws", "2T", "gpt3-175b", "0.1B to 100B parameters"),
        ("2Mtok@100B", "15T", "llama-2-7b", "laws of the critical batch are used from"),
        ("laws", None, "llama-2-7b", "needs a token budget"),
    ],
)
def test_refused(critical_batch, tokens, model, message):
    with pytest.raises(InputError, match="critical-batch") as caught:
        of(critical_batch, tokens, model)
    assert message in str(caught.value)
    assert caught.value.field == "critical_batch"


def test_weak_scaling_has_a_knee_of_the_optimizer():
    asked = {"gpus": "8..2048", "weak": True, "strategy": "hsdp64", "tokens": "300B"}
    plain = sw.scale("llama-2-7b", "dgx-h100", **asked)
    effective = sw.scale("llama-2-7b", "dgx-h100", critical_batch="laws", **asked)
    assert plain.knees() == ()
    knee = effective.knees()[0]
    assert (knee.previous, knee.accelerators) == (128, 256)
    points = effective.curves[0].points
    assert [p.effective_tokens_per_second for p in points] == [
        pytest.approx(p.statistical_efficiency * p.tokens_per_second) for p in points
    ]
    # More GPUs never train slower, though each is worth less and less.
    rates = [p.effective_tokens_per_second for p in points]
    assert rates == sorted(rates)
    assert points[-1].statistical_efficiency < 0.25
    assert METRICS["statistical_efficiency"].show(points[0].statistical_efficiency) == "98.3%"
