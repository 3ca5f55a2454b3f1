"""How do sweeps of collectives and kernels read in a terminal? As nccl-tests' tables do.

print_collectives(record, "records/collective.jsonl", console)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from scalewise.report.tables import sentences
from scalewise.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.measure.records import Record


def print_collectives(record: Record, file: str, console: Console) -> None:
    """Print time, algorithm and bus bandwidth by operation, group and size.

    Args:
        record: Of kind "collective".
        file: Where it is kept.
        console: Where to print.
    """
    rows: list[dict[str, Any]] = record.results["rows"]
    best = max(rows, key=lambda row: float(row["busbw_gb_per_s"]))
    console.print(
        f"{record.environment.backend} reaches {best['busbw_gb_per_s']:.3g} GB/s bus bandwidth "
        f"({best['op']} of {format_bytes(best['message_bytes'])} between {best['accelerators']})"
    )
    if beside := record.results.get("beside"):
        console.print(overlap_sentence(beside))
    console.print()
    table = Table(box=None, pad_edge=False)
    for name in ("operation", "ranks", "placement"):
        table.add_column(name)
    for name in ("size", "time", "p5", "p95", "algbw GB/s", "busbw GB/s"):
        table.add_column(name, justify="right")
    for row in rows:
        times = (format_seconds(row[key] * 1e-6) for key in ("time_us", "time_us_p5",
                                                             "time_us_p95"))  # fmt: skip
        table.add_row(
            row["op"], str(row["accelerators"]), row["placement"],
            format_bytes(row["message_bytes"]), *times,
            f"{row['algbw_gb_per_s']:.3g}", f"{row['busbw_gb_per_s']:.3g}",
        )  # fmt: skip
    console.print(table)
    _end(record, file, console)


def overlap_sentence(beside: dict[str, float]) -> str:
    """What a reduction beside compute costs, in words."""
    alone = beside["communication_seconds"]
    extra = beside["together_seconds"] - beside["compute_seconds"]
    return (
        f"beside matrix products, an all-reduce of {format_bytes(beside['message_bytes'])} adds "
        f"{format_seconds(max(extra, 0.0))} to their time; alone it takes {format_seconds(alone)}"
    )


def print_kernels(record: Record, file: str, console: Console) -> None:
    """Print time and rate by kernel.

    Args:
        record: Of kind "kernel".
        file: Where it is kept.
        console: Where to print.
    """
    rows: list[dict[str, Any]] = record.results["rows"]
    fastest = max((float(row["tflops"]) for row in rows if "tflops" in row), default=0.0)
    where = record.environment
    console.print(
        f"{where.device_name}, {where.ranks} at once: up to {fastest:.4g} TFLOP/s each in "
        f"{record.inputs['dtype']}"
    )
    console.print()
    table = Table(box=None, pad_edge=False)
    for name in ("kernel", "shape", "what"):
        table.add_column(name)
    for name in ("time", "p5", "p95", "rate"):
        table.add_column(name, justify="right")
    for row in rows:
        times = (format_seconds(row[key] * 1e-6) for key in ("time_us", "time_us_p5",
                                                             "time_us_p95"))  # fmt: skip
        rate = f"{row['tflops']:.4g} TFLOP/s" if "tflops" in row else ""
        rate = f"{row['gb_per_s']:.4g} GB/s" if "gb_per_s" in row else rate
        what = str(row.get("notes") or row.get("direction") or "")
        table.add_row(row["kernel"], shape_of(row), what, *times, rate)
    console.print(table)
    _end(record, file, console)


def shape_of(row: dict[str, Any]) -> str:
    """The shape of a kernel, short."""
    if row["kernel"] == "sdpa":
        return f"{row['batch']} x {row['heads']} x {row['seq_len']} x {row['head_dim']}"
    return " x ".join(str(row[key]) for key in "mnk" if key in row)


def _end(record: Record, file: str, console: Console) -> None:
    console.print()
    console.print(f"every sample is in {file}; use it with `scalewise calibrate NAME --from ...`")
    sentences(console, "Warnings", record.warnings, style="yellow")
