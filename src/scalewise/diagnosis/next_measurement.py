"""The next measurement: expected information about the cause, by simulation, and its price.

    for each in expected(state, candidates(e)): each.key, each.bits, each.gpu_hours

Causes, values and levels are drawn from what is known; every candidate is simulated for each draw,
and the entropy of the causes that it leaves is averaged. Information is the entropy before less
that. (Lindley, "On a measure of the information provided by an experiment", 1956.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from scalewise.diagnosis.evidence import NODE_NOISE, PROFILE_NOISE, log_nccl
from scalewise.diagnosis.parts import EXPOSED_PLACES, PER_NODE, shares
from scalewise.diagnosis.posterior import entropy, log_likelihood, normalized
from scalewise.diagnosis.predict import OTHER_KEY, Table
from scalewise.diagnosis.runs import again, at_size
from scalewise.numeric import Array

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

DRAWS, SEED = 64, 1956
"""Simulated causes, and the seed of their noise."""

MATMUL_NOISE = 0.05
"""Standard deviation (log) of a matmul on one GPU against another."""

Kind = Literal["run", "profile", "nccl", "matmul"]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One measurement that could be made."""

    key: str
    kind: Kind
    label: str
    gpus: int
    """GPUs it occupies."""
    minutes: float
    """For how long: judgement, start included."""
    estimate: Estimate | None = None
    """Prediction of a run."""

    @property
    def gpu_hours(self) -> float:
        """What it occupies."""
        return self.gpus * self.minutes / 60.0


MINUTES: dict[Kind, float] = {"run": 10.0, "profile": 5.0, "nccl": 5.0, "matmul": 3.0}
"""Minutes of each kind of measurement: judgement, start of the job included."""


