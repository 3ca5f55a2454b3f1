"""Effects behind intervals: found again from made-up residuals, and intervals that hold 80%."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from scalewise.evidence.ranges_fit import (
    MAX_PAIRS,
    MAX_ROWS,
    ResidualRow,
    coverage,
    fit_effects,
    fit_expert_effects,
    sweep_pairs,
    thinned,
)
from scalewise.ranges import Basis, parts_of

pytest.importorskip("scipy")

FAMILIES = ("pytorch", "megatron", "xla")


def made_up(sources=18, rows=30, source=0.12, noise=0.02, seed=3):
    """Residuals of sources that differ, with noise within each."""
    draw = np.random.default_rng(seed)
    found = []
    for place in range(sources):
        shift = draw.normal(0.0, source)
        for row in range(rows):
            waiting = 0.05 * (row % 3)
            basis = Basis(
                rate=1000.0, parts=parts_of({"gemm": 1.0 - waiting, "host": waiting}, 1.0),
                software=FAMILIES[place % 3], family=FAMILIES[place % 3], chip="hopper",
                accelerators=8 * 2 ** (row % 4), beyond=0.0, parameters=7e9, seq_len=4096,
                tokens=8192.0,
            )  # fmt: skip
            off = shift + draw.normal(0.0, noise)
            found.append(
                ResidualRow(
                    id=f"{place}-{row}", source=f"source-{place}", sweep=(f"source-{place}",),
                    mode="unstated", basis=basis, measured=1000.0 * float(np.exp(off)),
                )
            )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def rows():
    return made_up()


@pytest.fixture(scope="module")
def effects(rows):
    return fit_effects(rows)


def test_source_and_noise_are_told_apart(effects):
    between = np.sqrt(effects.source**2 + effects.family**2 + effects.generation**2)
    assert 0.07 < between < 0.2
    assert 0.012 < np.hypot(effects.noise, effects.idle_noise * 0.05) < 0.03
    assert effects.fitted_on.startswith("540 published runs of 18 sources")


def test_intervals_hold_80_percent(rows, effects):
    found = coverage(rows, effects)
    assert found.level == pytest.approx(0.8, abs=0.04)
    assert found.ratio == pytest.approx(0.8, abs=0.04)
    assert found.levels["source-0"][0] == 30
    assert found.ratios["source-0"][0] == MAX_PAIRS


def test_new_residuals_are_held_too(effects):
    found = coverage(made_up(seed=4), effects)
    assert 0.65 < found.level < 0.95
    assert 0.72 < found.ratio < 0.88


def test_sweeps_do_not_dominate(rows):
    many = made_up(sources=1, rows=200)
    assert len(thinned(many)) == MAX_ROWS
    assert len(sweep_pairs(many)) == MAX_PAIRS
    assert thinned(many)[0] is many[0]
    assert thinned(many)[-1] is many[-1]


class TestExperts:
    def rows(self, spread, experts, count=400):
        draw = np.random.default_rng(5)
        found = made_up(sources=10, rows=count // 10, source=0.0, noise=0.0)
        return [
            replace(
                row,
                basis=replace(row.basis, experts=experts),
                measured=1000.0 * float(np.exp(draw.normal(0.0, spread))),
            )
            for row in found
        ]

    def test_intervals_hold_80_percent(self, effects):
        stated, usual = self.rows(0.3, "stated"), self.rows(0.5, "usual")
        found = fit_expert_effects(effects, stated, usual)
        assert coverage(stated, found).level == pytest.approx(0.8, abs=0.02)
        assert coverage(usual, found).level == pytest.approx(0.8, abs=0.02)
        # What the effects of dense models leave of 0.3, and what that leaves of 0.5.
        assert 0.2 < found.experts < 0.3
        assert found.recipe == pytest.approx(0.4, abs=0.05)

    def test_all_else_stays(self, effects):
        found = fit_expert_effects(effects, self.rows(0.3, "stated"), self.rows(0.5, "usual"))
        assert msgspec.structs.replace(found, experts=0.0, recipe=0.0) == effects

    def test_residuals_inside_need_no_effect(self, effects):
        rows = self.rows(0.01, "stated")
        assert fit_expert_effects(effects, rows, rows).experts < 1e-6
