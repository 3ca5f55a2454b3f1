"""Errors against measured runs as Markdown: the paragraph of the README and the tables of the docs.

    accuracy_paragraph(validation), accuracy_tables(validation)

`python docs/make_accuracy.py` writes both, so the numbers are those of the command.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from scalewise.report.validate_table import expert_lines, headline_lines
from scalewise.units import format_percent

if TYPE_CHECKING:
    from scalewise.evidence.validate import Summary, Validation

WIDTH = 130
"""Columns of a paragraph."""


def accuracy_markdown(result: Validation) -> str:
    """Return the paragraph and the tables."""
    parts = [accuracy_paragraph(result), accuracy_tables(result), expert_tables(result)]
    return "\n\n".join(parts)


def accuracy_paragraph(result: Validation) -> str:
    """Return the accuracy in a few sentences."""
    found = result.accuracy()
    methods = found.methods
    if "shipped constants" not in methods:
        return "**Accuracy.** No run is both predicted and measured."
    fitted = methods["shipped constants"]
    sources = len({row.source for row in result.judged()})
    text = [
        f"**Accuracy.** On {fitted.count:,} published runs of {sources} sources the median "
        f"throughput error is {format_percent(fitted.median_error)}, the 90th percentile "
        f"{format_percent(fitted.p90_error, decimals=0)}."
    ]
    if "source left out" in methods:
        mean = {
            name: format_percent(each.source_mean, decimals=0) for name, each in methods.items()
        }
        text.append(
            "With the source of a run left out of the fit, the median error is "
            f"{mean['source left out']} in the mean over sources."
        )
        text.append(
            f'It is {mean["40% MFU"]} for the rule "40% MFU", and '
            f"{mean['nearest published run']} for the MFU of the nearest published run."
        )
    if found.coverage.level is not None:
        inside = format_percent(found.coverage.level, decimals=0)
        text.append(f"{inside} of runs of left-out sources are in their 80% prediction interval.")
    lines = textwrap.wrap(" ".join(text), WIDTH, break_on_hyphens=False)
    return "\n".join([*lines, "[Errors by source](docs/accuracy.md)"])


def accuracy_tables(result: Validation) -> str:
    """Return the tables by prediction, family and source, and the other numbers."""
    found = result.accuracy()
    methods = _table(
        ("prediction", "runs", "median", "p90", "mean of sources", "worst GPU source"),
        [
            (
                name,
                f"{each.count:,}",
                _percent(each.median_error),
                _percent(each.p90_error, decimals=0),
                _percent(each.source_mean),
                "" if each.worst_error is None
                else f"{_percent(each.worst_error)} ({each.worst_source})",
            )
            for name, each in found.methods.items()
        ],
    )  # fmt: skip
    lines = [
        line
        for label, text in headline_lines(found).items()
        for line in textwrap.wrap(
            f"- **{label}**: {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False
        )
    ]
    sizes: dict[str, list[int]] = {}
    for row in result.judged():
        for name in (row.source, row.family or ""):
            sizes.setdefault(name, []).append(int(row.group[3]))
    parts = [
        _summaries(head, summaries, sizes)
        for head, summaries in (("family", result.by_family()), ("source", result.by_source()))
    ]
    return "\n\n".join([methods, "\n".join(lines), *parts])


def expert_tables(result: Validation) -> str:
    """Return the tables of runs of experts by accelerator, source and model, and other numbers."""
    found = result.experts()
    if found is None:
        return "No run of experts."
    lines = [
        line
        for label, text in expert_lines(found).items()
        for line in textwrap.wrap(
            f"- **{label}**: {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False
        )
    ]
    parts = [
        _table(
            (
                head, "runs", "median", "p90", "bias", "left out", "left out p90", "in interval",
            ),
            [
                (
                    name,
                    f"{each.count:,}",
                    _percent(each.median_error),
                    _percent(each.p90_error, decimals=0),
                    _percent(each.bias, sign=True),
                    _percent(each.left_out_error),
                    _percent(each.left_out_p90, decimals=0),
                    _percent(each.left_out_coverage, decimals=0),
                )
                for name, each in summaries.items()
            ],
        )
        for head, summaries in (
            ("accelerator", found.groups), ("source", found.sources), ("model", found.models),
        )
    ]  # fmt: skip
    return "\n\n".join([parts[0], "\n".join(lines), *parts[1:]])


def _summaries(head: str, parts: Mapping[str, Summary], sizes: Mapping[str, Sequence[int]]) -> str:
    """Return the table of families or sources."""
    return _table(
        (head, "runs", "GPUs", "median", "p90", "bias", "left out", "in interval", "memory"),
        [
            (
                name,
                f"{each.count:,}",
                f"{min(sizes[name]):,}-{max(sizes[name]):,}",
                _percent(each.median_error),
                _percent(each.p90_error, decimals=0),
                _percent(each.bias, sign=True),
                _percent(each.left_out_error),
                _percent(each.left_out_coverage, decimals=0),
                _percent(each.memory_median_error),
            )
            for name, each in parts.items()
            if name in sizes
        ],
    )


def _percent(value: float | None, *, sign: bool = False, decimals: int = 1) -> str:
    """Return a fraction in percent, or nothing."""
    return "" if value is None else format_percent(value, sign=sign, decimals=decimals)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is aligned to the left."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))
