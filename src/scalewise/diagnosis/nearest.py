"""Published runs that are close to a measured one.

nearest_runs(e)[0].source, nearest_runs(e)[0].rate
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scalewise.diagnosis.result import Comparable
from scalewise.errors import ScalewiseError
from scalewise.evidence.baselines import Pool, Published, place_of
from scalewise.evidence.runs import Run, read_runs
from scalewise.reading import user_path

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

MOST = 3
"""Runs that are named, each of another source."""

LOOKED_AT = 8
"""Rows of each source of which a distance is computed: those nearest by model size, GPUs, chip."""

SOURCES = 10
"""Sources that are looked at."""

FARTHEST = 5.0
"""Doublings beyond which a run is no comparison (`evidence.baselines`)."""

OWN = "your run"
"""Source of the user's own runs."""

OTHER_SIZE = 1.5
"""Doublings of model size beyond which it is none."""


def nearest_runs(e: Estimate, runs: list[Run] | None = None) -> tuple[Comparable, ...]:
    """Return the nearest published runs of different sources.

    Distances are those of `evidence.baselines` (doublings of model size, GPUs and sequence length,
    other chips and precisions), and doublings of TP and PP.

    Args:
        e: Estimate of the run.
        runs: Published runs; by default those that are shipped.
    """
    here = Published(
        source="",
        parameters=float(e.model.parameters),
        accelerators=e.cluster.accelerators,
        seq_len=e.workload.seq_len,
        chip=e.cluster.accelerator.architecture,
        precision=e.workload.precision,
        full=1.0,
        mfu=0.0,
    )
    placed: list[tuple[Run, Published]] = []
    sparse = e.model.moe is not None
    for run in _shortlist(e, read_runs() if runs is None else runs):
        try:
            place = place_of(run, run.model([]), run.cluster([]))
        except ScalewiseError:
            continue
        if place is None or run.quality != "ok" or bool(run.number("experts")) != sparse:
            continue
        if abs(float(np.log2(place.parameters / here.parameters))) <= OTHER_SIZE:
            placed.append((run, place))
    if not placed:
        return ()
    away = Pool(place for _, place in placed).distances(here)
    away = away + np.array([_layout(e, run) for run, _ in placed])
    found: list[Comparable] = []
    for index in np.argsort(away, kind="stable"):
        run, place = placed[index]
        if away[index] > FARTHEST or len(found) == MOST:
            break
        if all(place.source != other.source for other in found):
            found.append(_comparable(run, place))
    return tuple(found)


def own_runs(e: Estimate) -> tuple[Comparable, ...]:
    """Return the user's own runs behind the stack of an answer, the nearest first.

    Distances are doublings of GPUs, model size and sequence length.
    """
    own = os.environ.get("SCALEWISE_CATALOG")
    file = user_path(own) / "runs" / f"{e.stack.name}.csv" if own else None
    if not e.stack.own_runs or file is None or not file.exists():
        return ()
    found: list[tuple[float, Comparable]] = []
    for run in read_runs(file):
        place = place_of(run, run.model([]), run.cluster([]))
        if place is None:
            continue
        away = abs(np.log2(place.accelerators / e.cluster.accelerators))
        away += abs(np.log2(place.parameters / e.model.parameters))
        away += abs(np.log2(place.seq_len / e.workload.seq_len))
        strategy = run.text("strategy") or ""
        found.append((float(away), replace(_comparable(run, place), source=OWN, strategy=strategy)))
    found.sort(key=lambda pair: pair[0])
    return tuple(each for _, each in found[:MOST])


def _layout(e: Estimate, run: Run) -> float:
    """Return how far the strategy of a run is, in doublings of TP and PP; other sharding is 1."""
    mine = e.strategy
    other = float((run.text("sharding") or "ddp") != mine.sharding and mine.data_parallel > 1)
    degrees = ((run.number("tp") or 1.0, mine.tp), (run.number("pp") or 1.0, mine.pp))
    return other + sum(abs(float(np.log2(theirs / own))) for theirs, own in degrees)


def _shortlist(e: Estimate, runs: list[Run]) -> list[Run]:
    """Return the rows that are nearest by what their text says."""
    family = e.cluster.accelerator.name.split("-")[0]

    def away(run: Run) -> float:
        try:
            parameters, gpus = float(run.row["params_total"]), float(run.row["accelerators"])
        except (KeyError, ValueError):
            return np.inf
        other = 0.0 if run.row["accelerator"].startswith(family) else 3.0
        size = abs(np.log2(max(parameters, 1.0) / e.model.parameters))
        apart = abs(np.log2(max(gpus, 1.0) / e.cluster.accelerators))
        far = 100.0 if size > 2.0 * OTHER_SIZE else 0.0
        return float(other + size + apart + far) + _layout(e, run)

    found: list[Run] = []
    count: dict[str, int] = {}
    for run in sorted(runs, key=away):
        if away(run) > 2.0 * FARTHEST or len(found) == LOOKED_AT * SOURCES:
            break
        if count.get(run.source, 0) < LOOKED_AT:
            count[run.source] = count.get(run.source, 0) + 1
            found.append(run)
    return found


def _comparable(run: Run, place: Published) -> Comparable:
    """A published run as it is named."""
    kind = run.text("sharding") or "ddp"
    degrees = [f"{name}{run.text(name)}" for name in ("tp", "pp", "cp") if run.text(name) not in
               (None, "1")]  # fmt: skip
    return Comparable(
        source=place.source,
        reference=run.text("source_ref") or "",
        model=run.text("model") or f"{place.parameters / 1e9:.3g}B",
        gpus=place.accelerators,
        accelerator=run.text("accelerator") or "",
        seq_len=place.seq_len,
        strategy="-".join([{"zero3": "fsdp"}.get(kind, kind), *degrees]),
        rate=place.mfu * place.full,
        mfu=place.mfu,
    )
