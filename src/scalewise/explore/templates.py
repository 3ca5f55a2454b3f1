"""Which strategy at each size? Spelled once without a size, and then filled in, or searched for.

    template = parse_template("hsdp64-tp2")           # a strategy that leaves its size open
    fill(template, 1024, 2048)                        # hsdp8x64-tp2-mb4
    parse_template("best-tp2").limits                 # to be searched at every size, with tp 2

A template is spelled like a strategy, but its data-parallel part carries no total: it takes
whatever ranks tensor, context and pipeline parallelism leave. `best` leaves everything open.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from scalewise.errors import InputError
from scalewise.explore.space import Limits
from scalewise.strategy import SCHEDULES, Sharding, Strategy, parse_strategy

BEST = "best"
"""The word for the strategy that a search finds, at each size anew."""

MOST_MICRO_BATCH = 64
"""Largest micro batch that is ever chosen: kernels gain nothing beyond."""

FILL = 4
"""Micro steps per pipeline stage that a chosen micro batch leaves: the bubble is below a fifth."""

_OPEN: dict[str, Sharding] = {
    "ddp": "ddp", "dp": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3",
    "fsdp": "zero3",
}  # fmt: skip
_GROUPS = re.compile(r"hsdp([0-9]{1,9})")
_FIXED = re.compile(r"(ddp|dp|zero[123]x|fsdp|hsdp)[0-9]")

# What a search can be held to: the word, then the limit it sets.
_HELD_COUNTS = {"tp": "tp", "pp": "pp", "cp": "cp", "mb": "micro_batch", "v": "virtual_stages"}
_HELD_COUNT = re.compile(f"({'|'.join(_HELD_COUNTS)})([0-9]{{1,9}})")
_HELD_WORDS = {
    **{word: ("sharding", kind) for word, kind in _OPEN.items()},
    **{word: ("schedule", word) for word in SCHEDULES},
    "acnone": ("recompute", "none"),
    "acsel": ("recompute", "selective"),
    "acfull": ("recompute", "full"),
}


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strategy whose data-parallel size is open, or one that is still to be found."""

    label: str
    """As it was spelled: the name of its curve."""
    base: Strategy
    """Everything but the open part."""
    fixed: bool = False
    """Whether the data-parallel size was given after all: it then fits one size only."""
    group: int | None = None
    """Data-parallel ranks of one sharding group; None for all of them."""
    has_micro_batch: bool = False
    """Whether the micro batch was given; else it is chosen at every size."""
    limits: Limits | None = None
    """What a search at every size may try; None where the strategy is given."""

    @property
    def multiple(self) -> int:
        """What divides every size that it can have with whole sharding groups."""
        return self.base.tp * self.base.cp * self.base.pp * (self.group or 1)


def parse_template(text: str) -> Template:
    """Read a strategy without sizes.

    Args:
        text: `fsdp`, `ddp`, `zero1`, `zero2` or `hsdp64` (sharding groups of 64 data-parallel
            ranks), with any other tokens of a strategy: "fsdp-tp2-mb4", "tp8-pp8-zero1".
            Without a data-parallel part the rest is fully sharded. Or `best`, which may be held
            to tokens: "best-tp2-fsdp", "best-pp1", "best-acnone".

    Returns:
        The template.

    Raises:
        InputError: On an unknown or repeated token.
    """
    label = text.strip().lower()
    first, *held = label.split("-")
    if first == BEST:
        return Template(label=label, base=Strategy(), limits=_limits(label, held))
    opened: list[str] = []
    rest: list[str] = []
    for token in label.split("-"):
        (opened if token in _OPEN or _GROUPS.fullmatch(token) else rest).append(token)
    fixed = any(_FIXED.match(token) for token in rest)
    if len(opened) + fixed > 1:
        raise InputError(
            f"strategy {label[:80]!r} has two data-parallel parts", hint="keep one of the two"
        )
    # An empty text is not a token: let the strategy's own parser refuse it.
    base = parse_strategy("-".join(rest)) if rest else Strategy()
    group = None
    if opened:
        match = _GROUPS.fullmatch(opened[0])
        if match and int(match[1]) < 1:
            raise InputError(f"`{opened[0]}` needs a group of at least one", hint="say hsdp64")
        group = int(match[1]) if match else None
        base = base.with_(sharding=_OPEN.get(opened[0], "zero3"))
    stated = any(re.fullmatch("mb[0-9]+", token) for token in rest)
    return Template(label=label, base=base, fixed=fixed, group=group, has_micro_batch=stated)


