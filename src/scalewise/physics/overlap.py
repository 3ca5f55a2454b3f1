"""Overlap of communication and compute: contention and exposed communication.

    overlap(10e-3, 4e-3, contention=0.3)         # (0.0012, 0.0): overlapped, but compute is slowed

Collectives hold compute units and memory bandwidth while they run, also while they only wait for
latency, so overlapped communication is not free: every second of it costs `contention` seconds of
the compute that it overlaps. Pure functions on floats or arrays; seconds.
"""

from __future__ import annotations

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, maximum, minimum


def overlap(compute: Num, communication: Num, contention: Num) -> tuple[Num, Num]:
    """Return (slowed compute, exposed communication) when communication overlaps compute, seconds.

        slowed = contention * min(communication, compute)
        exposed = max(communication - (compute + slowed), 0)

    The block takes compute + slowed + exposed.

    Args:
        compute: Compute of the block alone, seconds.
        communication: All communication that may overlap it, seconds.
        contention: Seconds of compute lost per second of overlapped communication.

    >>> slowed, exposed = overlap(10.0, 4.0, 0.25)
    >>> float(slowed), float(exposed)
    (1.0, 0.0)
    >>> slowed, exposed = overlap(10.0, 20.0, 0.25)
    >>> float(slowed), float(exposed)
    (2.5, 7.5)
    """
    slowed = contention * minimum(communication, compute)
    return slowed, maximum(communication - (compute + slowed), 0.0)


def exposed_beside(communication: Num, fraction: Num, compute: Num) -> Num:
    """Return the exposed part of communication inside a layer, seconds.

        max(fraction * communication, communication - compute)

    A fraction stays on the critical path in any case (the first and last chunk of a
    pipelined collective); the rest needs compute to overlap with.

    Args:
        communication: Collectives of the layer, seconds.
        fraction: Fraction that the software cannot overlap, 0 to 1.
        compute: Compute that is free to overlap with, seconds.

    >>> float(exposed_beside(4.0, 0.5, 10.0)), float(exposed_beside(4.0, 0.5, 1.0))
    (2.0, 3.0)
    """
    result: Num = maximum(fraction * communication, communication - compute)
    return result


def exposed_once(communication: Num, fraction: Num, window: Num) -> Num:
    """Return the exposed part of communication that is paid once per step, seconds.

        communication - min(fraction * communication, window)

    Args:
        communication: Gradient buckets and updated parameters, seconds.
        fraction: Fraction that the software can overlap, 0 to 1.
        window: Compute it can overlap with, seconds.

    >>> float(exposed_once(4.0, 0.75, 10.0)), float(exposed_once(4.0, 0.75, 1.0))
    (1.0, 3.0)
    """
    result: Num = communication - minimum(fraction * communication, window)
    return result


def derive_overlap(
    key: str, compute: float, communication: float, contention: float, *, overlaps: bool
) -> tuple[Derivation, Derivation]:
    """Return how slowed compute and exposed communication of a block come about.

    Args:
        key: What the block is, such as "forward".
        compute: Compute of the block alone, seconds.
        communication: Communication that may overlap it, seconds.
        contention: Seconds of compute lost per second of overlapped communication.
        overlaps: Whether it may overlap at all.

    >>> slowed, exposed = derive_overlap("forward", 10.0, 20.0, 0.25, overlaps=True)
    >>> slowed.value, exposed.value
    (2.5, 7.5)
    """
    letters: tuple[Letter, ...] = (Letter("N", communication, f"communication of {key}", "s"),)
    slowed, exposed = "0", "N"
    if overlaps:
        letters = (
            Letter("C", compute, f"{key} of a layer alone", "s"),
            *letters,
            Letter("c", contention, "contention: compute lost per second of communication"),
        )
        slowed, exposed = "c * min(N, C)", "max(N - (C + c * min(N, C)), 0)"
    return (
        Derivation(
            key=f"slowed_{key}", label=f"{key} slowed by communication", formula=slowed,
            letters=letters if overlaps else (),
        ),
        Derivation(
            key=f"exposed_{key}", label=f"exposed communication of {key}", formula=exposed,
            letters=letters,
        ),
    )  # fmt: skip
