"""`scalewise trace`: overlapped and exposed communication of steps in profiler traces.

    scalewise trace rank0.json.gz
    scalewise trace traces/ --json
    scalewise trace 'run/*.pt.trace.json.gz' -o steps.svg

Exit code 0: success; 2: wrong usage, or a file that is no trace, truncated or damaged.
"""

from __future__ import annotations

import click

from scalewise.cli.common import (
    FORMATS,
    check_library,
    ending_of,
    light_numpy,
    put,
    show,
    write_bytes,
)


@click.command(short_help="Measure exposed communication in profiler traces.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--partial", is_flag=True, help="Use the readable part of truncated files.")
@click.option(
    "--last-step", is_flag=True, help="Include the last GPU step, which may be truncated."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Output file: .json, .csv, .parquet, .html, .svg or .png.",
)
def trace(
    files: tuple[str, ...],
    output: str | None,
    *,
    partial: bool,
    last_step: bool,
    as_json: bool,
) -> int:
    """Measure compute, overlapped and exposed communication, and idle time of profiled steps.

    FILE is a torch.profiler trace (.json or .json.gz), a folder of them, or a pattern; several
    files are several ranks. GPU traces with NCCL or RCCL and CPU traces with Gloo are supported.

    Overlap is defined as in HolisticTraceAnalysis: time in which communication and compute run
    concurrently, over the time of communication. As there, the last step of a GPU trace is left
    out, because the profiler may stop before the GPU finishes it.
    """
    ending = ending_of(output, FORMATS)
    light_numpy()
    check_library(ending)
    from scalewise.trace.read import read_trace

    summary = read_trace(list(files), partial=partial, last_step=last_step)
    if output is not None and ending is not None:
        from scalewise.report.trace_figure import trace_file

        write_bytes(output, trace_file(summary, ending))
    if as_json:
        from scalewise.report.trace_figure import trace_file

        put(None, trace_file(summary, ".json").decode().rstrip("\n"))
    elif output is None:
        from scalewise.report.trace_table import print_trace

        show(lambda out: print_trace(summary, out))
    return 0
