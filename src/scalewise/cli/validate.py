"""`scalewise validate`: errors of predictions against measured runs, shipped or your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from scalewise.evidence.validate import Summary, Validation
    from scalewise.step.case import Case

WORST = 8
"""Runs listed with the largest errors."""
ENGINES = ("analytical", "simulated")
"""Models of the step time."""
EVERY = 200
"""Simulated steps between two lines of progress."""


@click.command(short_help="Compare predictions with published runs.")
@click.argument("file", required=False)
@click.option("--source", multiple=True, metavar="NAME", help="Source of runs; repeatable. [all]")
@click.option(
    "--leave-one-source-out",
    "left_out",
    is_flag=True,
    help="Refit without each source before comparing it (minutes; needs the extra `calibrate`).",
)
@click.option(
    "--choices",
    "explained",
    is_flag=True,
    help="Print the term behind each wrong choice of strategy with a regret above 5%.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="analytical",
    show_default=True,
    help="Model of the step time; simulated takes minutes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print every run and summary as JSON.")
@click.option("-o", "--output", metavar="FILE", help="Output file: scatter plot (.html) or .json.")
def validate(
    *,
    file: str | None,
    source: tuple[str, ...],
    left_out: bool,
    explained: bool,
    engine: str,
    as_json: bool,
    output: str | None,
) -> None:
    """Compare predictions with measured runs.

    FILE is a CSV with the columns of the shipped table (id, source, accelerator, accelerators,
    layers, hidden, ..., tokens_per_second_per_accelerator), where blank cells mean "not reported";
    or records of `scalewise measure`, a folder or a .jsonl file. [the shipped published runs]
    """
    from scalewise.cli.common import ending_of, show, to_json, write
    from scalewise.errors import InputError, did_you_mean
    from scalewise.evidence.measured import runs_of
    from scalewise.evidence.runs import read_runs
    from scalewise.evidence.validate import validate as validate_runs
    from scalewise.records.files import holds_records, read_records

    ending = ending_of(output, (".html", ".json"))
    if explained and left_out:
        raise InputError(
            "--choices and --leave-one-source-out exclude each other: --choices uses the "
            "shipped constants",
            hint="leave --leave-one-source-out out",
        )
    if engine != "analytical" and (explained or left_out):
        raise InputError(
            f"--engine {engine}: --choices and --leave-one-source-out need the analytical model",
            hint="--engine analytical",
        )
    if file is not None and holds_records(file):
        if left_out:
            raise InputError(
                f"--leave-one-source-out: {file} is records; it needs a CSV with several sources",
                hint="leave --leave-one-source-out out",
            )
        runs = runs_of(read_records(file, kind="train").records)
    else:
        runs = read_runs(file)
    known = {run.source for run in runs}
    for name in source:
        if name not in known:
            raise InputError(f"--source {name}: unknown source", hint=did_you_mean(name, known))
    chosen = [run for run in runs if not source or run.source in source]
    seconds = _simulator(len(chosen)) if engine == "simulated" else None
    result = validate_runs(chosen, seconds=seconds)
    if left_out:
        result = _left_out(result, file)
    plain = result.to_dict() if as_json or output else {}
    if explained:
        from scalewise.evidence.choices import choices

        lost = choices(result, chosen)
        plain["choices"] = [choice.to_dict() for choice in lost]
    if output and ending == ".html":
        from scalewise.report.validate_figure import scatter_html

        write(output, scatter_html(result))
    elif output:
        write(output, to_json(plain))
    if as_json:
        click.echo(to_json(plain))
        return
    if explained:
        from scalewise.report.validate_choices import print_choices

        show(lambda console: print_choices(result.sweeps(), lost, console))
        return
    show(lambda console: print_validation(result, console, left_out=left_out, engine=engine))


def _simulator(rows: int) -> Callable[[Case], float]:
    """Return the simulated step time of a case, in seconds, with lines of progress on stderr."""
    from scalewise.simulation.simulate import step_seconds

    done = 0

    def simulated(case: Case) -> float:
        nonlocal done
        done += 1
        if done % EVERY == 0:
            click.echo(f"simulated {done:,} of at most {rows:,} steps", err=True)
        return step_seconds(case)

    return simulated


def _left_out(result: Validation, file: str | None) -> Validation:
    """Return errors after refits without each source, on the shipped runs and those of the file."""
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


def print_validation(
    result: Validation, console: Console, *, left_out: bool, engine: str = "analytical"
) -> None:
    """Print the table by source, the overall errors and the largest ones."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("source", no_wrap=True)
    for name in ("runs", "median", "p90", "bias", "in 80%", "memory", "unsup.", "infeas."):
        table.add_column(name, justify="right", no_wrap=True)
    for name, summary in result.by_source().items():
        table.add_row(name, *_cells(summary))
    overall = result.overall()
    table.add_section()
    table.add_row("dense, ok or vendor", *_cells(overall))
    how = "constants refitted without each source" if left_out else "shipped constants"
    if engine == "simulated":
        how += ", simulated steps"
    console.print(f"Predicted against measured tok/s/GPU, {how}\n")
    console.print(table)
    console.print(
        "\nmedian, p90: absolute error; bias: median signed error; in 80%: runs inside their 80%\n"
        "prediction interval; memory: median error of peak memory; unsup., infeas.: runs that are\n"
        "not supported or do not fit (reasons: --json). The last line has dense runs of grade ok\n"
        "or vendor-expected."
    )
    sweeps = result.sweeps()
    if sweeps:
        from scalewise.report.validate_choices import print_sweeps

        console.print()
        print_sweeps(sweeps, console)
        console.print("Terms behind wrong choices: scalewise validate --choices")
    worst = sorted(result.judged(), key=lambda row: -abs(row.error or 0.0))[:WORST]
    if worst:
        console.print("\nLargest errors (dense, ok or vendor)")
        for row in worst:
            console.print(
                f"  {row.error:+8.1%}  {row.id}  measured "
                f"{row.measured_tokens_per_second:,.0f}, predicted "
                f"{row.predicted_tokens_per_second:,.0f}  [{row.strategy}]"
            )


def _cells(summary: Summary) -> list[str]:
    """Return one row of the table."""

    def percent(value: float | None, form: str = ".1f") -> str:
        return "-" if value is None else f"{100 * value:{form}}%"

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
