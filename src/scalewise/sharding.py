"""Variants of sharding and of the reduction of gradients: words, checks and tokens of strategies.

    check_variants(strategy)                # InputError where a variant does not go with the rest
    variant_tokens(strategy)                # ["hpz8", "qwz", "qgz"]

ZeRO++ is Wang et al., arXiv 2306.10209; MiCS is Zhang et al., arXiv 2205.00119. This file knows
strategies by their fields alone, and imports nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from scalewise.errors import InputError

Strategy: TypeAlias = Any
"""A `scalewise.strategy.Strategy`, which is built on this file."""

FLAGS: dict[str, tuple[str, object]] = {
    "qwz": ("gather_precision", "int8"),
    "qgz": ("reduce_precision", "int4"),
    "synconce": ("replica_sync", "once"),
    "hiergather": ("hierarchical_gather", True),
    "reduceeach": ("reduce_each", True),
    "reduceonce": ("reduce_each", False),
}
"""Variants without a number, by token."""

COUNTS = {"hpz": "backward_shard", "bucket": "bucket_mb"}
"""Variants with a number, by the letters of their token."""

MIB = 2.0**20
"""Bytes of the unit of `bucket_mb`: PyTorch's bucket_cap_mb counts in MiB (documentation of
torch.nn.parallel.DistributedDataParallel)."""

VARIANTS = {
    "hpz": "a copy of the parameters in every scale-up domain, for the all-gather of backward",
    "qwz": "all-gathers of parameters in int8",
    "qgz": "reductions of gradients in int4, in two hops",
    "mics": "replicas synchronized once per step, hierarchical all-gathers",
    "reduceonce": "gradients reduced once per step",
    "reduceeach": "gradients reduced after every micro-batch",
}
"""Variants that a search can try, by word."""

_SHARDED: dict[str, tuple[object, str]] = {
    "backward_shard": (None, "hpz"),
    "replica_sync": (None, "synconce"),
    "hierarchical_gather": (False, "hiergather"),
}
"""Fields that only fully sharded strategies have: their default, and their token."""


def check_variants(s: Strategy) -> None:
    """Check that the variants of a strategy go with its sharding.

    Raises:
        InputError: Naming the variant and what it needs.
    """
    given = [(field, token) for field, (default, token) in _SHARDED.items()
             if getattr(s, field) != default]  # fmt: skip
    given += [("gather_precision", "qwz")] * (s.gather_precision == "int8")
    given += [("reduce_precision", "qgz")] * (s.reduce_precision == "int4")
    if given and s.sharding != "zero3":
        field, token = given[0]
        raise InputError(
            f"{field} = {getattr(s, field)} needs sharding zero3 (fsdp, hsdp), not {s.sharding}",
            hint=f"use fsdp, or drop the {token} token",
        )
    if s.backward_shard is not None and not s.reshard_after_forward:
        raise InputError(
            f"backward_shard = {s.backward_shard} needs parameters that are freed after forward, "
            "but reshard_after_forward is off",
            hint="keep hpz or noreshard",
        )
    if s.bucket_mb is not None and s.sharding == "zero3":
        raise InputError(
            f"bucket_mb = {s.bucket_mb} needs ddp, zero1 or zero2: fully sharded layers are "
            "reduced one by one",
            hint="drop the bucket token",
        )


def dropped(changes: dict[str, Any], before: Strategy) -> dict[str, object]:
    """Return the variants that a change of other fields takes away, with their defaults.

    Args:
        changes: Fields that change, by name.
        before: The strategy.
    """
    fields = ("sharding", "reshard_after_forward", "gather_precision", "reduce_precision")
    after = {name: changes.get(name, getattr(before, name)) for name in fields}
    gone: dict[str, object] = {}
    if after["sharding"] != "zero3":
        gone |= {field: default for field, (default, _) in _SHARDED.items()}
        gone |= {"gather_precision": None} if after["gather_precision"] == "int8" else {}
        gone |= {"reduce_precision": None} if after["reduce_precision"] == "int4" else {}
    else:
        gone["bucket_mb"] = None
    if not after["reshard_after_forward"]:
        gone["backward_shard"] = None
    return {name: value for name, value in gone.items() if name not in changes}


def variant_tokens(s: Strategy) -> list[str]:
    """Return the tokens of the variants of a strategy, without those that `data_token` says."""
    found = [f"{token}{getattr(s, field)}" for token, field in COUNTS.items()
             if getattr(s, field) is not None]  # fmt: skip
    said = ("synconce", "hiergather") if is_mics(s) else ()
    return found + [token for token, (field, value) in FLAGS.items()
                    if token not in said and getattr(s, field) == value
                    and getattr(s, field) is not None]  # fmt: skip


def variant_words(s: Strategy) -> list[str]:
    """Return the variants of a strategy in words, for launch lines."""
    found = [words for field, value, words in _WORDS if getattr(s, field) == value]
    if s.backward_shard is not None:
        found.append(f"backward all-gathers in groups of {s.backward_shard}")
    if s.bucket_mb is not None:
        found.append(f"buckets of {s.bucket_mb} MiB")
    return found


_WORDS = (
    ("gather_precision", "int8", "all-gathers in int8"),
    ("reduce_precision", "int4", "gradients reduced in int4"),
    ("replica_sync", "once", "replicas synchronized once per step"),
    ("hierarchical_gather", True, "hierarchical all-gathers"),
    ("reduce_each", True, "gradients reduced after every micro-batch"),
    ("reduce_each", False, "gradients reduced once per step"),
)
"""Variants of a field's value, in words."""


def is_mics(s: Strategy) -> bool:
    """Whether replicas are synchronized once per step, and all-gathers are hierarchical: MiCS."""
    return bool(s.replica_sync == "once" and s.hierarchical_gather)


def data_token(s: Strategy) -> str:
    """Return the data-parallel part of a strategy: ddp8, zero1x4x16, fsdp64, hsdp4x64, mics4x64."""
    if s.sharding == "ddp":
        return f"ddp{s.dp_replicate}"
    both = f"{s.dp_replicate}x{s.dp_shard}"
    if s.sharding == "zero3":
        if is_mics(s):
            return f"mics{both}"
        return f"hsdp{both}" if s.dp_replicate > 1 else f"fsdp{s.dp_shard}"
    return f"{s.sharding}x{both if s.dp_replicate > 1 else s.dp_shard}"


def put_data_parallel(
    kind: str, first: int, second: int | None, put: Callable[[str, object, str], None], token: str
) -> None:
    """Put the fields of a data-parallel token.

    Args:
        kind: Its word, such as "hsdp".
        first: Its first number.
        second: Its second number, if it has one.
        put: Called with field, value and token.
        token: The whole token.

    Raises:
        InputError: If it has too many numbers, or too few.
    """
    if kind in ("ddp", "dp"):
        if second is not None:
            raise InputError(f"`{token}` takes one number", hint="for example ddp8")
        put("sharding", "ddp", token)
        put("dp_replicate", first, token)
        return
    if kind in ("hsdp", "mics") and second is None:
        raise InputError(
            f"`{token}` needs replicas x shards",
            hint=f"for example {kind}4x64 for 4 replicas of 64",
        )
    if kind == "mics":
        put("replica_sync", "once", token)
        put("hierarchical_gather", True, token)
    put("sharding", {"zero1x": "zero1", "zero2x": "zero2"}.get(kind, "zero3"), token)
    put("dp_replicate", first if second is not None else 1, token)
    put("dp_shard", second if second is not None else first, token)
