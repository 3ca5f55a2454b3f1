"""Columns of a `Case` that say what is trained: the adapters, and how the rest is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.numeric import Array
from scalewise.step.parts import Part
from scalewise.tuning import check_tuning

if TYPE_CHECKING:
    from scalewise.model import Model
    from scalewise.workload import Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuned(Part):
    """What is trained, and how the rest is stored; all zero where all parameters are trained."""

    frozen: Array
    """1 where the parameters of the model are frozen."""
    rank: Array
    """Width of the adapters; 0 without any."""
    on_query: Array
    """1 where the projection of queries has an adapter; the others likewise."""
    on_key: Array
    on_value: Array
    on_out: Array
    on_mlp: Array
    """1 where all matrices of the MLP have one."""
    quantized: Array
    """1 where the matrices of the frozen layers are stored in 4 bits."""
    base_bytes: Array
    """Bytes per parameter of a frozen layer as it is stored, mean."""
    matrix_bytes: Array
    """Bytes per element of its matrices."""
    matrix_elements: Array
    """Elements of all matrices of a layer."""
    matrices: Array
    """Matrices of a layer."""
    largest_matrix: Array
    """Elements of the largest of them."""


def tuned_columns(model: Model, workload: Workload) -> dict[str, float]:
    """Return the columns of a workload.

    Raises:
        InputError: If the tuning is not modeled for the model.
    """
    tuning = workload.tuned
    if not tuning.frozen:
        return dict.fromkeys(Tuned.names(), 0.0)
    check_tuning(model, tuning)
    hidden = float(model.hidden)
    widths = [model.query_width, model.key_width, model.value_width, model.context_width]
    widths += [model.ffn] * model.mlp_matrices
    sizes = [hidden * width for width in widths if width]
    whole = model.attention_parameters + model.dense_mlp_parameters
    stored = sum(sizes) * tuning.base_bytes + (whole - sum(sizes)) * 2.0
    targets = tuning.targets
    return {
        "frozen": 1.0,
        "rank": tuning.rank,
        **{f"on_{name}": float(name in targets) for name in ("query", "key", "value", "out")},
        "on_mlp": float("mlp" in targets and model.ffn > 0),
        "quantized": float(tuning.quantized),
        "base_bytes": stored / whole,
        "matrix_bytes": tuning.base_bytes,
        "matrix_elements": sum(sizes),
        "matrices": len(sizes),
        "largest_matrix": max(sizes),
    }
