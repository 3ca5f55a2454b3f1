"""How full is a rank at each moment? Activations come and go, the rest stays.

    samples = memory_samples(play, case, rank=0)
    max(sample.value for sample in samples)        # the memory of `estimate`, on its fullest rank

What a stage always holds (weights, gradients, optimizer state, buffers of blocks in flight,
workspace) is priced by `step.memory`; each forward of a block adds what backward will need, its
backward takes it away again. While a block recomputes, it is there in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.step.layers import tokens_per_rank
from scalewise.step.memory import MemoryParts, activation_bytes, peak_memory
from scalewise.timeline.build import split
from scalewise.timeline.events import Sample

if TYPE_CHECKING:
    from scalewise.step.case import Case
    from scalewise.timeline.play import Play

STATIC = ("parameters", "gradients", "optimizer", "gather_buffers", "workspace")
"""Parts of an Estimate's memory that do not change during a step."""


def static_bytes(case: Case, play: Play, rank: int) -> float:
    """Bytes a rank always holds."""
    stage = play.prices.stages[rank]
    edge = stage.params * case.tp - stage.layers * case.layer_params
    # As a model of its own: the layers of the stage, and what stands beside them.
    count = np.full(1, float(stage.layers))
    alone = case.changed(
        pp=np.ones(1),
        layers=count,
        first_layers=count,
        middle_layers=count,
        last_layers=count,
        embedding_params=np.maximum(edge, 0.0),
        head_params=np.zeros(1),
    )
    parts: MemoryParts = peak_memory(alone)
    return sum(float(np.asarray(getattr(parts, name)).reshape(-1)[0]) for name in STATIC)


def memory_samples(play: Play, case: Case, rank: int) -> list[Sample]:
    """Bytes on a rank over time: a value from each moment on."""
    prices = play.prices
    stored, whole = (float(np.asarray(v).reshape(-1)[0]) for v in activation_bytes(case))
    logits = float((case.logit_memory * tokens_per_rank(case) * case.vocab / case.tp)[0])
    chunks = 2 if prices.v_shaped else prices.chunks
    sizes = split(prices.stages[rank].layers, chunks, first=rank == 0)
    extra = whole - stored if case.recompute[0] > 0.0 else 0.0
    changes: list[tuple[float, float]] = []
    for task, label in enumerate(play.step.labels):
        if label is None or label.rank != rank or label.stream != "compute":
            continue
        start, end = play.played.start[task], play.played.end[task]
        coarse = label.layer < 0
        layers = sizes[label.chunk] if coarse else 1
        head = rank == prices.head_rank and label.chunk == chunks - 1
        if label.kind == "forward":
            changes.append((start, layers * stored))
            if coarse and head:
                changes.append((end, logits))
        elif label.kind in ("backward", "inputs", "weights"):
            if label.kind != "weights" and layers:
                changes += [(start, extra), (end, -extra)]
            if label.kind != "inputs":
                changes.append((end, -layers * stored))
            top = coarse or label.layer == sizes[label.chunk] - 1
            if head and top and label.kind != "weights":
                # The gradient of the logits lives until the first block has used its own.
                changes.append((end, -logits))
        elif label.kind == "head forward":
            changes.append((start, logits))
        elif label.kind == "head backward" and not sizes[label.chunk]:
            changes.append((end, -logits))
    return _running(changes, static_bytes(case, play, rank), float(case.fragmentation[0]))


def _running(changes: list[tuple[float, float]], base: float, lost: float) -> list[Sample]:
    """Add up changes in order of time; what is freed at a moment goes before what is taken."""
    changes.sort()
    samples = [Sample(start=0.0, value=base * (1.0 + lost))]
    held = 0.0
    for place, (moment, change) in enumerate(changes):
        held += change
        if place + 1 < len(changes) and changes[place + 1][0] == moment:
            continue
        samples.append(Sample(start=moment, value=(base + max(held, 0.0)) * (1.0 + lost)))
    return samples
