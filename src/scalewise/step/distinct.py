"""GEMM times of a list of layouts, computed once for each way to split a layer.

    @of_distinct_splits
    def gemms(case: Case) -> Gemms: ...

A list of layouts repeats the same degrees of tensor, context and expert parallelism with other
pipelines and shards, and products of matrices cost more than everything else of an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import NamedTuple, TypeVar

import numpy as np

from scalewise.numeric import Index
from scalewise.step.case import Case, column_names

LAYOUTS = 32
"""Layouts below which finding equal ones costs more than it spares."""
_SPLIT = ("tp", "cp", "ep", "etp", "sequence_parallel", "micro_batch", "mlp_tiles")
"""What the shapes of products depend on, of a strategy."""
_FIXED = tuple(
    name for part in ("shape", "rates", "habits", "sparse", "tuned") for name in column_names(part)
)
"""What they depend on besides: the same for all layouts."""

_Times = TypeVar("_Times", bound=NamedTuple)


@dataclass(frozen=True, kw_only=True)
class Distinct:
    """Layouts of a case that split a layer in different ways."""

    case: Case
    """One layout of each kind."""
    count: int
    """Number of kinds."""
    kinds: Index
    """Kind of each layout of the whole case."""


def of_distinct_splits(compute: Callable[[Case], _Times]) -> Callable[[Case], _Times]:
    """Decorate a function of the shapes of a layer's products, for lists along the first axis.

    It may read any field of model, chip and software, and of a strategy those of `_SPLIT`.
    """

    @wraps(compute)
    def computed(case: Case) -> _Times:
        found = case.distinct
        if found is None:
            return compute(case)
        few, kinds = compute(found.case), found.kinds
        spread = (each[kinds] if np.shape(each)[:1] == (found.count,) else each for each in few)
        return type(few)(*spread)

    return computed


def distinct_splits(case: Case) -> Distinct | None:
    """Return the layouts with different splits of a layer; None for few layouts or other axes."""
    shape = case.split.tp.shape
    if len(shape) < 2 or shape[0] < LAYOUTS:
        return None
    columns, key = case.columns(), np.zeros(shape[0])
    if any(len(columns[name]) > 1 for name in _FIXED):
        return None
    for name in _SPLIT:
        column = columns[name]
        if len(column) > 1:
            if column.size > len(column):
                return None
            _, place = np.unique(column, return_inverse=True)
            key = key * (place.max() + 1.0) + place.reshape(-1)
    _, first, kinds = np.unique(key, return_index=True, return_inverse=True)
    few = {name: c[first] if len(c) > 1 else c for name, c in columns.items()}
    return Distinct(case=Case.of_columns(few), count=len(first), kinds=kinds)
