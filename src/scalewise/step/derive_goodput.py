"""Derivations of a run: goodput, and the days, cost and energy that follow from it.

derive_run(e)[0].value                     # equals e.goodput.fraction
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.host import host_of
from scalewise.numeric import scalar

if TYPE_CHECKING:
    from scalewise.step.goodput import Goodput
    from scalewise.step.result import Estimate

DALY = "Daly, FGCS 22, 2006, equation 13, with planned stops and stragglers"


def derive_run(e: Estimate) -> list[Derivation]:
    """Return how goodput, days, cost and energy of the run come about; empty without either."""
    found, g = list[Derivation](), e.goodput
    if g is not None:
        found.append(_goodput(e, g))
    if e.days is None or e.workload.tokens is None:
        return found
    fraction = 1.0 if g is None else g.fraction
    days = Derivation(
        key="days",
        label="days of the run",
        formula="D / (X * g) / 86400",
        letters=(
            Letter("D", e.workload.tokens, "token budget"),
            Letter("X", e.tokens_per_second, "throughput of all GPUs", "tok/s"),
            Letter("g", fraction, "goodput" if g else "goodput: off"),
        ),
        unit="",
    )
    found.append(days)
    if e.run_usd is not None and e.usd_per_hour is not None:
        found.append(
            Derivation(
                key="run_usd",
                label="cost of the run",
                formula="c * 24 * d * k",
                letters=(
                    Letter("c", e.usd_per_hour, "all GPUs for an hour", "$"),
                    Letter("d", days.value, "days"),
                    Letter("k", 1.0 if g is None else g.cost_factor, "with spare nodes"),
                ),
                unit="$",
            )
        )
    if e.run_joules is not None and e.joules_per_token is not None:
        found.append(
            Derivation(
                key="run_joules",
                label="facility energy of the run",
                formula="J * D / g",
                letters=(
                    Letter("J", e.joules_per_token, "per token", "J"),
                    Letter("D", e.workload.tokens, "token budget"),
                    Letter("g", fraction, "goodput" if g else "goodput: off"),
                ),
                unit="J",
                notes=("lost time at the power of the step; idle spare nodes are left out",),
            )
        )
    return found


def _goodput(e: Estimate, g: Goodput) -> Derivation:
    """Goodput by Daly's exact form."""
    r, sources = g.reliability, g.reliability.sources
    lost = Letter("s", r.stragglers, "time lost to slow nodes")
    if g.mtbf is None or g.interval is None:
        return Derivation(
            key="goodput", label="goodput", formula="1 - s", letters=(lost,), unit="%",
            notes=("no failures, no checkpoints",),
        )  # fmt: skip
    wait = _wait(e, g)
    letters = [
        lost,
        Letter("t", g.interval, "training between checkpoints", "s"),
        Letter("M", g.mtbf, "mean time between failures", "s", _mtbf(e, g)),
        Letter("R", g.recovery.restart, "detection and restart", "s", _restart(e, g)),
        Letter("w", g.checkpoint, "wait for a checkpoint", "s", wait),
    ]
    late = "R"
    if g.asynchronous:
        late = "(R + L)"
        letters.append(Letter("L", g.recovery.write, "write behind the training", "s"))
    formula = f"(1 - s) * t / (M * exp({late} / M) * (exp((t + w) / M) - 1))"
    if r.planned:
        formula += " / (1 + p * Q / M)"
        letters += [
            Letter("p", r.planned, "planned stops per failure"),
            Letter("Q", g.recovery.planned, "time of one", "s"),
        ]
    lost_to = ", ".join(f"{cause} {part:.1%}" for cause, part in g.losses.items() if part)
    notes = [f"lost: {lost_to}"]
    if r.interval is None:
        at = "the write" if g.asynchronous and g.interval <= g.recovery.write else "best"
        notes.append(f"t: {at}; the best is x M with x + exp(-(x + w / M)) = 1, about sqrt(2 w M)")
    notes += [f"{field.replace('_', ' ')}: {' '.join(text.split())}"
              for field, text in sources.items() if text != "stated"]  # fmt: skip
    return Derivation(
        key="goodput", label="goodput", formula=formula, letters=tuple(letters), unit="%",
        notes=tuple(notes), source=DALY,
    )  # fmt: skip


