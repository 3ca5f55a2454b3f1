"""Wrappers of PyTorch: time that FSDP and DTensor take on a host that is the device itself.

    wrappers.layer_seconds(case)          # forward and backward of a layer and micro-batch
    wrappers.step_seconds(case)           # once per step

Hooks, dispatch of DTensors and copies into and out of collectives are in no timing of a kernel or a
collective. On a CPU nothing overlaps them. A GPU computes meanwhile: there they are among
`host_layer_seconds` and `gradient_bytes`, and the constants here are 0.
"""

from __future__ import annotations

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Mask, Num, mask, scalar, some, where
from scalewise.step.case import Case

FORWARD = 1.0 / 3.0
"""Fraction of it that belongs to forward: backward dispatches twice as much. An assumption."""


def _wrapped(case: Case) -> tuple[Mask, Mask]:
    """Where FSDP and DTensor are at work."""
    split = case.split
    return mask(split.fully_sharded & (split.shards > 1.0)), mask(split.tp > 1.0)


def layer_seconds(case: Case) -> tuple[Num, Num]:
    """Return the wrappers of one layer and micro-batch, forward and backward, seconds."""
    habits, none = case.habits, case.zeros
    copies = some(habits.fsdp_copy_bytes)
    if not (copies or some(habits.fsdp_host_seconds) or some(habits.tp_host_seconds)):
        return none, none
    sharded, tensor = _wrapped(case)
    total = where(tensor, habits.tp_host_seconds, 0.0) + where(sharded, _of_fsdp(case), 0.0)
    return FORWARD * total, (1.0 - FORWARD) * total


def _of_fsdp(case: Case) -> Num:
    """Hooks of a layer, and copies of its parameters and gradients."""
    habits, params = case.habits, case.layer_params / case.split.tp
    result: Num = habits.fsdp_host_seconds + habits.fsdp_copy_bytes * params / case.rates.memory
    return result


def step_seconds(case: Case) -> Num:
    """Return the wrappers of what no layer holds, seconds per step."""
    habits = case.habits
    if not (some(habits.fsdp_step_seconds) or some(habits.tp_step_seconds)):
        return case.zeros
    sharded, tensor = _wrapped(case)
    of_fsdp: Num = where(sharded, habits.fsdp_step_seconds, 0.0)
    return of_fsdp + where(tensor, habits.tp_step_seconds, 0.0)


def derive_layer(case: Case) -> Derivation:
    """Return how the wrappers of one layer come about; one row."""
    habits = case.habits
    sharded, tensor = (bool(scalar(each)) for each in _wrapped(case))
    letters = [Letter("t", scalar(habits.tp_host_seconds), "DTensor, per layer", "s")] * tensor
    parts = ["t"] * tensor
    if sharded:
        parts.append("h + c * P / M")
        letters += [
            Letter("h", scalar(habits.fsdp_host_seconds), "hooks of FSDP, per layer", "s"),
            Letter("c", scalar(habits.fsdp_copy_bytes), "bytes that FSDP copies per parameter"),
            Letter("P", scalar(case.layer_params / case.split.tp), "parameters of a layer"),
            Letter("M", scalar(case.rates.memory), "sustained memory bandwidth", "B/s"),
        ]
    return Derivation(
        key="w",
        label="wrappers of a layer",
        formula=" + ".join(parts) or "0",
        letters=tuple(letters),
    )
