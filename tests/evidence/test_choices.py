"""Which term misled a choice: by hand on made-up sweeps, and as a guard on the shipped table."""

import json

import pytest

from scalewise.evidence.choices import LARGEST, TOLERATED, choices, suspects
from scalewise.evidence.runs import read_runs
from scalewise.evidence.sweeps import pick_of
from scalewise.evidence.validate import Verdict, validate


def sweep(*layouts):
    """Rows of (terms, measured step, simplicity); a step has 100 tokens per accelerator."""
    rows, terms = [], []
    for place, (parts, seconds, simplicity) in enumerate(layouts):
        predicted, measured = 100.0 / sum(parts.values()), 100.0 / seconds
        terms.append(parts)
        rows.append(
            Verdict(
                id=f"r{place}", source="me", status="ok", quality="ok", dense=True,
                strategy=f"layout{place}", measured_tokens_per_second=measured,
                predicted_tokens_per_second=predicted, low=0.9 * predicted,
                high=1.1 * predicted, error=predicted / measured - 1.0,
                simplicity=simplicity,
            )
        )  # fmt: skip
    return rows, terms


def test_the_term_that_needs_the_smallest_factor_is_to_blame(monkeypatch):
    monkeypatch.setattr("scalewise.evidence.choices.tie_width", lambda: 0.015)
    # Predicted 30 against 31 s, measured 40 against 30.
    rows, terms = sweep(
        ({"compute": 10.0, "talk": 0.0, "rest": 20.0}, 40.0, (1,)),
        ({"compute": 4.0, "talk": 7.0, "rest": 20.0}, 30.0, (2,)),
    )
    assert pick_of(rows).strategy == "layout0"
    first, second = suspects(rows, terms)
    # The second must win by more than a tie: 4 f + 27 < 0.985 x (10 f + 20) from f = 1.2479
    # on; the first factor tried beyond it, in steps of 4 ** (1 / 56), is the 9th.
    assert (first.term, first.picked, first.regret) == ("compute", "layout1", 0.0)
    assert first.factor == pytest.approx(4.0 ** (9 / 56))
    # 24 + 7 f < 0.985 x 30 below f = 0.7929: the 10th.
    assert (second.term, second.picked) == ("talk", "layout1")
    assert second.factor == pytest.approx(4.0 ** (-10 / 56))
    # The rest is the same in both, and cannot have misled anybody.


def test_no_term_makes_an_outlier():
    # The pick is better in every term, and yet its run took five times as long.
    rows, terms = sweep(
        ({"compute": 10.0, "talk": 1.0}, 50.0, (1,)), ({"compute": 12.0, "talk": 2.0}, 14.0, (2,))
    )
    assert suspects(rows, terms) == ()


def test_a_good_choice_by_the_smaller_change():
    # Nothing is lost if any of two equals is picked.
    rows, terms = sweep(
        ({"a": 10.0, "b": 0.0}, 20.0, (1,)),
        ({"a": 9.0, "b": 2.0}, 10.0, (2,)),
        ({"a": 9.0, "b": 3.0}, 10.2, (3,)),
    )
    assert suspects(rows, terms)[0].picked == "layout1"
    assert suspects(rows, terms, tolerated=0.0)[0].picked == "layout1"
    assert suspects(rows, terms, largest=1.01) == ()


@pytest.fixture(scope="module")
def shipped():
    runs = read_runs()
    validation = validate([run for run in runs if run.source == "nanotron"])
    return validation, choices(validation, runs)


def test_every_bad_choice_of_the_shipped_sweeps_is_explained(shipped):
    validation, found = shipped
    bad = {(s.model, s.accelerators): s for s in validation.sweeps() if s.regret > TOLERATED}
    assert bad
    assert {(c.model, c.accelerators) for c in found} == set(bad)
    for choice in found:
        sweep = bad[choice.model, choice.accelerators]
        assert (choice.picked.strategy, choice.best.strategy) == (sweep.picked, sweep.best)
        assert choice.regret == pytest.approx(sweep.regret)
        assert choice.layouts == sweep.count
        # Terms are those of the prediction: they add up to its step, and to the gap.
        ratio = sum(choice.picked.terms.values()) / sum(choice.best.terms.values())
        assert choice.best.predicted / choice.picked.predicted == pytest.approx(ratio)
        assert sum(choice.differences.values()) == pytest.approx(ratio - 1.0)
        for suspect in choice.suspects:
            assert suspect.regret <= TOLERATED
            assert suspect.factor * 1.0000001 >= 1 / LARGEST
            assert suspect.factor <= LARGEST * 1.0000001
        distances = [suspect.distance for suspect in choice.suspects]
        assert distances == sorted(distances)


def test_measured_numbers_are_the_published_ones(shipped):
    validation, found = shipped
    assert found
    for choice in found:
        best = max(
            row.measured_tokens_per_second
            for row in validation.judged()
            if row.group[1] == choice.model and row.group[3] == choice.accelerators
        )
        assert choice.best.measured == best
        assert choice.regret == pytest.approx(1.0 - choice.picked.measured / best)


def test_plain_types_for_json(shipped):
    data = json.loads(json.dumps([choice.to_dict() for choice in shipped[1]]))
    assert {"picked", "best", "differences", "suspects", "misled", "regret"} <= set(data[0])
    assert data[0]["picked"]["error"] == pytest.approx(shipped[1][0].picked.error)


def test_a_tolerant_reader_needs_no_explanation(shipped):
    validation, _ = shipped
    assert choices(validation, read_runs(), tolerated=0.99) == []
