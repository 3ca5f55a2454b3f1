"""Gain of upgrades: one change of the hardware or software at a time.

    found = sensitivity(model, cluster, workload, strategy)            # fixed strategy
    found = sensitivity(model, cluster, workload, reoptimize=True)     # the best one, every time
    for row in found.rows:
        row.name, row.elasticity, row.upgrade, row.gain, row.strategy

The elasticity is local: percent of tokens/s (per joule, per dollar) per percent of the quantity.
The upgrade is finite, because a doubled network moves the bottleneck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.errors import InputError
from scalewise.explore.fixes import fixes
from scalewise.explore.search import search
from scalewise.explore.space import Limits
from scalewise.explore.upgrades import Means, Part, Upgrade, upgrades
from scalewise.numeric import scalar
from scalewise.ranges import ratio_range, tie_width
from scalewise.results import Result
from scalewise.software import choose_stack
from scalewise.step.estimate import estimate
from scalewise.strategies import Strategies

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.stack import Stack
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload

STEP = 0.01
"""Relative change for the local derivative."""

SWITCHING = 0.05
"""If slopes over `STEP` and twice `STEP` differ by more, a choice switches in between (a protocol,
the bound of a kernel): there is no local derivative."""

FIXED_CAPACITY = "changes only what fits: see --reoptimize"


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gain of one change. Fractions, not percent; prices stay."""

    name: str
    """Quantity or setting."""
    part: Part
    """Part: chip, scale-up, scale-out, software, power."""
    means: Means
    """Means: buy, set (a setting that exists), build (software that does not)."""
    upgrade: str
    """The finite change, as text."""
    elasticity: float | None = None
    """Percent of tokens/s per percent of the quantity; None for a setting, or next to a switch."""
    energy_elasticity: float | None = None
    """The same of tokens per joule."""
    cost_elasticity: float | None = None
    """The same of tokens per dollar."""
    gain: float | None = None
    """Gain of tokens/s by the finite change, as a fraction; None where it changes what fits."""
    gain_low: float | None = None
    """Low end of the 80% prediction interval of the gain."""
    gain_high: float | None = None
    """High end of it."""
    energy_gain: float | None = None
    """Gain of tokens per joule; None if power is unknown."""
    cost_gain: float | None = None
    """Gain of tokens per dollar at the same price; None without a price."""
    strategy: str | None = None
    """Strategy after the finite change; None if none fits."""
    moves: bool = False
    """Whether that is another strategy, and better by more than a tie."""
    note: str = ""
    """Remarks."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Sensitivities(Result):
    """All changes to one cluster, and where they start from."""

    today: Estimate
    """Base of all gains; if nothing fits, the strategy nearest to it."""
    reoptimized: bool
    """Whether the best strategy is searched again for every change."""
    factor: float
    """Factor of the finite changes."""
    rows: list[Sensitivity]
    """The largest gain first; changes without effect last."""
    given: Estimate | None = None
    """The given strategy, if it was re-optimized."""
    best: Estimate | None = None
    """The best strategy on the unchanged cluster, if it was searched."""
    fits: tuple[str, ...] = ()
    """Where today's strategy does not fit: what would make it fit, one sentence each."""

    @property
    def infeasible(self) -> str | None:
        """Why the base strategy cannot run, or None."""
        return self.today.infeasible

    def row(self, name: str) -> Sensitivity:
        """Return the row of a change."""
        return next(row for row in self.rows if row.name == name)

    def first(self, *means: Means) -> Sensitivity | None:
        """Return the change with the largest gain among those of these means."""
        chosen = [row for row in self.rows if row.means in means and row.gain is not None]
        return max(chosen, key=lambda row: row.gain or 0.0, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON."""
        today = self.today
        free = self.best and _share(self.best.tokens_per_second, today.tokens_per_second)
        return {
            "model": today.model.name,
            "cluster": today.cluster.name,
            "accelerator": today.cluster.accelerator.name,
            "accelerators": today.cluster.accelerators,
            "workload": msgspec.to_builtins(today.workload),
            "stack": today.stack.name,
            "strategy": str(today.strategy),
            "reoptimized": self.reoptimized,
            "given": None if self.given is None else str(self.given.strategy),
            "infeasible": self.infeasible,
            "fits": list(self.fits),
            "tokens_per_second": today.tokens_per_second,
            "tokens_per_joule": today.tokens_per_joule,
            "usd_per_million_tokens": today.usd_per_million_tokens,
            "best": None
            if self.best is None
            else {"strategy": str(self.best.strategy), "gain": free},
            "factor": self.factor,
            "rows": msgspec.to_builtins(self.rows),
        }


def sensitivity(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Strategy | None = None,
    *,
    stack: Stack | str | None = None,
    factor: float = 2.0,
    reoptimize: bool = False,
    compare: bool = False,
    limits: Limits | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sensitivities:
    """Try every change alone.

    Args:
        model: Model.
        cluster: Cluster.
        workload: Sequence length, batch, precision.
        strategy: Parallelization; None takes the best one, and re-optimizes.
        stack: Software, as for `estimate`.
        factor: Size of the finite upgrades.
        reoptimize: Whether the best strategy is found again after every change. The base is then
            the best one on today's cluster. Local derivatives need no search: next to an optimum,
            moving along with it changes nothing (the envelope theorem).
        compare: Whether to look for the best strategy on today's cluster where it stays fixed.
        limits: What strategies may be searched.
        progress: Called with the name of what is searched next.

    Returns:
        All changes, largest gain first.

    Raises:
        InputError: If the factor is no improvement, or the strategy does not suit the cluster.
    """
    if not factor > 1.0:
        raise InputError(f"factor = {factor:g} must be above 1", hint="for example factor = 2")
    if strategy is not None and strategy.precision is not None:
        workload = msgspec.structs.replace(workload, precision=strategy.precision)
    software = None if stack is None else choose_stack(stack, cluster).stack
    trial = _Trial(model, workload, limits, progress)
    given = None if strategy is None else trial.fixed(cluster, software, strategy)
    reoptimize = reoptimize or given is None
    best = None
    if reoptimize or compare or (given is not None and not given.feasible):
        best = trial.best(cluster, software, "today's cluster")
    today = given
    if reoptimize or today is None:
        today = best or trial.nearest
        if today is None:
            raise InputError(
                f"--batch: no strategy divides {cluster.accelerators:,} GPUs and a batch of "
                f"{workload.global_batch:,} sequences",
                hint=f"--batch {cluster.accelerators}",
            )
    # Changes of software are changes of what runs today.
    rows = [
        trial.row(upgrade, cluster, today.stack, today, reoptimize=reoptimize)
        for upgrade in upgrades(cluster, today.stack, factor=factor)
    ]
    # Equal gains keep the order of `upgrades`; changes without a number come last.
    rows.sort(key=lambda row: -np.inf if row.gain is None else row.gain, reverse=True)
    return Sensitivities(
        today=today,
        reoptimized=reoptimize,
        factor=factor,
        rows=rows,
        given=given if reoptimize else None,
        best=best,
        fits=() if today.feasible else fixes(today, best),
    )


class _Trial:
    """Estimates and searches of one model and workload on changed clusters."""

    def __init__(
        self,
        model: Model,
        workload: Workload,
        limits: Limits | None,
        progress: Callable[[str], None] | None,
    ) -> None:
        # Overlap never costs more than it saves, so the best strategy has it on.
        self.limits = limits or Limits(overlap=(True,))
        self.model, self.workload = model, workload
        self.progress = progress
        self.nearest: Estimate | None = None

    def fixed(self, cluster: Cluster, stack: Stack | None, strategy: Strategy) -> Estimate:
        return estimate(self.model, cluster, self.workload, strategy, stack=stack)

    def levels(
        self, cluster: Cluster, stack: Stack, strategy: Strategy
    ) -> tuple[float, float | None, float | None]:
        """Return tokens/s, tokens per joule, and million tokens per dollar.

        Without the sums and sentences of an estimate, which take a third of its time.
        """
        many = estimate(self.model, cluster, self.workload, Strategies.one(strategy), stack=stack)
        joules, usd = many.joules_per_token, many.usd_per_million_tokens
        return (
            scalar(many.tokens_per_second),
            None if joules is None else 1.0 / scalar(joules),
            None if not usd else 1.0 / scalar(usd),
        )

    def best(self, cluster: Cluster, stack: Stack | None, name: str) -> Estimate | None:
        if self.progress is not None:
            self.progress(name)
        found = search(
            self.model, cluster, self.workload, limits=self.limits, top=1, stack=stack
        ).whole()
        self.nearest = self.nearest or found.nearest
        return found.best

    def row(
        self,
        upgrade: Upgrade,
        cluster: Cluster,
        stack: Stack,
        today: Estimate,
        *,
        reoptimize: bool,
    ) -> Sensitivity:
        """Evaluate one change."""
        facts: dict[str, Any] = {
            "name": upgrade.name,
            "part": upgrade.part,
            "means": upgrade.means,
            "upgrade": upgrade.to,
        }
        stays = str(today.strategy) if today.feasible else None
        if upgrade.unused:
            return Sensitivity(**facts, strategy=stays, note=upgrade.unused)
        # Only capacity, and the reach of tensor parallelism, change what fits.
        if not today.feasible and (upgrade.smooth or upgrade.part not in ("chip", "scale-up")):
            return Sensitivity(**facts, note="does not fit")
        if upgrade.smooth and today.feasible:
            facts |= self._slopes(upgrade, cluster, stack, today)
        changed, software = upgrade.change(cluster, stack, upgrade.factor)
        after = self.fixed(changed, software, today.strategy)
        moves = False
        if reoptimize:
            better = self.best(changed, software, f"{upgrade.name}, {upgrade.to}")
            if better is not None and not (
                after.feasible
                and after.tokens_per_second * (1.0 + tie_width()) >= better.tokens_per_second
            ):
                after, moves = better, True
        if not after.feasible:
            return Sensitivity(**facts, note="does not fit")
        facts |= {"strategy": str(after.strategy), "moves": moves}
        if not today.feasible:
            return Sensitivity(**facts, note="fits then")
        if upgrade.capacity and not reoptimize:
            return Sensitivity(**facts, note=FIXED_CAPACITY)
        facts |= zip(("gain", "energy_gain", "cost_gain"), _gains(after, today), strict=True)
        low, high = ratio_range(after.basis, today.basis, paired=not moves)
        return Sensitivity(**facts, gain_low=low - 1.0, gain_high=high - 1.0)

    def _slopes(
        self, upgrade: Upgrade, cluster: Cluster, stack: Stack, today: Estimate
    ) -> dict[str, float | None]:
        """Return central differences of logarithms, or None next to a switch."""

        def slopes(step: float) -> list[float | None]:
            up, down = (
                self.levels(*upgrade.change(cluster, stack, by), today.strategy)
                for by in (1.0 + step, 1.0 / (1.0 + step))
            )
            return [
                None if share is None else float(np.log1p(share) / (2.0 * np.log1p(step)))
                for share in map(_share, up, down)
            ]

        found: dict[str, float | None] = {}
        names = ("elasticity", "energy_elasticity", "cost_elasticity")
        for name, near, wide in zip(names, slopes(STEP), slopes(2.0 * STEP), strict=True):
            steady = near is not None and wide is not None and abs(near - wide) <= SWITCHING
            found[name] = near if steady else None
        return found


def _share(new: float | None, old: float | None) -> float | None:
    """Return the relative gain of `new`; None if one is unknown."""
    return None if not new or not old else new / old - 1.0


def _gains(new: Estimate, old: Estimate) -> tuple[float | None, float | None, float | None]:
    """Return the gains of tokens/s, tokens per joule and tokens per dollar."""
    return (
        _share(new.tokens_per_second, old.tokens_per_second),
        _share(new.tokens_per_joule, old.tokens_per_joule),
        _share(old.usd_per_million_tokens, new.usd_per_million_tokens),
    )
