"""Words of deadlines and budgets."""

import pytest

from scalewise.ask.limits import days_of, dollars_of
from scalewise.errors import InputError


def test_days_and_dollars():
    assert days_of("21d") == 21.0
    assert days_of("36h") == 1.5
    assert dollars_of("$1.5M") == 1.5e6
    assert dollars_of("250,000") == 250_000.0


@pytest.mark.parametrize("text", ["21", "soon", "0d", "-1d"])
def test_a_deadline_is_a_time(text):
    with pytest.raises(InputError, match=f"--deadline {text}: "):
        days_of(text)


@pytest.mark.parametrize("text", ["0", "free", "-5", "$"])
def test_a_budget_is_an_amount(text):
    with pytest.raises(InputError, match="not an amount of dollars"):
        dollars_of(text)
