"""Made-up verdicts for tests."""

from dataclasses import replace

from scalewise.evidence.validate import Verdict


def verdict(predicted=None, measured=None, **changes):
    """A made-up row whose interval is 10 % to both sides."""
    plain = Verdict(
        id="made",
        source="me",
        status="ok",
        quality="ok",
        dense=True,
        strategy="ddp8",
        measured_tokens_per_second=measured,
        predicted_tokens_per_second=predicted,
        low=None if predicted is None else 0.9 * predicted,
        high=None if predicted is None else 1.1 * predicted,
        error=predicted / measured - 1.0 if predicted and measured else None,
        group=("me", "toy", "h100", 8, "bf16"),
    )
    return replace(plain, **changes)


def sweep(predicted, measured, simplicity=None):
    return [
        verdict(p, m, strategy=f"layout{i}", simplicity=(simplicity or [(1, 1, 0.0)] * 9)[i])
        for i, (p, m) in enumerate(zip(predicted, measured, strict=True))
    ]
