"""Power: published watts, and what cannot be left out."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.physics.power import ACTIVITY, device_watts, facility_watts
from scalewise.step.terms import Terms


def test_every_term_of_a_step_has_an_activity():
    assert set(ACTIVITY) == {field.name for field in dataclasses.fields(Terms)}
    assert all(0.0 < share < 1.0 for share in ACTIVITY.values())


def test_an_h200_in_matrix_products():
    # 662 of 700 W, idle at 80.
    assert device_watts({"gemm": 1.0}, 1.0, idle=80.0, cap=700.0) == pytest.approx(662.0, abs=1.0)


def test_shares_are_weighed():
    half = device_watts({"gemm": 0.5, "bubble": 0.5}, 1.0, idle=100.0, cap=700.0)
    gemm = device_watts({"gemm": 1.0}, 1.0, idle=100.0, cap=700.0)
    bubble = device_watts({"bubble": 1.0}, 1.0, idle=100.0, cap=700.0)
    assert half == pytest.approx((gemm + bubble) / 2.0)
    assert bubble == pytest.approx(400.0)  # waiting draws half of the range


def test_waiting_in_a_collective_is_far_from_idle():
    # H100s under FSDP draw 5.87 % less when 37.22 % of the throughput is lost to exposed
    # communication (arXiv 2411.13055).
    busy = device_watts({"gemm": 1.0}, 1.0, idle=70.0, cap=700.0)
    lost = device_watts({"gemm": 1.0 - 0.3722, "dp_all_gather": 0.3722}, 1.0, idle=70.0, cap=700.0)
    assert 1.0 - lost / busy == pytest.approx(0.0587, abs=0.01)


def test_facility():
    assert facility_watts(600.0, host=300.0, network=100.0, pue=1.2) == pytest.approx(1200.0)


@given(
    st.dictionaries(st.sampled_from(sorted(ACTIVITY)), st.floats(0.001, 1.0), min_size=1),
    st.floats(0.0, 300.0),
    st.floats(0.1, 1000.0),
)
def test_between_idle_and_cap(weights, idle, headroom):
    total = sum(weights.values())
    watts = device_watts(weights, total, idle=idle, cap=idle + headroom)
    assert idle <= watts <= idle + headroom