def candidates(e: Estimate, runs: Sequence[Estimate], *, profiled: bool = False,
               node_rate: bool = False) -> list[Candidate]:  # fmt: skip
    """Return the measurements that could be made next; runs must fit into memory.

    Args:
        e: The run that is asked about.
        runs: Runs that were measured already.
        profiled: Whether a profile is known.
        node_rate: Whether nccl-tests are known.
    """
    n, node = e.cluster.accelerators, min(e.cluster.scale_up_domain, e.cluster.accelerators)
    strategy, batch = e.strategy, e.workload.global_batch
    found: list[Candidate] = []

    def run(key: str, label: str, other: Estimate | None) -> None:
        if other is None or not other.feasible:
            return
        at = (other.cluster.accelerators, str(other.strategy), other.workload.global_batch)
        for known in runs:
            if at == (known.cluster.accelerators, str(known.strategy), known.workload.global_batch):
                return
        if any(each.key == key for each in found):
            return
        found.append(Candidate(key=key, kind="run", label=label, gpus=other.cluster.accelerators,
                               minutes=MINUTES["run"], estimate=other))  # fmt: skip

    if node < n:
        run("node", f"the same job on one node, {node} GPUs", at_size(e, node))
    if n // 4 > node:
        run("quarter", f"the same job on a quarter of the GPUs, {n // 4}", at_size(e, n // 4))
    if strategy.fully_sharded and strategy.dp_shard > 1:
        inside = max(node // (strategy.tp * strategy.cp), 1)
        if strategy.dp_replicate == 1 and inside < strategy.dp_shard:
            if strategy.dp_shard % inside == 0 and inside > 1:
                other = strategy.with_(dp_replicate=strategy.dp_shard // inside, dp_shard=inside)
                run("sharding", f"{other} (shard inside each node)", again(e, other))
        elif strategy.dp_replicate > 1:
            other = strategy.with_(dp_replicate=1, dp_shard=strategy.data_parallel)
            run("sharding", f"{other} (shard over all ranks)", again(e, other))
    double = strategy.with_(micro_batch=2 * strategy.micro_batch)
    run("micro_batch", "twice the micro-batch and batch", again(e, double, batch=2 * batch))
    run("accumulation", "4 times the gradient accumulation", again(e, strategy, batch=4 * batch))
    if not profiled:
        found.append(_candidate("profile", "traces of one step, one rank per node (--from)", n))
    if node < n and not node_rate and e.cluster.accelerator.kind == "gpu":
        found.append(_candidate("nccl", "nccl-tests (all_reduce_perf) between two nodes", 2 * node))
    found.append(_candidate("matmul", "a matmul on every GPU", n))
    return found


def _candidate(key: Kind, label: str, gpus: int) -> Candidate:
    return Candidate(key=key, kind=key, label=label, gpus=gpus, minutes=MINUTES[key])


@dataclass(frozen=True, kw_only=True)
class State:
    """What is known: predictions, weights of points, and residuals of the measured runs."""

    table: Table
    """Of measured runs, and behind them of candidate runs."""
    logs: Array
    """Log of prior times likelihood of the evidence besides rates, by point."""
    weights: Array
    """Posterior of the points."""
    observed: Array
    """Log of measured rates less the middle of the interval, a value per measured run."""
    center: Array
    """Middle of the interval over the prediction (log), of all runs of the table."""
    level: Sequence[float]
    """Deviation of the level of all runs of the table."""
    noise: Array
    groups: Sequence[int]

    def noise_of(self, runs: Sequence[int]) -> Array:
        """Return the noise of some runs, by point."""
        own = self.noise[list(runs)][:, None]
        return np.asarray(np.sqrt(own**2 + self.table.scatter**2))


def expected_bits(state: State, listed: Sequence[Candidate]) -> dict[str, float]:
    """Return the expected information of candidates about the cause, bits.

    Args:
        state: What is known.
        listed: Candidates; runs have a row in the table, in order behind the measured ones.
    """
    random = np.random.default_rng(SEED)
    table, known = state.table, len(state.observed)
    before = float(entropy(table.of_causes(state.weights)))
    # One draw in each of equal parts of the distribution.
    at = (np.arange(DRAWS) + random.uniform(size=DRAWS)) / DRAWS
    drawn = np.minimum(np.searchsorted(np.cumsum(state.weights), at), len(state.weights) - 1)
    base = state.logs + log_likelihood(
        state.observed[:, None] - table.log_rate[:known],
        state.level[:known], state.noise_of(range(known)), state.groups[:known],
    )  # fmt: skip
    levels = _levels(state, drawn, random)
    found: dict[str, float] = {}
    row = known
    for each in listed:
        logs = np.broadcast_to(base, (DRAWS, len(base)))
        if each.kind == "run":
            logs = state.logs + _with_run(state, row, drawn, levels, random)
            row += 1
        elif each.kind == "profile":
            parts = np.array([shares(table.parts[0], name) for name in PER_NODE]).T
            seen = parts[drawn] + PROFILE_NOISE * random.normal(size=(DRAWS, len(PER_NODE)))
            away = (seen[:, None] - parts) / PROFILE_NOISE
            logs = logs - 0.5 * (away**2).sum(axis=-1)
        elif each.kind == "nccl":
            rates = table.log_node_rate[drawn] + NODE_NOISE * random.normal(size=DRAWS)
            waits = (table.cause == table.keys.index(OTHER_KEY)) & np.isin(
                table.variant, EXPOSED_PLACES
            )
            lost = np.where(waits[drawn], -random.uniform(0.0, 4.6, size=DRAWS), 0.0)
            logs = logs + log_nccl(table, np.exp(rates + lost))
        else:
            seen = table.log_matmul[drawn] + MATMUL_NOISE * random.normal(size=DRAWS)
            logs = logs - 0.5 * ((seen[:, None] - table.log_matmul) / MATMUL_NOISE) ** 2
        after = entropy(table.of_causes(normalized(logs)))
        found[each.key] = max(before - float(after.mean()), 0.0)
    return found


def _levels(state: State, drawn: Array, random: np.random.Generator) -> dict[int, Array]:
    """Draw the level of every software, given a cause and the measured runs."""
    table, known = state.table, len(state.observed)
    noise = state.noise_of(range(known))
    found = {}
    for group in sorted(set(state.groups)):
        rows = [row for row in range(known) if state.groups[row] == group]
        spread = next(s for s, g in zip(state.level, state.groups, strict=True) if g == group)
        total, once = np.zeros(len(drawn)), np.zeros(len(drawn))
        for row in rows:
            weight = 1.0 / noise[row, drawn] ** 2
            total = total + weight
            once = once + weight * (state.observed[row] - table.log_rate[row, drawn])
        more = 1.0 + spread**2 * total
        deviation = spread / np.sqrt(more)
        found[group] = spread**2 * once / more + deviation * random.normal(size=len(drawn))
    return found


def _with_run(
    state: State, row: int, drawn: Array, levels: dict[int, Array], random: np.random.Generator
) -> Array:
    """Log likelihood of the measured runs and a simulated one; axes draw, point."""
    table, known = state.table, len(state.observed)
    noise = state.noise_of([*range(known), row])
    error = noise[-1, drawn] * random.normal(size=DRAWS)
    seen = table.log_rate[row, drawn] + levels[state.groups[row]] + error
    measured = np.concatenate([np.tile(state.observed[:, None], (1, DRAWS)), seen[None]])
    predicted = table.log_rate[[*range(known), row]]
    level = [*state.level[:known], state.level[row]]
    groups = [*state.groups[:known], state.groups[row]]
    residuals = measured[:, :, None] - predicted[:, None, :]
    return log_likelihood(residuals, level, noise[:, None, :], groups)
