"""Models that are supported, and the error for those that are not.

A refusal is better than a guess: mixtures of experts and latent attention have shapes, parameter
and FLOP counts (see Model), but no parallel cost model yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.errors import ScalewiseError

if TYPE_CHECKING:
    from scalewise.model import Model


class UnsupportedModelError(ScalewiseError):
    """The model has parts that are not modeled."""


def check_supported(model: Model) -> None:
    """Reject models whose step is not modeled.

    Raises:
        UnsupportedModelError: Naming the part.
    """
    if model.moe is not None:
        raise UnsupportedModelError(
            f"{model.name} is a mixture of experts: expert parallelism and its all-to-all are not "
            "modeled yet",
            hint="parameter and FLOP counts work (`scalewise models`); estimate a dense model",
        )
    if model.mla is not None:
        raise UnsupportedModelError(
            f"{model.name} has latent attention (MLA), whose cost is not modeled yet",
            hint="parameter and FLOP counts work (`scalewise models`); estimate a dense model",
        )
