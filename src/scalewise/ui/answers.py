"""What does the estimate view show? The answer first, then where it goes, what fits, what helps.

    told = estimate_answer(Question(model="llama-2-7b", gpus="256"))
    told["headline"]["step_seconds"], told["waterfall"], told["memory"], told["levers"]

Numbers only, SI, each with its interval where there is one: the page puts units on them. What is in
`estimate` is what `scalewise estimate --json` prints of the same question.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.errors import InputError
from scalewise.explore.remedies import remedies
from scalewise.report.advice import WORTH_SAYING, neighbours
from scalewise.report.explain import explain
from scalewise.report.words import convention_words
from scalewise.step.estimate import estimate
from scalewise.step.result import COMPUTE_TERMS
from scalewise.step.terms import TERM_NAMES
from scalewise.ui.nouns import Asked, resolve
from scalewise.ui.requests import Question
from scalewise.ui.solve import solve
from scalewise.ui.state import copies

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

DAY = 86400.0
MOST_LEVERS = 3

GROUPS = {
    **dict.fromkeys((*COMPUTE_TERMS, "memory_bound"), "compute"),
    "recompute": "recompute",
    **dict.fromkeys(
        ("tensor_parallel", "context_parallel", "data_parallel_gather", "data_parallel_reduce",
         "contention", "pipeline_send"), "communication",
    ),
    "bubble": "bubble",
    "host": "other",
    "optimizer": "optimizer",
    "overhead": "other",
    "straggler": "other",
}  # fmt: skip
"""Kind of a term: what the page colours alike."""

COMMUNICATION = {
    "tensor_parallel": "tensor parallel",
    "context_parallel": "context parallel",
    "data_parallel": "data parallel",
    "pipeline": "pipeline sends",
}


def estimate_answer(question: Question) -> dict[str, Any]:
    """Answer a question in full.

    Raises:
        InputError: If a word is not understood.
    """
    asked = resolve(question)
    e = asked.estimate
    return {
        "question": msgspec.to_builtins(asked.question),
        "pinned": asked.pinned,
        "tried": asked.tried,
        "moved": list(asked.moved),
        "chosen": list(dict.fromkeys([*asked.chosen, *e.defaults])),
        "changed": list(asked.nouns.changed),
        "headline": headline(e),
        "waterfall": waterfall(e),
        "hidden": hidden(e),
        "memory": [
            {"key": k, "label": k.replace("_", " "), "bytes": v} for k, v in e.memory.items()
        ],
        "takeaway": takeaway(e),
        "levers": levers(asked),
        "remedies": _remedies(asked),
        "convention": {"name": e.convention, "words": convention_words(e.convention)},
        "copy": copies(asked.question),
        "notes": list(asked.nouns.notes),
        "estimate": e.to_dict(),
    }


def headline(e: Estimate) -> dict[str, Any]:
    """The few numbers of the first line, each as (value, low, high); None where not known.

    The interval is that of throughput: time, energy and money of the whole run follow from it, at
    the predicted power and the given rent.
    """
    rate = e.tokens_per_second_per_accelerator
    slow, fast = rate / e.low, rate / e.high
    tokens = e.workload.tokens

    def timed(value: float | None) -> list[float] | None:
        return None if value is None else [value, value * fast, value * slow]

    cost = e.usd_per_million_tokens
    joules = e.joules_per_token
    return {
        "feasible": e.feasible,
        "infeasible": e.infeasible,
        "step_seconds": timed(e.step_seconds),
        "days": timed(e.days),
        "usd": timed(None if cost is None or tokens is None else cost * tokens / 1e6),
        "joules": timed(None if joules is None or tokens is None else joules * tokens),
        "tokens_per_second": [e.tokens_per_second, e.tokens_per_second / slow,
                              e.tokens_per_second / fast],
        "rate": [rate, e.low, e.high],
        "mfu": [e.mfu, e.mfu / slow, e.mfu / fast],
        "hfu": e.hfu,
        "tflops": e.tflops,
        "exposed_share": e.exposed_share,
        "usd_per_million_tokens": timed(cost),
        "joules_per_token": timed(joules),
        "watts_per_accelerator": e.watts_per_accelerator,
        "facility_watts": None
        if e.facility_watts_per_accelerator is None
        else e.facility_watts_per_accelerator * e.cluster.accelerators,
        "usd_per_hour": e.usd_per_hour,
        "memory_bytes": [e.memory_bytes, e.memory_low, e.memory_high],
        "memory_capacity": e.memory_capacity,
        "tokens": tokens,
        "tokens_per_step": e.workload.tokens_per_step,
        "tokens_per_accelerator": e.workload.tokens_per_step / e.cluster.accelerators,
        "micro_steps": e.micro_steps,
        "interval": [e.low / rate, e.high / rate],
    }  # fmt: skip


def waterfall(e: Estimate) -> list[dict[str, Any]]:
    """The terms of the step in order; their shares add up to one."""
    return [
        {
            "key": key,
            "label": TERM_NAMES[key],
            "group": GROUPS[key],
            "seconds": seconds,
            "share": seconds / e.step_seconds,
        }
        for key, seconds in e.terms.items()
        if seconds > 0.0
    ]


def hidden(e: Estimate) -> list[dict[str, Any]]:
    """Communication by group: all of it, and what of it nothing hides."""
    return [
        {
            "key": key,
            "label": COMMUNICATION[key],
            "seconds": load,
            "exposed": min(e.exposed[key], load),
            "hidden": max(load - e.exposed[key], 0.0),
        }
        for key, load in e.load.items()
        if load > 0.0
    ]


def takeaway(e: Estimate) -> dict[str, Any] | None:
    """From how many tokens per accelerator on do kernels take longer than the network?

    What data parallelism sends does not grow with the tokens, kernels and all other communication
    do about in proportion: that gives the limit, an inequality to remember. ZeRO-3 sends in every
    micro step, so its tokens are those of a micro step; the others send once per step. None where
    nothing is sent.
    """
    compute = math.fsum(
        seconds for key, seconds in e.terms.items() if GROUPS[key] in ("compute", "recompute")
    )
    fixed = e.load["data_parallel"]
    growing = math.fsum(e.load.values()) - fixed
    if fixed + growing <= 0.0:
        return None
    often = e.strategy.sharding == "zero3"
    have = e.workload.tokens_per_step / e.cluster.accelerators
    have /= e.micro_steps if often else 1
    return {
        "tokens": have,
        "limit": have * fixed / (compute - growing) if compute > growing else None,
        "per": "micro step" if often else "step",
        "communication": fixed + growing,
        "compute": compute,
    }


def levers(asked: Asked) -> dict[str, Any]:
    """The changes of one decision that help most, each with what it gains over the whole run."""
    e = asked.estimate
    near = neighbours(e)
    if not near or not e.feasible:
        return {"tried": len(near), "found": [], "next": None}
    many = estimate(e.model, e.cluster, e.workload, list(near.values()), stack=e.stack)
    fits = many.feasible & (many.memory_bytes <= many.case.memory_bytes)
    rates = np.where(fits, many.tokens_per_second_per_accelerator, 0.0)
    gains = rates / e.tokens_per_second_per_accelerator - 1.0
    order = [int(row) for row in np.argsort(-gains) if fits[row]]
    words = list(near)
    told = [_lever(e, many[row], words[row], float(gains[row])) for row in order[:MOST_LEVERS]]
    useful = [each for each in told if each["gain"] > WORTH_SAYING]
    return {"tried": len(near), "found": useful, "next": told[0] if told else None}


def _lever(e: Estimate, other: Estimate, why: str, gain: float) -> dict[str, Any]:
    tokens = e.workload.tokens

    def saved(new: float | None, old: float | None, per: float) -> float | None:
        return None if new is None or old is None or tokens is None else (old - new) * tokens / per

    return {
        "strategy": str(other.strategy),
        "why": why,
        "gain": gain,
        "seconds": e.step_seconds - other.step_seconds,
        "usd": saved(other.usd_per_million_tokens, e.usd_per_million_tokens, 1e6),
        "joules": saved(other.joules_per_token, e.joules_per_token, 1.0),
    }


def _remedies(asked: Asked) -> list[dict[str, Any]]:
    """Where it cannot run: the smallest changes that make it, each with what to click."""
    e = asked.estimate
    if e.feasible:
        return []
    told: list[dict[str, Any]] = []
    best = None
    if asked.pinned:
        found = solve(e.model, e.cluster, e.workload, e.stack).estimate
        best = found if found.feasible else None
        if best is not None:
            told.append(
                {
                    "words": f"{best.strategy} fits on the same accelerators",
                    "change": {"strategy": None},
                    "step_seconds": best.step_seconds,
                }
            )
    count = e.cluster.accelerators
    larger = None if best is not None else fewest(e, start=count * 2, most=8)
    if larger is not None:
        told.append(
            {
                "words": f"fits from {larger.cluster.accelerators:,} accelerators, "
                f"as {larger.strategy}",
                "change": {"gpus": str(larger.cluster.accelerators), "strategy": None},
                "step_seconds": larger.step_seconds,
            }
        )
    told += [{"words": words, "change": None} for words in remedies(e, best)]
    return told


def fewest(e: Estimate, *, start: int, most: int) -> Estimate | None:
    """The first of some doubled sizes at which a usual strategy fits."""
    count = start
    for _ in range(most):
        found = _at_size(e, count)
        if found is not None:
            return found
        count *= 2
    return None


def _at_size(e: Estimate, count: int) -> Estimate | None:
    try:
        found = solve(e.model, e.cluster.with_(accelerators=count), e.workload, e.stack)
    except InputError:
        return None
    return (
        found.estimate
        if found.estimate.memory_headroom >= 0.0 and found.estimate.feasible
        else None
    )


def fits_answer(question: Question) -> dict[str, Any]:
    """What fits next: the largest micro batch of this strategy, and the fewest accelerators.

    Raises:
        InputError: If a word is not understood.
    """
    asked = resolve(question)
    e = asked.estimate
    micro = None
    tried = [e.strategy.with_(micro_batch=m, accumulation=None) for m in range(1, 65)]
    many = estimate(e.model, e.cluster, e.workload, tried, stack=e.stack)
    # Of the batch only the micro batch is asked here: memory does not depend on the rest.
    held = np.flatnonzero(np.broadcast_to(many.memory_bytes, (64,)) <= e.memory_capacity)
    if len(held) and e.strategy.pp == 1:
        micro = int(held[-1]) + 1
    count, smallest = e.cluster.accelerators, None
    while count >= 1:
        found = _at_size(e, count)
        if found is None:
            break
        smallest = found
        if count % 2:
            break
        count //= 2
    return {
        "micro_batch": micro,
        "current": e.strategy.micro_batch,
        "accelerators": None if smallest is None else smallest.cluster.accelerators,
        "strategy": None if smallest is None else str(smallest.strategy),
        "step_seconds": None if smallest is None else smallest.step_seconds,
    }


def explain_answer(question: Question) -> dict[str, Any]:
    """Every number of the estimate as a worked example.

    Raises:
        InputError: If a word is not understood.
    """
    asked = resolve(question)
    return {
        "explained": [
            {
                "key": each.key,
                "kind": each.kind,
                "title": each.title,
                "formula": each.formula,
                "letters": [list(letter) for letter in each.letters],
                "working": list(each.working),
                "result": each.show(each.result),
                "source": " ".join(each.source.split()),
            }
            for each in explain(asked.estimate)
        ],
        "provenance": asked.estimate.provenance,
    }
