"""Optimizers: state they keep and work they add per parameter.

    load_optimizer("adamw-8bit").moment_bytes          # 2.03
    load_optimizer("muon").matmuls                     # "newton-schulz"

One file per optimizer under `catalog/optimizers`, each number with its source. Whether 32-bit
master weights are kept beside 16-bit ones is said by the workload (`Workload.weights`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from scalewise.errors import InputError

Matmuls: TypeAlias = Literal["none", "newton-schulz", "shampoo"]
"""Products of an update beyond elementwise work."""

Weights: TypeAlias = Literal["mixed", "bf16", "fp32"]
"""Stored parameters: 16 bits with a 32-bit master copy, 16 bits alone, or 32 bits alone."""

WEIGHTS: tuple[str, ...] = get_args(Weights)


class Optimizer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named constants of an optimizer. Sizes in bytes."""

    name: str
    """Name."""

    moment_bytes: float
    """State per parameter of a weight matrix, besides master weights."""

    other_bytes: float | None = None
    """State per parameter of embedding and head, where another optimizer updates them; None for
    the same."""

    matmuls: Matmuls = "none"
    """Products of an update: iterations that orthogonalize a matrix (Muon), or preconditioners
    (Shampoo)."""

    paged: bool = False
    """Whether states move to host memory when the device is full."""

    source: str = ""
    """Source of the numbers."""

    def __post_init__(self) -> None:
        for field in ("moment_bytes", "other_bytes"):
            value = getattr(self, field)
            if value is not None and not 0.0 <= value <= 64.0:
                raise InputError(
                    f"optimizer {self.name}: {field} = {value} must be between 0 and 64",
                    hint="AdamW has 8 bytes of moments",
                )


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per parameter of one way to store parameters."""

    weight: float
    """Weights that compute reads."""
    master: float
    """Master copy that the optimizer updates; 0 without one."""
    gradient: float | None
    """Gradients as they are kept and sent; None for what the software does."""


STORED: dict[Weights, Stored] = {
    "mixed": Stored(weight=2.0, master=4.0, gradient=None),
    "bf16": Stored(weight=2.0, master=0.0, gradient=2.0),
    "fp32": Stored(weight=4.0, master=0.0, gradient=4.0),
}
"""Mixed precision as in Rajbhandari et al., arXiv 1910.02054; the others store one copy."""


def load_optimizer(name: str) -> Optimizer:
    """Load an optimizer by name or path to a TOML file."""
    from scalewise.catalog import load

    return load("optimizers", name, Optimizer)
