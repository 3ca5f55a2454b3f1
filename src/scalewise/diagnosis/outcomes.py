"""What a further measurement would show under each cause, and what that means.

outcomes(state, candidates, runs=1)["node"]      # (("about 7,100 tok/s/GPU", (...)), ...)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scalewise.diagnosis.causes import CAUSES
from scalewise.diagnosis.next_measurement import Candidate, State
from scalewise.diagnosis.parts import LABELS, PER_NODE, shares
from scalewise.diagnosis.predict import OTHER_KEY
from scalewise.units import format_percent, format_rate, grouped

WORTH = 0.03
"""Odds from which a cause is named."""

APART = 0.25
"""Gap (log) between two outcomes that a measurement tells apart."""

MATMUL_APART = 0.08
"""The same for a matmul."""

Outcome = tuple[str, tuple[str, ...]]


def outcomes(
    state: State, listed: Sequence[Candidate], runs: int
) -> dict[str, tuple[Outcome, ...]]:
    """Return the outcomes of candidates: what each shows, and the causes it means.

    Args:
        state: What is known.
        listed: Candidates; runs have a row in the table, in order behind the measured ones.
        runs: Measured runs.
    """
    table = state.table
    odds = table.of_causes(state.weights)
    likely = [key for place, key in enumerate(table.keys) if odds[place] >= WORTH
              and key != OTHER_KEY]  # fmt: skip
    found: dict[str, tuple[Outcome, ...]] = {}
    row = runs
    for each in listed:
        if each.kind == "run":
            values = {key: _mean(state, key, table.log_rate[row]) for key in likely}
            found[each.key] = _clusters(values, APART, "about {} tok/s/GPU")
            row += 1
        elif each.kind == "nccl":
            values = {key: _mean(state, key, table.log_node_rate) for key in likely}
            found[each.key] = _clusters(values, APART, "{} per node", format_rate)
        elif each.kind == "matmul":
            values = {key: _mean(state, key, table.log_matmul) for key in likely}
            found[each.key] = _clusters(
                values, MATMUL_APART, "slowest GPU at {} of the others", _percent
            )
        else:
            found[each.key] = _profiles(state, likely)
    return found


def _mean(state: State, key: str, values: np.ndarray) -> float:
    """Mean of a prediction under a cause."""
    points = state.table.points(key)
    weights = state.weights[points]
    return float((weights * values[points]).sum() / weights.sum())


def _label(key: str) -> str:
    return CAUSES[key].label if key in CAUSES else "healthy"


def _percent(value: float) -> str:
    return format_percent(value, decimals=0)


def _clusters(
    values: dict[str, float], gap: float, text: str, words: object = None
) -> tuple[Outcome, ...]:
    """Join causes of about the same outcome, largest first."""
    shown = words if callable(words) else (lambda value: grouped(value, 2))
    order = sorted(values, key=lambda key: -values[key])
    groups: list[list[str]] = []
    for key in order:
        if groups and values[groups[-1][-1]] - values[key] < gap:
            groups[-1].append(key)
        else:
            groups.append([key])
    found = []
    for group in groups:
        middle = float(np.exp(np.mean([values[key] for key in group])))
        found.append((text.format(shown(middle)), tuple(_label(key) for key in group)))
    return tuple(found)


def _profiles(state: State, likely: Sequence[str]) -> tuple[Outcome, ...]:
    """Join causes by the part of the step that grows most."""
    parts = np.array([shares(state.table.parts[0], name) for name in PER_NODE])
    found: dict[str, list[str]] = {}
    sizes: dict[str, list[float]] = {}
    for key in likely:
        means = np.array([_mean(state, key, part) for part in parts])
        grown = int(np.argmax(means - parts[:, 0]))
        part = PER_NODE[grown] if means[grown] - parts[grown, 0] > 0.1 else "compute"
        size = float(means[grown]) if part != "compute" else float(means[:3].sum())
        found.setdefault(part, []).append(_label(key))
        sizes.setdefault(part, []).append(size)
    return tuple(
        (f"{LABELS[part]} {_percent(float(np.mean(sizes[part])))}", tuple(labels))
        for part, labels in found.items()
    )