def _mtbf(e: Estimate, g: Goodput) -> Derivation:
    rate = g.reliability.rates(e.cluster.accelerators)[1]
    return Derivation(
        key="mtbf",
        label="mean time between failures",
        formula="86400 / (n * f)",
        letters=(
            Letter("n", g.nodes, "nodes"),
            Letter("f", rate * 86400.0, "failures per node and day"),
        ),
    )


def _state(e: Estimate) -> Letter:
    """Bytes of a checkpoint."""
    from scalewise.step.goodput import state_bytes

    update, total = e.many.case.update, state_bytes(e)
    parts = (
        Letter("P", float(e.trained_parameters), "trained parameters"),
        Letter("W", scalar(update.weight_bytes), "weight", "B"),
        Letter("A", scalar(update.master_bytes), "master copy", "B"),
        Letter("O", scalar(update.host_moments), "optimizer state", "B"),
    )
    inner = Derivation(
        key="state", label="state", formula="P * (W + A + O)", letters=parts, unit="B"
    )
    even = abs(inner.value - total) <= 1e-12 * total
    return Letter("S", total, "state of a checkpoint", "B", inner if even else None)


def _rate(per_gpu: float | None, limit: float | None, e: Estimate) -> tuple[str, list[Letter]]:
    """Rate of storage as a formula and its letters; empty where nothing limits it."""
    parts, letters = [], list[Letter]()
    if per_gpu is not None:
        parts.append("G * b")
        letters += [
            Letter("G", float(e.cluster.accelerators), "GPUs"),
            Letter("b", per_gpu, "storage, per GPU", "B/s"),
        ]
    if limit is not None:
        parts.append("B")
        letters.append(Letter("B", limit, "storage, in all", "B/s"))
    if not parts:
        return "", []
    return (f"min({', '.join(parts)})" if len(parts) > 1 else f"({parts[0]})"), letters


def _wait(e: Estimate, g: Goodput) -> Derivation | None:
    """Time that training waits for a checkpoint."""
    r = g.reliability
    if g.asynchronous:
        if g.recovery.write < g.recovery.snapshot:
            return None
        return Derivation(
            key="checkpoint",
            label="copy to host memory",
            formula="v + Sr / H",
            letters=(
                Letter("v", r.snapshot_base, "planning", "s"),
                Letter("Sr", g.recovery.rank_bytes, "state of the worst rank", "B"),
                Letter("H", host_of(e.cluster).link, "link to the host", "B/s"),
            ),
        )
    if r.checkpoint is not None:
        return None
    rate, letters = _rate(r.write_per_gpu, r.storage, e)
    if not rate:
        return None
    return Derivation(
        key="checkpoint",
        label="write of a checkpoint",
        formula=f"v + S / {rate}",
        letters=(Letter("v", r.checkpoint_base, "planning and metadata", "s"), _state(e), *letters),
    )


def _restart(e: Estimate, g: Goodput) -> Derivation | None:
    """Time from a failure until the job trains again."""
    r, times = g.reliability, g.recovery
    if r.restart is not None:
        return None
    start = "start through the scheduler"
    if r.spares:
        start = f"start, mean; {1.0 - times.unavailable:.1%} on one of {r.spares:,} spare nodes"
    return Derivation(
        key="restart",
        label="restart",
        formula="d + q + l + u",
        letters=(
            Letter("d", times.detect, "detection", "s"),
            Letter("q", times.start, start, "s"),
            Letter("l", times.reload, "reload", "s"),
            Letter("u", times.warm_up, "warm-up", "s"),
        ),
    )
