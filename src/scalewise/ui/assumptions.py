"""Constants behind an estimate: value, source, and the effect of a tenth more and less.

    answer = assumptions_answer(Question())
    answer["rows"][0]        # key, value, unit, source, effects on time, cost and energy

`--set` and the address of the web UI take a row's `key`, `=` and a value. Effects that are not
modeled are listed with the direction of their error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.question import Question
from scalewise.cluster import ACCELERATOR_UNITS, CLUSTER_UNITS, FABRIC_UNITS, Accelerator
from scalewise.errors import ScalewiseError
from scalewise.fields import replace
from scalewise.precision import RECIPES
from scalewise.report.sensitivity_table import lead
from scalewise.step.estimate import estimate
from scalewise.ui.inputs import Answered, resolve
from scalewise.ui.requests import docs_of
from scalewise.units import (
    FORMATS,
    format_bit_rate,
    format_dollars,
    format_flops,
)

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.stack import Stack
    from scalewise.step.result import Estimate

STEP = 1.1
"""Factor of the change: a tenth more, and as much less."""

CLUSTER_FIELDS = (
    "usd_per_hour", "pue", "scale_out_bandwidth", "scale_up_bandwidth", "oversubscription",
    "host_watts", "network_watts",
)  # fmt: skip
CHIP_FIELDS = ("memory_bandwidth", "memory_bytes", "tdp_watts", "idle_watts")
FABRIC_FIELDS = (
    "efficiency", "hop_seconds", "call_seconds", "ring_step_seconds", "congestion",
    "latency_factor",
)  # fmt: skip


NOT_MODELED = (
    ("waiting for the cluster, and losses of many nodes at once", "too fast",
     "goodput has failures of single nodes, restarts and checkpoints"),
    ("traffic of other jobs", "too fast",
     "oversubscription is modeled, congestion by other jobs is not"),
    ("data loading, evaluation and logging", "too fast", "they can stall a step"),
    ("partial and adaptive offload", "too slow",
     "offload moves all of a kind; ratios, delayed and speculative updates are not modeled"),
    ("kernels newer than the runs behind the stack", "too slow",
     "constants are those of the software that was measured"),
    ("convergence", "either way", "the effect of the batch on the loss is off by default"),
    ("routing of tokens to experts", "too fast",
     "experts get equally many tokens unless imbalance or capacity says otherwise"),
)  # fmt: skip
"""(effect, direction of the error, reason)."""


def assumptions_answer(question: Question) -> dict[str, Any]:
    """Return every constant behind an estimate.

    Raises:
        InputError: If the question is invalid.
    """
    answered = resolve(question)
    e = answered.estimate
    changed = {text.partition("=")[0].strip() for text in question.sets}
    rows = [row for row in _rows(e)]
    for row in rows:
        row["changed"] = row["key"] in changed
    return {
        "question": msgspec.to_builtins(answered.question),
        "rows": rows,
        "step": STEP,
        "provenance": e.provenance,
        "warnings": list(e.warnings),
        "changes": list(answered.asked.changes),
        "interval": [e.low / e.tokens_per_second_per_accelerator,
                     e.high / e.tokens_per_second_per_accelerator],
        "stack": {
            "name": e.stack.name,
            "fitted_on": e.stack.fitted_on,
            "largest_run": e.stack.largest_run,
            "undetermined": list(e.stack.undetermined),
        },
        "defaults": defaults(answered),
        "not_modeled": [
            {"what": what, "errs": errs, "why": why} for what, errs, why in NOT_MODELED
        ],
    }  # fmt: skip


def defaults(answered: Answered) -> list[dict[str, Any]]:
    """What was chosen for the user, and why."""
    return [{"flag": each.flag, "value": each.value, "why": each.why} for each in answered.defaults]


def _rows(e: Estimate) -> Iterator[dict[str, Any]]:
    cluster, chip, stack = e.cluster, e.cluster.accelerator, e.stack
    source = cluster.source or chip.source

    def on_cluster(name: str, factor: float) -> tuple[Cluster, Stack]:
        return cluster.with_(**{name: getattr(cluster, name) * factor}), stack

    def on_chip(name: str, factor: float) -> tuple[Cluster, Stack]:
        changed = chip.with_(**{name: getattr(chip, name) * factor})
        return cluster.with_(accelerator=changed), stack

    def on_fabric(name: str, factor: float) -> tuple[Cluster, Stack]:
        value = getattr(cluster.fabric, name) * factor
        return cluster.with_(fabric=replace(cluster.fabric, **{name: value})), stack

    def on_stack(name: str, factor: float) -> tuple[Cluster, Stack]:
        value = getattr(stack, name) * factor
        return cluster, replace(stack, **{name: value})

    def on_peak(name: str, factor: float) -> tuple[Cluster, Stack]:
        peaks = dict(chip.peak_flops)
        peaks[name] *= factor
        return cluster.with_(accelerator=chip.with_(peak_flops=peaks)), stack

    for name in CLUSTER_FIELDS:
        row = _row(e, "cluster", cluster, name, CLUSTER_UNITS.get(name), source, on_cluster)
        if name == "usd_per_hour" and row is not None:
            row["range"] = _prices(chip)
            if (price := cluster.price) is not None and price.source:
                row["source"] = f"{price.words}: {_plain(price.source)}"
        if row is not None:
            yield row
    precision = e.strategy.precision or e.workload.precision
    dtype = RECIPES[precision].peak
    yield {
        "key": f"accelerator.peak_flops.{dtype}",
        "part": "accelerator",
        "words": f"Dense peak in {dtype}, one accelerator.",
        "value": chip.peak_flops[dtype],
        "shown": format_flops(chip.peak_flops[dtype]),
        "source": _plain(chip.source),
        "range": None,
        **_effect(e, dtype, on_peak),
    }
    for name in CHIP_FIELDS:
        row = _row(e, "accelerator", chip, name, ACCELERATOR_UNITS.get(name), chip.source, on_chip)
        if row is not None:
            yield row
    for name in FABRIC_FIELDS:
        fabric = cluster.fabric
        row = _row(e, "fabric", fabric, name, FABRIC_UNITS.get(name), fabric.source, on_fabric)
        if row is not None:
            yield row
    for field in msgspec.structs.fields(type(stack)):
        if field.type is float:
            kind = next((k for k in ("seconds", "bytes") if field.name.endswith("_" + k)), None)
            # Only sizes are bytes: "optimizer_bytes" is a count per parameter.
            kind = None if kind == "bytes" and getattr(stack, field.name) < 1e6 else kind
            row = _row(e, "stack", stack, field.name, kind, stack.fitted_on, on_stack)
            if row is not None:
                row["undetermined"] = field.name in stack.undetermined
                yield row


def _row(
    e: Estimate,
    part: str,
    noun: msgspec.Struct,
    name: str,
    kind: str | None,
    source: str,
    change: Callable[[str, float], tuple[Cluster, Stack]],
) -> dict[str, Any] | None:
    value = getattr(noun, name)
    if value is None:
        return None
    shown = FORMATS[kind](value) if kind is not None and kind in FORMATS else f"{value:g}"
    if name == "scale_out_bandwidth":
        shown = format_bit_rate(value)
    return {
        "key": f"{part}.{name}",
        "part": part,
        "words": docs_of(type(noun)).get(name, ""),
        "value": value,
        "shown": shown,
        "source": _plain(source),
        "range": None,
        **_effect(e, name, change),
    }


def _effect(
    e: Estimate, name: str, change: Callable[[str, float], tuple[Cluster, Stack]]
) -> dict[str, Any]:
    """Return relative changes of time, cost and energy for a tenth more and a tenth less.

    None where the changed value is out of bounds.
    """
    answer: dict[str, Any] = {"time": [None, None], "usd": [None, None], "joules": [None, None]}
    for place, factor in enumerate((STEP, 1.0 / STEP)):
        try:
            cluster, stack = change(name, factor)
            other = estimate(e.model, cluster, e.workload, e.strategy, stack=stack)
        except ScalewiseError:
            # Out of bounds: a fraction above 1, idle power above the limit.
            continue
        answer["time"][place] = other.step_seconds / e.step_seconds - 1.0
        answer["usd"][place] = _share(other.usd_per_million_tokens, e.usd_per_million_tokens)
        answer["joules"][place] = _share(other.joules_per_token, e.joules_per_token)
    return answer


def _share(new: float | None, old: float | None) -> float | None:
    return None if not new or not old else new / old - 1.0


def _prices(chip: Accelerator) -> str | None:
    if chip.usd_per_hour_low is None or chip.usd_per_hour_high is None:
        return None
    low, high = format_dollars(chip.usd_per_hour_low), format_dollars(chip.usd_per_hour_high)
    return f"{low} to {high}" + (f" ({chip.price_date})" if chip.price_date else "")


def _plain(text: str) -> str:
    return " ".join(text.split())


def sensitivity_answer(question: Question) -> dict[str, Any]:
    """Return the gains of upgrades with a fixed strategy.

    Raises:
        InputError: If the question is invalid.
    """
    found = resolve(question).asked.sensitivity()
    return {"lead": lead(found), **found.to_dict()}
