"""Latent attention (MLA): GEMMs that take the place of the qkv projection.

Queries, and keys with values, are projected down to a latent and up again per head (DeepSeek-V2,
arXiv 2405.04434). Down-projections are not split by tensor parallelism: each rank computes them for
its part of the sequence. Without a latent of queries (DeepSeek-V2-Lite) they come straight from the
residual stream.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scalewise.numeric import Array, Num, stacked, where
from scalewise.physics.compute import gemm_seconds
from scalewise.step.case import Case
from scalewise.step.distinct import of_distinct_splits


class LatentGemms(NamedTuple):
    """Seconds of every GEMM of latent attention before the scores."""

    query_down: Array
    kv_down: Array
    query_up: Array
    kv_up: Array
    query_down_dgrad: Array
    kv_down_dgrad: Array
    query_up_dgrad: Array
    kv_up_dgrad: Array
    query_down_wgrad: Array
    kv_down_wgrad: Array
    query_up_wgrad: Array
    kv_up_wgrad: Array


PROJECTIONS = 4
"""Products of one pass."""


def shapes(case: Case) -> tuple[Num, Num, Num]:
    """Rows, columns and depths of all GEMMs, in the order of `LatentGemms`."""
    s, split = case.shape, case.split
    tp, part, whole = split.tp, case.tokens / split.sp, case.tokens
    rows = (part, part, whole, whole)
    up = (s.query_up / tp, (s.qkv - s.query_up) / tp)
    columns = (s.query_rank, s.kv_rank + s.rope, *up)
    deep = where(s.query_rank > 0.0, s.query_rank, s.hidden)
    depths = (s.hidden, s.hidden, deep, s.kv_rank)
    return (
        stacked(*rows, *rows, *columns),
        stacked(*columns, *depths, *depths),
        stacked(*depths, *columns, *rows),
    )


@of_distinct_splits
def latent_gemms(case: Case) -> LatentGemms:
    """Return the time of every GEMM; those of a latent that is not there take none."""
    rates = case.rates
    times = np.asarray(
        gemm_seconds(
            *shapes(case),
            rate=rates.gemm,
            units=rates.units,
            memory_rate=rates.memory,
            element_bytes=rates.matmul_bytes,
            fill=rates.gemm_fill,
        )
    )
    found = LatentGemms(*times)
    exists = case.shape.query_rank > 0.0
    return found._replace(
        query_down=where(exists, found.query_down, 0.0),
        query_down_dgrad=where(exists, found.query_down_dgrad, 0.0),
        query_down_wgrad=where(exists, found.query_down_wgrad, 0.0),
    )
