"""Memory constants: known ones come back, stacks without peaks keep what they had."""

import numpy as np
import pytest

from scalewise.evidence import memory_fit
from scalewise.evidence.memory_fit import (
    FEW,
    FEWEST_ROWS,
    MANY_ROWS,
    PARAMETERS,
    MemoryFit,
    predict_memory,
)
from scalewise.evidence.runs import Run, read_runs
from scalewise.evidence.table import RunTable

# gradient_memory, activation_factor, logit_memory, workspace_bytes
KNOWN = (3.6, 1.6, 11.0, 1.2e9)


@pytest.fixture(scope="module")
def nanotron():
    good = [run for run in read_runs() if run.source == "nanotron" and run.quality == "ok"]
    return [run for run in good if run.memory_bytes][::12]


@pytest.fixture(scope="module")
def synthetic(nanotron):
    """The same layouts, with the peaks that known constants would give."""
    peaks = predict_memory(RunTable.of(nanotron), np.log(KNOWN))
    return RunTable.of(
        [
            Run({**run.row, "memory_gb": f"{peak / 1e9:.6f}"}, run.line)
            for run, peak in zip(nanotron, peaks, strict=True)
        ]
    )


@pytest.fixture(scope="module")
def fit(synthetic):
    return MemoryFit().fit(synthetic)


def test_known_constants_come_back(fit, synthetic):
    values = [fit.values_["nanotron", name] for name, *_ in PARAMETERS]
    again = predict_memory(synthetic, np.log(values))
    peaks = np.array([run.memory_bytes for run in synthetic.runs])
    assert np.max(np.abs(again / peaks - 1.0)) < 0.02
    assert values[:3] == pytest.approx(KNOWN[:3], rel=0.1)
    assert fit.rows_ == {"nanotron": len(synthetic)}


def test_a_handful_of_rows_does_not_narrow_the_interval(fit, synthetic, monkeypatch):
    low, high = fit.interval_["nanotron"]
    assert len(synthetic) < MANY_ROWS
    assert (low <= FEW[0], high) == (True, FEW[1])
    monkeypatch.setattr(memory_fit, "MANY_ROWS", len(synthetic))
    low, high = MemoryFit().fit(synthetic).interval_["nanotron"]
    assert low <= 1.0
    assert high == pytest.approx(1.0, abs=0.02)


def test_the_shipped_peaks(nanotron):
    table = RunTable.of(nanotron)
    fit = MemoryFit().fit(table)
    values = [fit.values_["nanotron", name] for name, *_ in PARAMETERS]
    peaks = np.array([run.memory_bytes for run in nanotron])
    error = np.abs(predict_memory(table, np.log(values)) / peaks - 1.0)
    assert np.median(error) < 0.10
    for value, (_, _, _, low, high) in zip(values, PARAMETERS, strict=True):
        assert low <= value <= high


def test_more_of_anything_needs_more(synthetic):
    base = predict_memory(synthetic, np.log(KNOWN))
    for place in range(len(PARAMETERS)):
        more = list(KNOWN)
        more[place] *= 1.2
        assert np.all(predict_memory(synthetic, np.log(more)) >= base)
        assert np.any(predict_memory(synthetic, np.log(more)) > base)


def test_too_few_peaks_teach_nothing(nanotron):
    fit = MemoryFit().fit(RunTable.of(nanotron[: FEWEST_ROWS - 1]))
    assert fit.values_ == {}
    assert fit.rows_ == {}
    low, high = fit.interval_["nanotron"]
    assert low <= 0.82
    assert high == 1.26


def test_rows_that_ran_without_a_peak_bound_the_fit(nanotron):
    # The same peaks, and rows that need more than their device has by what the peaks say.
    peaks = [run for run in nanotron if run.number("pp") == 1][:12]
    largest = max(peaks, key=lambda run: run.memory_bytes)
    ran = [Run({**largest.row, "memory_gb": "", "accelerator": "a100-sxm-40gb"}, 2)] * 40
    assert largest.memory_bytes > 45e9
    fits = [MemoryFit().fit(RunTable.of([*peaks, *more])) for more in ([], ran)]
    values = [[fit.values_["nanotron", name] for name, *_ in PARAMETERS] for fit in fits]
    alone, bound = (predict_memory(RunTable.of(ran[:1]), np.log(each))[0] for each in values)
    assert bound < 0.95 * alone
