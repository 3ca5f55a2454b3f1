"""`scalewise validate`: predicted against measured, for the shipped runs or a file of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from scalewise.evidence.validate import Summary, Validation
    from scalewise.step.case import Case

WORST = 8
"""Rows listed as the worst misses."""
ENGINES = ("estimate", "timeline")
"""Ways to the time of a step."""
EVERY = 200
"""Steps played between two lines that say so."""


@click.command()
@click.argument("file", required=False)
@click.option("--source", multiple=True, help="Only rows of this source; may be repeated.")
@click.option(
    "--leave-one-source-out",
    "left_out",
    is_flag=True,
    help="Refit without each source before judging it (minutes; needs the extra `calibrate`).",
)
@click.option(
    "--choices",
    "explained",
    is_flag=True,
    help="Say which term misled the choice of layout, where a sweep loses more than 5 %.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="estimate",
    show_default=True,
    help="Predict by closed forms, or by playing every step event by event (minutes).",
)
@click.option("--json", "as_json", is_flag=True, help="Every row and summary as JSON.")
@click.option("-o", "--output", help="Write an HTML scatter (needs the extra `plot`) or JSON.")
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
    layers, hidden, ..., tokens_per_second_per_accelerator); blank cells mean "not stated".
    Without FILE the shipped published runs are judged. A folder of records of `scalewise measure`
    (or a .jsonl file of them) is read as runs.
    """
    from scalewise.cli.common import show, to_json, write
    from scalewise.errors import InputError, did_you_mean
    from scalewise.evidence.runs import read_runs
    from scalewise.evidence.validate import validate as judge_all
    from scalewise.measure.records import holds_records, read_records
    from scalewise.measure.rows import runs_of

    if explained and left_out:
        raise InputError(
            "--choices and --leave-one-source-out exclude each other: terms are those of the "
            "shipped constants",
            hint="keep one of the two",
        )
    if engine != "estimate" and (explained or left_out):
        raise InputError(
            f"--engine {engine} goes with neither --choices nor --leave-one-source-out: terms and "
            "refits are those of the closed forms",
            hint="leave --engine out",
        )
    if file is not None and holds_records(file):
        if left_out:
            raise InputError(
                "--leave-one-source-out needs a table with several sources, not records",
                hint="leave it out",
            )
        runs = runs_of(read_records(file, kind="train").records)
    else:
        runs = read_runs(file)
    known = {run.source for run in runs}
    for name in source:
        if name not in known:
            raise InputError(f"no run has the source {name!r}", hint=did_you_mean(name, known))
    chosen = [run for run in runs if not source or run.source in source]
    result = judge_all(chosen, seconds=_player(len(chosen)) if engine == "timeline" else None)
    if left_out:
        result = _left_out(result, file)
    plain = result.to_dict() if as_json or output else {}
    if explained:
        from scalewise.evidence.choices import choices

        lost = choices(result, chosen)
        plain["choices"] = [choice.to_dict() for choice in lost]
    if output and output.endswith(".html"):
        from scalewise.report.scatter import scatter_html

        write(output, scatter_html(result))
    elif output:
        write(output, to_json(plain))
    if as_json:
        click.echo(to_json(plain))
        return
    if explained:
        from scalewise.report.choices import print_choices

        show(lambda console: print_choices(result.sweeps(), lost, console))
        return
    show(lambda console: print_validation(result, console, left_out=left_out, engine=engine))


def _player(rows: int) -> Callable[[Case], float]:
    """Play steps event by event, and say now and then how many are done."""
    from scalewise.timeline.play import step_seconds

    done = 0

    def played(case: Case) -> float:
        nonlocal done
        done += 1
        if done % EVERY == 0:
            click.echo(f"{done:,} steps of at most {rows:,} played ...", err=True)
        return step_seconds(case)

    return played


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


def print_validation(
    result: Validation, console: Console, *, left_out: bool, engine: str = "estimate"
) -> None:
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
    if engine == "timeline":
        how += ", steps played event by event"
    console.print(f"Predicted against measured tokens/s per accelerator, {how}\n")
    console.print(table)
    console.print(
        "\nmedian, p90: absolute error; bias: median signed error; in 80 %: rows inside their\n"
        "interval; memory: median error of peak memory; unsup., infeas.: rows refused, with the\n"
        "reason in --json. The last line counts dense rows of grade ok or vendor-expected."
    )
    sweeps = result.sweeps()
    if sweeps:
        from scalewise.report.choices import print_sweeps

        console.print()
        print_sweeps(sweeps, console)
        console.print("`scalewise validate --choices` says which term misled a bad choice.")
    worst = sorted(result.judged(), key=lambda row: -abs(row.error or 0.0))[:WORST]
    if worst:
        console.print("\nWorst misses of the headline rows")
        for row in worst:
            console.print(
                f"  {row.error:+8.1%}  {row.id}  measured "
                f"{row.measured_tokens_per_second:,.0f}, predicted "
                f"{row.predicted_tokens_per_second:,.0f}  [{row.strategy}]"
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
