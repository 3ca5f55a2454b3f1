"""Arrays of strategies: one array per field, with the names of `Strategy`.

    many = Strategies.of([parse_strategy("fsdp8-mb2"), parse_strategy("fsdp4-tp2-mb2")])
    many = Strategies.columns(tp=[1, 2, 4], dp_shard=[8, 4, 2], sharding="zero3")
    many[1]                         # a Strategy again

Words of `Strategy` are small numbers here (their index in a tuple of words), so that a space of
millions is a few arrays. Columns may have several axes, with length 1 along those they do not
depend on: a product is then never materialized, and everything derived from a column is computed
once per value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from scalewise.errors import InputError, did_you_mean
from scalewise.numeric import Array, Index, maximum, where
from scalewise.offload import OFFLOADS
from scalewise.precision import PRECISIONS
from scalewise.recompute import MAX_BLOCKS, MODULES, modules_of, recomputed_blocks
from scalewise.strategy import SCHEDULES, Strategy

# Words by field; the index in the tuple is the code, None means "not stated".
WORDS: dict[str, tuple[object, ...]] = {
    "sharding": ("ddp", "zero1", "zero2", "zero3"),
    "schedule": SCHEDULES,
    "recompute": ("none", "selective", "full", "attention", "op"),
    "cp_method": ("ring", "allgather"),
    "precision": (None, *PRECISIONS),
    "attention_precision": (None, "fp8"),
    "gather_precision": (None, "fp8", "int8"),
    "compiled": (None, False, True),
    "reduce_precision": (None, "fp32", "bf16", "int4"),
    "replica_sync": (None, "once"),
    "reduce_each": (None, False, True),
}

# K of N blocks that recompute have the code N * 1024 + K, beyond those of the words.
_BLOCKS = MAX_BLOCKS + 1.0

# Counts that may be absent; 0 means None.
_OPTIONAL = (
    "num_microbatches", "first_stage_layers", "last_stage_layers", "backward_shard", "bucket_mb",
)  # fmt: skip

# Counts and switches that may be 0.
_FROM_ZERO = (
    "prefetch", "reshard_after_forward", "sequence_parallel", "overlap_dp", "overlap_tp",
    "overlap_pp", "overlap_ep", "recompute_modules", "hierarchical_gather", "offload",
)  # fmt: skip

# Fields of words joined by "+": a bit for each word in this order.
_BITS = {"recompute_modules": tuple(MODULES), "offload": tuple(OFFLOADS)}

FIELDS: tuple[str, ...] = Strategy.__struct_fields__
_DEFAULTS = Strategy()
_TOGETHER = 1024
"""Rows that are read at once where all are."""


def encode(field: str, value: object) -> float:
    """Return the code of a field's value."""
    if field in WORDS:
        words = WORDS[field]
        if value not in words and field == "recompute" and isinstance(value, str):
            blocks = recomputed_blocks(value)
            if blocks is not None:
                return blocks[1] * _BLOCKS + blocks[0]
        if value not in words:
            known = [str(word) for word in words]
            raise InputError(f"unknown {field} {value}", hint=did_you_mean(str(value), known))
        return float(words.index(value))
    if field in _BITS and isinstance(value, str):
        said = modules_of(value)
        return float(sum(2**bit for bit, word in enumerate(_BITS[field]) if word in said))
    if value is None:
        return 0.0
    if not isinstance(value, bool | int | float):
        raise InputError(f"{field} = {value!r} is not a number", hint=f"for example {field} = 2")
    return float(value)


@lru_cache(maxsize=4096)
def decode(field: str, code: float) -> Any:
    """Return the value of a code."""
    if field == "recompute" and code >= _BLOCKS:
        return "{1:.0f}of{0:.0f}".format(*divmod(code, _BLOCKS))
    if field in _BITS:
        return "+".join(word for bit, word in enumerate(_BITS[field]) if int(code) >> bit & 1)
    if field in WORDS:
        return WORDS[field][int(code)]
    if field in _OPTIONAL:
        return int(code) or None
    if isinstance(getattr(_DEFAULTS, field), bool):
        return bool(code)
    return int(code)


def _column(field: str, value: object) -> Array:
    """Encode one value, or a sequence of words or numbers.

    Raises:
        InputError: On words or counts that no strategy can have.
    """
    items = np.atleast_1d(np.asarray(value))
    if items.ndim > 1:
        raise InputError(f"{field} must be one value or a flat list", hint="flatten it first")
    if items.dtype.kind not in "iuf":
        return np.array([encode(field, item) for item in items.tolist()])
    numbers = items.astype(float)
    minimum = 0.0 if field in WORDS or field in _OPTIONAL or field in _FROM_ZERO else 1.0
    maximum = len(WORDS[field]) - 1.0 if field in WORDS else 2.0**22
    wrong = ~((numbers >= minimum) & (numbers <= maximum) & (numbers == np.floor(numbers)))
    if np.any(wrong):
        raise InputError(
            f"{field} = {numbers[wrong][0]:g} must be a whole number from {minimum:g} "
            f"to {maximum:g}",
            hint="give counts as numbers and choices as words",
        )
    return numbers


