"""The calibration of a machine in a terminal: constants, their spread, what the fit left over.

print_machine(fit, console)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scalewise.evidence.machine import interval_of
from scalewise.ranges import plus_minus
from scalewise.report.terminal import put, say, table
from scalewise.report.words import counted
from scalewise.units import (
    format_bytes,
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    grouped,
)

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.evidence.machine import Constant, MachineFit

WORDS = {
    "gemm_flops": "large GEMMs",
    "attention_forward_flops": "attention forward, long sequences",
    "attention_backward_flops": "attention backward, long sequences",
    "memory_rate": "memory",
    "memory_traffic": "memory-bound traffic relative to the minimum",
    "logit_bytes": "memory traffic of the loss per logit",
    "optimizer_bytes": "memory traffic of AdamW per parameter",
    "launch_seconds": "kernel launch",
    "scale_up_rate": "scale-up links",
    "scale_out_rate": "scale-out links",
    "hop_seconds": "latency per hop",
    "call_seconds": "latency per call",
    "all_reduce_factor": "all-reduce relative to two all-gathers",
    "overlap": "overlapped fraction of communication",
    "step_gemm_factor": "GEMMs in a step relative to GEMMs alone",
    "host_layer_seconds": "kernel launches per layer",
    "overhead_seconds": "constant per step",
    "fsdp_host_seconds": "FSDP on the host, per layer",
    "fsdp_copy_bytes": "copies of FSDP per parameter",
    "fsdp_step_seconds": "FSDP on the host, per step",
    "tp_host_seconds": "DTensor on the host, per layer",
    "tp_step_seconds": "DTensor on the host, per step",
}
"""Labels of the constants."""


def value_of(constant: Constant) -> str:
    """Print a constant with its unit."""
    if constant.unit == "FLOP/s":
        return format_flops(constant.value)
    if constant.unit == "bytes/s":
        return format_rate(constant.value)
    if constant.unit == "s":
        return format_seconds(constant.value)
    if constant.unit == "bytes":
        return format_bytes(constant.value)
    return grouped(constant.value)


def print_machine(fit: MachineFit, console: Console) -> None:
    """Print the constants, their spread, and what the fit left over.

    Args:
        fit: Fitted.
        console: Where to.
    """
    put(console, f"{fit.name}: {fit.fitted_on_}", hang=2, style="bold")
    console.print()
    table(
        console,
        ("constant", "from", "value", "1 sigma"),
        [
            (
                WORDS.get(constant.name, constant.name),
                constant.source,
                value_of(constant),
                f"x/: {constant.spread:.2f}" if constant.spread > 1.0 else "-",
            )
            for constant in fit.constants_
        ],
        left=2,
        spare=("from",),
    )
    console.print()
    for part, median, rows in errors_by_part(fit):
        text = f"median error {format_percent(median)}, {counted(rows, 'timing')}"
        say(console, part, text)
    low, high = fit.interval_
    text = f"{low:.2f}-{high:.2f} of the predicted throughput"
    if fit.stack_.own_runs:
        before = interval_of(msgspec.structs.replace(fit.stack_, own_runs=0, runs=0))
        text += f"; {plus_minus(before)} without your {counted(fit.stack_.own_runs, 'job')}"
    say(console, "80% prediction interval", text)
    say(console, "Note", *fit.notes_, style="yellow")


def errors_by_part(fit: MachineFit) -> list[tuple[str, float, int]]:
    """Return (kind of timing, median absolute residual, number of timings)."""
    found = []
    for part in dict.fromkeys(r.part for r in fit.residuals_):
        off = sorted(abs(r.off) for r in fit.residuals_ if r.part == part)
        found.append((part, off[len(off) // 2], len(off)))
    return found
