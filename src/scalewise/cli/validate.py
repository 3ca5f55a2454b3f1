"""`scalewise validate`: errors of predictions against measured runs, shipped or your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from scalewise.evidence.left_out_table import LeftOutRow
    from scalewise.step.case import Case

ENGINES = ("analytical", "simulated")
"""Models of the step time."""
EVERY = 200
"""Simulated steps between two lines of progress."""


@click.command(short_help="Compare predictions with published runs.")
@click.argument("file", required=False)
@click.option("--source", multiple=True, metavar="NAME", help="Source of runs; repeatable. [all]")
@click.option(
    "--left-out",
    is_flag=True,
    help="Refits without each source instead of stored ones (minutes; extra `calibrate`).",
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
@click.option("--markdown", is_flag=True, help="Print the tables of the documentation.")
@click.option("-o", "--output", metavar="FILE", help="Output file: scatter plot (.html) or .json.")
def validate(
    *,
    file: str | None,
    source: tuple[str, ...],
    left_out: bool,
    explained: bool,
    engine: str,
    as_json: bool,
    markdown: bool,
    output: str | None,
) -> None:
    """Compare predictions with measured runs.

    FILE is a table of your runs (model, on, gpus, strategy, seq, batch, and step_s, tokens_s or
    mfu; CSV, JSONL or TOML); a CSV with the columns of the shipped table (id, source, accelerator,
    accelerators, layers, hidden, ..., tokens_per_second_per_accelerator); or records of `scalewise
    measure`, a folder or a .jsonl file. Blank cells mean "not reported". [the shipped runs]
    """
    from scalewise.cli.common import ending_of, show, to_json, write
    from scalewise.diagnosis.table import read_user_runs
    from scalewise.errors import InputError, did_you_mean
    from scalewise.evidence.runs import read_runs
    from scalewise.evidence.validate import validate as validate_runs
    from scalewise.records.files import holds_records

    ending = ending_of(output, (".html", ".json"))
    if explained and left_out:
        raise InputError(
            "--choices and --left-out exclude each other: --choices uses the shipped constants",
            hint="use one of them",
        )
    if engine != "analytical" and (explained or left_out):
        raise InputError(
            f"--engine {engine}: --choices and --left-out need the analytical model",
            hint="--engine analytical",
        )
    if file is not None and left_out and holds_records(file):
        raise InputError(
            f"--left-out: {file} is records; it needs a CSV with several sources",
            hint=f"scalewise validate {file}",
        )
    runs = read_runs() if file is None else read_user_runs(file)
    known = {run.source for run in runs}
    for name in source:
        if name not in known:
            raise InputError(f"--source {name}: unknown source", hint=did_you_mean(name, known))
    chosen = [run for run in runs if not source or run.source in source]
    seconds = _simulator(len(chosen)) if engine == "simulated" else None
    # Stored predictions are those of the shipped runs.
    stored: dict[str, LeftOutRow] | None = None if file is None else {}
    result = validate_runs(
        chosen, left_out=_left_out(file) if left_out else stored, seconds=seconds
    )
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
    if markdown:
        from scalewise.report.validate_markdown import accuracy_markdown

        click.echo(accuracy_markdown(result))
        return
    from scalewise.report.validate_table import print_validation

    show(lambda console: print_validation(result, console, engine=engine, refitted=left_out))


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


def _left_out(file: str | None) -> dict[str, LeftOutRow]:
    """Return predictions by refits without each source, of the shipped runs and the file's."""
    from scalewise.diagnosis.table import read_user_runs
    from scalewise.evidence.expert_fit import ExpertRows, leave_out_experts
    from scalewise.evidence.fitting import calibrated_table
    from scalewise.evidence.leave_out import leave_one_source_out
    from scalewise.evidence.left_out_table import left_out_rows
    from scalewise.evidence.runs import read_runs

    runs = [*read_runs(), *([] if file is None else read_user_runs(file))]
    fit, table = calibrated_table(runs, progress=lambda text: click.echo(text, err=True))
    out = leave_one_source_out(
        table,
        start=fit,
        progress=lambda name: click.echo(f"refitting without {name} ...", err=True),
    )
    rows = ExpertRows.of(runs, fit)
    experts = leave_out_experts(
        rows,
        rows.usual(fit),
        progress=lambda name: click.echo(f"refitting experts without {name} ...", err=True),
    )
    return left_out_rows([*out.rows, *experts.stated])
