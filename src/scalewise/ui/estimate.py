"""The estimate view: headline, step time by term, memory by part, what fits, suggestions.

    answer = estimate_answer(Question(model="llama-2-7b", gpus=256))
    answer["headline"]["step_seconds"], answer["waterfall"], answer["memory"]

Numbers only, SI, each with its interval where there is one: the page puts units on them. What is in
`estimate` is what `scalewise estimate --json` prints of the same question.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.ask.question import Question
from scalewise.ask.state import copies
from scalewise.errors import InputError
from scalewise.explore.fixes import fixes
from scalewise.explore.usual import usual
from scalewise.report.explain import shown
from scalewise.report.goodput_words import goodput_words
from scalewise.report.suggestions import WORTH_SAYING, neighbors
from scalewise.report.words import convention_words
from scalewise.step.estimate import CHOSEN_FIT, estimate
from scalewise.step.explain import explain
from scalewise.terms import GROUPS, TERMS
from scalewise.ui.inputs import Answered, resolve

if TYPE_CHECKING:
    from scalewise.derivation import Derivation
    from scalewise.step.result import Estimate

MAX_LEVERS = 3


def estimate_answer(question: Question) -> dict[str, Any]:
    """Answer a question in full.

    Raises:
        InputError: If a word is not understood.
    """
    answered = resolve(question)
    e = answered.estimate
    return {
        "question": msgspec.to_builtins(answered.question),
        "pinned": answered.asked.stated,
        "tried": answered.asked.evaluated,
        "moved": list(answered.moved),
        "defaults": [str(each) for each in answered.defaults],
        "changes": list(answered.asked.changes),
        "headline": headline(e),
        "waterfall": waterfall(e),
        "hidden": hidden(e),
        "memory": [
            {"key": k, "label": k.replace("_", " "), "bytes": v} for k, v in e.memory.items()
        ],
        "takeaway": takeaway(e),
        "suggestions": step_suggestions(answered),
        "fixes": _fixes(answered),
        "convention": {"name": e.convention, "words": convention_words(e.convention)},
        "copy": copies(answered.question),
        "notes": list(answered.asked.notes),
        "estimate": e.to_dict(),
    }


def headline(e: Estimate) -> dict[str, Any]:
    """The few numbers of the first line, each as (value, low, high); None where not known.

    The interval is that of throughput, and of goodput too for the whole run: time, energy and money
    follow from it, at the predicted power and the given rent.
    """
    rate = e.tokens_per_second_per_accelerator
    slow, fast = rate / e.low, rate / e.high
    tokens = e.workload.tokens

    def timed(value: float | None) -> list[float] | None:
        return None if value is None else [value, value * fast, value * slow]

    g, days, ends = e.goodput, e.days, e.days_interval

    def whole(value: float | None) -> list[float] | None:
        if value is None or days is None or ends is None:
            return None
        return [value, value * ends[0] / days, value * ends[1] / days]

    cost = e.usd_per_million_tokens
    joules = e.joules_per_token
    return {
        "feasible": e.feasible,
        "infeasible": e.infeasible,
        "step_seconds": timed(e.step_seconds),
        "days": whole(e.days),
        "usd": whole(e.run_usd),
        "joules": whole(e.run_joules),
        "goodput": None if g is None else goodput_words(g.fraction, g.low, g.high, g.interval),
        "tokens_per_second": [e.tokens_per_second, e.tokens_per_second / slow,
                              e.tokens_per_second / fast],
        "rate": [rate, e.low, e.high],
        "mfu": [e.mfu, e.mfu / slow, e.mfu / fast],
        "hfu": e.hfu,
        "tflops": e.tflops,
        "exposed_fraction": e.exposed_fraction,
        "usd_per_million_tokens": timed(cost),
        "joules_per_token": timed(joules),
        "watts_per_accelerator": e.watts_per_accelerator,
        "facility_watts": None
        if e.facility_watts_per_accelerator is None
        else e.facility_watts_per_accelerator * e.cluster.accelerators,
        "usd_per_hour": e.usd_per_hour,
        "price": None if e.cluster.price is None else e.cluster.price.words,
        "memory_bytes": [e.memory_bytes, e.memory_low, e.memory_high],
        "memory_capacity": e.memory_capacity,
        "host_memory_bytes": e.host_memory_bytes,
        "host_memory_capacity": e.host_memory_capacity,
        "tokens": tokens,
        "tokens_per_step": e.workload.tokens_per_step,
        "tokens_per_accelerator": e.workload.tokens_per_step / e.cluster.accelerators,
        "num_microbatches": e.num_microbatches,
        "interval": [e.low / rate, e.high / rate],
    }  # fmt: skip


def waterfall(e: Estimate) -> list[dict[str, Any]]:
    """The terms of the step in order; their shares add up to one."""
    return [
        {
            "key": key,
            "label": TERMS[key].label,
            "group": TERMS[key].kind,
            "seconds": seconds,
            "share": seconds / e.step_seconds,
        }
        for key, seconds in e.terms.items()
        if seconds > 0.0
    ]


def hidden(e: Estimate) -> list[dict[str, Any]]:
    """Communication by group: all of it, and its exposed and overlapped parts."""
    return [
        {
            "key": key,
            "label": GROUPS[key],
            "seconds": load,
            "exposed": min(e.exposed[key], load),
            "hidden": max(load - e.exposed[key], 0.0),
        }
        for key, load in e.comm_seconds.items()
        if load > 0.0
    ]


def takeaway(e: Estimate) -> dict[str, Any] | None:
    """From how many tokens per accelerator on do kernels take longer than the network?

    What data parallelism sends does not grow with the tokens, kernels and all other communication
    do about in proportion: that gives the limit, an inequality to remember. ZeRO-3 sends in every
    micro-batch, so its tokens are those of a micro-batch; the others send once per step. None where
    nothing is sent.
    """
    compute = math.fsum(seconds for key, seconds in e.terms.items() if TERMS[key].kind == "compute")
    fixed = e.comm_seconds["data_parallel"]
    growing = math.fsum(e.comm_seconds.values()) - fixed
    if fixed + growing <= 0.0:
        return None
    often = e.strategy.sharding == "zero3"
    have = e.workload.tokens_per_step / e.cluster.accelerators
    have /= e.num_microbatches if often else 1
    return {
        "tokens": have,
        "limit": have * fixed / (compute - growing) if compute > growing else None,
        "per": "micro-batch" if often else "step",
        "communication": fixed + growing,
        "compute": compute,
    }


def step_suggestions(answered: Answered) -> dict[str, Any]:
    """The changes of one decision that help most, each with what it gains over the whole run."""
    e = answered.estimate
    near = neighbors(e)
    if not near or not e.feasible:
        return {"tried": len(near), "found": [], "next": None}
    many = estimate(
        e.model, e.cluster, e.workload, list(near.values()), stack=e.stack, fit=CHOSEN_FIT
    )
    fits = many.feasible
    rates = np.where(fits, many.tokens_per_second_per_accelerator, 0.0)
    gains = rates / e.tokens_per_second_per_accelerator - 1.0
    order = [int(row) for row in np.argsort(-gains) if fits[row]]
    words = list(near)
    # The first is said where nothing is worth saying; a row takes longer than the rest of this.
    said = [row for row in order[:MAX_LEVERS] if row == order[0] or gains[row] > WORTH_SAYING]
    lines = [_suggestion(e, many[row], words[row], float(gains[row])) for row in said]
    useful = [each for each in lines if each["gain"] > WORTH_SAYING]
    return {"tried": len(near), "found": useful, "next": lines[0] if lines else None}


def _suggestion(e: Estimate, other: Estimate, why: str, gain: float) -> dict[str, Any]:
    def saved(new: float | None, old: float | None) -> float | None:
        return None if new is None or old is None else old - new

    return {
        "strategy": str(other.strategy),
        "why": why,
        "gain": gain,
        "seconds": e.step_seconds - other.step_seconds,
        "usd": saved(other.run_usd, e.run_usd),
        "joules": saved(other.run_joules, e.run_joules),
    }


def _fixes(answered: Answered) -> list[dict[str, Any]]:
    """Where it cannot run: the smallest changes that make it, each with what to click."""
    e = answered.estimate
    if e.feasible:
        return []
    lines: list[dict[str, Any]] = []
    best = None
    if answered.asked.stated:
        found = usual(e.model, e.cluster, e.workload, answered.asked.stack).estimate
        best = found if found.feasible else None
        if best is not None:
            lines.append(
                {
                    "words": f"{best.strategy} fits on the same GPUs",
                    "change": {"strategy": None},
                    "step_seconds": best.step_seconds,
                }
            )
    count = e.cluster.accelerators
    larger = None if best is not None else fewest(answered, start=count * 2, maximum=8)
    if larger is not None:
        lines.append(
            {
                "words": f"fits from {larger.cluster.accelerators:,} GPUs, as {larger.strategy}",
                "change": {"gpus": str(larger.cluster.accelerators), "strategy": None},
                "step_seconds": larger.step_seconds,
            }
        )
    lines += [{"words": words, "change": None} for words in fixes(e, best)]
    return lines


def fewest(answered: Answered, *, start: int, maximum: int) -> Estimate | None:
    """The first of some doubled sizes at which a usual strategy fits."""
    count = start
    for _ in range(maximum):
        found = _at_size(answered, count)
        if found is not None:
            return found
        count *= 2
    return None


def _at_size(answered: Answered, count: int) -> Estimate | None:
    e = answered.estimate
    cluster = e.cluster.with_(accelerators=count)
    try:
        found = usual(e.model, cluster, e.workload, answered.asked.stack)
    except InputError:
        return None
    return found.estimate if found.estimate.feasible else None


def fits_answer(question: Question) -> dict[str, Any]:
    """What fits next: the largest micro-batch of this strategy, and the fewest accelerators.

    Raises:
        InputError: If a word is not understood.
    """
    answered = resolve(question)
    e = answered.estimate
    micro = None
    tried = [e.strategy.with_(micro_batch=m, num_microbatches=None) for m in range(1, 65)]
    many = estimate(e.model, e.cluster, e.workload, tried, stack=e.stack)
    # Only the micro-batch is asked here: memory does not depend on the rest of the batch.
    held = np.flatnonzero(np.broadcast_to(many.fit_chance, (64,)) >= CHOSEN_FIT)
    if len(held) and e.strategy.pp == 1:
        micro = int(held[-1]) + 1
    count, smallest = e.cluster.accelerators, None
    while count >= 1:
        found = _at_size(answered, count)
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
    e = resolve(question).estimate
    return {
        "explained": [derivation_answer(each) for each in explain(e)],
        "provenance": e.provenance,
    }


def derivation_answer(derivation: Derivation) -> dict[str, Any]:
    """One derivation as plain types, inner ones included."""
    return {
        "key": derivation.key,
        "title": derivation.label,
        "formula": derivation.formula,
        "letters": [
            {
                "name": letter.name,
                "value": shown(letter.value, letter.unit),
                "meaning": letter.meaning,
                "because": None if letter.because is None else derivation_answer(letter.because),
            }
            for letter in derivation.letters
        ],
        "working": list(derivation.notes),
        "result": shown(derivation.value, derivation.unit),
        "source": " ".join(derivation.source.split()),
    }
