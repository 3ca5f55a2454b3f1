"""`scalewise study run | measure | new | list | show`: experiments over many points, with a report.

    scalewise study run hardware-scaling-trends -o report/
    scalewise study new my-cluster.toml
    scalewise study run my-cluster.toml --jobs 2 --overlay our-runs.csv
    scalewise study list

Exit code 0: every experiment has points; 1: an experiment has none that fits; 2: wrong usage.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import light_numpy, put, show, to_json
from scalewise.cli.study_measure import measure_command
from scalewise.cli.sweeping import sweep_options
from scalewise.errors import InputError
from scalewise.reading import user_path

if TYPE_CHECKING:
    from scalewise.cli.sweeping import Runner
    from scalewise.study.files import Study
    from scalewise.study.judging import MeasuredAnswer

STORE = "points.db"
"""Default store of a report, inside its folder, so that a second run resumes the first."""


@click.group(short_help="Run experiments over many points; write a report.")
def study() -> None:
    """Run experiments over many points: tables, figures and verdicts from one TOML file."""


def _store_inside(command: Callable[..., Any]) -> Callable[..., Any]:
    """Set the default of --store to a file in the report's folder."""

    @functools.wraps(command)
    def stored(**given: Any) -> Any:
        if given["store"] is None:
            given["store"] = str(user_path(given["output"]) / STORE)
        return command(**given)

    return stored


@study.command("run", short_help="Run a study and write its report.")
@click.argument("name", metavar="NAME|FILE")
@click.option(
    "-o", "--output", metavar="FOLDER", default="report", show_default=True, help="Output folder."
)
@click.option(
    "--overlay",
    "overlays",
    metavar="FILE",
    multiple=True,
    help="CSV of measured runs or collectives to overlay in figures; repeatable.",
)
@click.option(
    "--records",
    multiple=True,
    metavar="PATH",
    help="Records of `study measure`: points and verdicts beside predictions; repeatable.",
)
@click.option("--quick", is_flag=True, help="Run only the first and last value of every axis.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdicts as JSON.")
@_store_inside
@sweep_options
def run_command(
    *,
    name: str,
    output: str,
    overlays: tuple[str, ...],
    records: tuple[str, ...],
    quick: bool,
    as_json: bool,
    runner: Runner,
) -> int:
    """Run the study NAME (see `scalewise study list`) or FILE, and write its report.

    The folder gets index.html (works offline), points.csv, points.parquet, verdicts.json,
    study.toml, and each figure as SVG and PNG. Points are cached in points.db there (or --store):
    a stopped study is resumed.
    """
    light_numpy()
    from scalewise.report.study_report import (
        check_libraries,
        undrawn,
        verdict_records,
        write_report,
    )
    from scalewise.report.study_tables import print_verdicts
    from scalewise.study.files import load_study
    from scalewise.study.judging import measured_answer
    from scalewise.study.overlays import read_overlays
    from scalewise.study.plan import reduced
    from scalewise.study.run import run_study

    check_libraries()
    asked = load_study(name)
    runs = read_overlays(overlays)
    if quick:
        asked = reduced(asked)
    measured = measured_answer(asked, *records) if records else None
    _check_machine(asked, measured)
    answer = run_study(asked, runner, measured)
    figures = sum(len(each.figures) for each in asked.experiments)
    click.echo(f"drawing {figures} figure{'s' if figures != 1 else ''} ...", err=True)
    files = write_report(
        answer, output, runs=runs, command=_command(name, overlays, records, quick=quick)
    )
    if as_json:
        put(None, to_json(verdict_records(answer)))
    else:
        show(lambda out: print_verdicts(answer, out))
    click.echo(f"wrote {files[0]} and {len(files) - 1} more files", err=True)
    for each in answer.empty:
        click.echo(f"experiment {each}: no point fits", err=True)
    for phrase in undrawn(answer):
        click.echo(phrase, err=True)
    return 1 if answer.empty else 0


study.add_command(measure_command)


@study.command("new", short_help="Write a commented study file to edit.")
@click.argument("path", metavar="FILE")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def new_command(path: str, *, force: bool) -> None:
    """Write a study file with a comment on every key; it runs as written."""
    from scalewise.study.template import new_study
    from scalewise.writing import write_atomically

    target = user_path(path)
    if target.suffix != ".toml":
        raise InputError(
            f"FILE {path}: unsupported file type {target.suffix or '(none)'}",
            hint=f"scalewise study new {target.stem}.toml",
        )
    if target.exists() and not force:
        raise InputError(f"FILE {target} exists", hint="add --force to overwrite it")
    write_atomically(target, new_study(target.stem))
    click.echo(f"wrote {target}: edit it, then `scalewise study run {target}`", err=True)


@study.command("list", short_help="List the shipped studies.")
def list_command() -> None:
    """List the shipped studies: name, number of experiments, title."""
    from scalewise.cli.pages import draw_list
    from scalewise.study.files import load_study, shipped

    rows = []
    for name in shipped():
        each = load_study(name)
        rows.append((name, str(len(each.experiments)), each.title))
    show(draw_list(("study", "experiments", "title"), rows))


@study.command("show", short_help="Show the experiments and claims of a study.")
@click.argument("name", metavar="NAME|FILE")
@click.option("--toml", "as_toml", is_flag=True, help="Print the study file.")
def show_command(name: str, *, as_toml: bool) -> None:
    """Show the experiments of a study, their numbers of points, and its claims."""
    light_numpy()
    from scalewise.report.study_tables import print_study
    from scalewise.study.files import load_study

    asked = load_study(name)
    if as_toml:
        put(None, asked.text.rstrip("\n"))
    else:
        show(lambda out: print_study(asked, out))


def _check_machine(asked: Study, measured: MeasuredAnswer | None) -> None:
    """Refuse a study that is neither predicted nor measured.

    Raises:
        InputError: With both ways to an answer.
    """
    from scalewise.study.plan import THIS_MACHINE, predictable

    if measured is None and not any(map(predictable, asked.experiments)):
        raise InputError(
            f"study {asked.name} is about {THIS_MACHINE}, which has no calibration in the catalog",
            hint=f"scalewise study measure {asked.name}, then add --records records",
        )


def _command(name: str, overlays: tuple[str, ...], records: tuple[str, ...], *, quick: bool) -> str:
    """Return the command that writes the same report."""
    words = ["scalewise", "study", "run", name, "-o", "report/"]
    for each in overlays:
        words += ["--overlay", each]
    for each in records:
        words += ["--records", each]
    if quick:
        words.append("--quick")
    return " ".join(map(shlex.quote, words))
