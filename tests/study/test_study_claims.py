import pytest

from scalewise.ranges import tie_width
from scalewise.study.claims import compare, judge, order_verdict
from scalewise.study.files import Claim, Experiment
from scalewise.study.rows import Row

HOLDS, PARTLY, NOT = "holds", "holds with a difference", "does not hold"
EXPERIMENT = Experiment(id="x", title="X")


def claim(**fields):
    known = {"statement": "s", "source": "o", "measure": "value", "metric": "mfu"}
    return Claim(**(known | fields))


def rows(values, axis="accelerators", metric="mfu", **axes):
    return [
        Row(experiment="x", axes={axis: x, **axes}, metrics={metric: y}) for x, y in values.items()
    ]


@pytest.mark.parametrize(
    ("measure", "published", "ours", "verdict"),
    [
        ("value", 0.40, 0.44, HOLDS),  # 1.1 x, the tolerance
        ("value", 0.40, 0.37, HOLDS),  # 1.08 x
        ("value", 0.40, 0.45, PARTLY),
        ("value", 0.40, 0.14, PARTLY),  # 2.86 x
        ("value", 0.40, 0.13, NOT),  # 3.08 x
        ("value", 0.40, 1.25, NOT),
        ("change", -0.3722, -0.3722, HOLDS),
        ("change", -0.3722, -0.35, HOLDS),
        ("change", -0.3722, -0.24, PARTLY),
        ("change", -0.3722, -0.10, NOT),  # far too small an effect
        ("change", -0.3722, 0.3722, NOT),  # the wrong way
        ("change", -0.3722, 0.0, NOT),
        ("ratio", 2.17, 2.23, HOLDS),
        ("ratio", 2.17, 1.60, PARTLY),  # 0.6 more instead of 1.17 more
        ("ratio", 2.17, 1.30, NOT),  # 0.3 more is less than a third of it
        ("ratio", 1.05, 0.99, NOT),  # within the tolerance, but on the other side of one
        ("crossover", 512.0, 1024.0, PARTLY),
        ("crossover", 512.0, 2048.0, NOT),
    ],
)
def test_numbers(measure, published, ours, verdict):
    assert compare(claim(measure=measure, published=published), ours) == verdict


@pytest.mark.parametrize(
    ("measure", "bound", "ours", "verdict"),
    [
        ("value", {"at_most": 0.15}, 0.122, HOLDS),
        ("value", {"at_most": 0.15}, 0.15, HOLDS),
        ("value", {"at_most": 0.15}, 0.16, PARTLY),
        ("value", {"at_most": 0.15}, 0.17, NOT),
        ("change", {"at_most": -0.5}, -0.97, HOLDS),
        ("change", {"at_most": -0.5}, -0.46, PARTLY),
        ("change", {"at_most": -0.5}, -0.2, NOT),
        ("change", {"at_least": 0.0}, 0.2, HOLDS),
        ("change", {"at_least": 0.0}, -0.2, NOT),
        ("ratio", {"at_least": 1.0}, 1.04, HOLDS),
        ("ratio", {"at_least": 1.0}, 1.0 + tie_width() / 2, PARTLY),  # a near-tie proves nothing
        ("ratio", {"at_least": 1.0}, 1.0 - tie_width() / 2, PARTLY),
        ("ratio", {"at_least": 1.0}, 0.97, NOT),
        ("ratio", {"at_most": 6.0}, 4.85, HOLDS),
        ("crossover", {"at_most": 2048}, 1024.0, HOLDS),
    ],
)
def test_bounds(measure, bound, ours, verdict):
    assert compare(claim(measure=measure, **bound), ours) == verdict


def test_a_tolerance_of_its_own():
    assert compare(claim(published=10.0, tolerance=0.25), 12.2) == HOLDS
    assert compare(claim(published=10.0), 12.2) == PARTLY


def test_order():
    assert order_verdict(["a", "b", "c"], ["a", "b", "c"]) == HOLDS
    assert order_verdict(["a", "c", "b"], ["a", "b", "c"]) == PARTLY
    assert order_verdict(["c", "b", "a"], ["a", "b", "c"]) == NOT
    assert order_verdict(["b", "a"], ["a", "b"]) == NOT
    # What the claim does not name does not count.
    assert order_verdict(["x", "a", "y", "b"], ["a", "b"]) == HOLDS


def test_change_is_told_with_both_numbers():
    found = judge(
        claim(measure="change", published=-0.25, first={"accelerators": 8},
              second={"accelerators": 64}, why="So it is."),
        EXPERIMENT, rows({8: 0.4, 64: 0.3}),
    )  # fmt: skip
    assert (found.verdict, found.ours, found.theirs) == (HOLDS, "-25.0%", "-25.0%")
    assert found.why == "So it is."
    assert found.value == pytest.approx(-0.25)


@pytest.mark.parametrize(
    ("values", "wanted", "verdict"),
    [
        ({1: 6647, 2: 6911, 4: 6595}, [2, 4], HOLDS),
        ({1: 6, 2: 7, 4: 8, 8: 5}, [2], PARTLY),  # elsewhere, but a middle still
        ({1: 9, 2: 7, 4: 8, 8: 5}, [2, 4], NOT),  # at an end
    ],
)
def test_peak(values, wanted, verdict):
    found = judge(
        claim(measure="peak", axis="tp", published=wanted), EXPERIMENT, rows(values, axis="tp")
    )
    assert found.verdict == verdict
    best = max(values, key=values.get)
    assert found.ours == f"tensor parallel degree {best}"


def test_crossover():
    both = rows({8: 0.4, 64: 0.3, 512: 0.2}, strategy="fsdp")
    both += rows({8: 0.3, 64: 0.3, 512: 0.25}, strategy="fsdp-tp2")
    asked = claim(measure="crossover", published=512, first={"strategy": "fsdp"},
                  second={"strategy": "fsdp-tp2"})  # fmt: skip
    found = judge(asked, EXPERIMENT, both)
    assert (found.verdict, found.ours, found.value) == (HOLDS, "512 GPUs", 512.0)
    never = judge(asked, EXPERIMENT, both[:3] + rows({8: 0.1, 64: 0.1}, strategy="fsdp-tp2"))
    assert never.verdict == "not judged"
    assert never.why == "it never gets ahead, up to 64 accelerators."


def test_missing_and_ambiguous_points_are_not_judged():
    asked = claim(published=0.4, second={"accelerators": 8})
    none = judge(asked, EXPERIMENT, [])
    assert (none.verdict, none.ours) == ("not judged", "-")
    assert "no point" in none.why
    two = judge(asked, EXPERIMENT, rows({8: 0.4}) + rows({8: 0.3}))
    assert "2 points" in two.why
    broken = [Row(experiment="x", axes={"accelerators": 8}, infeasible="memory: too little")]
    assert "memory: too little" in judge(asked, EXPERIMENT, broken).why
