"""`scalewise compare`: how far are estimates from what was measured here, term by term?

SCALEWISE_CATALOG=scalewise-catalog scalewise compare records/ --on my-cluster
"""

from __future__ import annotations

import click


@click.command(short_help="Compare predictions with your measurements.")
@click.argument("records", nargs=-1)
@click.option("--on", metavar="CLUSTER", help="What they ran on. [the device the records name]")
@click.option("--stack", metavar="NAME", help="Software. [the cluster's own, if it has one]")
@click.option("--least-ranks", default=1, show_default=True, help="Leave out smaller jobs.")
@click.option("-o", "--output", metavar="FILE", help="Figure: .html or .svg.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def compare(
    *,
    records: tuple[str, ...],
    on: str | None,
    stack: str | None,
    least_ranks: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Predict every job of RECORDS (files or folders), and show the difference.

    Steps always; compute, communication, exposed communication and idle time for jobs that were
    measured with --trace. What launches of the same job differ by stands beside the errors.
    """
    from scalewise.catalog import load_cluster
    from scalewise.cli.common import ending_of, show, to_json, write
    from scalewise.evidence.compare import compare as judge
    from scalewise.measure.records import read_records
    from scalewise.report.compare import headline, print_comparison

    ending_of(output, (".html", ".svg"))
    found = read_records(*(records or ("records",)), kind="train")
    for note in found.notes:
        click.echo(note, err=True)
    cluster = None if on is None else load_cluster(on)
    done = judge(found.records, cluster, stack, least_ranks=least_ranks)
    if output is not None:
        from scalewise.report.compare_figure import comparison_page, comparison_svg

        write(output, comparison_svg(done) if output.endswith(".svg") else comparison_page(done))
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
