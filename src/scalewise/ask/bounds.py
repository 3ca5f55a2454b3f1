"""Physical bounds of changed software: fractions lie in 0..1, rates below the peak of the chip.

    check_stack(stack, cluster, "bf16")      # InputError: "stack.gemm = 100: ..."

A stack beyond them predicts MFU above 100%. `--force` lifts them, for questions such as free
communication at negative cost; results that are not finite are refused all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.chip import load_chip
from scalewise.errors import InputError
from scalewise.step.hardware import peak_fractions

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.stack import Stack

FRACTIONS = (
    "tp_overlap", "dp_overlap", "shard_overlap", "update_gather_overlap", "selective_share",
    "selective_memory", "fragmentation", "straggler",
)  # fmt: skip
"""Constants of a stack that are fractions of something."""

_HINT = "--force computes it all the same"


def check_stack(stack: Stack, cluster: Cluster, precision: str) -> None:
    """Refuse software that no chip can run.

    Args:
        stack: As changed; one that was fitted to own runs is right about its own machine.
        cluster: Its chip has the peak.
        precision: Of GEMMs.

    Raises:
        InputError: Naming the constant.
    """
    for name in FRACTIONS:
        value = getattr(stack, name)
        if value > 1.0:
            raise InputError(f"stack.{name} = {value:g} must be between 0 and 1", hint=_HINT)
    if stack.own_runs:
        return
    chip = cluster.accelerator
    try:
        found = peak_fractions(cluster, precision, stack, load_chip(chip.architecture))
    except InputError:
        # The strategy may have a precision of its own; else it is refused where it is priced.
        return
    for name, fraction in found.items():
        if fraction > 1.0:
            raise InputError(
                f"stack.{name} = {getattr(stack, name):g}: {fraction:.0%} of the peak of "
                f"{chip.name} must be at most 100%",
                hint=f"use at most {getattr(stack, name) / fraction:.3g}, or --force",
            )
