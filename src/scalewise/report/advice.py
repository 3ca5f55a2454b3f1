"""What could be done about the largest avoidable cost? One or two sentences, tried before said.

    advice(e)[0]     # "Contention ... is the largest avoidable cost: 23.8 % of the step. Try
                     #  hsdp32x64-mb2 (sharded in groups of 64 ranks): 9,780 tokens/s ..., +22 %."

Every change that is proposed was estimated with the same model, cluster and software, in one
vectorised call; nothing is proposed that the estimate itself does not support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from scalewise.errors import InputError
from scalewise.report.words import grouped, term_label
from scalewise.step.estimate import estimate
from scalewise.units import format_percent

if TYPE_CHECKING:
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy

# What a strategy can change; the rest is the work itself.
AVOIDABLE = (
    "recompute",
    "host",
    "tensor_parallel",
    "context_parallel",
    "data_parallel_gather",
    "data_parallel_reduce",
    "contention",
    "bubble",
    "pipeline_send",
    "overhead",
)

MOST_BATCH = 2**26
"""Largest batch that may still be doubled."""

WORTH_SAYING = 0.02
"""Smallest gain in throughput, and smallest share of a term, that is mentioned."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One change that was estimated."""

    strategy: Strategy
    """What was tried."""
    why: str
    """What differs, in words."""
    batch: int
    """With which global batch, sequences."""
    gain: float
    """Throughput over the original, minus 1."""
    rate: float
    """Tokens/s per accelerator."""


def advice(e: Estimate) -> tuple[str, ...]:
    """Name the largest avoidable term, and the best change that was tried.

    Args:
        e: The estimate.

    Returns:
        One or two sentences.
    """
    trials = sorted(_trials(e), key=lambda trial: -trial.gain)
    if e.infeasible is not None:
        return _to_fit(trials)
    name = max(AVOIDABLE, key=lambda term: e.terms.get(term, 0.0))
    share = e.terms.get(name, 0.0) / e.step_seconds
    first = "No avoidable cost takes more than 2 % of the step."
    if share >= WORTH_SAYING:
        label = term_label(name)
        first = f"{label[:1].upper()}{label[1:]} is the largest avoidable cost: "
        first += f"{format_percent(share)} of the step."
    better = [trial for trial in trials if trial.gain > WORTH_SAYING]
    same = [trial for trial in better if trial.batch == e.workload.global_batch]
    larger = [trial for trial in better if trial.batch != e.workload.global_batch]
    if not better:
        return (f"{first} No single change that was tried gains more than 2 %.",)
    told = [f"{first} Try {_told(same[0])}." if same else first]
    if larger and (not same or larger[0].gain > same[0].gain + WORTH_SAYING):
        told.append(f"With a global batch of {larger[0].batch:,}, {_told(larger[0])}.")
    return tuple(told)


def _to_fit(trials: list[Trial]) -> tuple[str, ...]:
    """Name the fastest change that can run."""
    if not trials:
        return ("No single change that was tried fits: use more accelerators, or several changes.",)
    best = trials[0]
    rate = grouped(best.rate)
    return (f"{best.strategy} ({best.why}) fits: {rate} tokens/s per accelerator predicted.",)


def _told(trial: Trial) -> str:
    rate = grouped(trial.rate)
    return (
        f"{trial.strategy} ({trial.why}): {rate} tokens/s per accelerator predicted, "
        f"{trial.gain * 100:+.0f} %"
    )


def _trials(e: Estimate) -> list[Trial]:
    """Estimate every neighbour; only what can run comes back."""
    batch = e.workload.global_batch
    found = _tried(e, neighbours(e), batch)
    if e.infeasible is None and batch <= MOST_BATCH:
        # The batch belongs to whoever trains the model, so a larger one is told apart.
        doubled = {"twice the micro steps": _changed(e.strategy)}
        doubled["twice the micro batch"] = _changed(
            e.strategy, micro_batch=2 * e.strategy.micro_batch
        )
        found += _tried(e, {why: s for why, s in doubled.items() if s is not None}, 2 * batch)
    return found


