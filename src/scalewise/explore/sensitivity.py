"""What would the next upgrade buy? Change one thing at a time and look.

    found = sensitivity(model, cluster, workload, strategy)            # the strategy stays
    found = sensitivity(model, cluster, workload, reoptimise=True)     # the best one, every time
    for row in found.rows:
        row.name, row.elasticity, row.upgrade, row.gain, row.strategy

The elasticity is the local one: per cent of tokens/s (per joule, per dollar) per per cent of the
quantity. The upgrade is finite, because a doubled network moves the bottleneck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.errors import InputError
from scalewise.explore.remedies import remedies
from scalewise.explore.search import search
from scalewise.explore.space import Limits
from scalewise.explore.upgrades import Means, Part, Upgrade, upgrades
from scalewise.step.estimate import NEAR_TIE, choose_stack, estimate

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
"""Where slopes over `STEP` and twice `STEP` differ by more, a choice switches in between (a
protocol, what bounds a kernel): there is no local derivative, and a jump must not look like one."""

FIXED_CAPACITY = "changes only what fits: see --reoptimise"


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one change is worth. Shares, not percent; prices stay as they are."""

    name: str
    """What is changed."""
    part: Part
    """Of what: chip, scale-up, scale-out, software, power."""
    means: Means
    """How one gets it: buy, set (a switch that exists), build (software that does not)."""
    upgrade: str
    """The finite change, in words."""
    elasticity: float | None = None
    """Per cent of tokens/s per per cent of the quantity; None for a switch, or next to one."""
    energy_elasticity: float | None = None
    """The same of tokens per joule."""
    cost_elasticity: float | None = None
    """The same of tokens per dollar."""
    gain: float | None = None
    """Share of tokens/s that the finite change brings; None where it changes what fits."""
    energy_gain: float | None = None
    """Share of tokens per joule; None where power is not known."""
    cost_gain: float | None = None
    """Share of tokens per dollar at the same rent; None without a price."""
    strategy: str | None = None
    """What runs after the finite change; None if nothing can."""
    moves: bool = False
    """Whether that is another strategy than today's, and better by more than a near-tie."""
    note: str = ""
    """What the numbers do not say."""


