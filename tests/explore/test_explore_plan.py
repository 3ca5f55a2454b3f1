"""Rows of a plan: limits by either end, orders, nearest misses, break-even prices."""

import math
from dataclasses import replace

import pytest

import scalewise as sw
from scalewise.catalog.regions import load_region
from scalewise.explore.between import between, beyond
from scalewise.explore.plan import (
    Amount,
    Row,
    Wanted,
    answers,
    break_evens,
    nearest_misses,
    priced,
    ranked,
    row_of,
    usual_order,
)
from scalewise.price import Price

MARKET = Price(usd_per_hour=3.0, kind="market")


def made(cluster, gpus, days, *, price=MARKET, model="m"):
    """A row of `days` with an interval of 10% below and 20% above."""
    row = Row(
        model=model, cluster=cluster, accelerators=gpus,
        days=Amount(days, 0.9 * days, 1.2 * days), mwh=Amount(days * gpus, 0.0, 0.0),
    )  # fmt: skip
    return priced(row, price)


def test_a_row_is_an_estimate_as_a_whole_run():
    e = sw.estimate(
        "llama-2-7b", on="dgx-h100", gpus=64, strategy="fsdp64-mb2", batch=1024, tokens="1T"
    )
    row = row_of(e, region=load_region("us"))
    assert row.days == (e.days, *e.days_interval)
    assert row.usd.value == pytest.approx(2.95 * 64 * 24 * e.days)
    assert row.mwh.value == pytest.approx(e.run_joules / 3.6e9)
    assert row.tonnes.value == pytest.approx(0.35 * row.mwh.value)
    # All four follow from throughput: one relative interval.
    for amount in (row.usd, row.mwh, row.tonnes):
        assert amount.high / amount.value == pytest.approx(row.days.high / row.days.value)
    assert row.goodput == (e.goodput.fraction, e.goodput.low, e.goodput.high)
    assert row.gpu_hours == pytest.approx(64 * 24 * e.days)


def test_spares_are_paid_for():
    row = replace(made("a", 100, 10.0), cost_factor=1.1)
    assert priced(row, MARKET).usd.value == pytest.approx(3.0 * 110 * 240)
    assert row.gpu_hours == pytest.approx(110 * 240)


def test_the_far_end_meets_a_limit_or_the_prediction():
    row = made("a", 100, 20.0)
    assert not Wanted(days=21.0).met(row)
    assert Wanted(days=21.0, far_end=False).met(row)
    assert Wanted(days=24.0).met(row)
    assert Wanted(days=21.0).excess(row) == {"days": pytest.approx(24.0 / 21.0)}
    # 100 GPUs x 20 days x 24 h x $3 = $144,000, and 20% more at the far end.
    assert Wanted(usd=172_800.0).met(row)
    assert not Wanted(usd=172_799.0).met(row)


def test_an_unknown_cost_meets_no_budget():
    row = made("a", 100, 20.0, price=None)
    assert row.usd is None
    assert Wanted(usd=1e9).excess(row) == {"usd": math.inf}


def test_rows_within_the_limits_stand_first():
    rows = [made("a", 100, 30.0), made("a", 200, 16.0), made("a", 400, 9.0)]
    broken = Row(model="m", cluster="a", accelerators=8, infeasible="memory: ...")
    found = ranked([broken, *rows], Wanted(days=20.0), "cost")
    assert [row.accelerators for row in found] == [200, 400, 100, 8]
    assert [row.accelerators for row in ranked(rows, Wanted(), "time")] == [400, 200, 100]
    assert [row.accelerators for row in ranked(rows, Wanted(), "tokens")] == [100, 200, 400]


def test_the_usual_order():
    known, unknown = made("a", 100, 30.0), made("b", 100, 30.0, price=None)
    assert usual_order([known], Wanted()) == "time"
    assert usual_order([known], Wanted(days=40.0)) == "cost"
    assert usual_order([known, unknown], Wanted(days=40.0)) == "tokens"


def test_answers_of_each_model():
    rows = [made("a", 100, 30.0), made("a", 200, 16.0), made("a", 100, 90.0, model="large"),
            made("a", 400, 10.0, model="large")]  # fmt: skip
    wanted = Wanted(days=20.0)
    small, large = answers(ranked(rows, wanted, "cost"), wanted, largest=200)
    assert (small.model, small.row.accelerators, small.nearest) == ("m", 200, ())
    assert (large.model, large.row) == ("large", None)
    assert large.beyond.accelerators == 400
    assert [row.accelerators for row in large.nearest] == [100]


def test_nearest_misses_are_those_that_exceed_least():
    rows = [made("a", size, days) for size, days in ((1, 90.0), (2, 45.0), (3, 31.0), (4, 26.0))]
    found = nearest_misses(rows, Wanted(days=30.0))
    assert [row.accelerators for row in found] == [4, 3, 2]


def test_break_even_prices():
    # Twice as fast per GPU, at $3: breaks even at $6. With 24.0 days at the far end of 50 GPUs,
    # $86,400 allow $3 per GPU-hour.
    rows = [made("a", 100, 20.0), made("b", 50, 20.0, price=None)]
    (alone,) = break_evens(rows, Wanted())
    assert (alone.row.cluster, alone.other.cluster) == ("b", "a")
    assert alone.usd_per_hour.value == pytest.approx(6.0)
    _, budget = break_evens(rows, Wanted(usd=86_400.0))
    assert budget.other is None
    assert budget.usd_per_hour.value == pytest.approx(3.0)
    owned = priced(rows[0], Price(usd_per_hour=1.0, kind="owned"))
    assert break_evens([owned, rows[1]], Wanted()) == []


def test_sizes_between_and_beyond():
    assert between(8, 16, node=8) == ()
    assert between(72, 144, node=72) == ()
    assert between(64, 128, node=8) == (72, 80, 88, 96, 104, 112, 120)
    assert tuple(beyond(100)) == (200, 400, 800, 1600, 3200, 6400)
