"""Numeric type of all formulas: a float, or an array of floats.

Every formula in `physics` and `step` takes and returns `Num`, so that one estimate and a million
estimates run through the same lines. Two rules make scalar and array results equal to the last bit:
transcendental functions come from NumPy (never `math` or `**`), and sums are written out instead of
reduced (the order of NumPy's reductions depends on the length). A third makes one estimate fast:
`where`, `minimum` and `maximum` are those of this file; on one number `np.where` takes as long as
twenty products.

This file imports nothing else of scalewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Num: TypeAlias = float | Array
Mask: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.intp]
_Any = TypeVar("_Any", Array, Mask)
_Value = TypeVar("_Value")
_FLOAT: Any = np.float64
"""A number of Python as one of NumPy: dividing by it and `~` are then as with arrays."""


class lazy(Generic[_Value]):  # noqa: N801 - used as a decorator, like `property`
    """A property that is computed once and then kept.

    Python 3.11 holds a lock in `functools.cached_property`, for longer than one row takes to
    compute. Here two threads may compute the same value, which does no harm.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, instance: None, owner: object = None) -> lazy[_Value]: ...
    @overload
    def __get__(self, instance: object, owner: object = None) -> _Value: ...
    def __get__(self, instance: object, owner: object = None) -> lazy[_Value] | _Value:
        if instance is None:
            return self
        value: _Value = self.compute(instance)
        # From now on the attribute itself is found first.
        instance.__dict__[self.name] = value
        return value


def some(values: Num | Mask) -> bool:
    """Whether any value is not zero; for one row much faster than `np.any`."""
    if isinstance(values, np.ndarray) and values.size != 1:
        return bool(values.any())
    return bool(values)


def every(values: Num | Mask) -> bool:
    """Whether no value is zero; for one row much faster than `np.all`."""
    if isinstance(values, np.ndarray) and values.size != 1:
        return bool(values.all())
    return bool(values)


def mask(condition: Any) -> Mask:
    """Give a condition its type, which operators on `Num` lose."""
    return condition  # type: ignore[no-any-return]


def where(condition: Num | Mask, yes: Num | Mask, no: Num | Mask) -> NDArray[Any]:
    """`np.where`; on one number several times as fast."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    chosen: Any = yes if condition else no
    result: NDArray[Any] = _FLOAT(chosen) if type(chosen) is float else chosen
    return result


def minimum(a: Num, b: Num) -> Array:
    """`np.minimum` of what is never NaN; on two numbers much faster."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    less: Any = b if b < a else a
    result: Array = _FLOAT(less) if type(less) is float else less
    return result


def maximum(a: Num, b: Num) -> Array:
    """`np.maximum` of what is never NaN; on two numbers much faster."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    more: Any = b if b > a else a
    result: Array = _FLOAT(more) if type(more) is float else more
    return result


def keep_freed_memory() -> None:
    """Make the C library keep freed arrays for the next ones.

    glibc returns them to the system and takes them again, page by page, unless it has once seen a
    block of this size freed: a third of the time of a large search.
    """
    np.empty(31 * 2**20, dtype=np.uint8)


def squeeze_constant_axes(values: _Any) -> _Any:
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


def scalar(value: object) -> float:
    """The only number of a float or of an array of length one."""
    return float(np.asarray(value).reshape(-1)[0])
