"""Strategies without sizes, filled in or searched at every number of GPUs.

    template = parse_template("hsdp64-tp2")           # a strategy that leaves its size open
    fill(template, 1024, 2048)                        # hsdp8x64-tp2-mb4
    parse_template("best-tp2").limits                 # to be searched at every size, with TP 2

A template is written like a strategy, but its data-parallel part has no total: it takes the ranks
that tensor, context and pipeline parallelism leave. `best` leaves everything open.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from scalewise.errors import InputError
from scalewise.explore.space import Limits
from scalewise.offload import OFFLOAD_TOKENS, joined
from scalewise.recompute import recompute_of_token
from scalewise.strategy import SCHEDULES, Sharding, Strategy, parse_strategy

BEST = "best"
"""Word for the strategy that is searched at each size."""

MAX_MICRO_BATCH = 64
"""Largest micro-batch that is chosen: kernels gain nothing beyond."""

FILL = 4
"""Micro-batches per pipeline stage that a chosen micro-batch size leaves: the bubble is below a
fifth."""

_OPEN: dict[str, Sharding] = {
    "ddp": "ddp", "dp": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3",
    "fsdp": "zero3",
}  # fmt: skip
_SPELLED = {"ddp": "ddp1", "zero1": "zero1x1", "zero2": "zero2x1", "zero3": "fsdp1"}
_GROUPS = re.compile(r"(?:hsdp|mics)([0-9]{1,9})")
_FIXED = re.compile(r"(ddp|dp|zero[123]x|fsdp|hsdp|mics)[0-9]")

# Words that limit a search, and the limit that each sets.
_HELD_COUNTS = {
    "tp": "tp", "pp": "pp", "cp": "cp", "mb": "micro_batch", "v": "virtual_stages", "ep": "ep",
    "etp": "etp", "tilemlp": "mlp_tiles",
}  # fmt: skip
_HELD_COUNT = re.compile(f"({'|'.join(_HELD_COUNTS)})([0-9]{{1,9}})")
_HELD_WORDS = {
    **{word: ("sharding", kind) for word, kind in _OPEN.items()},
    **{word: ("schedule", word) for word in SCHEDULES},
    "acnone": ("recompute", "none"),
}


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strategy with an open data-parallel size, or one to be searched."""

    label: str
    """Text as given: the name of its curve."""
    base: Strategy
    """The strategy without the open part."""
    fixed: bool = False
    """Whether the data-parallel size was given: it then matches one size only."""
    group: int | None = None
    """Data-parallel ranks of one sharding group; None for all."""
    has_micro_batch: bool = False
    """Whether the micro-batch size was given; else it is chosen at every size."""
    limits: Limits | None = None
    """Limits of the search at every size; None if the strategy is given."""

    @property
    def multiple(self) -> int:
        """Divisor of every size with whole sharding groups."""
        return self.base.tp * self.base.cp * self.base.pp * (self.group or 1)


