"""The one numeric type: a float, or an array of them.

Every formula in `physics` and `step` takes and returns `Num`, so that one estimate and a million
estimates run through the same lines. Two rules keep scalar and array results equal to the last
bit: transcendental functions come from NumPy (never `math` or `**`), and sums are written out
instead of reduced (NumPy's reductions change their order with the length).

This file imports nothing else of scalewise.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Num: TypeAlias = float | Array
Mask: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.intp]
_Any = TypeVar("_Any", Array, Mask)


def lean(values: _Any) -> _Any:
    """Drop to length 1 every axis along which nothing changes; a flat array stays as it is."""
    if values.ndim > 1:
        for axis, length in enumerate(values.shape):
            if length > 1:
                first = values[(slice(None),) * axis + (slice(0, 1),)]
                if (values == first).all():
                    values = first
    return values


def stacked(*columns: Num) -> Array:
    """Lay columns along a new leading axis; they may differ in the axes they depend on."""
    # Asking an array for its shape is much cheaper than `np.shape`.
    shapes = {column.shape for column in columns if isinstance(column, np.ndarray)}
    if len(shapes) <= 1:
        return np.array(columns)
    laid: Array = np.empty((len(columns), *np.broadcast(*columns).shape))
    for place, column in enumerate(columns):
        laid[place] = column
    return laid
