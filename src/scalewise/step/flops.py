"""Useful and repeated FLOPs of a step, for MFU and HFU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from scalewise.numeric import Array, Num, some, where
from scalewise.step.case import Case
from scalewise.step.mlp_tiles import tiled
from scalewise.step.recompute import repeated
from scalewise.tuning import Tuning, adapter_flops

if TYPE_CHECKING:
    from scalewise.model import Model

FULL = Tuning()


def recompute_flops(
    case: Case, model: Model, seq_len: int, tuning: Tuning = FULL, span: Num | None = None
) -> Array:
    """Return FLOPs per token, padding included, that backward repeats of forward.

    Whole blocks are repeated without their last product where the stack stops early; the other
    kinds repeat attention or fractions of the products, as `step.recompute` says. Modules are
    repeated in blocks that are not.
    """
    split = case.split
    tiles = tiled(case)
    if not (some(split.recompute) or some(split.modules) or some(tiles)):
        return case.zeros
    again = repeated(case)
    parts: dict[str, Any] = {**model.forward_flops_parts(seq_len, span)}  # type: ignore[arg-type]
    modules = {"latent": 0.0, "mlp": parts["mlp"]}
    if (mla := model.mla) is not None:
        queries = (mla.query_rank or model.hidden) * model.query_width
        up = queries + mla.kv_rank * model.heads * (mla.nope_dim + mla.value_dim)
        modules["latent"] = 2.0 * model.layers * up
    besides: Num = 0.0
    besides = besides + where(tiles, parts["mlp"], 0.0)
    for module, flops_ in modules.items():
        if module == "mlp":
            flops_ = where(tiles, 0.0, flops_)
        besides = besides + where(split.recomputes(module), (1.0 - again.blocks) * flops_, 0.0)
    names = ("qkv", "attention_out", "mlp", "experts", "shared_experts")
    products = sum(parts[name] for name in names)
    down = 2.0 * model.hidden * model.ffn * model.dense_layers
    skipped = again.blocks * case.habits.recompute_skips_last * down
    if case.has_frozen:
        products = products + adapter_flops(model, tuning)
    flops = again.gemm * products - skipped + again.attention * parts["attention"] + besides
    return cast("Array", flops)
