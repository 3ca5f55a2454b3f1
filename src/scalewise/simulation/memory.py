"""Memory of a rank over time: activations vary, the rest is constant.

    samples = memory_samples(simulation, case, rank=0)
    max(sample.value for sample in samples)        # peak memory of `estimate`, on its worst rank

Constant bytes of a stage (parameters, gradients, optimizer state, buffers of blocks in flight,
workspace) come from `step.memory`. Each forward of a block adds the activations that backward
needs, its backward frees them. While a block recomputes, its activations are complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import scalar
from scalewise.physics.offload import RESIDENT_LAYERS
from scalewise.simulation.build import split
from scalewise.simulation.events import Sample
from scalewise.step import mlp_tiles
from scalewise.step.memory import activation_bytes, grows_in_backward, logit_bytes, stage_parts
from scalewise.step.sequences import of_longest

if TYPE_CHECKING:
    from scalewise.simulation.simulate import Simulation
    from scalewise.step.case import Case

STATIC = ("parameters", "gradients", "optimizer", "all_gather_buffers", "workspace")
"""Parts of an Estimate's memory that are constant during a step; gradients where software keeps a
buffer of them."""


def static_parts(case: Case, simulation: Simulation, rank: int) -> dict[str, float]:
    """Return the bytes of a rank that are there when its last backward ends, by part."""
    stage = simulation.durations.stages[rank]
    sparse = np.full(1, stage.sparse)
    edge = stage.params * case.split.tp - stage.layers * case.params_of_layer(sparse)
    parts = stage_parts(case, sparse, float(stage.layers), 0.0, np.maximum(edge, 0.0), 0.0)
    return {name: scalar(getattr(parts, name)) for name in STATIC}


def memory_samples(simulation: Simulation, case: Case, rank: int) -> list[Sample]:
    """Return the bytes of a rank over time: a value from each moment on."""
    durations, case = simulation.durations, of_longest(case)
    sparse = np.full(1, durations.stages[rank].sparse)
    stored, whole = (scalar(v) for v in activation_bytes(case, sparse))
    logits = scalar(logit_bytes(case))
    chunks = 2 if durations.zb_v else durations.chunks
    sizes = split(durations.stages[rank].layers, chunks, first=rank == 0)
    extra = whole - stored if case.split.recompute[0] > 0.0 else 0.0
    extra += min(1.0 - scalar(sparse), 1.0) * scalar(mlp_tiles.tile_bytes(case))
    away = bool(case.split.offloads("act")[0])
    grows = bool(grows_in_backward(case)[0])
    static = static_parts(case, simulation, rank)
    # Without a buffer of their own, gradients appear layer by layer.
    gradients = static["gradients"] if grows else 0.0
    each = gradients / durations.stages[rank].layers
    changes: list[tuple[float, float]] = []
    kept: list[tuple[float, float]] = []
    for task, label in enumerate(simulation.step.labels):
        if label is None or label.rank != rank or label.stream != "compute":
            continue
        start, end = simulation.times.start[task], simulation.times.end[task]
        coarse = label.layer < 0
        layers = sizes[label.chunk] if coarse else 1
        head = rank == durations.head_rank and label.chunk == chunks - 1
        if label.kind == "forward":
            kept.append((start, layers * stored))
            if coarse and head:
                changes.append((end, logits))
        elif label.kind in ("backward", "inputs", "weights"):
            if label.kind != "weights" and layers:
                changes += [(start, extra), (end, -extra)]
            top = coarse or label.layer == sizes[label.chunk] - 1
            if grows:
                changes.append((end if top else start, layers * each))
            if label.kind != "inputs":
                kept.append((end, -layers * stored))
            if head and top and label.kind != "weights":
                # The gradient of the logits lives until the first block has used its own.
                changes.append((end, -logits))
        elif label.kind == "head forward":
            changes.append((start, logits))
        elif label.kind == "head backward" and not sizes[label.chunk]:
            changes.append((end, -logits))
    changes += _resident(kept, RESIDENT_LAYERS * stored) if away else kept
    return _running(changes, sum(static.values()) - gradients, scalar(case.habits.fragmentation))


def _resident(changes: list[tuple[float, float]], most: float) -> list[tuple[float, float]]:
    """Return the changes of what stays on the device of activations that are offloaded.

    Args:
        changes: Activations that backward needs.
        most: Bytes of them that stay.
    """
    found, held, seen = [], 0.0, 0.0
    for moment, change in sorted(changes):
        held += change
        now = min(max(held, 0.0), most)
        found.append((moment, now - seen))
        seen = now
    return found


def _running(changes: list[tuple[float, float]], base: float, lost: float) -> list[Sample]:
    """Add up changes in order of time; at one moment, frees precede allocations."""
    changes.sort()
    samples = [Sample(start=0.0, value=base * (1.0 + lost))]
    held = 0.0
    for place, (moment, change) in enumerate(changes):
        held += change
        if place + 1 < len(changes) and changes[place + 1][0] == moment:
            continue
        samples.append(Sample(start=moment, value=(base + max(held, 0.0)) * (1.0 + lost)))
    return samples