def parse_template(text: str) -> Template:
    """Parse a strategy without sizes.

    Args:
        text: `fsdp`, `ddp`, `zero1`, `zero2`, `hsdp64` or `mics64` (sharding groups of 64
            data-parallel ranks), with any other tokens of a strategy: "fsdp-tp2-mb4",
            "tp8-pp8-zero1". Without a data-parallel part it is fully sharded. Or `best`, which
            other tokens limit: "best-tp2-fsdp", "best-pp1", "best-acnone".

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
            f"strategy {label[:80]}: two data-parallel parts", hint="keep one of the two"
        )
    # An empty text is not a token: the parser of strategies rejects it. Variants of sharding need
    # to know what is sharded.
    kind = _OPEN.get(opened[0], "zero3") if opened else "zero3"
    held = [_SPELLED[kind]] if opened else []
    base = parse_strategy("-".join([*held, *rest])) if rest else Strategy()
    group = None
    if opened:
        match = _GROUPS.fullmatch(opened[0])
        if match and int(match[1]) < 1:
            raise InputError(
                f"strategy {label[:80]}: {opened[0]} needs a group of at least 1 rank",
                hint="for example hsdp64",
            )
        group = int(match[1]) if match else None
        base = base.with_(sharding=kind)
        if opened[0].startswith("mics"):
            base = base.with_(replica_sync="once", hierarchical_gather=True)
    stated = any(re.fullmatch("mb[0-9]+", token) for token in rest)
    return Template(label=label, base=base, fixed=fixed, group=group, has_micro_batch=stated)


def _limits(label: str, tokens: list[str]) -> Limits:
    """Parse the limits of a search."""
    held: dict[str, Any] = {}
    away = [OFFLOAD_TOKENS[token] for token in tokens if token in OFFLOAD_TOKENS]
    if away:
        held["offload"] = [joined(away)]
    for token in tokens:
        if token in OFFLOAD_TOKENS:
            continue
        if match := _HELD_COUNT.fullmatch(token):
            name, value = _HELD_COUNTS[match[1]], int(match[2])
        elif kind := recompute_of_token(token):
            name, value = "recompute", kind  # type: ignore[assignment]
        elif token in _HELD_WORDS:
            name, value = _HELD_WORDS[token]  # type: ignore[assignment]
        else:
            raise InputError(
                f"strategy {label[:80]}: unsupported limit {token[:40]!r}",
                hint="for example best, best-tp2, best-pp1-fsdp, best-mb1-acnone",
            )
        held.setdefault(name, []).append(value)
    limits: dict[str, Any] = {name: tuple(values) for name, values in held.items()}
    # Overlap never costs more than it saves, so the best strategy has it on.
    return Limits(**limits, overlap=(True,))


def fill(
    template: Template, accelerators: int, global_batch: int, micro_batch: int | None = None
) -> Strategy:
    """Return the strategy of a template at one size.

    Args:
        template: The open strategy.
        accelerators: Number of GPUs, all of which must be used.
        global_batch: Sequences per step over all of them.
        micro_batch: Micro-batch size if the template has none; by default the largest of
            `micro_batches`.

    Returns:
        The strategy. A sharding group larger than the ranks shrinks to them: hsdp64 on 8 GPUs
        is fsdp8.

    Raises:
        InputError: With the reason, if the template does not match the size or the batch.
    """
    base = _sized(template, accelerators)
    if not template.has_micro_batch:
        base = base.with_(micro_batch=micro_batch or micro_batches(base, global_batch)[-1])
    per_micro_step = base.micro_batch * base.data_parallel
    if global_batch % per_micro_step:
        raise InputError(
            f"batch: {global_batch:,} sequences are not a multiple of micro-batch "
            f"{base.micro_batch} x {base.data_parallel:,} data-parallel ranks",
            hint="change the batch or the micro-batch",
        )
    return base


def choices(template: Template, accelerators: int, global_batch: int) -> list[Strategy]:
    """Return the strategies of a template at a size, one per micro-batch size that it leaves open.

    Raises:
        InputError: With the reason, if it does not match.
    """
    if template.has_micro_batch:
        return [fill(template, accelerators, global_batch)]
    base = _sized(template, accelerators)
    return [
        fill(template, accelerators, global_batch, micro)
        for micro in micro_batches(base, global_batch)
    ]


def micro_batches(strategy: Strategy, global_batch: int) -> list[int]:
    """Return the micro-batch sizes that divide a global batch, ascending.

    They divide the sequences of one data-parallel rank, leave a pipeline `FILL` micro-batches per
    stage where possible, and end at `MAX_MICRO_BATCH`.

    Raises:
        InputError: If the data-parallel ranks do not divide the batch.
    """
    ranks = strategy.data_parallel
    if global_batch % ranks:
        raise InputError(
            f"batch: {global_batch:,} sequences are not a multiple of {ranks:,} "
            "data-parallel ranks",
            hint="use a larger batch, or more tensor, context or pipeline parallelism",
        )
    each = global_batch // ranks
    if strategy.num_microbatches is not None:
        if each % strategy.num_microbatches:
            raise InputError(
                f"batch: {each:,} sequences per rank are not a multiple of "
                f"{strategy.num_microbatches} micro-batches",
                hint=f"leave out ga{strategy.num_microbatches}",
            )
        return [each // strategy.num_microbatches]
    filled = each // (FILL * strategy.pp) if strategy.pp > 1 else each
    maximum = max(min(filled, MAX_MICRO_BATCH), 1)
    return [micro for micro in range(1, maximum + 1) if each % micro == 0]


def filled_batch(strategy: Strategy, ranks: int) -> int:
    """Return the smallest batch that keeps every rank, and the pipeline, busy, sequences.

    Args:
        strategy: With its micro-batch size; stated gradient accumulation steps count.
        ranks: Data-parallel ranks.
    """
    steps = strategy.num_microbatches or (FILL * strategy.pp if strategy.pp > 1 else 1)
    return ranks * strategy.micro_batch * steps


def _sized(template: Template, accelerators: int) -> Strategy:
    """Divide the ranks that model parallelism leaves."""
    base = template.base
    if accelerators < 1:
        raise InputError(f"gpus = {accelerators:,} must be at least 1")
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
            f"{accelerators:,} GPUs",
            hint=f"use multiples of {inner:,} GPUs",
        )
    if base.sharding == "ddp":
        return base.with_(dp_replicate=ranks, dp_shard=1)
    group = min(template.group or ranks, ranks)
    if ranks % group:
        raise InputError(
            f"mesh: groups of {group} do not divide {ranks:,} data-parallel ranks",
            hint=f"use multiples of {group * inner:,} GPUs",
        )
    if base.backward_shard is not None and group * base.cp <= base.backward_shard:
        # A copy per group is of no use where the group is not larger.
        base = base.with_(backward_shard=None)
    return base.with_(dp_replicate=ranks // group, dp_shard=group)