def recompute_fraction(codes: Array) -> Array:
    """Return the fraction of blocks that full recompute repeats, by code; 0 for other kinds.

    >>> codes = [encode("recompute", kind) for kind in ("none", "op", "1of4", "full")]
    >>> recompute_fraction(np.array(codes)).tolist()
    [0.0, 0.0, 0.25, 1.0]
    """
    every, some = divmod(codes, _BLOCKS)
    whole = where(codes == encode("recompute", "full"), 1.0, 0.0)
    return where(every > 0.0, some / maximum(every, 1.0), whole)


class Strategies:
    """A struct of arrays; every field of `Strategy` is an attribute, all of one `shape`."""

    shape: tuple[int, ...]
    """Shape that the columns broadcast to: (rows,), the lengths of the axes of a product, or ()."""

    def __init__(self, columns: dict[str, Array], given: Sequence[Strategy] | None = None) -> None:
        self._columns = columns
        self._given = given
        # Attributes, because `__getattr__` is slow.
        self.__dict__.update(columns)
        first = next(iter(columns.values()))
        self.shape = (
            first.shape
            if first.ndim <= 1
            else np.broadcast_shapes(*map(np.shape, columns.values()))
        )

    @classmethod
    def of(cls, strategies: Sequence[Strategy]) -> Strategies:
        """Return the columns of a list of strategies.

        Raises:
            InputError: If there are none.
        """
        if not strategies:
            raise InputError("no strategy is given", hint="give at least one")
        rows = [[encode(field, getattr(s, field)) for s in strategies] for field in FIELDS]
        return cls(dict(zip(FIELDS, np.array(rows), strict=True)), strategies)

    @classmethod
    def one(cls, strategy: Strategy) -> Strategies:
        """Return one strategy as numbers instead of columns: of shape (), and the fastest."""
        codes = np.array([encode(field, getattr(strategy, field)) for field in FIELDS])
        return cls(dict(zip(FIELDS, codes, strict=True)), [strategy])

    @classmethod
    def columns(cls, **columns: object) -> Strategies:
        """Return strategies from columns; scalars hold for all rows, absent fields are defaults.

        Words may be given as words or as codes.

        Raises:
            InputError: On an unknown field, or columns of different lengths.
        """
        for name in columns:
            if name not in FIELDS:
                raise InputError(f"Strategy has no field {name!r}", hint=did_you_mean(name, FIELDS))
        arrays = {
            field: _column(field, columns.get(field, getattr(_DEFAULTS, field))) for field in FIELDS
        }
        lengths = {len(array) for array in arrays.values()} - {1}
        if len(lengths) > 1:
            raise InputError(
                f"columns have different lengths: {sorted(lengths)}",
                hint="give one value, or one for every strategy",
            )
        length = lengths.pop() if lengths else 1
        if length == 0:
            raise InputError("no strategy is given", hint="give at least one")
        return cls({name: np.broadcast_to(array, (length,)) for name, array in arrays.items()})

    @classmethod
    def of_codes(cls, codes: Array) -> Strategies:
        """Build from what `codes` gives."""
        return cls(dict(zip(FIELDS, codes, strict=True)))

    def codes(self, places: Index) -> Array:
        """Return some rows, by flat index: a line per field, in the order of `FIELDS`."""
        index = np.unravel_index(places, self.shape)
        found = np.empty((len(FIELDS), len(places)))
        for line, name in zip(found, FIELDS, strict=True):
            column = self._columns[name]
            if column.size == 1:
                line[:] = column.reshape(-1)
            else:
                # A tenth of the cost of `np.broadcast_to`, which a small search would notice.
                along = zip(index, column.shape, strict=True)
                line[:] = column[tuple(place if n > 1 else 0 for place, n in along)]
        return found

    def __len__(self) -> int:
        return math.prod(self.shape)

    def __getattr__(self, name: str) -> Array:
        try:
            return self.__dict__["_columns"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, row: int) -> Strategy:
        if self._given is not None:
            return self._given[row]
        (found,) = self._decoded(np.array([row]))
        return found

    def __iter__(self) -> Iterator[Strategy]:
        if self._given is not None:
            yield from self._given
            return
        for start in range(0, len(self), _TOGETHER):
            yield from self._decoded(np.arange(start, min(start + _TOGETHER, len(self))))

    def _decoded(self, places: Index) -> Iterator[Strategy]:
        """Some rows as objects, by flat index."""
        for codes in self.codes(places).T.tolist():
            values = {field: decode(field, code) for field, code in zip(FIELDS, codes, strict=True)}
            yield msgspec.convert(values, Strategy)
