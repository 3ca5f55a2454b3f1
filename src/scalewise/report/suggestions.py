"""Suggestions: the change of one decision that helps most, estimated before it is printed.

    suggestions(e)[0]     # "hsdp16x128-mb2 (shard in groups of 128 ranks): 11,100 tok/s/GPU, +18%"

Every change is estimated with the same model, cluster and software, in one vectorized call. A
suggestion fits with a chance of at least 90%, and gains at least 2%.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalewise.errors import InputError
from scalewise.explore.templates import filled_batch
from scalewise.offload import joined, offloads_of
from scalewise.recompute import recompute_words
from scalewise.report.words import chance, counted, device_word
from scalewise.step.estimate import CHOSEN_FIT, estimate
from scalewise.step.feasibility import OUT_OF_MEMORY
from scalewise.units import GIB, format_percent, grouped

if TYPE_CHECKING:
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy

MAX_BATCH = 2**26
"""Largest batch that may still grow, sequences."""

WORTH_SAYING = 0.02
"""Smallest gain in throughput that is suggested."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One change, estimated."""

    strategy: Strategy
    """The changed strategy."""
    why: str
    """What differs, in words."""
    batch: int
    """Global batch, sequences."""
    gain: float
    """Throughput relative to the original, minus 1."""
    rate: float
    """Tokens/s per accelerator."""
    fit: float
    """Chance to fit into memory, 0 to 1."""
    host: float
    """Memory of one host that offload takes, bytes."""


def suggestions(e: Estimate) -> tuple[str, ...]:
    """Return the best change at the same batch, and a larger batch where that gains more.

    Args:
        e: The estimate.

    Returns:
        Phrases, best first; empty where no change gains 2%.
    """
    word = device_word(e.cluster.accelerator.kind)
    everything = _tried(e, neighbors(e), e.workload.global_batch, fit=0.0)
    trials = [trial for trial in everything if trial.fit >= CHOSEN_FIT]
    trials.sort(key=lambda trial: -trial.gain)
    if e.infeasible is not None:
        return (_to_fit(trials, word) if trials else _nearest(everything, word),)
    if e.fit < CHOSEN_FIT and trials and trials[0].gain <= WORTH_SAYING:
        return (f"{_to_fit(trials, word)}, {_gain(trials[0])}",)
    if e.num_microbatches < e.strategy.pp:
        return (_fill_pipeline(e, word),)
    lines = []
    best = trials[0].gain if trials else 0.0
    if best > WORTH_SAYING:
        lines.append(_text(trials[0], word))
    larger = max(_doubled(e), key=lambda trial: trial.gain, default=None)
    if larger is not None and larger.gain > max(best, 0.0) + WORTH_SAYING:
        lines.append(f"--batch {larger.batch} with {_text(larger, word)}")
    return tuple(lines)


def _nearest(trials: list[Trial], word: str) -> str:
    """Return that no change fits, and which comes nearest."""
    text = (
        f"more {word}s, or several changes at once. No single change fits with a chance of "
        f"{chance(CHOSEN_FIT)}"
    )
    best = max(trials, key=lambda trial: trial.fit, default=None)
    return f"{text}; nearest: {best.strategy}, {chance(best.fit)}" if best else text


def _to_fit(trials: list[Trial], word: str) -> str:
    """Return the fastest change that fits."""
    best = trials[0]
    why = best.why
    if best.host:
        why += f", {grouped(best.host / GIB)} GiB per host"
    return (
        f"{best.strategy} ({why}) fits with a chance of {chance(best.fit)}: "
        f"{grouped(best.rate)} tok/s/{word}"
    )


def _fill_pipeline(e: Estimate, word: str) -> str:
    """Return the batch that fills a pipeline of which most stages wait for micro-batches."""
    s, batch = e.strategy, e.workload.global_batch
    count = counted(e.num_microbatches, "micro-batch")
    text = f"global batch is {batch:,}, {count} for {s.pp} pipeline stages: raise --batch"
    unchanged = _changed(s)
    full = s.data_parallel if unchanged is None else filled_batch(unchanged, s.data_parallel)
    if unchanged is None or full > MAX_BATCH:
        return text
    for trial in _tried(e, {"": unchanged}, full):
        text += f" to {full}, {grouped(trial.rate)} tok/s/{word}, {_gain(trial)}"
    return text


def _text(trial: Trial, word: str) -> str:
    return f"{trial.strategy} ({trial.why}): {grouped(trial.rate)} tok/s/{word}, {_gain(trial)}"


def _gain(trial: Trial) -> str:
    return format_percent(trial.gain, sign=True, decimals=0)


def _doubled(e: Estimate) -> list[Trial]:
    """Estimate twice the batch: it belongs to whoever trains the model, so it stands apart."""
    s, batch = e.strategy, e.workload.global_batch
    if batch > MAX_BATCH:
        return []
    found = {
        "twice the gradient accumulation steps": _changed(s),
        "twice the micro-batch": _changed(s, micro_batch=2 * s.micro_batch),
    }
    return _tried(e, {why: s for why, s in found.items() if s is not None}, 2 * batch)


