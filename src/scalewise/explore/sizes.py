"""Which sizes, which batch, which strategy at each of them? The inputs of a scaling curve.

    parse_sizes("8..2048")                            # (8, 16, 32, ..., 2048)
    template = parse_template("hsdp64-tp2")           # a strategy that leaves its size open
    fill(template, 1024, 2048)                        # hsdp8x64-tp2-mb4

A template is spelled like a strategy, but its data-parallel part carries no total: it takes
whatever ranks tensor, context and pipeline parallelism leave.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from scalewise.errors import InputError
from scalewise.strategy import Sharding, Strategy, parse_strategy
from scalewise.units import parse_count
from scalewise.workload import Precision, Workload

if TYPE_CHECKING:
    from scalewise.cluster import Cluster

MOST_SIZES = 64
"""Most sizes of one curve: more is a typing error, and no table shows it."""

MOST = 2**22
"""Most accelerators: beyond any cluster, and what a strategy can spell."""

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


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step trains as the cluster grows: more (weak scaling), or the same (strong)."""

    kind: Literal["weak", "strong"]
    """Weak: the batch grows with the cluster. Strong: it stays."""
    batch: float
    """Sequences per step: of one accelerator if weak, of all if strong."""
    sequence: int
    """Tokens per sequence."""
    precision: Precision | None = None
    """Of the matrix products; None is bf16, or fp16 on chips without bf16 units."""
    tokens: float | None = None
    """Token budget of the whole run, or None."""

    def __post_init__(self) -> None:
        if self.kind not in ("weak", "strong"):
            raise InputError(f"kind = {self.kind!r} is not known", hint="use weak or strong")
        if not 0 < self.batch <= 2**27:
            raise InputError(f"batch = {self.batch:g} must be positive", hint="for example 2")
        # Sequence, precision and budget have the workload's own rules.
        Workload(
            sequence=self.sequence,
            global_batch=1,
            precision=self.precision or "bf16",
            tokens=self.tokens,
        )

    def global_batch(self, accelerators: int) -> int:
        """Say how many sequences a step has at one size.

        Raises:
            InputError: If that is not a whole number.
        """
        batch = self.batch * accelerators if self.kind == "weak" else self.batch
        # Fractions of a sequence per accelerator are binary, so 0.3 x 10 is only almost 3.
        if batch < 0.5 or abs(batch - round(batch)) > 1e-9 * batch:
            per = f" x {accelerators:,} accelerators" if self.kind == "weak" else ""
            raise InputError(
                f"batch: {self.batch:g}{per} is not a whole number of sequences",
                hint="choose a batch that is whole at every size",
            )
        return round(batch)

    def at(self, cluster: Cluster) -> Workload:
        """Return the workload of one cluster at its size."""
        return Workload(
            sequence=self.sequence,
            global_batch=self.global_batch(cluster.accelerators),
            precision=self.precision or default_precision(cluster),
            tokens=self.tokens,
        )

    def __str__(self) -> str:
        of = "accelerator" if self.kind == "weak" else "step"
        return f"{self.kind} scaling, {self.batch:,.10g} sequences of {self.sequence:,} per {of}"


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strategy whose data-parallel size is open."""

    label: str
    """As it was spelled: the name of its curve."""
    base: Strategy
    """Everything but the open part."""
    fixed: bool
    """Whether the data-parallel size was given after all: it then fits one size only."""
    group: int | None
    """Data-parallel ranks of one sharding group; None for all of them."""
    has_micro_batch: bool
    """Whether the micro batch was given; else it is chosen at every size."""


def default_precision(cluster: Cluster) -> Precision:
    """Choose bf16, or fp16 on chips that came before it."""
    peaks = cluster.accelerator.peak_flops
    return "fp16" if "bf16" not in peaks and "fp16" in peaks else "bf16"


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read sizes: "8..2048" doubles from 8 as long as it stays within 2048; commas join parts.

    Args:
        text: For example "8..2048", "8,64,512" or "8..64,96".

    Returns:
        The sizes, rising, each once.

    Raises:
        InputError: If a part is no positive count, a range falls, or there are too many.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        size = _size(first, text)
        end = _size(last, text) if dots else size
        if end < size:
            raise InputError(
                f"sizes {text[:40]!r}: {size} is above {end}", hint=f"write {end}..{size}"
            )
        while size <= end:
            found.add(size)
            size *= 2
    if len(found) > MOST_SIZES:
        raise InputError(
            f"sizes {text[:40]!r} are {len(found)}, more than {MOST_SIZES}",
            hint="use a doubling range such as 8..2048",
        )
    return tuple(sorted(found))


def _size(text: str, whole: str) -> int:
    try:
        size = parse_count(text.strip())
    except InputError as error:
        raise InputError(
            f"sizes {whole[:40]!r}: {text.strip()[:20]!r} is no count",
            hint="for example 8..2048 or 8,64,512",
        ) from error
    if not 1 <= size <= MOST:
        raise InputError(
            f"sizes {whole[:40]!r}: {text.strip()[:20]} must lie between 1 and {MOST:,}",
            hint="for example 8..2048",
        )
    return size


def parse_template(text: str) -> Template:
    """Read a strategy without sizes.

    Args:
        text: `fsdp`, `ddp`, `zero1`, `zero2` or `hsdp64` (sharding groups of 64 data-parallel
            ranks), with any other tokens of a strategy: "fsdp-tp2-mb4", "tp8-pp8-zero1".
            Without a data-parallel part the rest is fully sharded.

    Returns:
        The template.

    Raises:
        InputError: On an unknown or repeated token.
    """
    label = text.strip().lower()
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
