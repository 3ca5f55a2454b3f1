"""`scalewise calibrate`: fit the constants of chips, stacks and fabrics, or of one machine.

scalewise calibrate my-cluster --from records/ --nccl-tests log.txt
SCALEWISE_CATALOG=scalewise-catalog scalewise estimate tiny --on my-cluster --stack my-cluster
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scalewise.errors import InputError
from scalewise.reading import user_path

if TYPE_CHECKING:
    from scalewise.evidence.expert_fit import ExpertFit
    from scalewise.evidence.machine import MachineFit
    from scalewise.evidence.runs import Run


@click.command(short_help="Fit constants to measured runs.")
@click.argument("name", required=False)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="PATH",
    help="Table of runs; with NAME: records, or what `remember` takes. Repeatable. [the shipped "
    "runs; with NAME: records/]",
)
@click.option(
    "--nccl-tests",
    "logs",
    multiple=True,
    metavar="LOG",
    help="With NAME: output of all_reduce_perf or another of nccl-tests.",
)
@click.option(
    "-o",
    "--output",
    default="scalewise-catalog",
    show_default=True,
    metavar="FOLDER",
    help="Output folder for the catalog files.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print constants, spreads and errors as JSON."
)
@click.option("--plot", metavar="FILE", help="With NAME: figure of the residuals, .html or .svg.")
@click.option(
    "--microbenchmarks",
    is_flag=True,
    help="Fit the shipped collective and kernel timings instead of runs.",
)
@click.option(
    "--experts",
    "experts_only",
    is_flag=True,
    help="Fit the constants of experts; all others stay as they are.",
)
@click.option("--quick", is_flag=True, help="Fit without refitting the prediction intervals.")
def calibrate(
    *,
    name: str | None,
    sources: tuple[str, ...],
    logs: tuple[str, ...],
    output: str,
    as_json: bool,
    plot: str | None,
    microbenchmarks: bool,
    experts_only: bool,
    quick: bool,
) -> None:
    """Fit constants to measured runs, and write them as catalog files.

    With NAME: fit one machine to its records (`scalewise measure`) and nccl-tests logs, and write
    it under that name. Without: fit all stacks and chips to tables of training runs.

    To use the result, set SCALEWISE_CATALOG=FOLDER. Needs the extra `calibrate`.
    """
    if name is not None:
        _machine(name, sources, logs, output, plot, as_json=as_json)
        return
    if logs or plot:
        raise InputError(
            f"{'--nccl-tests' if logs else '--plot'} needs NAME, the name of a machine",
            hint="scalewise calibrate my-cluster --from records/ --nccl-tests log.txt",
        )
    if microbenchmarks:
        _microbenchmarks(as_json=as_json)
        return
    from scalewise.evidence.fitting import calibrate as fit_all
    from scalewise.evidence.runs import read_runs

    runs = read_runs() if not sources else _runs(sources)
    if experts_only:
        _experts(runs, user_path(output), as_json=as_json)
        return
    done = fit_all(
        runs,
        user_path(output),
        intervals=not quick,
        progress=lambda text: click.echo(text, err=True),
    )
    import numpy as np

    error = np.abs(np.expm1(done.fit.residuals_))
    if as_json:
        from scalewise.cli.common import to_json

        constants = [
            {
                "scope": key[0],
                "owner": key[1],
                "name": key[2],
                "value": value,
                "spread": done.fit.spread_[key],
                "on_bound": key in done.fit.on_bounds_,
            }
            for key, value in sorted(done.fit.values_.items())
        ]
        median, p90 = np.quantile(error, [0.5, 0.9]).tolist()
        result = {
            "runs": len(done.table),
            "median_error": median,
            "p90_error": p90,
            "constants": constants,
            "experts": None if done.experts is None else _expert_numbers(done.experts),
            "files": [str(path) for path in done.files],
        }
        click.echo(to_json(result))
        return
    click.echo(
        f"{len(done.fit.values_)} constants fitted to {len(done.table)} runs: median error "
        f"{100 * float(np.median(error)):.1f}%, 90th percentile "
        f"{100 * float(np.quantile(error, 0.9)):.1f}% in sample"
    )
    if done.fit.on_bounds_:
        names = ", ".join(f"{owner} {name}" for _, owner, name in done.fit.on_bounds_)
        click.echo(f"not determined by the runs (on a bound): {names}")
    if done.experts is not None:
        click.echo(_expert_line(done.experts))
    _written(done.files, output)


def _runs(sources: tuple[str, ...]) -> list[Run]:
    """Return the runs of tables."""
    from scalewise.diagnosis.table import read_user_runs

    return [run for path in sources for run in read_user_runs(path)]


def _written(files: list[Path], output: str | Path) -> None:
    click.echo(f"wrote {len(files)} files to {output}")
    click.echo(f"use them with: SCALEWISE_CATALOG={output} scalewise validate", err=True)


def _experts(runs: list[Run], output: Path, *, as_json: bool) -> None:
    """Fit the constants of experts alone, write them and print the fit."""
    from scalewise.cli.common import to_json
    from scalewise.evidence.fitting import calibrate_experts

    fit, files = calibrate_experts(runs, output, progress=lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(to_json({**_expert_numbers(fit), "files": [str(path) for path in files]}))
        return
    click.echo(_expert_line(fit))
    _written(files, output)


def _expert_numbers(fit: ExpertFit) -> dict[str, object]:
    """Return constants of experts, their spreads and errors as plain types."""
    import numpy as np

    median, p90 = np.quantile(np.abs(fit.errors), [0.5, 0.9]).tolist()
    constants = [
        {"name": name, "value": getattr(fit.constants, name), "spread": spread}
        for name, spread in fit.spread.items()
    ]
    return {
        "runs": len(fit.rows),
        "median_error": median,
        "p90_error": p90,
        "constants": constants,
    }


def _expert_line(fit: ExpertFit) -> str:
    import numpy as np

    median, p90 = np.quantile(np.abs(fit.errors), [0.5, 0.9]).tolist()
    return (
        f"{len(fit.spread)} constants of experts fitted to {len(fit.rows)} runs: median error "
        f"{100 * median:.1f}%, 90th percentile {100 * p90:.1f}% in sample"
    )


def _microbenchmarks(*, as_json: bool) -> None:
    """Print constants fitted to the shipped nccl-tests and kernel timings."""
    from scalewise.cli.common import to_json
    from scalewise.evidence.collectives import CollectivesFit, read_collectives
    from scalewise.evidence.kernels import KernelsFit, read_kernels

    fits = {
        "collectives": CollectivesFit().fit(read_collectives()[0]),
        "kernels": KernelsFit().fit(read_kernels()[0]),
    }
    constants = [
        {
            "from": name,
            "scope": key[0],
            "owner": key[1],
            "name": key[2],
            "value": value,
            "spread": fit.spread_[key],
            "identified": fit.identified_[key],
        }
        for name, fit in fits.items()
        for key, value in sorted(fit.values_.items())
    ]
    if as_json:
        click.echo(to_json(constants))
        return
    for name, fit in fits.items():
        before, after = fit.before_["all"], fit.after_["all"]
        click.echo(
            f"{name}: {after.rows} rows, median error {100 * before.median:.0f}% before and "
            f"{100 * after.median:.0f}% after fitting"
        )
    for row in constants:
        note = "" if row["identified"] else "  (not determined by the data: prior)"
        value, spread = f"{row['value']:.4g}", f"x/: {row['spread']:.2f}"
        click.echo(f"  {row['owner']:<12} {row['name']:<32} {value:<10} {spread}{note}")


def _machine(
    name: str,
    sources: tuple[str, ...],
    logs: tuple[str, ...],
    output: str,
    plot: str | None,
    *,
    as_json: bool,
) -> None:
    """Fit one machine, write its catalog files and print the fit."""
    from scalewise.cli.common import ending_of, show
    from scalewise.cli.remember import keep
    from scalewise.diagnosis.table import is_own
    from scalewise.evidence.machine import MachineFit
    from scalewise.evidence.machine_files import write_machine
    from scalewise.evidence.machine_rows import gather
    from scalewise.records.files import read_records
    from scalewise.records.nccl_tests import read_nccl_tests

    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,63}", name):
        raise InputError(
            f"NAME {name[:40]}: a machine's name has lower-case letters, digits, dots and dashes",
            hint="scalewise calibrate my-cluster --from records/",
        )
    ending = ending_of(plot, (".html", ".svg"), "--plot")
    if sources and not logs and all(is_own(path) for path in sources):
        keep(name, sources, {}, anew=False, output=output, as_json=as_json)
        return
    paths = sources or (() if logs else ("records",))
    found = read_records(*paths) if paths else None
    for note in found.notes if found else ():
        click.echo(note, err=True)
    rows = [row for log in logs for row in read_nccl_tests(log)]
    fit = MachineFit(name).fit(gather(found.records if found else [], rows))
    files = write_machine(fit, user_path(output))
    if plot is not None and ending is not None:
        from scalewise.cli.common import write_bytes
        from scalewise.report.compare_figure import residual_file

        write_bytes(plot, residual_file(fit, ending))
    if as_json:
        _machine_json(fit, files)
        return
    from scalewise.report.calibrate_table import print_machine

    show(lambda out: print_machine(fit, out))
    click.echo(f"wrote {len(files)} files to {output}")
    click.echo(
        f"use them with: SCALEWISE_CATALOG={output} scalewise estimate MODEL --on {name} "
        f"--stack {name}",
        err=True,
    )


def _machine_json(fit: MachineFit, files: list[Path]) -> None:
    from scalewise.cli.common import to_json

    result = {
        "name": fit.name,
        "fitted_on": fit.fitted_on_,
        "interval": fit.interval_,
        "constants": fit.constants_,
        "residuals": fit.residuals_,
        "notes": fit.notes_,
        "files": [str(path) for path in files],
    }
    click.echo(to_json(result))