def _limits(label: str, tokens: list[str]) -> Limits:
    """Read what a search is held to."""
    held: dict[str, Any] = {}
    for token in tokens:
        if match := _HELD_COUNT.fullmatch(token):
            name, value = _HELD_COUNTS[match[1]], int(match[2])
        elif token in _HELD_WORDS:
            name, value = _HELD_WORDS[token]  # type: ignore[assignment]
        else:
            raise InputError(
                f"strategy {label[:80]!r}: a search cannot be held to {token[:40]!r}",
                hint="for example best, best-tp2, best-pp1-fsdp, best-mb1-acnone",
            )
        held.setdefault(name, []).append(value)
    limits: dict[str, Any] = {name: tuple(values) for name, values in held.items()}
    # Overlap never costs more than it hides, so the best strategy has it on.
    return Limits(**limits, overlap=(True,))


def fill(
    template: Template, accelerators: int, global_batch: int, micro_batch: int | None = None
) -> Strategy:
    """Give a template its size.

    Args:
        template: The open strategy.
        accelerators: How many must be used, all of them.
        global_batch: Sequences per step over all of them.
        micro_batch: Which to take where the template names none; by default the largest of
            `micro_batches`.

    Returns:
        The strategy. A sharding group larger than the ranks there are shrinks to them, so that
        hsdp64 on 8 accelerators is fsdp8.

    Raises:
        InputError: With the reason, if the template does not fit the size or the batch.
    """
    base = _sized(template, accelerators)
    if not template.has_micro_batch:
        base = base.with_(micro_batch=micro_batch or micro_batches(base, global_batch)[-1])
    per_micro_step = base.micro_batch * base.data_parallel
    if global_batch % per_micro_step:
        raise InputError(
            f"batch: {global_batch:,} sequences are no multiple of micro batch "
            f"{base.micro_batch} x {base.data_parallel:,} data-parallel ranks",
            hint="change the batch or the micro batch",
        )
    return base


def choices(template: Template, accelerators: int, global_batch: int) -> list[Strategy]:
    """List what a template can be at a size: one strategy for each micro batch it leaves open.

    Raises:
        InputError: With the reason, if it does not fit.
    """
    if template.has_micro_batch:
        return [fill(template, accelerators, global_batch)]
    base = _sized(template, accelerators)
    return [
        fill(template, accelerators, global_batch, micro)
        for micro in micro_batches(base, global_batch)
    ]


def micro_batches(strategy: Strategy, global_batch: int) -> list[int]:
    """List the micro batches that reach a global batch exactly, rising.

    They divide what one data-parallel rank sees, leave a pipeline `FILL` micro steps per stage
    where that is possible, and end at `MOST_MICRO_BATCH`.

    Raises:
        InputError: If the data-parallel ranks do not divide the batch.
    """
    ranks = strategy.data_parallel
    if global_batch % ranks:
        raise InputError(
            f"batch: {global_batch:,} sequences cannot be shared by {ranks:,} data-parallel ranks",
            hint="use a larger batch, or more tensor, context or pipeline parallelism",
        )
    each = global_batch // ranks
    if strategy.accumulation is not None:
        if each % strategy.accumulation:
            raise InputError(
                f"batch: {each:,} sequences per rank are no multiple of "
                f"{strategy.accumulation} micro steps",
                hint="drop the ga token",
            )
        return [each // strategy.accumulation]
    filled = each // (FILL * strategy.pp) if strategy.pp > 1 else each
    most = max(min(filled, MOST_MICRO_BATCH), 1)
    return [micro for micro in range(1, most + 1) if each % micro == 0]


def _sized(template: Template, accelerators: int) -> Strategy:
    """Share the ranks that model parallelism leaves."""
    base = template.base
    if template.fixed:
        if base.accelerators != accelerators:
            raise InputError(
                f"mesh: {template.label} has {base.accelerators:,} ranks, "
                f"not {accelerators:,}: its size is fixed",
                hint="leave the size out: fsdp, hsdp64, ddp, zero1, zero2",
            )
        return base
    inner = base.tp * base.cp * base.pp
    ranks, left = divmod(accelerators, inner)
    if left:
        raise InputError(
            f"mesh: tp {base.tp} x cp {base.cp} x pp {base.pp} = {inner:,} does not divide "
            f"{accelerators:,} accelerators",
            hint="use sizes that are multiples of it",
        )
    if base.sharding == "ddp":
        return base.with_(dp_replicate=ranks, dp_shard=1)
    group = min(template.group or ranks, ranks)
    if ranks % group:
        raise InputError(
            f"mesh: groups of {group} do not divide {ranks:,} data-parallel ranks",
            hint="use sizes that are multiples of the group",
        )
    return base.with_(dp_replicate=ranks // group, dp_shard=group)
