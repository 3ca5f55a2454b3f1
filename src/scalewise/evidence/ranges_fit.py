"""Fit of the effects behind intervals, and the share of measurements their intervals hold.

    rows = residual_rows(table, out.predicted, out.known)
    effects = fit_effects(rows)                  # standard deviations for catalog/ranges.toml
    coverage(rows, effects).levels               # share inside the 80% interval, by source

A mixed-effects model of log(measured / predicted) of sources that no constant had seen:

    family + family:generation + family:mode + source
      + terms, shape, scale within the source + noise

All effects are normal, so the marginal likelihood has a closed form (a Gaussian process with
additive kernels). It gives the proportions. A common factor for effects within a source, and one
for effects between sources, then makes 80% intervals hold 80%: residuals have heavier tails than a
normal distribution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.chip import FEWEST
from scalewise.errors import require
from scalewise.evidence.table import precision_families
from scalewise.ranges import (
    LENGTH,
    PART_LENGTH,
    Z80,
    Basis,
    Effects,
    Knowledge,
    family_of,
    level_deviation,
    ratio_deviation,
)
from scalewise.step.estimate import estimate

if TYPE_CHECKING:
    from scalewise.evidence.table import RunTable
    from scalewise.numeric import Array, Mask
    from scalewise.step.result import Estimate

MAX_ROWS = 60
"""Rows of a source that count: a sweep of a thousand layouts is one team's work."""

MAX_PAIRS = 200
"""Pairs of a sweep that count."""

ROUNDS, FREEDOM = 4, 4.0
"""Rounds of the robust fit, and degrees of freedom of its noise."""

BEYOND = 0.25
"""ln(0.76 / 0.63) over 1.28 deviations, 2 doublings and a communicating fraction of 0.3; see
`Effects.beyond`."""

UNCALIBRATED = 0.2
"""Spread of GEMM efficiency over chips; see `Effects.uncalibrated`."""

LEAST = 0.5, 0.75
"""Least factors between and within sources on the effects that the likelihood found: releases of
one vendor's recipes resemble each other more than teams do, and teams do differ."""

MAX_BORROWED = 2.0
"""Most that effects within a source grow where constants are those of the family."""

WITHIN = (
    "shape", "compute", "memory", "communication", "waiting", "noise", "idle_noise", "scale",
)  # fmt: skip
"""Effects within a source: all that ratios have."""

BETWEEN = ("family", "generation", "mode", "source")
"""Effects between sources."""

PRIORS = {
    "family": 0.08, "generation": 0.07, "mode": 0.10, "source": 0.12, "shape": 0.06,
    "compute": 0.07, "memory": 0.25, "communication": 0.25, "waiting": 0.15, "scale": 0.01,
    "noise": 0.04, "idle_noise": 0.10,
}  # fmt: skip
"""Beliefs about the effects: between sources and noise as a mixed-effects model of the residuals of
version one found them (0.05-0.17, 0.06-0.07, 0.13, 0.11-0.13, 0.03-0.14); parts of the step by what
their constants are known to (GEMM 7 %, bytes moved and links a quarter)."""

SPREAD = 0.35
"""Standard deviation of the logarithm of those beliefs. A weak one (1.0) let the pipelines of one
source with a wrong center widen the waiting of all others tenfold."""

FARTHEST = 0.4
"""Residuals beyond it count as this: a wrong center of one source is no width of the others."""


