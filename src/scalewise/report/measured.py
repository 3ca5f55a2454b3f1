"""How do measurements of training read in a terminal? A sentence, a row for each job, warnings.

    print_summaries(summaries, failures=[], records="records/train.jsonl", console=Console())

Columns that would be the same in every row, or empty in all of them, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from scalewise.report.tables import sentences

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.measure.metrics import Summary


class Column(NamedTuple):
    """One column of the table."""

    name: str
    cell: Callable[[Summary], str | None]
    """What stands in it; None where it was not measured."""
    varies: bool = False
    """Left out where every row says the same."""


def print_summaries(
    summaries: Sequence[Summary], failures: Sequence[str], records: str, console: Console
) -> None:
    """Print what was measured.

    Args:
        summaries: One for each job.
        failures: A sentence for each launch that failed.
        records: Where everything is kept.
        console: Where to print.
    """
    if summaries:
        best = max(summaries, key=lambda s: s.tokens_per_second_per_device)
        console.print(_sentence(best, among=len(summaries)))
        console.print()
        console.print(_table(summaries))
        console.print()
        console.print(_footnote(summaries, records))
    sentences(console, "Warnings", _warnings(summaries), style="yellow")
    sentences(console, "Failed", failures, style="red")


def _warnings(summaries: Sequence[Summary]) -> list[str]:
    """Each warning once; those that differ only in their numbers, once with a remark."""
    alike: dict[str, list[str]] = {}
    for text in dict.fromkeys(w for summary in summaries for w in summary.warnings):
        alike.setdefault(re.sub(r"[0-9.]+", "#", text), []).append(text)
    return [
        texts[0] + (f" (and {len(texts) - 1} times similarly)" if len(texts) > 1 else "")
        for texts in alike.values()
    ]


def _sentence(s: Summary, *, among: int) -> str:
    how = f"is the fastest per device of {among}" if among > 1 else "was measured"
    mfu = "" if s.mfu is None else f", {100.0 * s.mfu:.1f} % MFU"
    return (
        f"{s.model} as {s.strategy} on {s.ranks} x {s.accelerator or s.device} {how}: "
        f"{1e3 * s.step_seconds.median:,.0f} ms a step, "
        f"{s.tokens_per_second_per_device:,.0f} tokens/s per device{mfu}."
    )


def _footnote(summaries: Sequence[Summary], records: str) -> str:
    one = summaries[0]
    launches = "launches" if one.launches > 1 else "launch"
    text = (
        f"Sequence {one.sequence:,}, {one.precision}. Medians and p5-p95 of {one.steps} steps in "
        f"{one.launches} {launches}; {one.dropped} warm-up steps are not counted. "
    )
    if one.launches > 1:
        text += "Launches: the least and the greatest of their medians. "
    basis = {"rss": "growth of the process", "allocator": "PyTorch's peak on the device"}
    text += f"GiB: {basis.get(one.memory_basis, one.memory_basis)}, fullest rank. "
    if any(s.exposed_seconds is not None for s in summaries):
        text += "Communication, and what of it nothing hides, in ms of a traced step. "
    return text + f"All samples: {records}"


def _ms(seconds: float | None) -> str | None:
    return None if seconds is None else f"{1e3 * seconds:,.0f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100.0 * share:.1f} %"


def _launches(s: Summary) -> str | None:
    if s.launches < 2:
        return None
    return f"{1e3 * min(s.launch_medians):,.0f}-{1e3 * max(s.launch_medians):,.0f}"


def _memory(s: Summary) -> str | None:
    return None if s.peak_memory_bytes is None else f"{s.peak_memory_bytes / 2**30:,.2f}"


COLUMNS = (
    Column("model", lambda s: s.model, varies=True),
    Column("strategy", lambda s: s.strategy),
    Column("seq", lambda s: f"{s.sequence:,}", varies=True),
    Column("batch", lambda s: f"{s.global_batch:,}"),
    Column("precision", lambda s: s.precision, varies=True),
    Column("compiled", lambda s: "yes" if s.compiled else "no", varies=True),
    Column("step ms", lambda s: _ms(s.step_seconds.median)),
    Column("p5-p95", lambda s: f"{1e3 * s.step_seconds.p5:,.0f}-{1e3 * s.step_seconds.p95:,.0f}"),
    Column("launches", _launches),
    Column("tok/s/dev", lambda s: f"{s.tokens_per_second_per_device:,.0f}"),
    Column("tok/s", lambda s: f"{s.tokens_per_second:,.0f}"),
    Column("TFLOPS", lambda s: f"{s.tflops_per_device:,.3g}"),
    Column("MFU", lambda s: _percent(s.mfu)),
    Column("HFU", lambda s: _percent(s.hfu)),
    Column("comm.", lambda s: _ms(s.communication_seconds)),
    Column("exposed", lambda s: _ms(s.exposed_seconds)),
    Column("watts", lambda s: None if s.watts_per_device is None else f"{s.watts_per_device:,.0f}"),
    Column("GiB", _memory),
)


def _table(summaries: Sequence[Summary]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    rows: list[list[str]] = [[] for _ in summaries]
    for column in COLUMNS:
        cells = [column.cell(s) for s in summaries]
        same = column.varies and len(set(cells)) == 1
        if same or all(cell is None for cell in cells):
            continue
        text = column.name in ("model", "strategy", "precision", "compiled")
        table.add_column(column.name, justify="left" if text else "right", no_wrap=True)
        for row, cell in zip(rows, cells, strict=True):
            row.append("-" if cell is None else cell)
    for row in rows:
        table.add_row(*row)
    return table
