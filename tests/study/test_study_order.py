import pytest
from measured_cases import STUDY, claim

from scalewise.study.files import read_study
from scalewise.study.jobs import Machine, distinct, points_to_measure
from scalewise.study.order import Clock, crossings, launches_of, next_launch

EIGHT = Machine(device="cuda", devices=64)


def planned(text, repeats=1):
    study = read_study(text)
    points = points_to_measure(study, EIGHT)
    return points, launches_of(study, points, distinct(points), repeats)


def names(launches):
    return [(each.repeat, each.point.axes["strategy"], each.point.ranks) for each in launches]


WIDE = STUDY.replace("sizes = [1, 2]", "sizes = [1, 2, 4, 8, 16]").replace(
    '["ddp-mb1", "fsdp-mb1"]', '["fsdp-mb1"]'
)


def test_ends_come_before_middles_and_all_points_before_second_repeats():
    _, launches = planned(WIDE, repeats=2)
    once = [(1, "fsdp-mb1", n) for n in (1, 16, 4, 2, 8)]
    assert names(launches) == once + [(2, name, n) for _, name, n in once]


def test_points_of_claims_come_with_the_ends():
    more = "first = {accelerators = 2}\nsecond = {accelerators = 16}\nat_least = 1.0"
    _, launches = planned(WIDE + claim(more=more))
    assert names(launches) == [(1, "fsdp-mb1", n) for n in (1, 2, 16, 4, 8)]


def test_models_are_ordered_by_their_parameters():
    text = STUDY.replace('["tiny"]', '["tiny-19m", "tiny", "tiny-65m"]')
    _, launches = planned(text.replace("sizes = [1, 2]", "sizes = [1]"))
    assert [each.point.axes["model"] for each in launches[:4]] == [
        "tiny", "tiny", "tiny-65m", "tiny-65m",
    ]  # fmt: skip


def test_sizes_between_which_two_strategies_change_places_are_next():
    text = STUDY.replace("sizes = [1, 2]", "sizes = [1, 2, 4, 8, 16, 32, 64]")
    points, launches = planned(text)
    keys = {(p.axes["strategy"], p.ranks): p.key for p in points}
    rates = {
        keys["ddp-mb1", 1]: 100.0, keys["fsdp-mb1", 1]: 90.0,
        keys["ddp-mb1", 8]: 400.0, keys["fsdp-mb1", 8]: 390.0,
        keys["ddp-mb1", 64]: 900.0, keys["fsdp-mb1", 64]: 990.0,
    }  # fmt: skip
    assert crossings(points, rates) == {
        keys[name, size] for name in ("ddp-mb1", "fsdp-mb1") for size in (16, 32)
    }
    waiting = [each for each in launches if each.point.key not in rates]
    assert names([waiting[0]]) == [(1, "ddp-mb1", 2)]
    assert names([next_launch(waiting, points, rates)]) == [(1, "ddp-mb1", 16)]


def test_curves_that_do_not_cross_have_no_crossing():
    points, _ = planned(STUDY)
    rates = {p.key: 10.0 * p.ranks for p in points}
    assert crossings(points, rates) == set()


def test_the_time_of_a_launch_is_unknown_before_the_first():
    points, _ = planned(STUDY)
    assert Clock().seconds(points[0]) is None
    assert Clock().left(points) is None


def test_a_repeat_takes_as_long_as_the_first_and_others_by_prediction():
    points, _ = planned(STUDY)
    one, two = points[0], points[1]
    clock = Clock(predicted={one.key: 0.5, two.key: 1.0})
    # 4 steps of 1 s, and 6 s for the start of one rank.
    clock.add(one, 10.0, 1.0)
    assert clock.seconds(one) == 10.0
    # Two ranks start in 12 s; 4 steps of 1 s each, which took twice their prediction.
    assert clock.seconds(two) == pytest.approx(12.0 + 4 * 1.0 * 2.0)


def test_the_range_of_the_remaining_time_is_that_of_the_errors_so_far():
    points, _ = planned(STUDY)
    one, two = points[0], points[1]
    clock = Clock(predicted={one.key: 1.0, two.key: 1.0})
    clock.add(one, 10.0, 1.0)
    clock.add(two, 24.0, 2.0)
    # Expected were 12 s for two ranks and 4 steps of 1 s.
    assert clock.errors == [pytest.approx(24.0 / 16.0)]
    assert clock.left([one]) == (pytest.approx(10.0), pytest.approx(15.0))
