"""How does the calibration of a machine read in a terminal?

print_machine(fit, console)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from scalewise.report.tables import sentences
from scalewise.units import format_bytes, format_flops, format_rate, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.evidence.machine import Constant, MachineFit

WORDS = {
    "gemm_flops": "large matrix products",
    "attention_forward_flops": "attention forward, long sequences",
    "attention_backward_flops": "attention backward, long sequences",
    "memory_rate": "memory",
    "memory_traffic": "memory-bound traffic over the least",
    "logit_bytes": "traffic of the loss per logit",
    "optimizer_bytes": "traffic of AdamW per parameter",
    "launch_seconds": "launch of a kernel",
    "scale_up_rate": "links inside a domain",
    "scale_out_rate": "links between domains",
    "hop_seconds": "latency of a hop",
    "call_seconds": "latency of a call",
    "all_reduce_factor": "all-reduce over two gathers",
    "overlap": "share of communication that compute hides",
    "step_gemm_factor": "products in a step over products alone",
    "host_layer_seconds": "launches of a layer",
    "step_seconds": "constant of a step",
}
"""How people call the constants."""


def value_of(constant: Constant) -> str:
    """A constant with its unit."""
    if constant.unit == "FLOP/s":
        return format_flops(constant.value)
    if constant.unit == "bytes/s":
        return format_rate(constant.value)
    if constant.unit == "s":
        return format_seconds(constant.value)
    if constant.unit == "bytes":
        return format_bytes(constant.value)
    return f"{constant.value:.3g}"


def print_machine(fit: MachineFit, console: Console) -> None:
    """Print the constants, how sure they are, and what the fit left over.

    Args:
        fit: Fitted.
        console: Where to print.
    """
    console.print(f"{fit.name}: {fit.fitted_on_}")
    console.print()
    table = Table(box=None, pad_edge=False)
    table.add_column("constant")
    table.add_column("value", justify="right")
    table.add_column("one sigma", justify="right")
    table.add_column("from")
    for constant in fit.constants_:
        sigma = f"x/: {constant.spread:.2f}" if constant.spread > 1.0 else ""
        words = WORDS.get(constant.name, constant.name)
        table.add_row(words, value_of(constant), sigma, constant.source)
    console.print(table)
    console.print()
    for part, median, rows in errors_by_part(fit):
        console.print(f"  {part}: median error {100 * median:.1f} % over {rows} timings")
    low, high = fit.interval_
    console.print(f"  80 % interval of throughput: {low:.2f} to {high:.2f} of the prediction")
    sentences(console, "Notes", fit.notes_, style="yellow")


def errors_by_part(fit: MachineFit) -> list[tuple[str, float, int]]:
    """Median size of the residuals by kind of timing."""
    found = []
    for part in dict.fromkeys(r.part for r in fit.residuals_):
        off = sorted(abs(r.off) for r in fit.residuals_ if r.part == part)
        found.append((part, off[len(off) // 2], len(off)))
    return found
