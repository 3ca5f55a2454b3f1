"""Effects behind intervals: found again from made-up residuals, and intervals that hold 80%."""

import numpy as np
import pytest

from scalewise.evidence.ranges_fit import (
    MAX_PAIRS,
    MAX_ROWS,
    ResidualRow,
    coverage,
    fit_effects,
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


def test_degraded_rows_are_left_out(rows):
    from dataclasses import replace

    slow = [replace(row, measured=row.measured / 10.0, degraded=True) for row in rows[:5]]
    assert coverage([*slow, *rows[5:]]).levels["source-0"][0] == 25
    assert len(thinned([*slow, *rows[5:]])) == len(rows) - 5