@dataclass(frozen=True, kw_only=True)
class Sensitivities:
    """All changes to one cluster, and where they start from."""

    today: Estimate
    """The base of all gains; where nothing fits, what is nearest to it."""
    reoptimised: bool
    """Whether the strategy is the best one, found again for every change."""
    factor: float
    """Of the finite changes of quantities."""
    rows: list[Sensitivity]
    """The largest gain first; what changes nothing last."""
    given: Estimate | None = None
    """The strategy the user gave, where it was re-optimised."""
    best: Estimate | None = None
    """The best strategy on today's cluster, if it was looked for."""
    fits: tuple[str, ...] = ()
    """Where today's strategy does not fit: what would make it fit, one sentence each."""

    @property
    def infeasible(self) -> str | None:
        """Why today's strategy cannot run, or None."""
        return self.today.infeasible

    def row(self, name: str) -> Sensitivity:
        """The row of a change."""
        return next(row for row in self.rows if row.name == name)

    def first(self, *means: Means) -> Sensitivity | None:
        """The change with the largest gain among those one gets by these means."""
        chosen = [row for row in self.rows if row.means in means and row.gain is not None]
        return max(chosen, key=lambda row: row.gain or 0.0, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON."""
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
            "reoptimised": self.reoptimised,
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
    reoptimise: bool = False,
    compare: bool = False,
    limits: Limits | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sensitivities:
    """Try every change alone.

    Args:
        model: What is trained.
        cluster: On what.
        workload: Sequence, batch, precision.
        strategy: How it is split; None takes the best one, and re-optimises.
        stack: Software, as for `estimate`.
        factor: Size of the finite upgrades.
        reoptimise: Whether the best strategy is found again after every change. The base is then
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
        raise InputError(f"factor = {factor:g} must be above 1", hint="2 is twice as good")
    if strategy is not None and strategy.precision is not None:
        workload = msgspec.structs.replace(workload, precision=strategy.precision)
    compiled = None if strategy is None else strategy.compiled
    software, _ = choose_stack(stack, cluster, compiled=compiled)
    trial = _Trial(model, workload, limits, progress)
    given = None if strategy is None else trial.fixed(cluster, software, strategy)
    reoptimise = reoptimise or given is None
    best = None
    if reoptimise or compare or (given is not None and not given.feasible):
        best = trial.best(cluster, software, "today's cluster")
    today = given
    if reoptimise or today is None:
        today = best or trial.nearest
        if today is None:
            raise InputError(
                f"no strategy suits {cluster.accelerators:,} accelerators and a batch of "
                f"{workload.global_batch:,} sequences",
                hint="give a --batch that more data-parallel ranks divide",
            )
    rows = [
        trial.row(upgrade, cluster, software, today, reoptimise=reoptimise)
        for upgrade in upgrades(cluster, software, factor=factor)
    ]
    # Ties keep the order of `upgrades`; what has no number comes last.
    rows.sort(key=lambda row: -np.inf if row.gain is None else row.gain, reverse=True)
    return Sensitivities(
        today=today,
        reoptimised=reoptimise,
        factor=factor,
        rows=rows,
        given=given if reoptimise else None,
        best=best,
        fits=() if today.feasible else remedies(today, best),
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
        # Overlap never costs more than it hides, so the best strategy has it on.
        self.limits = limits or Limits(overlap=(True,))
        self.model, self.workload = model, workload
        self.progress = progress
        self.nearest: Estimate | None = None

    def fixed(self, cluster: Cluster, stack: Stack, strategy: Strategy) -> Estimate:
        return estimate(self.model, cluster, self.workload, strategy, stack=stack)

    def best(self, cluster: Cluster, stack: Stack, name: str) -> Estimate | None:
        if self.progress is not None:
            self.progress(name)
        found = search(self.model, cluster, self.workload, limits=self.limits, top=1, stack=stack)
        if found.interrupted:
            raise KeyboardInterrupt
        self.nearest = self.nearest or found.nearest
        return found.best

    def row(
        self,
        upgrade: Upgrade,
        cluster: Cluster,
        stack: Stack,
        today: Estimate,
        *,
        reoptimise: bool,
    ) -> Sensitivity:
        """Price one change."""
        facts: dict[str, Any] = {
            "name": upgrade.name,
            "part": upgrade.part,
            "means": upgrade.means,
            "upgrade": upgrade.to,
        }
        stays = str(today.strategy) if today.feasible else None
        if upgrade.unused:
            return Sensitivity(**facts, strategy=stays, note=upgrade.unused)
        # Only capacity, and how far tensor parallelism may reach, decide what fits.
        if not today.feasible and (upgrade.smooth or upgrade.part not in ("chip", "scale-up")):
            return Sensitivity(**facts, note="does not fit")
        if upgrade.smooth and today.feasible:
            facts |= self._slopes(upgrade, cluster, stack, today)
        changed, software = upgrade.change(cluster, stack, upgrade.factor)
        after = self.fixed(changed, software, today.strategy)
        moves = False
        if reoptimise:
            better = self.best(changed, software, f"{upgrade.name}, {upgrade.to}")
            if better is not None and not (
                after.feasible
                and after.tokens_per_second * (1.0 + NEAR_TIE) >= better.tokens_per_second
            ):
                after, moves = better, True
        if not after.feasible:
            return Sensitivity(**facts, note="does not fit")
        facts |= {"strategy": str(after.strategy), "moves": moves}
        if not today.feasible:
            return Sensitivity(**facts, note="fits then")
        if upgrade.capacity and not reoptimise:
            return Sensitivity(**facts, note=FIXED_CAPACITY)
        facts |= zip(("gain", "energy_gain", "cost_gain"), _gains(after, today), strict=True)
        return Sensitivity(**facts)

    def _slopes(
        self, upgrade: Upgrade, cluster: Cluster, stack: Stack, today: Estimate
    ) -> dict[str, float | None]:
        """Central differences of logarithms, or None next to a switch."""

        def slopes(step: float) -> list[float | None]:
            up, down = (
                self.fixed(*upgrade.change(cluster, stack, by), today.strategy)
                for by in (1.0 + step, 1.0 / (1.0 + step))
            )
            return [
                None if share is None else float(np.log1p(share) / (2.0 * np.log1p(step)))
                for share in _gains(up, down)
            ]

        found: dict[str, float | None] = {}
        names = ("elasticity", "energy_elasticity", "cost_elasticity")
        for name, near, wide in zip(names, slopes(STEP), slopes(2.0 * STEP), strict=True):
            steady = near is not None and wide is not None and abs(near - wide) <= SWITCHING
            found[name] = near if steady else None
        return found


def _share(new: float | None, old: float | None) -> float | None:
    """By which share `new` is more; None where one is not known."""
    return None if not new or not old else new / old - 1.0


def _gains(new: Estimate, old: Estimate) -> tuple[float | None, float | None, float | None]:
    """What is gained in tokens/s, tokens per joule and tokens per dollar."""
    return (
        _share(new.tokens_per_second, old.tokens_per_second),
        _share(new.tokens_per_joule, old.tokens_per_joule),
        _share(old.usd_per_million_tokens, new.usd_per_million_tokens),
    )
