"""Compute once what many rows share.

    layer = on_distinct(case, case.layer_group, layer_work)

A space of strategies is a product: thousands of rows differ in their schedule or sharding and
share what one layer does. Where the rows' groups are known, a function runs on one row of each
group and its results are handed out; the numbers are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from scalewise.numeric import Index
    from scalewise.step.case import Case

T = TypeVar("T")

WORTH_IT = 256
"""Rows below which looking for groups costs more than it saves."""


def on_distinct(case: Case, group: Index | None, function: Callable[[Case], T]) -> T:
    """Apply a function to one row of each group, and hand its results to all rows.

    Args:
        case: The steps.
        group: A number per row; rows with the same one give the same result. None: not known.
        function: From a case to an array, a tuple or a data class of arrays.
    """
    if group is None or len(case) < WORTH_IT:
        return function(case)
    rows = np.arange(len(case))
    first = np.full(int(group.max()) + 1, -1)
    # The last write wins, so writing backwards leaves the first row of each group.
    first[group[::-1]] = rows[::-1]
    present = first >= 0
    place = (np.cumsum(present) - 1)[group]
    handed: T = _handed_out(function(case.take(first[present])), place)
    return handed


def _handed_out(result: Any, place: Index) -> Any:
    """The same structure with every array laid out for all rows."""
    if isinstance(result, np.ndarray):
        return result[..., place]
    if isinstance(result, tuple):
        return tuple(_handed_out(item, place) for item in result)
    if is_dataclass(result) and not isinstance(result, type):
        parts = {f.name: _handed_out(getattr(result, f.name), place) for f in fields(result)}
        return type(result)(**parts)
    return result
