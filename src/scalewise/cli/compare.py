"""`scalewise compare`: errors of estimates against measured runs, term by term.

SCALEWISE_CATALOG=scalewise-catalog scalewise compare records/ --on my-cluster
"""

from __future__ import annotations

import click


@click.command(short_help="Compare predictions with your measurements.")
@click.argument("records", nargs=-1)
@click.option(
    "--on", metavar="CLUSTER", help="Cluster or accelerator of the records. [the GPU they name]"
)
@click.option(
    "--stack", metavar="NAME", help="Software stack or framework. [the stack of the cluster]"
)
@click.option(
    "--min-ranks", default=1, show_default=True, metavar="N", help="Minimum ranks of a job."
)
@click.option("-o", "--output", metavar="FILE", help="Output file: .html or .svg.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def compare(
    *,
    records: tuple[str, ...],
    on: str | None,
    stack: str | None,
    min_ranks: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Predict every job of RECORDS (files or folders), or every row of a table, and print errors.

    A table is CSV, JSONL or TOML with model, on, gpus, strategy, seq, batch, and step_s, tokens_s
    or mfu.

    Compares step times, and for jobs measured with --trace also compute, communication, exposed
    communication and idle time. Errors stand next to the run-to-run variation of each job.
    """
    from scalewise.catalog import load_cluster
    from scalewise.cli.common import ending_of, show, to_json, write_bytes
    from scalewise.diagnosis.table import is_own, read_user_runs
    from scalewise.evidence.compare import compare as compare_records
    from scalewise.evidence.compare import compare_runs
    from scalewise.records.files import read_records
    from scalewise.report.compare import headline, print_comparison

    ending = ending_of(output, (".html", ".svg"))
    cluster = None if on is None else load_cluster(on)
    tables = [path for path in records if is_own(path)]
    if tables:
        runs = [run for path in records for run in read_user_runs(path)]
        runs = [run for run in runs if (run.number("accelerators") or 0) >= min_ranks]
        done = compare_runs(runs, cluster, stack)
    else:
        found = read_records(*(records or ("records",)), kind="train")
        for note in found.notes:
            click.echo(note, err=True)
        done = compare_records(found.records, cluster, stack, min_ranks=min_ranks)
    if output is not None and ending is not None:
        from scalewise.report.compare_figure import comparison_file

        write_bytes(output, comparison_file(done, ending))
    if as_json:
        rows = [
            {**_plain(row), "error": row.error, "noise": row.noise, "inside": row.inside}
            for row in done.rows
        ]
        click.echo(
            to_json({
                "cluster": done.cluster, "stack": done.stack, "median_error": done.median_error,
                "median_noise": done.median_noise, "coverage": done.coverage,
                "by_strategy": done.by_strategy(), "rows": rows, "skipped": done.skipped,
                "headline": headline(done),
            })
        )  # fmt: skip
        return
    show(lambda out: print_comparison(done, out))


def _plain(row: object) -> dict[str, object]:
    import msgspec

    plain: dict[str, object] = msgspec.to_builtins(row)
    return plain
