"""`scalewise validate`: predicted against measured, for the shipped runs or a file of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from scalewise.evidence.validate import Summary, Sweep, Validation

WORST = 8
"""Rows listed as the worst misses."""


@click.command()
@click.argument("file", required=False)
@click.option("--source", multiple=True, help="Only rows of this source; may be repeated.")
@click.option(
    "--leave-one-source-out",
    "left_out",
    is_flag=True,
    help="Refit without each source before judging it (minutes; needs the extra `calibrate`).",
)
@click.option("--json", "as_json", is_flag=True, help="Every row and summary as JSON.")
@click.option("-o", "--output", help="Write an HTML scatter (needs the extra `plot`) or JSON.")
def validate(
    *, file: str | None, source: tuple[str, ...], left_out: bool, as_json: bool, output: str | None
) -> None:
    """Compare predictions with measured runs.

    FILE is a CSV with the columns of the shipped table (id, source, accelerator, accelerators,
    layers, hidden, ..., tokens_per_second_per_accelerator); blank cells mean "not stated".
    Without FILE the shipped published runs are judged.
    """
    from scalewise.cli.common import show, to_json, write
    from scalewise.errors import InputError, did_you_mean
    from scalewise.evidence.runs import read_runs
    from scalewise.evidence.validate import validate as judge_all

    runs = read_runs(file)
    known = {run.source for run in runs}
    for name in source:
        if name not in known:
            raise InputError(f"no run has the source {name!r}", hint=did_you_mean(name, known))
    chosen = [run for run in runs if not source or run.source in source]
    result = judge_all(chosen)
    if left_out:
        result = _left_out(result, file)
    if output and output.endswith(".html"):
        from scalewise.report.scatter import scatter_html

        write(output, scatter_html(result))
    elif output:
        write(output, to_json(result.to_dict()))
    if as_json:
        click.echo(to_json(result.to_dict()))
        return
    show(lambda console: print_validation(result, console, left_out=left_out))


def _left_out(result: Validation, file: str | None) -> Validation:
    """Refit without each source; the refits always see the shipped runs beside the file's."""
    from scalewise.evidence.fitting import measured_table
    from scalewise.evidence.leave_out import leave_one_source_out
    from scalewise.evidence.runs import read_runs
    from scalewise.evidence.validate import with_left_out

    shipped = read_runs()
    own = [] if file is None else read_runs(file)
    table = measured_table([*shipped, *own])
    out = leave_one_source_out(
        table, progress=lambda name: click.echo(f"refitting without {name} ...", err=True)
    )
    return with_left_out(result, table, out)


def print_validation(result: Validation, console: Console, *, left_out: bool) -> None:
    """The table by source, the headline, and the worst misses."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("source", no_wrap=True)
    for name in ("runs", "median", "p90", "bias", "in 80 %", "memory", "unsup.", "infeas."):
        table.add_column(name, justify="right", no_wrap=True)
    for name, summary in result.by_source().items():
        table.add_row(name, *_cells(summary))
    overall = result.overall()
    table.add_section()
    table.add_row("dense, ok or vendor", *_cells(overall))
    how = "constants refitted without each source" if left_out else "shipped constants"
    console.print(f"Predicted against measured tokens/s per accelerator, {how}\n")
    console.print(table)
    console.print(
        "\nmedian, p90: absolute error; bias: median signed error; in 80 %: rows inside their\n"
        "interval; memory: median error of peak memory; unsup., infeas.: rows refused, with the\n"
        "reason in --json. The last line counts dense rows of grade ok or vendor-expected."
    )
    sweeps = result.sweeps()
    if sweeps:
        print_sweeps(sweeps, console)
    worst = sorted(result.judged(), key=lambda row: -abs(row.error or 0.0))[:WORST]
    if worst:
        console.print("\nWorst misses of the headline rows")
        for row in worst:
            console.print(
                f"  {row.error:+8.1%}  {row.id}  measured "
                f"{row.measured_tokens_per_second:,.0f}, predicted "
                f"{row.predicted_tokens_per_second:,.0f}  [{row.strategy}]"
            )


def print_sweeps(sweeps: Sequence[Sweep], console: Console) -> None:
    """How well layouts are ranked, and what our choice among them loses."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("sweep of layouts", "picked", "best measured"):
        table.add_column(name, no_wrap=True)
    for name in ("layouts", "rank", "loses"):
        table.add_column(name, justify="right", no_wrap=True)
    for sweep in sweeps:
        table.add_row(
            f"{sweep.model} x{sweep.accelerators}",
            sweep.picked,
            sweep.best,
            str(sweep.count),
            f"{sweep.rank_correlation:.2f}",
            f"{100 * sweep.regret:.1f} %",
        )
    console.print()
    console.print(table)
    console.print(
        "\nrank: Spearman of predicted and measured; loses: what the layout we would pick gives\n"
        "away against the best measured. Near-ties go to the simpler layout."
    )


def _cells(summary: Summary) -> list[str]:
    """One row of the table."""

    def percent(value: float | None, form: str = ".1f") -> str:
        return "-" if value is None else f"{100 * value:{form}} %"

    return [
        str(summary.count),
        percent(summary.median_error),
        percent(summary.p90_error),
        percent(summary.bias, "+.1f"),
        percent(summary.coverage, ".0f"),
        percent(summary.memory_median_error),
        str(summary.unsupported),
        str(summary.infeasible),
    ]
