"""Variants of sharding that a search tries besides: each word on and off, alone and together.

    with_variants(axis, ("hpz", "qgz"), domain=8)        # four options for each that can have both

A search tries none by default: quantized collectives change the result of training, and the others
are a choice of the software.
"""

from __future__ import annotations

from scalewise.errors import InputError, did_you_mean
from scalewise.sharding import VARIANTS
from scalewise.strategies import encode

Option = dict[str, float]
"""Fields of a strategy that an option sets, as codes."""

_OFF: Option = {
    "backward_shard": 0.0, "gather_precision": 0.0, "reduce_precision": 0.0, "replica_sync": 0.0,
    "hierarchical_gather": 0.0, "reduce_each": 0.0,
}  # fmt: skip
_INT8, _INT4 = encode("gather_precision", "int8"), encode("reduce_precision", "int4")
_ONCE = encode("replica_sync", "once")
_ZERO3 = encode("sharding", "zero3")


def check_words(words: tuple[str, ...]) -> None:
    """Check that words name variants.

    Raises:
        InputError: On an unknown one.
    """
    for word in words:
        if word not in VARIANTS:
            raise InputError(f"unknown variant {word}", hint=did_you_mean(word, VARIANTS))


def with_variants(axis: list[Option], words: tuple[str, ...], domain: int) -> list[Option]:
    """Return options of data parallelism with every combination of variants that they can have.

    Args:
        axis: Options without variants.
        words: Variants to try, of `VARIANTS`.
        domain: Accelerators of one scale-up domain: the largest group of hpz.
    """
    found: list[Option] = []
    for option in axis:
        several = [{**_OFF, **option}]
        for word in words:
            changes = _changes(word, option, domain)
            several += [{**each, **changes} for each in several] if changes else []
        found += several
    # Once and each exclude one another: the later of two words holds, so that some are equal.
    return list({tuple(sorted(each.items())): each for each in found}.values())


def _changes(word: str, option: Option, domain: int) -> Option:
    """Return what a variant changes of an option; nothing where it does not apply."""
    several = option["dp_replicate"] * option["dp_shard"] > 1.0
    if word in ("reduceonce", "reduceeach") and several:
        return {"reduce_each": encode("reduce_each", word == "reduceeach")}
    if option["sharding"] != _ZERO3:
        return {}
    if word == "mics" and option["dp_replicate"] > 1.0:
        return {"replica_sync": _ONCE, "hierarchical_gather": 1.0}
    if word == "qwz":
        return {"gather_precision": _INT8}
    if word == "qgz":
        return {"reduce_precision": _INT4}
    if word == "hpz" and option["reshard_after_forward"]:
        shards = int(option["dp_shard"])
        groups = [n for n in range(2, min(domain, shards - 1) + 1) if shards % n == 0]
        return {"backward_shard": float(groups[-1])} if groups else {}
    return {}
