"""The one numeric type: a float, or an array of them.

Every formula in `physics` and `step` takes and returns `Num`, so that one estimate and a million
estimates run through the same lines. Two rules keep scalar and array results equal to the last
bit: transcendental functions come from NumPy (never `math` or `**`), and sums are written out
instead of reduced (NumPy's reductions change their order with the length).

This file imports nothing else of scalewise.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Num: TypeAlias = float | Array
Mask: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.intp]
