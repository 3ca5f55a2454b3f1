"""Rows of a sweep of kernels or collectives, with the column names of the tables in `catalog/runs`.

    timed_row({"op": "all_reduce", "message_bytes": 4096}, seconds)["time_us"]
    for row in rows_of(read_records("records/", kind="collective").records): ...

A user's own timings and published ones have the same columns. `samples_us` is added: every sample,
not only their median.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from scalewise.records.files import Record
from scalewise.records.metrics import Spread


def timed_row(columns: dict[str, Any], seconds: Sequence[float]) -> dict[str, Any]:
    """A row of a record: what was timed, the median, how far the samples scatter, and all of them.

    Args:
        columns: What was timed, by the column names of the shipped tables.
        seconds: Samples.
    """
    spread = Spread.of(seconds)
    return {
        **columns,
        "time_us": spread.median * 1e6,
        "time_us_p5": spread.p5 * 1e6,
        "time_us_p95": spread.p95 * 1e6,
        "samples_us": [round(each * 1e6, 3) for each in seconds],
    }


def rows_of(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """The rows of sweeps, each with the accelerator, the software and the record it came from."""
    for record in records:
        if record.kind not in ("collective", "kernel", "host"):
            continue
        where = record.environment
        for number, row in enumerate(record.results.get("rows", ()), start=1):
            yield {
                "id": f"{record.id}-{number}",
                "accelerator": where.accelerator,
                "hardware_stated": where.device_name,
                "software": f"torch {where.versions.get('torch', '?')}, {where.backend}",
                "source": f"record {record.id} of {record.started[:10]}",
                **row,
            }


def bus_factor(op: str, ranks: int) -> float:
    """Bytes that cross the busiest link, over the size: nccl-tests' factor from algbw to busbw."""
    if op == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0
