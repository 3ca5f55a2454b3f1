"""Plan of a sweep of collectives: operations, message sizes, groups and their placement.

    plan = CollectivePlan(ops=["all_reduce"], sizes=sizes_of("1KiB..1GiB"), group_sizes=[2, 8])
    layout(8, 2, "spread")          # [[0, 4], [1, 5], [2, 6], [3, 7]]

Plain data, without torch. Sizes are those of nccl-tests: the whole buffer of an all-gather,
reduce-scatter or all-to-all, the message of everything else.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.units import format_bytes, parse

Op = Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all", "send_recv"]
Placing = Literal["packed", "spread"]

OPS: tuple[str, ...] = get_args(Op)
PLACINGS: tuple[str, ...] = get_args(Placing)

MAX_BYTES = 2**36
"""Largest message anybody times: 64 GiB."""


class CollectivePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep over operations, groups and sizes."""

    ops: list[Op]
    """What is called, one after the other."""
    sizes: list[int]
    """Of the messages, bytes."""
    group_sizes: list[int]
    """Members of a group; all ranks form groups of that size and call at the same time, as they
    do in training."""
    placements: tuple[Placing, ...] = ("packed",)
    """Whether members of a group are neighbors, or as far apart as they can be."""
    iters: int = 20
    """Samples of each size; large messages get fewer."""
    warmup: int = 3
    """Calls that are not counted."""
    budget: float = 1.0
    """Seconds that the samples of one size may take, roughly."""
    beside: bool = True
    """Whether to time an all-reduce that overlaps matrix products."""

    def __post_init__(self) -> None:
        for field in ("ops", "sizes", "group_sizes", "placements"):
            if not getattr(self, field):
                raise InputError(f"a sweep of collectives needs at least one of {field}")
        if min(self.sizes) < 1 or max(self.sizes) > MAX_BYTES:
            raise InputError(f"sizes must lie between 1 byte and {format_bytes(MAX_BYTES)}")
        if self.iters < 1 or self.warmup < 0:
            raise InputError(f"iters = {self.iters} and warmup = {self.warmup} make no sample")


def sizes_of(text: str) -> list[int]:
    """Read "1KiB..1GiB" (doubling) or "1MB,16MB".

    Raises:
        InputError: If it cannot be read, or the range runs backwards.
    """
    sizes: list[int] = []
    for part in text.split(","):
        low, dots, high = part.strip().partition("..")
        first = int(parse(low, "bytes"))
        last = int(parse(high, "bytes")) if dots else first
        if not 1 <= first <= last <= MAX_BYTES:
            raise InputError(
                f"sizes `{part.strip()[:60]}` are not between 1 byte and 64 GiB, small to large",
                hint="for example --sizes 1KiB..1GiB",
            )
        while first <= last:
            sizes.append(first)
            first *= 2
    return sorted(set(sizes))


def words_of(text: str, known: tuple[str, ...], what: str) -> list[str]:
    """Read a list of known words.

    Raises:
        InputError: On a word that is not known.
    """
    words = [word.strip().lower().replace("-", "_") for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise InputError(f"unknown {what} `{word[:40]}`", hint=did_you_mean(word, known))
    if not words:
        raise InputError(f"no {what} is named", hint="known: " + ", ".join(known))
    return list(dict.fromkeys(words))


def group_sizes_of(text: str | None, ranks: int) -> list[int]:
    """Read "2,4,8"; by default the powers of two up to all ranks, and all ranks.

    Raises:
        InputError: If a size does not divide the ranks.
    """
    if text is None:
        powers = [2**i for i in range(1, ranks.bit_length()) if ranks % 2**i == 0]
        return sorted({*powers, ranks})
    sizes = [int(parse(word, "count")) for word in text.split(",")]
    for size in sizes:
        if not 2 <= size <= ranks or ranks % size:
            raise InputError(
                f"groups of {size} do not fill {ranks} ranks",
                hint="use divisors of --ranks from 2",
            )
    return sorted(set(sizes))


def layout(ranks: int, size: int, placing: Placing) -> list[list[int]]:
    """The members of every group.

    Args:
        ranks: All of them.
        size: Members of a group; divides the ranks.
        placing: "packed": neighbors; "spread": as far apart as possible.
    """
    groups = ranks // size
    if placing == "packed":
        return [list(range(i * size, (i + 1) * size)) for i in range(groups)]
    return [list(range(i, ranks, groups)) for i in range(groups)]
