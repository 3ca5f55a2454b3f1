"""Measurements of training in a terminal: the fastest job, a row for each job, warnings.

    print_summaries(summaries, failures=[], records="records/train.jsonl", console=Console())

Columns that have the same text in every row, or none, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from scalewise.report.terminal import put, say, table
from scalewise.report.words import counted
from scalewise.units import GIB, format_column, format_percent, format_seconds, grouped

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.records.metrics import Summary


class Column(NamedTuple):
    """One column of the table."""

    head: str
    cells: Callable[[Sequence[Summary]], list[str]]
    """Its texts, one for each job; empty where it was not measured."""
    varies: bool = False
    """Left out where every row has the same text."""


def print_summaries(
    summaries: Sequence[Summary], failures: Sequence[str], records: str, console: Console
) -> None:
    """Print what was measured.

    Args:
        summaries: One for each job.
        failures: A sentence for each repeat that failed.
        records: Where all samples are.
        console: Where to.
    """
    if summaries:
        best = max(summaries, key=lambda s: s.tokens_per_second_per_device)
        put(console, _sentence(best, among=len(summaries)), hang=2, style="bold")
        console.print()
        _print_table(summaries, console)
        console.print()
        put(console, _footnote(summaries, records), style="dim")
    say(console, "Warning", *_warnings(summaries), style="yellow")
    say(console, "Failed", *failures, style="red")


def _warnings(summaries: Sequence[Summary]) -> list[str]:
    """Return each warning once; of those that differ only in their numbers, the first."""
    alike: dict[str, list[str]] = {}
    for text in dict.fromkeys(w for summary in summaries for w in summary.warnings):
        alike.setdefault(re.sub(r"[0-9.]+", "#", text), []).append(text)
    return [
        texts[0] + (f" ({len(texts) - 1} more like it)" if len(texts) > 1 else "")
        for texts in alike.values()
    ]


def _sentence(s: Summary, *, among: int) -> str:
    first = f"Fastest of {among}: " if among > 1 else ""
    mfu = "" if s.mfu is None else f", MFU {format_percent(s.mfu)}"
    return (
        f"{first}{s.model} | {s.ranks}x {s.accelerator or s.device} | {s.label}: "
        f"{grouped(s.tokens_per_second_per_device)} tok/s per device, "
        f"{format_seconds(s.step_seconds.median)} per step{mfu}"
    )


def _footnote(summaries: Sequence[Summary], records: str) -> str:
    one = summaries[0]
    text = (
        f"Sequence {one.seq_len:,}, {one.precision}. Median and p5-p95 of {one.steps} steps in "
        f"{counted(one.launches, 'repeat')}; {one.dropped} warm-up steps are not counted. "
    )
    if one.launches > 1:
        text += "repeats: smallest and largest of their medians. "
    basis = {"rss": "growth of the process", "allocator": "peak of PyTorch's allocator"}
    text += f"GiB: {basis.get(one.memory_basis, one.memory_basis)}, worst rank. "
    if any(s.exposed_seconds is not None for s in summaries):
        text += "comm., exposed: ms of a traced step. "
    if any(s.ep_imbalance is not None for s in summaries):
        text += "imbalance: rows of the busiest expert-parallel rank over the mean. "
    return text + f"All samples: {records}"


def _each(cell: Callable[[Summary], str | None]) -> Callable[[Sequence[Summary]], list[str]]:
    """Return a column whose texts do not depend on each other."""
    return lambda summaries: [cell(s) or "" for s in summaries]


def _numbers(value: Callable[[Summary], float | None]) -> Callable[[Sequence[Summary]], list[str]]:
    """Return a column of numbers with one number of decimals."""

    def cells(summaries: Sequence[Summary]) -> list[str]:
        values = [value(s) for s in summaries]
        return format_column(values) if any(v is not None for v in values) else [""] * len(values)

    return cells


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _percent(fraction: float | None) -> str | None:
    return None if fraction is None else f"{100.0 * fraction:.1f}"


def _range(low: float, high: float) -> str:
    """Print a range of times, ms."""
    return "-".join(format_column([1e3 * low, 1e3 * high]))


def _repeats(s: Summary) -> str | None:
    return None if s.launches < 2 else _range(min(s.launch_medians), max(s.launch_medians))


LEFT = ("model", "strategy")
"""Columns of text, the first ones of the table."""

COLUMNS = (
    Column("model", _each(lambda s: s.model), varies=True),
    Column("strategy", _each(lambda s: s.strategy)),
    Column("seq", _each(lambda s: f"{s.seq_len:,}"), varies=True),
    Column("batch", _each(lambda s: f"{s.global_batch:,}")),
    Column("precision", _each(lambda s: s.precision), varies=True),
    Column("optimizer", _each(lambda s: s.optimizer), varies=True),
    Column("tuning", _each(lambda s: s.tuning), varies=True),
    Column("compiled", _each(lambda s: "yes" if s.compiled else "no"), varies=True),
    Column("routing", _each(lambda s: s.routing), varies=True),
    Column("step ms", _numbers(lambda s: 1e3 * s.step_seconds.median)),
    Column("p5-p95", _each(lambda s: _range(s.step_seconds.p5, s.step_seconds.p95))),
    Column("repeats", _each(_repeats)),
    Column("tok/s/dev", _numbers(lambda s: s.tokens_per_second_per_device)),
    Column("tok/s", _numbers(lambda s: s.tokens_per_second)),
    Column("TFLOP/s", _numbers(lambda s: s.tflops_per_device)),
    Column("MFU %", _each(lambda s: _percent(s.mfu))),
    Column("HFU %", _each(lambda s: _percent(s.hfu))),
    Column("comm.", _numbers(lambda s: _scaled(s.communication_seconds, 1e3))),
    Column("exposed", _numbers(lambda s: _scaled(s.exposed_seconds, 1e3))),
    Column("imbalance", _numbers(lambda s: s.ep_imbalance)),
    Column("W", _numbers(lambda s: s.watts_per_device)),
    Column("GiB", _numbers(lambda s: _scaled(s.peak_memory_bytes, 1.0 / GIB))),
)

SPARE = ("HFU %", "tok/s", "W", "p5-p95", "TFLOP/s")
"""Columns that a narrow terminal does without, first to last."""


def _print_table(summaries: Sequence[Summary], console: Console) -> None:
    columns: dict[str, list[str]] = {}
    for column in COLUMNS:
        cells = column.cells(summaries)
        if any(cells) and not (column.varies and len(set(cells)) == 1):
            columns[column.head] = [cell or "-" for cell in cells]
    rows = list(zip(*columns.values(), strict=True))
    left = sum(name in LEFT for name in columns)
    table(console, list(columns), rows, left=left, gap=1, spare=SPARE)
