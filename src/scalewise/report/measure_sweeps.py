"""Sweeps of collectives, kernels and host time in a terminal, in the columns of nccl-tests.

print_collectives(record, "records/collective.jsonl", console)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalewise.report.terminal import put, say, table
from scalewise.units import format_bytes, format_seconds, grouped

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.records.files import Record

TIMES = ("time_us", "time_us_p5", "time_us_p95")
"""Columns of times in a record, microseconds."""


def print_collectives(record: Record, file: str, console: Console) -> None:
    """Print time, algorithm and bus bandwidth by operation, group and size.

    Args:
        record: Of kind "collective".
        file: Where it is.
        console: Where to.
    """
    rows: list[dict[str, Any]] = record.results["rows"]
    best = max(rows, key=lambda row: float(row["busbw_gb_per_s"]))
    text = (
        f"{record.environment.backend}: {grouped(best['busbw_gb_per_s'])} GB/s bus bandwidth "
        f"({best['op']} of {format_bytes(best['message_bytes'])}, {best['accelerators']} ranks)"
    )
    put(console, text, hang=2, style="bold")
    if overlapped := record.results.get("beside"):
        put(console, overlap_sentence(overlapped), hang=2)
    console.print()
    table(
        console,
        ("operation", "placement", "ranks", "size", "time", "p5", "p95", "algbw GB/s",
         "busbw GB/s"),
        [
            (
                row["op"], row["placement"], str(row["accelerators"]),
                format_bytes(row["message_bytes"]), *_times(row),
                grouped(row["algbw_gb_per_s"]), grouped(row["busbw_gb_per_s"]),
            )
            for row in rows
        ],
        left=2,
        spare=("p5", "p95", "placement"),
    )  # fmt: skip
    _end(record, file, console)


def overlap_sentence(overlapped: dict[str, float]) -> str:
    """Return what an all-reduce that overlaps GEMMs costs them."""
    alone = overlapped["communication_seconds"]
    extra = overlapped["together_seconds"] - overlapped["compute_seconds"]
    return (
        f"overlapped with GEMMs, an all-reduce of {format_bytes(overlapped['message_bytes'])} adds "
        f"{format_seconds(max(extra, 0.0))} to their time; alone it takes {format_seconds(alone)}"
    )


def print_kernels(record: Record, file: str, console: Console) -> None:
    """Print time and rate by kernel.

    Args:
        record: Of kind "kernel".
        file: Where it is.
        console: Where to.
    """
    rows: list[dict[str, Any]] = record.results["rows"]
    fastest = max((float(row["tflops"]) for row in rows if "tflops" in row), default=0.0)
    where = record.environment
    text = (
        f"{where.device_name}, {where.ranks} at once: up to {grouped(fastest)} TFLOP/s each in "
        f"{record.inputs['dtype']}"
    )
    put(console, text, hang=2, style="bold")
    console.print()
    table(
        console,
        ("kernel", "shape", "what", "time", "p5", "p95", "rate"),
        [
            (
                row["kernel"],
                shape_of(row),
                str(row.get("notes") or row.get("direction") or ""),
                *_times(row),
                _rate(row),
            )
            for row in rows
        ],
        left=3,
        spare=("p5", "p95", "what"),
    )
    _end(record, file, console)


def print_host(record: Record, file: str, console: Console) -> None:
    """Print time and CPU time of a step by technique and size.

    Args:
        record: Of kind "host".
        file: Where it is.
        console: Where to.
    """
    text = f"{record.environment.device_name}: one step on two ranks"
    put(console, text, hang=2, style="bold")
    console.print()
    table(
        console,
        ("wrapper", "decoder", "layers", "time", "p5", "p95", "CPU time"),
        [
            (
                row["technique"], "wide" if row["wide"] else "narrow", str(row["layers"]),
                *_times(row), format_seconds(row["cpu_us"] * 1e-6),
            )
            for row in record.results["rows"]
        ],
        left=2,
        spare=("p5", "p95"),
    )  # fmt: skip
    _end(record, file, console)


def _times(row: dict[str, Any]) -> Sequence[str]:
    return [format_seconds(row[key] * 1e-6) for key in TIMES]


def _rate(row: dict[str, Any]) -> str:
    if "gb_per_s" in row:
        return f"{grouped(row['gb_per_s'])} GB/s"
    return f"{grouped(row['tflops'])} TFLOP/s" if "tflops" in row else ""


def shape_of(row: dict[str, Any]) -> str:
    """Return the shape of a kernel: "m x n x k", and before it how many of them are grouped."""
    if row["kernel"] == "sdpa":
        return f"{row['batch']} x {row['heads']} x {row['seq_len']} x {row['head_dim']}"
    keys = ("batch", "m", "n", "k") if row["kernel"] == "grouped_gemm" else ("m", "n", "k")
    return " x ".join(str(row[key]) for key in keys if key in row)


def _end(record: Record, file: str, console: Console) -> None:
    console.print()
    put(console, f"All samples: {file} (scalewise calibrate NAME --from ...)", style="dim")
    say(console, "Warning", *record.warnings, style="yellow")
