"""The numeric type: rows, axes and properties computed once."""

from dataclasses import dataclass

import numpy as np
import pytest

from scalewise.numeric import (
    every,
    lazy,
    maximum,
    minimum,
    scalar,
    some,
    squeeze_constant_axes,
    stacked,
    where,
)


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


@pytest.mark.parametrize("a", [1.0, 2.0, np.float64(3.0), np.array([0.0, 2.0, 4.0])])
@pytest.mark.parametrize("b", [2.0, np.float64(1.0), np.array([3.0, 2.0, 1.0])])
def test_choices_are_those_of_numpy(a, b):
    for ours, theirs in ((minimum(a, b), np.minimum(a, b)), (maximum(a, b), np.maximum(a, b))):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(where(a <= b, a, b), np.where(a <= b, a, b))
    assert np.array_equal(where(a > b, a, b), np.where(a > b, a, b))


def test_chosen_numbers_stay_numbers_of_numpy():
    # Python's own refuse to be divided by zero, and make ~ an integer of their conditions.
    for chosen in (where(True, 0.0, 1.0), minimum(0.0, 1.0), maximum(-1.0, 0.0)):
        assert type(chosen) is np.float64
        assert ~(chosen > 0.0) is np.True_
        with np.errstate(divide="ignore"):
            assert 1.0 / chosen == np.inf


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
