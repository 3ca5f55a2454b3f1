"""Why a run may look faster than it can be: conventions, sparse peaks, counted tokens.

faster(run)         # ("the predicted MFU is 41.0% as causal, 45.2% as palm, ...", ...)
"""

from __future__ import annotations

from scalewise.diagnosis.causes import CONVENTIONS
from scalewise.diagnosis.runs import Run
from scalewise.units import format_percent, grouped

NEAR = 1.1
"""Factor within which another way to count explains a number."""


def faster(run: Run) -> tuple[str, ...]:
    """Return ways to count that may explain a run beyond its range, those that match first.

    Args:
        run: The measured run.
    """
    e, unit = run.estimate, run.measurement.unit
    rate = e.tokens_per_second_per_accelerator
    more = run.rate / rate
    found: list[tuple[bool, str]] = []
    if unit in ("MFU", "TFLOP/s"):
        own = e.model.training_flops(e.workload.seq_len, e.convention)
        for name in CONVENTIONS:
            ratio = e.model.training_flops(e.workload.seq_len, name) / own
            if name != e.convention and ratio > 1.01:
                text = f"FLOPs counted as {name}: {format_percent(ratio - 1.0, sign=True)}"
                found.append((_near(more / ratio), f"{text} (--convention {name})"))
        if e.hfu > 1.01 * e.mfu:
            ratio = e.hfu / e.mfu
            text = f"recomputed FLOPs counted (HFU): {format_percent(ratio - 1.0, sign=True)}"
            found.append((_near(more / ratio), text))
    gpus = e.cluster.accelerators
    if unit == "tok/s" and gpus > 1:
        total = grouped(run.rate / gpus)
        found.append((_near(more / gpus), f"tokens/s of all GPUs: {total} tok/s/GPU then (total)"))
        node = min(e.cluster.scale_up_domain, gpus)
        if node < gpus:
            each = grouped(run.rate / node)
            found.append((_near(more / node), f"tokens/s of one node: {each} tok/s/GPU then"))
    if unit in ("tok/s", "tok/s total"):
        found.append((False, "padding tokens counted as trained ones"))
    if unit == "s/step":
        found.append((False, "a micro-step timed, and not a step of the whole batch (--batch)"))
    found.append((False, "a shorter sequence, less recompute or lower precision than stated"))
    found.sort(key=lambda pair: not pair[0])
    return tuple(f"{text} - matches" if near else text for near, text in found)


def slower(run: Run) -> str | None:
    """Return a way to count that makes a healthy run look slow, if it would explain the number.

    NVIDIA's datasheets print peaks with structured sparsity, twice the dense ones.

    Args:
        run: The measured run.
    """
    low, high = run.estimate.interval
    if run.measurement.unit == "MFU" and low <= 2.0 * run.rate <= high and run.rate < low:
        return (
            "an MFU over the peak with sparsity, twice the dense peak, would be normal: check "
            f"that it is over {run.estimate.peak_flops / 1e12:,.0f} TFLOP/s"
        )
    return None


def _near(left: float) -> bool:
    return 1.0 / NEAR < left < NEAR
