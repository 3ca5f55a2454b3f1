"""FLOPs of a captured program by part, beside those of its model, and why a part differs.

    for part in flops_by_part(captures, model, seq_len=4096, tokens=65536.0, tp=8):
        print(part.name, part.program / part.model, part.reason)

Reasons are read off the kernels: the square that an attention without a mask computes, the scores
that its backward repeats, a head that runs again, matrices that the model does not have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.model import TRAIN_PER_FORWARD, Model
from scalewise.program.events import Capture, Event

SQUARE = 1.5
"""Forward FLOPs of attention over those of a causal one from which on no mask halves them."""

REPEATED_SCORES = 2.25
"""FLOPs of attention's backward over its forward from which on it repeats the scores: kernels that
do have 5 products where the forward has 2 (Dao, arXiv 2307.08691), others 4."""

DIFFERS = 0.005
"""Difference of a part, relative to all FLOPs, below which it needs no reason."""

HEAD_DIFFERS = 0.05
"""Products of the head per token from which on it runs more, or less, than once: some tokens have
no target."""

WIDEST = 4
"""Widths of the model in the widest matrix but the head: the MLP of GPT-2; gated ones have less."""

WRITTEN_OUT = ("bmm", "baddbmm")
"""Products of two activations; in a model without experts, attention without a fused kernel."""


@dataclass(frozen=True, kw_only=True)
class FlopsPart:
    """FLOPs of one rank and step in one part of the model, recompute left out."""

    name: str
    program: float
    model: float
    reason: str
    """Why the two differ; empty if the kernels do not show it."""


def flops_by_part(
    captures: Sequence[Capture], model: Model, *, seq_len: int, tokens: float, tp: int
) -> tuple[FlopsPart, ...]:
    """Return attention and matrices; the head alone where its size tells it from the others.

    Args:
        captures: One per pipeline stage.
        model: What they train.
        seq_len: Tokens of a sequence.
        tokens: Tokens of one rank, divided by the ranks that share them.
        tp: Tensor-parallel degree, which may split the vocabulary.
    """
    events = [
        event for capture in captures for event in capture.kernels()
        if event.flops and event.phase in ("forward", "backward")
    ]  # fmt: skip
    attention, heads, rest = _sorted(events, captures[0], model, tp)
    parts = model.forward_flops_parts(seq_len)
    theirs = {name: TRAIN_PER_FORWARD * tokens * flops for name, flops in parts.items()}
    square, head = theirs.pop("attention"), theirs.pop("head")
    found = [
        FlopsPart(
            name="attention", program=_sum(attention), model=square,
            reason=_of_attention(attention, square),
        )
    ]  # fmt: skip
    others = sum(theirs.values())
    if heads:
        found.append(
            FlopsPart(name="head", program=_sum(heads), model=head, reason=_of_head(heads, head))
        )
    else:
        others += head
    found.append(
        FlopsPart(
            name="other matrices" if heads else "matrices", program=_sum(rest), model=others,
            reason=_of_matrices(captures, model),
        )
    )  # fmt: skip
    return tuple(found)


def _sorted(
    events: Sequence[Event], first: Capture, model: Model, tp: int
) -> tuple[list[Event], list[Event], list[Event]]:
    """Return kernels of attention, of the head if it is wider than any other matrix, and others."""
    vocab = {first.vocab, -(-first.vocab // tp)}
    wide = min(vocab) >= WIDEST * first.hidden
    attention: list[Event] = []
    heads: list[Event] = []
    rest: list[Event] = []
    for event in events:
        if "attention" in event.name or (model.moe is None and event.name in WRITTEN_OUT):
            attention.append(event)
        elif wide and any(size in vocab for shape in event.shapes for size in shape):
            heads.append(event)
        else:
            rest.append(event)
    return attention, heads, rest


def explained(parts: Sequence[FlopsPart]) -> str:
    """Return the differences of the parts in words, relative to all FLOPs of the model.

    Args:
        parts: Of `flops_by_part`.
    """
    whole = sum(part.model for part in parts)
    found = []
    for part in parts:
        more = (part.program - part.model) / whole
        if abs(more) >= DIFFERS:
            found.append(f"{part.name} {more:+.1%} ({part.reason or 'not explained'})")
    return ", ".join(found)


def _sum(events: Sequence[Event]) -> float:
    return math.fsum(event.flops for event in events)


def _of_attention(events: Sequence[Event], model: float) -> str:
    """Return why attention differs."""
    forward = _sum([event for event in events if event.phase == "forward"])
    backward = _sum(events) - forward
    found = []
    if any(event.name in WRITTEN_OUT for event in events):
        found.append("written as matrix products")
    if forward > SQUARE * model / TRAIN_PER_FORWARD:
        found.append("no causal mask halves it")
    if backward > REPEATED_SCORES * forward:
        found.append("its backward repeats the scores")
    return " and ".join(found)


def _of_head(heads: Sequence[Event], model: float) -> str:
    """Return why the head differs: how often it runs."""
    times = TRAIN_PER_FORWARD * _sum(heads) / model if model else 0.0
    said = f"{times:.1f} products of the head per token instead of 3"
    return said if abs(times - TRAIN_PER_FORWARD) >= HEAD_DIFFERS else ""


def _of_matrices(captures: Sequence[Capture], model: Model) -> str:
    """Return why other GEMMs differ: more or fewer parameters."""
    own = sum(capture.multiplied for capture in captures)
    theirs = float(model.matmul_parameters)
    if model.moe is None and abs(own / theirs - 1.0) > DIFFERS:
        return f"matrices of {own:,.0f} parameters, {theirs:,.0f} in the model"
    return ""