def _tried(
    e: Estimate, strategies: dict[str, Strategy], batch: int, fit: float = CHOSEN_FIT
) -> list[Trial]:
    """Estimate strategies at a batch; only those that can run, and fit, are returned."""
    if not strategies:
        return []
    many = estimate(
        e.model,
        e.cluster,
        msgspec.structs.replace(e.workload, global_batch=batch),
        list(strategies.values()),
        stack=e.stack,
        convention=e.convention,
    )
    # What only memory forbids has a chance; other reasons are final.
    runs = (many.infeasible_code == 0) | (many.infeasible_code == OUT_OF_MEMORY)
    rates = many.tokens_per_second_per_accelerator
    on_hosts = np.broadcast_to(many.host_memory_bytes, rates.shape)
    return [
        Trial(
            strategy=strategy,
            why=why,
            batch=batch,
            gain=float(rates[row]) / e.tokens_per_second_per_accelerator - 1.0,
            rate=float(rates[row]),
            fit=float(many.fit_chance[row]),
            host=float(on_hosts[row]),
        )
        for row, (why, strategy) in enumerate(strategies.items())
        if bool(runs[row]) and float(many.fit_chance[row]) >= fit
    ]


def neighbors(e: Estimate) -> dict[str, Strategy]:
    """Return the strategies that differ from the estimated one in one decision.

    Args:
        e: The estimate.

    Returns:
        Strategies by what changes, in words, on the same GPUs and with the same global batch;
        not all of them can run.
    """
    s = e.strategy
    found: dict[str, Strategy | None] = {
        "twice the micro-batch": _changed(s, micro_batch=2 * s.micro_batch),
        "half the micro-batch": _halved(s, "micro_batch"),
        "micro-batch 1": _changed(s, micro_batch=1),
        "no recompute": _changed(s, recompute="none"),
        "selective recompute": _changed(s, recompute="selective"),
        **{recompute_words(k): _changed(s, recompute=k) for k in ("1of4", "1of2", "full")},
        "full recompute, micro-batch 1": _changed(s, recompute="full", micro_batch=1),
        **_other_groups(e),
        **_offloads(e),
    }
    for power in range(1, (s.micro_batch // 4).bit_length()):
        found[f"micro-batch {2**power}"] = _changed(s, micro_batch=2**power)
    for axis, words in AXES.items():
        found[f"half the {words}"] = _exchanged(s, axis, up=False)
        found[f"twice the {words}"] = _exchanged(s, axis, up=True)
    if e.model.moe is not None:
        found["half the EP degree"] = _halved(s, "ep")
        found["twice the EP degree"] = _changed(s, ep=2 * s.ep)
    if s.pp > 1:
        twice = 2 * s.virtual_stages
        found[f"{twice} virtual stages"] = _changed(s, virtual_stages=twice, schedule="interleaved")
    if not s.overlap_dp:
        found["overlapped DP communication"] = _changed(s, overlap_dp=True)
    # Of two ways to the same strategy the first is kept.
    ways: dict[Strategy, str] = {}
    for why, strategy in found.items():
        if strategy is not None and strategy not in (s, _changed(s)):
            ways.setdefault(strategy, why)
    return {why: strategy for strategy, why in ways.items()}


def _offloads(e: Estimate) -> dict[str, Strategy | None]:
    """Return what host memory could hold, where the device cannot; and no offload at all."""
    s, away = e.strategy, offloads_of(e.strategy.offload)
    found: dict[str, Strategy | None] = {"no offload": _changed(s, offload="")}
    if e.infeasible is None or not e.infeasible.startswith("memory"):
        return found
    found["optimizer state in host memory"] = _changed(s, offload=joined(["opt", *away]))
    found["activations in host memory"] = _changed(s, offload=joined([*away, "act"]))
    # Parameters leave the device with FSDP, of one rank too.
    sharded: dict[str, object] = {}
    if s.sharding != "zero3":
        sharded = {"sharding": "zero3", "dp_replicate": 1, "dp_shard": s.data_parallel}
    states = ["opt", "param", *away]
    both = _changed(s, **sharded, offload=joined(states))
    found["parameters and optimizer state in host memory"] = both
    everything = _changed(s, **sharded, offload=joined([*states, "act"]))
    found["states and activations in host memory"] = everything
    return found


AXES = {"tp": "TP degree", "pp": "pipeline stages", "cp": "CP degree"}


def _other_groups(e: Estimate) -> dict[str, Strategy | None]:
    """Return other sharding groups, which fill whole scale-up domains, and other ZeRO stages."""
    s, ranks = e.strategy, e.strategy.data_parallel
    if ranks == 1:
        return {}
    if s.sharding == "ddp":
        return {
            "ZeRO-1": _changed(s, sharding="zero1", dp_shard=ranks, dp_replicate=1),
            "fully sharded": _changed(s, sharding="zero3", dp_shard=ranks, dp_replicate=1),
        }
    kinds = {"zero1": "ZeRO-1", "zero3": "fully sharded"}
    groups: dict[str, Strategy | None] = {
        words: _changed(s, sharding=kind) for kind, words in kinds.items() if kind != s.sharding
    }
    shard = max(e.cluster.scale_up_domain // (s.tp * s.cp), 1)
    while shard <= ranks:
        if ranks % shard == 0 and shard != s.dp_shard:
            groups[f"shard in groups of {shard:,} ranks"] = _changed(
                s, dp_shard=shard, dp_replicate=ranks // shard
            )
        shard *= 2
    return groups


def _exchanged(s: Strategy, axis: str, *, up: bool) -> Strategy | None:
    """Double or halve one degree; data parallelism takes the other ranks."""
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
    # Stated accumulation steps belong to the old split; the batch gives the new ones.
    changes.setdefault("num_microbatches", None)
    if changes.get("pp") == 1:
        changes |= {"virtual_stages": 1, "schedule": "1f1b"}
    if "pp" in changes:
        changes |= {"first_stage_layers": None, "last_stage_layers": None}
    try:
        return s.with_(**changes)
    except InputError:
        return None
