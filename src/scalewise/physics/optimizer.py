"""Work of an optimizer step: bytes of the update, products of Muon and Shampoo.

    update_bytes(moments=8.0, master=4.0)             # 30 bytes per parameter: AdamW
    newton_schulz_flops(4096.0, 11008.0)              # of one weight matrix

Pure functions on floats or arrays; SI units.
"""

from __future__ import annotations

from scalewise.numeric import Num, maximum, minimum, where

NEWTON_SCHULZ_STEPS = 5.0
"""Iterations that orthogonalize a matrix (Liu et al., arXiv 2502.16982, section 2.1)."""

ROOTS_EVERY, ROOT_ITERATIONS = 100.0, 25.0
"""Steps between two inverse roots of a preconditioner, and products of its size that a root takes.
Assumptions: roots are computed anew every tens to hundreds of steps (Shi et al., arXiv
2309.06497)."""


def update_bytes(moments: Num, master: Num, *, gradient: Num = 4.0, weight: Num = 2.0) -> Num:
    """Return the bytes that an update moves per parameter.

        2 (moments + master) + gradient + weight

    States are read and written, the gradient is read, the weight is written. Without a master copy
    the weight is read too.

    Args:
        moments: State per parameter.
        master: Master copy; 0 without one.
        gradient: Gradient.
        weight: Weight.

    >>> float(update_bytes(8.0, 4.0)), float(update_bytes(2.0, 0.0, gradient=2.0))
    (30.0, 10.0)
    """
    own = where(master > 0.0, weight, 2.0 * weight)
    result: Num = 2.0 * (moments + master) + gradient + own
    return result


def newton_schulz_flops(m: Num, n: Num) -> Num:
    """Return the FLOPs to orthogonalize a matrix of m rows and n columns.

        5 (4 a^2 b + 2 a^3),  a = min(m, n), b = max(m, n)

    Each step multiplies the matrix with its transpose, squares that and multiplies back.

    >>> round(float(newton_schulz_flops(4096.0, 11008.0)) / 1e12, 2)
    4.38
    """
    a, b = minimum(m, n), maximum(m, n)
    return NEWTON_SCHULZ_STEPS * (4.0 * a * a * b + 2.0 * a * a * a)


def shampoo_flops(m: Num, n: Num) -> Num:
    """Return the FLOPs of Shampoo's update of a matrix of m rows and n columns.

        4 (m^2 n + m n^2) + 2 r (m^3 + n^3) / k

    Statistics and preconditioning each take a product with both sides; inverse roots of r products
    come every k steps.

    >>> round(float(shampoo_flops(4096.0, 4096.0)) / 1e12, 2)
    0.62
    """
    both = 4.0 * (m * m * n + m * n * n)
    return both + 2.0 * ROOT_ITERATIONS * (m * m * m + n * n * n) / ROOTS_EVERY


def shampoo_elements(m: Num, n: Num) -> Num:
    """Return the elements of Shampoo's state: statistics and inverse roots of both sides.

    >>> shampoo_elements(4.0, 8.0)
    160.0
    """
    return 2.0 * (m * m + n * n)
