"""Ranking and choice in sweeps of layouts: by hand on made-up rows."""

from dataclasses import replace

import numpy as np
import pytest

from scalewise.evidence.sweeps import pick_of, spearman, sweeps_of
from scalewise.evidence.validate import summarize
from scalewise.ranges import tie_width
from verdicts import sweep, verdict


class TestRanking:
    def test_spearman_by_hand(self):
        # One swap of neighbors among five: 1 - 6 x 2 / (5 x 24).
        a, b = np.array([50.0, 40, 30, 20, 10]), np.array([40.0, 50, 30, 20, 10])
        assert spearman(a, b) == pytest.approx(0.9)
        assert spearman(a, a * 3) == pytest.approx(1.0)
        assert spearman(a, -a) == pytest.approx(-1.0)

    def test_a_sweep(self):
        summary = summarize(sweep([50.0, 40, 30, 20, 10], [40.0, 50, 30, 20, 10]))
        assert summary.rank_correlation == pytest.approx(0.9)
        # The pick does 40, the best 50.
        assert summary.regret == pytest.approx(0.2)

    def test_four_layouts_are_no_sweep(self):
        assert summarize(sweep([50.0, 40, 30, 20], [40.0, 50, 30, 20])).regret is None
        repeats = [verdict(p, 10.0) for p in (1.0, 2, 3, 4, 5, 6)]
        assert summarize(repeats).rank_correlation is None

    def test_groups_are_averaged(self):
        first = sweep([50.0, 40, 30, 20, 10], [40.0, 50, 30, 20, 10])
        second = [
            replace(row, group=("me", "other", "h100", 16, "bf16"))
            for row in sweep([50.0, 40, 30, 20, 10], [50.0, 40, 30, 20, 10])
        ]
        summary = summarize([*second, *first])
        assert summary.rank_correlation == pytest.approx(0.95)
        assert summary.regret == pytest.approx(0.1)
        other, toy = sweeps_of([*second, *first])
        assert (other.model, other.accelerators, other.count) == ("other", 16, 5)
        assert (other.picked, other.best, other.regret) == ("layout0", "layout0", 0.0)
        assert (toy.picked, toy.best) == ("layout0", "layout1")
        assert toy.regret == pytest.approx(0.2)

    @pytest.mark.parametrize(
        ("second", "picked", "regret"),
        [
            (100.01 / (1 + tie_width()), "layout1", 0.0),
            (99.99 / (1 + tie_width()), "layout0", 0.25),
        ],
        ids=["tie", "clear"],
    )
    def test_ties_go_to_the_simpler(self, second, picked, regret):
        # The layout without a pipeline is the one that measured best.
        group = sweep(
            [100.0, second, 50.0, 40.0, 30.0],
            [60.0, 80.0, 30.0, 20.0, 10.0],
            [(2, 1, 5.0), (1, 8, 9.0), (1, 1, 1.0), (1, 1, 1.0), (1, 1, 1.0)],
        )
        assert pick_of(group).strategy == picked
        assert summarize(group).regret == pytest.approx(regret)

    @pytest.mark.parametrize(
        ("simplicity", "picked"),
        [
            ([(2, 1, 1.0), (1, 8, 9.0)], "layout1"),
            ([(1, 1, 5.0), (1, 2, 1.0)], "layout0"),
            ([(1, 1, 5.0), (1, 1, 4.0)], "layout1"),
        ],
        ids=["stages", "tensor degree", "memory"],
    )
    def test_what_makes_a_layout_simple(self, simplicity, picked):
        assert pick_of(sweep([100.0, 100.0], [60.0, 80.0], simplicity)).strategy == picked
