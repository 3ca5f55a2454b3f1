"""`scalewise trace`: how much communication did a real step expose?

    scalewise trace rank0.json.gz
    scalewise trace traces/ --json
    scalewise trace 'run/*.pt.trace.json.gz' -o steps.svg

Exit code 0: it was read; 2: wrong usage, or a file that is no trace, cut or damaged.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import (
    FORMATS,
    check_library,
    ending_of,
    light_numpy,
    put,
    show,
    to_json,
    write,
)

if TYPE_CHECKING:
    from scalewise.trace.summary import TraceSummary


@click.command(short_help="Read profiler traces: what was exposed.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--partial", is_flag=True, help="Use what is readable of files that are cut.")
@click.option("--last-step", is_flag=True, help="Count the last step of a GPU, which may be cut.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write a .json, .csv, .parquet, .html, .svg or .png file.",
)
def trace(
    files: tuple[str, ...],
    output: str | None,
    *,
    partial: bool,
    last_step: bool,
    as_json: bool,
) -> int:
    """Show compute, communication, what overlaps, what is exposed and what is idle.

    FILE is a trace of torch.profiler (.json or .json.gz), a folder of them, or a pattern; several
    files are several ranks. GPU traces with NCCL or RCCL and CPU traces with Gloo are understood,
    of any size.

    Overlap is counted as HolisticTraceAnalysis counts it: time in which communication and compute
    run at once, over the time in which anything communicates. As there, the last step of a GPU
    trace is left out, because the profiler may have stopped before the GPU had finished it.
    """
    ending = ending_of(output, FORMATS)
    light_numpy()
    check_library(ending)
    from scalewise.trace.read import read_trace

    summary = read_trace(list(files), partial=partial, last_step=last_step)
    if output is not None and ending is not None:
        _save(summary, output, ending)
    if as_json:
        put(None, to_json(as_dict(summary)))
    elif output is None:
        from scalewise.report.trace_table import print_trace

        show(lambda out: print_trace(summary, out))
    return 0


def as_dict(summary: TraceSummary) -> dict[str, Any]:
    """Tell everything as plain types, with the version of scalewise."""
    import msgspec

    from scalewise._version import __version__

    return {"version": __version__, **msgspec.to_builtins(summary)}


def _save(summary: TraceSummary, path: str, ending: str) -> None:
    """Write a file, and say so on stderr."""
    if ending == ".json":
        write(path, to_json(as_dict(summary)) + "\n")
    elif ending == ".csv":
        from scalewise.report.trace_data import trace_csv

        write(path, trace_csv(summary))
    elif ending == ".html":
        from scalewise.report.trace_figure import trace_html

        write(path, trace_html(summary))
    else:
        if ending == ".parquet":
            from scalewise.report.trace_data import trace_parquet

            content = trace_parquet(summary)
        else:
            from scalewise.report.trace_figure import trace_image

            content = trace_image(summary, "svg" if ending == ".svg" else "png")
        Path(path).expanduser().write_bytes(content)
        click.echo(f"wrote {path}", err=True)
