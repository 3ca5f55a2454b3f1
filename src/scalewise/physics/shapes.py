"""Measured GEMM shapes as a refinement of the smooth law of `gemm_seconds`.

    shape_factor(4096.0, 14336.0, 4096.0, [(4096.0, 14336.0, 4096.0, 1.2)])       # 1.18

A library has kernels for some shapes and not for others, which no formula knows. Where products of
about the same shape were timed on the same device with the same library, their ratio to the smooth
law is what the library gains or loses there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scalewise.numeric import Num

Shapes = Sequence[tuple[float, float, float, float]]
"""Rows, columns and depth of timed products, and their time over that of the smooth law."""

# Doublings of one side at which a timed product counts 60 % of one of the same shape, and weight of
# the smooth law beside them. Chosen by leaving out one product at a time from the tables of
# catalog/runs/kernels.csv that come from one harness: median errors go from 8 to 7 (DeepGEMM,
# H800), 13 to 7 and 29 to 12 (cuBLAS, H100), 18 to 14 and 25 to 7 % (cuBLAS, A100), and stay at
# 1 to 4 % for cuBLASLt. Tables of others do not help: with those of A100 and H100 the median errors
# of training runs go from 4.5 to 6.0 (vtrain), 3.4 to 3.7 (modalities), 10.5 to 10.9 (jax-toolbox),
# 2.5 to 2.7 (flagperf) and 3.8 to 4.9 % (torchtitan), and with constants that had seen none of
# these runs from 23.9 to 24.4, 14.5 to 14.6, 20.0 to 20.2, 10.2 to 10.1 and 4.3 to 4.4 %. So only a
# device's own timings are used.
WIDTH = 0.5
SMOOTH_WEIGHT = 0.1


def shape_factor(m: Num, n: Num, k: Num, shapes: Shapes) -> Num:
    """Return the time of products over that of the smooth law, from timed products nearby.

        exp(sum_i w_i log(ratio_i) / (sum_i w_i + SMOOTH_WEIGHT))
        w_i = exp(-(log2(m / m_i)^2 + log2(n / n_i)^2 + log2(k / k_i)^2) / (2 WIDTH^2))

    Nadaraya-Watson regression of the logarithm, shrunk to 1 away from what was timed.

    Args:
        m: Rows of the result.
        n: Columns of the result.
        k: Depth of the product.
        shapes: Timed products; none gives 1.

    >>> timed = [(4096.0, 4096.0, 4096.0, 1.1), (4096.0, 14336.0, 4096.0, 0.9)]
    >>> [round(float(shape_factor(4096.0, n, 4096.0, timed)), 3) for n in (4096.0, 14336.0, 1e6)]
    [1.09, 0.909, 1.0]
    """
    weight: Num = np.zeros(np.broadcast_shapes(np.shape(m), np.shape(n), np.shape(k)))
    total = weight
    for rows, columns, depth, ratio in shapes:
        apart = np.log2(m / rows) ** 2 + np.log2(n / columns) ** 2 + np.log2(k / depth) ** 2
        near = np.exp(-apart / (2.0 * WIDTH**2))
        weight, total = weight + near, total + near * np.log(ratio)
    result: Num = np.exp(total / (weight + SMOOTH_WEIGHT))
    return result
