"""`scalewise calibrate`: fit the constants of chips, stacks and fabrics to measured runs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--from", "sources", multiple=True, help="CSV of runs; may be repeated. Default: the shipped."
)
@click.option(
    "-o",
    "--output",
    default="scalewise-catalog",
    show_default=True,
    help="Folder for the catalog files.",
)
@click.option("--json", "as_json", is_flag=True, help="Constants, spreads and errors as JSON.")
@click.option(
    "--microbenchmarks",
    is_flag=True,
    help="Fit the shipped collective and kernel timings instead, and print what they say.",
)
@click.option("--quick", is_flag=True, help="Keep the intervals instead of refitting for them.")
def calibrate(
    *, sources: tuple[str, ...], output: str, as_json: bool, microbenchmarks: bool, quick: bool
) -> None:
    """Fit constants to measured runs and write them as catalog files.

    Use the result with SCALEWISE_CATALOG=FOLDER. Needs the extra `calibrate`.
    """
    if microbenchmarks:
        _microbenchmarks(as_json=as_json)
        return
    from scalewise.evidence.fitting import calibrate as fit_all
    from scalewise.evidence.runs import read_runs

    runs = [run for path in (sources or (None,)) for run in read_runs(path)]
    done = fit_all(
        runs,
        Path(output).expanduser(),
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
            "intervals": done.intervals,
            "files": [str(path) for path in done.files],
        }
        click.echo(to_json(result))
        return
    click.echo(
        f"{len(done.fit.values_)} constants fitted to {len(done.table)} runs: median error "
        f"{100 * float(np.median(error)):.1f} %, 90th percentile "
        f"{100 * float(np.quantile(error, 0.9)):.1f} % in sample"
    )
    if done.fit.on_bounds_:
        names = ", ".join(f"{owner} {name}" for _, owner, name in done.fit.on_bounds_)
        click.echo(f"on their bounds, so not determined: {names}")
    click.echo(f"wrote {len(done.files)} files below {output}")
    click.echo(f"use them with: SCALEWISE_CATALOG={output} scalewise validate", err=True)


def _microbenchmarks(*, as_json: bool) -> None:
    """Print what nccl-tests say of links and fabrics, and kernel tables of shares of peak."""
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
            f"{name}: {after.rows} rows, median error {100 * before.median:.0f} % before and "
            f"{100 * after.median:.0f} % after fitting"
        )
    for row in constants:
        note = "" if row["identified"] else "  (not determined: mostly what was believed before)"
        value, spread = f"{row['value']:.4g}", f"x/: {row['spread']:.2f}"
        click.echo(f"  {row['owner']:<12} {row['name']:<32} {value:<10} {spread}{note}")
