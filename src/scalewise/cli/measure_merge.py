"""`scalewise measure merge`: records of several files and folders in one file.

scalewise measure merge monday/ tuesday/ -o all.jsonl
scalewise measure merge records/ -o mine.csv && scalewise validate mine.csv
"""

from __future__ import annotations

import click

from scalewise.cli.common import ending_of


@click.command(short_help="Merge records, or write them as runs.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-o", "--output", required=True, metavar="FILE", help="Output file: .jsonl or .csv.")
def merge(*, paths: tuple[str, ...], output: str) -> None:
    """Merge the records of files and folders, each record once.

    To a .jsonl file, records are appended. A .csv file gets training records as runs, with the
    columns of the published ones: repeats of the same job become one row.
    """
    from scalewise.evidence.measured import run_rows, write_csv
    from scalewise.records.files import merge as join
    from scalewise.records.files import read_records

    if ending_of(output, (".jsonl", ".csv")) == ".csv":
        found = read_records(*paths, kind="train")
        write_csv(found.records, output)
        click.echo(f"wrote {len(run_rows(found.records))} runs to {output}", err=True)
    else:
        found = join(paths, output)
        click.echo(f"{output} has {len(found.records)} records", err=True)
    for note in found.notes:
        click.echo(f"warning: {note}", err=True)
