"""Parameters where GEMMs have 32 bits (tf32, fp32): one copy of 32 bits, which they read.

Activations, messages and operands have the bytes of `Rates.activation_bytes` and `matmul_bytes`,
attention the kernel of `precision.WIDE_ATTENTION`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalewise.errors import InputError
from scalewise.numeric import Array, Mask, where
from scalewise.optimizer import STORED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scalewise.workload import Workload


def wide_columns(
    workload: Workload,
    columns: Mapping[str, Any],
    wide: Mask,
    stated: Array,
    stored: Mapping[str, float],
) -> dict[str, Any]:
    """Return the columns of parameters, with those of 32 bits where GEMMs have them.

    Args:
        workload: Its `weights` are those of the other strategies.
        columns: All columns so far.
        wide: Where GEMMs have 32 bits.
        stated: Precision of the gradient reduction, as its code.
        stored: Columns of an optimizer whose parameters have 32 bits alone.

    Raises:
        InputError: If weights are to be stored in bf16.
    """
    if workload.weights == "bf16":
        raise InputError(
            "weights = bf16: GEMMs in tf32 and fp32 read 32-bit weights", hint="use --weights fp32"
        )
    changed: dict[str, Any] = {
        **stored,
        "gather_bytes": STORED["fp32"].weight,
        "reduce_bytes": where(stated == 2.0, 2.0, 4.0),
    }
    return {name: where(wide, value, columns[name]) for name, value in changed.items()}