@dataclass(frozen=True, kw_only=True)
class ResidualRow:
    """One measured run and its prediction."""

    id: str
    source: str
    sweep: tuple[object, ...]
    """Source, model, accelerator, stack and precision: rows of one sweep are one question."""
    mode: str
    """"eager", "compiled" or "unstated"."""
    basis: Basis
    """With the prediction as its rate."""
    measured: float
    """Tokens/s per accelerator."""

    @classmethod
    def of(
        cls,
        group: tuple[Any, ...],
        stack: str,
        *,
        id: str,
        basis: Basis,
        measured: float,
        mode: str = "unstated",
    ) -> ResidualRow:
        """Return the row of a run.

        Args:
            group: Source, model, accelerator, count and workload of the run.
            stack: Its software.
            id: Its name.
            basis: What its interval depends on, with the prediction as its rate.
            measured: Tokens/s per accelerator.
            mode: "eager", "compiled" or "unstated".
        """
        source, model, chip, _, workload = group
        return cls(
            id=id,
            source=source,
            sweep=(source, model, chip, stack, workload.precision),
            mode=mode,
            basis=basis,
            measured=measured,
        )

    @property
    def residual(self) -> float:
        """Log of measured over predicted."""
        return float(np.log(self.measured / float(self.basis.rate)))


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Share of measurements inside their 80% interval."""

    levels: dict[str, tuple[int, float]]
    """Rows and share inside by source."""
    ratios: dict[str, tuple[int, float]]
    """Pairs within sweeps and share inside by source."""

    @property
    def level(self) -> float | None:
        """Share of all rows."""
        return _share(self.levels)

    @property
    def ratio(self) -> float | None:
        """Share of all pairs."""
        return _share(self.ratios)


def _share(found: dict[str, tuple[int, float]]) -> float | None:
    count = sum(n for n, _ in found.values())
    return sum(n * share for n, share in found.values()) / count if count else None


def group_of(source: str, result: Estimate) -> tuple[Any, ...]:
    """Source, model, accelerator, count and workload: what runs share that differ in layout."""
    cluster = result.cluster
    return (source, result.model.name, cluster.accelerator.name, cluster.accelerators,
            result.workload)  # fmt: skip


def residual_rows(table: RunTable, predicted: Array, known: Mask) -> list[ResidualRow]:
    """Return the rows of a table with their predictions.

    Args:
        table: Measured healthy runs: residuals of the fit to all sources tell which they are.
        predicted: Tokens/s per accelerator, by a fit that had not seen the row's source.
        known: Whether the stack of the row was known to that fit.
    """
    rows: list[ResidualRow] = []
    families: dict[str, set[str]] = {}
    for run, stack in zip(table.runs, table.stacks, strict=True):
        families.setdefault(family_of(stack), set()).add(run.source)
    # A chip has a share of its own for every precision.
    shares = [
        (plan.cluster.accelerator.architecture, family)
        for plan, family in zip(table.plans, precision_families(table), strict=True)
    ]
    sources = [run.source for run in table.runs]
    behind, of_source = Counter(shares), Counter(zip(shares, sources, strict=True))
    for place, (run, plan, stack) in enumerate(
        zip(table.runs, table.plans, table.stacks, strict=True)
    ):
        if not np.isfinite(predicted[place]) or not np.isfinite(table.measured[place]):
            continue
        # A list, because a row may say "compiled" of a stack that is usually eager.
        many = estimate(plan.model, plan.cluster, plan.workload, [plan.strategy], stack=stack)
        family = family_of(stack)
        alone = families[family] == {run.source}
        knowledge: Knowledge = "runs" if known[place] else "nothing" if alone else "family"
        share = shares[place]
        seen = behind[share] - of_source[share, run.source] >= FEWEST
        basis = replace(
            many[0].basis, rate=float(predicted[place]), knowledge=knowledge, calibrated=seen
        )
        stated = run.flag("compiled")
        rows.append(
            ResidualRow.of(
                group_of(run.source, many[0]),
                stack.name,
                id=run.id,
                basis=basis,
                measured=float(table.measured[place]),
                mode="unstated" if stated is None else "compiled" if stated else "eager",
            )
        )
    return rows


def fit_effects(rows: Sequence[ResidualRow]) -> Effects:
    """Return the effects by marginal likelihood, then stretched to hold 80%.

    Args:
        rows: Predictions by fits that had not seen their source.
    """
    kept = thinned(rows)
    kernels = _kernels(kept)
    residuals = np.clip([row.residual for row in kept], -FARTHEST, FARTHEST)
    trust = np.ones(len(kept))
    for _ in range(ROUNDS):
        found, off = _likeliest(kernels, residuals, trust)
        # Noise has heavier tails than a normal distribution: a row far from what its neighbors say
        # counts less (expectation step of Student's t).
        trust = (FREEDOM + 1.0) / (FREEDOM + off**2)
    effects = Effects(
        **found,
        beyond=BEYOND,
        uncalibrated=UNCALIBRATED,
        fitted_on=f"{len(kept)} published runs of {len({row.source for row in kept})} sources, "
        "each predicted by a fit without it",
    )
    return _stretched(rows, effects)


def _likeliest(
    kernels: dict[str, Array], residuals: Array, trust: Array
) -> tuple[dict[str, float], Array]:
    """Maximize the marginal likelihood; standardized errors of each row given the others.

    The gradient needs the inverse that the likelihood needs anyway (Rasmussen and Williams, 2006,
    equation 5.9; leave-one-out: equation 5.12).
    """
    optimize: Any = require("scipy.optimize", "calibrate")
    noisy = ("noise", "idle_noise")
    parts = [k / trust if name in noisy else k for name, k in kernels.items()]
    nugget = 1e-8 * np.eye(len(residuals))
    prior = np.log([PRIORS[name] for name in kernels])

    def inverse(vector: Array) -> tuple[Array, float]:
        covariance = sum(np.exp(2.0 * v) * part for v, part in zip(vector, parts, strict=True))
        lower = np.linalg.cholesky(covariance + nugget)
        half = np.linalg.inv(lower)
        return half.T @ half, float(np.sum(np.log(np.diag(lower))))

    def loss(vector: Array) -> tuple[float, Array]:
        precision, determinant = inverse(vector)
        weighted = precision @ residuals
        off = (vector - prior) / SPREAD
        value = 0.5 * float(residuals @ weighted) + determinant + 0.5 * float(off @ off)
        slope = precision - np.outer(weighted, weighted)
        change = [
            np.exp(2.0 * v) * np.sum(slope * part) for v, part in zip(vector, parts, strict=True)
        ]
        return value, np.array(change) + off / SPREAD

    start = prior
    limits = [(-7.0, 1.0)] * len(parts)
    result = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits)
    precision, _ = inverse(result.x)
    # Of unit trust: what the noise of this row would be if it were like the others.
    left_out = (precision @ residuals) / np.diag(precision)
    width = np.sqrt(1.0 / np.diag(precision))
    return dict(zip(kernels, np.exp(result.x).tolist(), strict=True)), left_out / width


def thinned(rows: Sequence[ResidualRow]) -> list[ResidualRow]:
    """Return at most `MAX_ROWS` rows of every source, evenly spaced."""
    by_source: dict[str, list[ResidualRow]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).append(row)
    kept: list[ResidualRow] = []
    for group in by_source.values():
        places = np.linspace(0, len(group) - 1, min(len(group), MAX_ROWS)).round().astype(int)
        kept += [group[place] for place in places]
    return kept


def _kernels(rows: Sequence[ResidualRow]) -> dict[str, Array]:
    """Return the correlation of residuals by effect."""

    def same(values: Sequence[object]) -> Array:
        codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
        column = np.array([codes[value] for value in values])
        return np.asarray(column[:, None] == column[None, :], dtype=float)

    bases = [row.basis for row in rows]
    source = same([row.source for row in rows])
    family = same([basis.family for basis in bases])
    kernels = {
        "family": family,
        "generation": family * same([basis.chip for basis in bases]),
        "mode": family * same([row.mode for row in rows]),
        "source": source,
    }
    shape = np.log([[b.parameters, b.seq_len, float(b.tokens)] for b in bases]) / LENGTH
    activities = ("compute", "memory", "communication", "waiting")
    parts = np.array([[float(basis.parts[name]) for name in activities] for basis in bases])
    place = np.concatenate([shape, parts / PART_LENGTH], axis=1)
    apart = np.sum((place[:, None, :] - place[None, :, :]) ** 2, axis=2)
    kernels["shape"] = source * np.exp(-0.5 * apart)
    for name, part in zip(activities, parts.T, strict=True):
        kernels[name] = source * np.outer(part, part)
    size = np.log2([float(basis.accelerators) for basis in bases])
    # A random walk over doublings of GPUs.
    kernels["scale"] = source * np.minimum(size[:, None], size[None, :])
    idle = 1.0 - parts[:, 0]
    kernels["noise"] = np.eye(len(rows))
    kernels["idle_noise"] = np.diag(idle**2)
    return kernels


def _stretched(rows: Sequence[ResidualRow], effects: Effects) -> Effects:
    """Scale the effects within, then between sources, until 80% intervals hold 80%."""
    known = [pair for pair in sweep_pairs(rows) if pair[0].basis.knowledge == "runs"]
    effects = _times(effects, WITHIN, max(_excess(known, effects), LEAST[1]))
    lent = [pair for pair in sweep_pairs(rows) if pair[0].basis.knowledge != "runs"]
    borrowed = min(max(_excess(lent, effects), 1.0), MAX_BORROWED)
    effects = msgspec.structs.replace(effects, borrowed=float(f"{borrowed:.2g}"))
    kept = thinned(rows)
    off_levels = np.array([abs(row.residual) for row in kept])
    groups = [row.source for row in kept]
    low, high = LEAST[0], 20.0
    for _ in range(40):
        factor = float(np.sqrt(low * high))
        trial = _times(effects, BETWEEN, factor)
        wide_levels = np.array([float(level_deviation(row.basis, trial)) for row in kept])
        if _quantile(off_levels / wide_levels, groups) > Z80:
            low = factor
        else:
            high = factor
    return _rounded(_times(effects, BETWEEN, high))


def fit_expert_effects(
    effects: Effects, stated: Sequence[ResidualRow], usual: Sequence[ResidualRow]
) -> Effects:
    """Return the effects with those of experts, so that 80% intervals of their levels hold 80%.

    Args:
        effects: Those of dense models.
        stated: Predictions by fits that had not seen their source, with the software stated.
        usual: The same runs with the software that is usual for their stack.
    """
    effects = _wide_enough(stated, effects, "experts")
    return _wide_enough(usual, effects, "recipe")


def _wide_enough(rows: Sequence[ResidualRow], effects: Effects, name: str) -> Effects:
    """Return the effects with the least value of one of them that holds 80% of levels."""
    off = np.array([abs(row.residual) for row in rows])
    low, high = 0.0, 1.0
    for _ in range(30):
        trial = msgspec.structs.replace(effects, **{name: 0.5 * (low + high)})
        wide = np.array([float(level_deviation(row.basis, trial)) for row in rows])
        if _quantile(off / wide, [row.source for row in rows]) > Z80:
            low = 0.5 * (low + high)
        else:
            high = 0.5 * (low + high)
    return msgspec.structs.replace(effects, **{name: float(f"{high:.2g}")})


def _excess(pairs: Sequence[tuple[ResidualRow, ResidualRow]], effects: Effects) -> float:
    """Return the factor by which intervals of ratios miss 80% of some pairs; 1 without any."""
    if not pairs:
        return 1.0
    off = [abs(a.residual - b.residual) for a, b in pairs]
    wide = [float(ratio_deviation(a.basis, b.basis, effects)) for a, b in pairs]
    return _quantile(np.array(off) / np.array(wide), [a.source for a, _ in pairs]) / Z80


def _quantile(values: Array, groups: Sequence[str]) -> float:
    """80% quantile; every row counts, but no source for more than a fifth of all rows."""
    names, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    most = max(0.2 * len(values), 1.0) if len(names) >= 5 else float(len(values))
    weight = np.minimum(1.0, most / counts)[place]
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / float(weight.sum())
    return float(values[order][min(int(np.searchsorted(share, 0.8)), len(values) - 1)])


def _times(effects: Effects, names: Sequence[str], factor: float) -> Effects:
    changes = {name: factor * getattr(effects, name) for name in names}
    return msgspec.structs.replace(effects, **changes)


def _rounded(effects: Effects) -> Effects:
    return _times_each(effects, lambda value: float(f"{value:.2g}"))


def _times_each(effects: Effects, change: Any) -> Effects:
    changes = {name: change(getattr(effects, name)) for name in (*WITHIN, *BETWEEN)}
    return msgspec.structs.replace(effects, **changes)


def sweep_pairs(rows: Sequence[ResidualRow]) -> list[tuple[ResidualRow, ResidualRow]]:
    """Return pairs of rows of one sweep, at most `MAX_PAIRS` of each, evenly spaced."""
    sweeps: dict[tuple[object, ...], list[ResidualRow]] = {}
    for row in rows:
        sweeps.setdefault(row.sweep, []).append(row)
    found: list[tuple[ResidualRow, ResidualRow]] = []
    for group in sweeps.values():
        every = list(combinations(group, 2))
        places = np.linspace(0, len(every) - 1, min(len(every), MAX_PAIRS)).round().astype(int)
        found += [every[place] for place in places]
    return found


def coverage(rows: Sequence[ResidualRow], effects: Effects | None = None) -> Coverage:
    """Return the share of measurements inside their 80% intervals."""
    levels: dict[str, list[bool]] = {}
    for row in rows:
        reach = Z80 * float(level_deviation(row.basis, effects))
        levels.setdefault(row.source, []).append(abs(row.residual) <= reach)
    ratios: dict[str, list[bool]] = {}
    for a, b in sweep_pairs(rows):
        reach = Z80 * float(ratio_deviation(a.basis, b.basis, effects))
        ratios.setdefault(a.source, []).append(abs(a.residual - b.residual) <= reach)

    def shares(found: dict[str, list[bool]]) -> dict[str, tuple[int, float]]:
        return {name: (len(each), float(np.mean(each))) for name, each in sorted(found.items())}

    return Coverage(levels=shares(levels), ratios=shares(ratios))
