"""Ownership and carbon: hand-computed numbers, limits, and the inverse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.physics.carbon import emissions
from scalewise.physics.cost import break_even_price
from scalewise.physics.ownership import annuity, break_even_utilization, hour_of_use, yearly


def test_an_annuity_pays_back_what_was_borrowed():
    paid, debt = annuity(5.0, 0.07), 1.0
    for _ in range(5):
        debt = debt * 1.07 - paid
    assert debt == pytest.approx(0.0, abs=1e-12)
    assert annuity(5.0, 1e-9) == pytest.approx(annuity(5.0, 0.0), rel=1e-6)


def test_an_hour_of_use_by_hand():
    # 43,000 / 4 years / 8,766 h / 0.8 = 1.5329, and 1.25 kW x $0.08 = 0.10.
    found = hour_of_use(43_000.0, years=4.0, utilization=0.8, watts=1250.0, usd_per_kwh=0.08)
    assert found == pytest.approx(1.5329 + 0.10, abs=1e-4)
    # A quarter of an idle hour for each hour of use: 0.25 x 0.4 kW x $0.08 = 0.008.
    idle = hour_of_use(
        43_000.0, years=4.0, utilization=0.8, watts=1250.0, idle_watts=400.0, usd_per_kwh=0.08
    )
    assert idle - found == pytest.approx(0.008)
    assert yearly(40_000.0, 4.0, interest=0.08, upkeep=0.05) == pytest.approx(14_076.8, abs=0.1)


@given(
    st.floats(5e3, 1e5), st.floats(1.0, 8.0), st.floats(0.05, 1.0), st.floats(0.0, 0.2),
    st.floats(0.0, 2e3), st.floats(0.0, 800.0),
)  # fmt: skip
def test_the_break_even_utilization_is_where_both_cost_the_same(
    purchase, years, utilization, rate, watts, idle
):
    rest = {
        "years": years, "interest": rate, "upkeep": rate, "watts": watts, "idle_watts": idle,
        "usd_per_kwh": 0.1,
    }  # fmt: skip
    rent = hour_of_use(purchase, utilization=utilization, **rest)
    found = break_even_utilization(purchase, rent=rent, **rest)
    assert found == pytest.approx(utilization, rel=1e-9)


def test_owning_may_never_pay():
    assert break_even_utilization(43_000.0, years=4.0, rent=1.0) is None
    assert break_even_utilization(100.0, years=4.0, rent=0.1, watts=1250.0, usd_per_kwh=0.2) is None


def test_emissions_and_break_even_prices():
    assert emissions(3.6e12, 0.445) == pytest.approx(445_000.0)
    assert break_even_price(2.95, rate=2200.0, other=1000.0) == pytest.approx(6.49)
