"""The numeric type: rows, axes and properties computed once."""

from dataclasses import dataclass

import numpy as np
import pytest

from scalewise.numeric import every, lazy, scalar, some, squeeze_constant_axes, stacked


@pytest.mark.parametrize(
    ("values", "any_", "all_"),
    [
        (0.0, False, False),
        (2.0, True, True),
        (np.array([0.0]), False, False),
        (np.array([0.5]), True, True),
        (np.array([[True]]), True, True),
        (np.array([False]), False, False),
        (np.array([0.0, 1.0]), True, False),
        (np.array([[True, True], [True, False]]), True, False),
        (np.array([2.0, 1.0]), True, True),
        (np.zeros((2, 3)), False, False),
        (np.array([]), False, True),
    ],
)
def test_some_and_every_agree_with_numpy(values, any_, all_):
    assert (some(values), every(values)) == (any_, all_)
    assert (np.any(values), np.all(values)) == (any_, all_)


def test_lazy_properties_are_computed_once():
    calls = []

    @dataclass(frozen=True)
    class Square:
        side: float

        @lazy
        def area(self) -> float:
            """Side times side."""
            calls.append(self.side)
            return self.side * self.side

    square = Square(3.0)
    assert (square.area, square.area, Square(2.0).area) == (9.0, 9.0, 4.0)
    assert calls == [3.0, 2.0]
    assert Square.area.__doc__ == "Side times side."


def test_axes_without_change_are_squeezed():
    values = np.broadcast_to(np.array([[1.0], [2.0]]), (2, 4))
    assert squeeze_constant_axes(values).tolist() == [[1.0], [2.0]]
    assert squeeze_constant_axes(np.ones((2, 4))).shape == (1, 1)
    assert squeeze_constant_axes(np.ones(4)).shape == (4,)


def test_columns_of_different_axes_are_stacked():
    laid = stacked(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), 5.0)
    assert laid.tolist() == [[[1, 2], [1, 2]], [[3, 3], [4, 4]], [[5, 5], [5, 5]]]
    assert stacked(np.array([1.0]), np.array([2.0])).tolist() == [[1.0], [2.0]]


def test_scalar_reads_the_only_number():
    assert [scalar(each) for each in (2, np.float64(2), np.array([2.0]), np.array([[2.0]]))] == [
        2.0
    ] * 4
