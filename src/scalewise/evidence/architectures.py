"""What the catalog says of an architecture before any run is fitted.

    gemm_prior("hopper", 0.70)             # 0.69861, from the file of an accelerator that has it

Constants belong to architectures, facts to accelerators: the first accelerator of an architecture
that states a fact speaks for all of them.
"""

from __future__ import annotations

import os
from functools import lru_cache

from scalewise.catalog import load_accelerator, names


def gemm_prior(architecture: str, default: float) -> float:
    """Return the fraction of the 16-bit peak that GEMMs sustain, as believed before a fit.

    Args:
        architecture: As accelerators name it.
        default: For architectures of which no accelerator states one.
    """
    return _priors(os.environ.get("SCALEWISE_CATALOG")).get(architecture, default)


@lru_cache(maxsize=4)
def _priors(_catalog: str | None) -> dict[str, float]:
    """Priors by architecture; read once per catalog, because fits ask often."""
    found: dict[str, float] = {}
    for name in names("accelerators"):
        chip = load_accelerator(name)
        if chip.gemm_prior is not None:
            found.setdefault(chip.architecture, chip.gemm_prior)
    return found