def _tried(e: Estimate, strategies: dict[str, Strategy], batch: int) -> list[Trial]:
    work = msgspec.structs.replace(e.workload, global_batch=batch)
    if not strategies:
        return []
    many = estimate(
        e.model,
        e.cluster,
        work,
        list(strategies.values()),
        stack=e.stack,
        convention=e.convention,
    )
    rates = many.tokens_per_second_per_accelerator
    return [
        Trial(
            strategy=strategy,
            why=why,
            batch=batch,
            gain=float(rates[row]) / e.tokens_per_second_per_accelerator - 1.0,
            rate=float(rates[row]),
        )
        for row, (why, strategy) in enumerate(strategies.items())
        if bool(many.feasible[row])
    ]


def neighbours(e: Estimate) -> dict[str, Strategy]:
    """List the strategies that differ from the estimated one in one decision.

    Args:
        e: The estimate.

    Returns:
        What changes, in words, and the strategy, on the same accelerators and with the same
        global batch; not all of them can run.
    """
    s = e.strategy
    found: dict[str, Strategy | None] = {
        "twice the micro batch": _changed(s, micro_batch=2 * s.micro_batch),
        "half the micro batch": _halved(s, "micro_batch"),
        "nothing recomputed": _changed(s, recompute="none"),
        "only attention recomputed": _changed(s, recompute="selective"),
        "everything recomputed": _changed(s, recompute="full"),
        **_other_groups(e),
    }
    for axis, words in AXES.items():
        found[f"half the {words}"] = _exchanged(s, axis, up=False)
        found[f"twice the {words}"] = _exchanged(s, axis, up=True)
    if s.pp > 1:
        twice = 2 * s.virtual_stages
        found[f"{twice} virtual stages"] = _changed(s, virtual_stages=twice, schedule="interleaved")
    if not s.overlap_dp:
        found["overlapped communication"] = _changed(s, overlap_dp=True)
    return {why: each for why, each in found.items() if each is not None and each != s}


AXES = {"tp": "tensor parallelism", "pp": "pipeline stages", "cp": "context parallelism"}


def _other_groups(e: Estimate) -> dict[str, Strategy | None]:
    """Shard among fewer ranks, in groups that fill whole scale-up domains; or the other way."""
    s, ranks = e.strategy, e.strategy.data_parallel
    if s.sharding == "ddp":
        return {
            "optimizer sharded": _changed(s, sharding="zero1", dp_shard=ranks, dp_replicate=1),
            "fully sharded": _changed(s, sharding="zero3", dp_shard=ranks, dp_replicate=1),
        }
    kinds = {"zero1": "only the optimizer sharded", "zero3": "fully sharded"}
    groups: dict[str, Strategy | None] = {
        words: _changed(s, sharding=kind) for kind, words in kinds.items() if kind != s.sharding
    }
    shard = max(e.cluster.scale_up_domain // (s.tp * s.cp), 1)
    while shard <= ranks:
        if ranks % shard == 0 and shard != s.dp_shard:
            groups[f"sharded in groups of {shard:,} ranks"] = _changed(
                s, dp_shard=shard, dp_replicate=ranks // shard
            )
        shard *= 2
    return groups


def _exchanged(s: Strategy, axis: str, *, up: bool) -> Strategy | None:
    """Double or halve one degree, and let data parallelism take up the difference."""
    degree = getattr(s, axis)
    data = "dp_replicate" if s.sharding == "ddp" else "dp_shard"
    ranks = getattr(s, data)
    if up:
        return None if ranks % 2 else _changed(s, **{axis: 2 * degree, data: ranks // 2})
    return None if degree % 2 else _changed(s, **{axis: degree // 2, data: 2 * ranks})


def _halved(s: Strategy, field: str) -> Strategy | None:
    value = getattr(s, field)
    return None if value % 2 else _changed(s, **{field: value // 2})


def _changed(s: Strategy, **changes: object) -> Strategy | None:
    """Return the changed strategy, or None where it contradicts itself."""
    # A stated accumulation belongs to the old split; the batch decides about the new one.
    changes.setdefault("accumulation", None)
    if changes.get("pp") == 1:
        changes |= {"virtual_stages": 1, "schedule": "1f1b"}
    if "pp" in changes:
        changes |= {"first_stage_layers": None, "last_stage_layers": None}
    try:
        return s.with_(**changes)
    except InputError:
        return None
