"""Layers of each pipeline stage.

    stage_layers(model, 8, rule="even")       # (first, middle, last) layers per stage

The largest stage determines the step time, so rounding matters: a framework that fills stages in
order by FLOPs can put 1.9x the ideal on one of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.model import Model


def stage_layers(
    model: Model,
    stages: int,
    *,
    rule: str = "even",
    first: int | None = None,
    last: int | None = None,
) -> tuple[int, int, int]:
    """Return the layers of the first, the largest middle, and the last stage.

    Args:
        model: The model.
        stages: Pipeline stages.
        rule: "even" (Megatron: equal stages; embedding and head count as layers when that makes
            them equal), or "flops" (nanotron: filled in order until the fraction of FLOPs is met).
        first: Layers of the first stage, if the user fixes it.
        last: Layers of the last stage, if the user fixes it.

    Raises:
        InputError: If there are more stages than layers, or fixed stages leave none for the rest.
    """
    if stages > model.layers:
        raise InputError(
            f"pp = {stages} is more stages than the {model.layers} layers of {model.name}",
            hint=f"use at most pp{model.layers}",
        )
    if stages == 1:
        return model.layers, model.layers, model.layers
    if first is not None or last is not None:
        return _fixed(model, stages, first, last)
    if rule == "flops":
        layer = model.layer_parameters
        head = model.vocab * model.hidden
        return _filled_by_flops(model.layers, stages, head / layer)
    if model.mtp_layers:
        return _before_mtp(model.layers, stages)
    return _even(model.layers, stages)


@lru_cache(maxsize=4096)
def _even(layers: int, stages: int) -> tuple[int, int, int]:
    """Equal; else embedding and head take the place of a layer; else the middle is fuller."""
    if layers % stages == 0:
        each = layers // stages
        return each, each, each
    if (layers + 2) % stages == 0:
        each = (layers + 2) // stages
        return each - 1, each, each - 1
    if (layers + 1) % stages == 0:
        each = (layers + 1) // stages
        return each, each, each - 1
    low, extra = divmod(layers, stages)
    return low, low + (1 if extra else 0), low


def _before_mtp(layers: int, stages: int) -> tuple[int, int, int]:
    """Full stages but for the last, which also has the multi-token prediction and both heads.

    The layouts of Megatron-Bridge's recipes for DeepSeek-V3: four layers on each of 15 stages and
    one on the last.
    """
    each = -(-layers // stages)
    return each, each, max(layers - each * (stages - 1), 0)


@lru_cache(maxsize=4096)
def _filled_by_flops(layers: int, stages: int, head: float) -> tuple[int, int, int]:
    """Fill stages in order until the cumulative FLOPs pass (stage + 1) / stages of the total."""
    target = (layers + head) / stages
    counts = [0] * stages
    stage, filled = 0, 0.0
    for _ in range(layers):
        counts[stage] += 1
        filled += 1.0
        if filled > target * (stage + 1) and stage < stages - 1:
            stage += 1
    return counts[0], max(counts), counts[-1]


def _fixed(model: Model, stages: int, first: int | None, last: int | None) -> tuple[int, int, int]:
    """First and last stage by the user, the rest evenly."""
    rest = model.layers - (first or 0) - (last or 0)
    between = stages - (first is not None) - (last is not None)
    if rest < between or (between == 0 and rest != 0):
        raise InputError(
            f"first_stage_layers = {first} and last_stage_layers = {last} leave {rest} layers "
            f"for {between} other stages of {model.name} ({model.layers} layers)",
            hint="every stage needs a layer, and all layers a stage",
        )
    middle = -(-rest // between) if between else max(first or 0, last or 0)
    return first or middle, middle, last or (rest // between if between else 0)
