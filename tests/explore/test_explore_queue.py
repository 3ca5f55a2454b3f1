"""Calendar of a queue: capacity, order, dependencies, intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.errors import InputError
from scalewise.explore.plan import Amount, Row, priced
from scalewise.explore.queue import Job, calendar, schedule
from scalewise.price import Price


def job(name, gpus, days, **more):
    return Job(name=name, accelerators=gpus, days=days, **more)


def places(jobs, size):
    return {each.job.name: (each.start, each.end) for each in schedule(jobs, size)}


def test_runs_share_a_cluster_and_wait_for_room():
    jobs = [job("a", 4, 10.0), job("b", 4, 6.0), job("c", 8, 1.0), job("d", 4, 3.0)]
    assert places(jobs, 8) == {"a": (0.0, 10.0), "b": (0.0, 6.0), "c": (10.0, 11.0),
                               "d": (6.0, 9.0)}  # fmt: skip


def test_a_small_run_fills_a_gap_only_if_it_delays_none_before_it():
    jobs = [job("a", 4, 10.0), job("c", 8, 1.0), job("long", 4, 10.5), job("short", 4, 10.0)]
    assert places(jobs, 8) == {"a": (0.0, 10.0), "c": (10.0, 11.0), "long": (11.0, 21.5),
                               "short": (0.0, 10.0)}  # fmt: skip


def test_dependencies_and_earliest_starts():
    jobs = [job("a", 2, 5.0), job("b", 2, 1.0, after=("a",)), job("c", 2, 1.0, earliest=3.0)]
    assert places(jobs, 8) == {"a": (0.0, 5.0), "b": (5.0, 6.0), "c": (3.0, 4.0)}
    with pytest.raises(InputError, match="after = z is not the name of a run before it"):
        schedule([job("a", 2, 5.0, after=("z",))], 8)
    with pytest.raises(InputError, match="run a: 16 GPUs on a cluster of 8"):
        schedule([job("a", 16, 5.0)], 8)


@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=9
    )
)
def test_no_more_gpus_are_used_than_there_are(sizes):
    jobs = [job(str(i), n, float(d), earliest=float(e)) for i, (n, d, e) in enumerate(sizes)]
    placed = schedule(jobs, 8)
    for each in placed:
        assert each.start >= each.job.earliest
        used = sum(
            other.job.accelerators for other in placed if other.start <= each.start < other.end
        )
        assert used <= 8
    # Work is conserved, and the first run starts at once.
    assert placed[0].start == jobs[0].earliest
    busy = sum(each.job.accelerators * each.job.days for each in placed)
    assert max(each.end for each in placed) >= busy / 8


def made(gpus, days):
    row = Row(
        model="m", cluster="c", accelerators=gpus, days=Amount(days, 0.8 * days, 1.5 * days),
        mwh=Amount(1.0, 0.8, 1.5), tonnes=Amount(2.0, 1.6, 3.0),
    )  # fmt: skip
    return priced(row, Price(usd_per_hour=2.0, kind="yours"))


def test_totals_and_intervals_of_a_calendar():
    rows = [(job("a", 8, 0.0), made(8, 10.0)), (job("b", 4, 0.0), made(4, 5.0))]
    found = calendar(rows, 8)
    assert found.days == (15.0, 12.0, 22.5)
    assert found.runs[1].start == (10.0, 8.0, 15.0)
    # (8 x 10 + 4 x 5) GPU-days x 24 h x $2, and 8 GPUs for 15 days.
    assert found.usd == pytest.approx((4800.0, 3840.0, 7200.0))
    assert found.held_usd == pytest.approx(5760.0)
    assert found.mwh == (2.0, 1.6, 3.0)
    assert found.utilization == pytest.approx(100.0 / 120.0)
    assert calendar(rows, 4).missing == "run a: 8 GPUs on a cluster of 4"
    broken = Row(model="m", cluster="c", accelerators=4, infeasible="memory: needs more")
    assert calendar([(job("x", 4, 0.0), broken)], 8).missing == "run x: memory: needs more"
