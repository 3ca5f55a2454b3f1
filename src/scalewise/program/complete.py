"""Whether a capture can be whole: an omission would look like speed.

    refusals = missing(captures, recognized)

Three checks. Every dimension of the mesh with more than one rank shows communication; FSDP gathers
every parameter at least once; the FLOPs are those of the parameters and tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scalewise.program.events import Capture
from scalewise.program.recognize import FSDP_GATHER, Recognized

PADDED = 1.10
"""Gathered bytes over those of the parameters, at most: FSDP2 pads uneven shards (a 7B model: 1.05
over 2,048 ranks)."""

FEWEST_FLOPS = 0.98
"""FLOPs of GEMMs over 6 per parameter and token, at least."""

WIDTHS = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "uint8": 1.0}
"""Bytes of an element on the wire."""


def missing(captures: Sequence[Capture], recognized: Recognized) -> list[str]:
    """Return what a capture should show and does not, a sentence each; none if it is complete.

    Args:
        captures: One per pipeline stage, first stage first.
        recognized: What they were taken for.
    """
    return [
        *_silent_dimensions(captures),
        *_gathered(captures, recognized),
        *_computed(captures, recognized),
    ]


def _silent_dimensions(captures: Sequence[Capture]) -> list[str]:
    """Dimensions of the mesh on which nothing communicates."""
    spoken: set[tuple[int, ...]] = set()
    for capture in captures:
        spoken |= {capture.groups[event.group].ranks for event in capture.collectives()}
    found = []
    for mesh in captures[0].meshes:
        if math.prod(mesh.shape) != captures[0].world:
            continue
        for place, (name, size) in enumerate(zip(mesh.names, mesh.shape, strict=True)):
            if size == 1:
                continue
            stride = math.prod(mesh.shape[place + 1 :])
            if not any(_along(ranks, stride, size) for ranks in spoken):
                found.append(
                    f"the mesh has {size:,} ranks along `{name}`, but nothing communicates there"
                )
    return found


def _along(ranks: tuple[int, ...], stride: int, size: int) -> bool:
    """Whether a group holds neighbors along a dimension, alone or flattened with others."""
    if len(ranks) < size:
        return False
    known = set(ranks)
    return any(rank + stride in known for rank in ranks[:2])


def _gathered(captures: Sequence[Capture], recognized: Recognized) -> list[str]:
    """FSDP that gathers less than its parameters, or far more."""
    found = []
    for capture in captures:
        gathers = [
            event for event in capture.collectives()
            if event.label.startswith(FSDP_GATHER) and event.phase == "forward"
        ]  # fmt: skip
        if not gathers:
            continue
        shards = capture.groups[gathers[0].group].size
        elements = sum(event.bytes / WIDTHS.get(event.dtype, 2.0) for event in gathers)
        passes = max(len(capture.inputs), 1)
        whole = capture.local_parameters * shards
        # Without resharding, parameters are gathered for the first micro-batch alone.
        least = whole if capture.pipelined or not recognized.strategy.reshard_after_forward else (
            whole * passes
        )  # fmt: skip
        least -= _kept(capture) * max(passes - 1, 0)
        if not 0.98 * least <= elements <= PADDED * whole * passes:
            found.append(
                f"FSDP gathers {elements:,.0f} parameters in forward where it shards {whole:,.0f}"
            )
    return found


def _kept(capture: Capture) -> float:
    """Parameters of groups that are gathered once and kept, such as a root module's."""
    calls: dict[str, list[float]] = {}
    for event in capture.collectives():
        if event.label.startswith(FSDP_GATHER) and event.phase == "forward":
            calls.setdefault(event.label, []).append(event.bytes / WIDTHS.get(event.dtype, 2.0))
    return sum(sizes[0] for sizes in calls.values() if len(sizes) < len(capture.inputs))


def _computed(captures: Sequence[Capture], recognized: Recognized) -> list[str]:
    """GEMMs that compute less than the parameters ask for."""
    s, first = recognized.strategy, captures[0]
    gemm = sum(
        event.flops for capture in captures for event in capture.kernels()
        if "attention" not in event.name and event.phase in ("forward", "backward")
    )  # fmt: skip
    whole = sum(capture.multiplied for capture in captures)
    asked = 6.0 * whole * first.tokens / s.tp
    if asked > 0.0 and gemm < FEWEST_FLOPS * asked:
        return [
            f"GEMMs have {gemm:.3g} FLOPs, fewer than the {asked:.3g} of 6 per parameter and token"
        ]
    return []
