"""`scalewise trace`: overlapped and exposed communication of steps in profiler traces.

    scalewise trace rank0.json.gz
    scalewise trace traces/ --json
    scalewise trace 'run/*.pt.trace.json.gz' -o steps.svg

Exit code 0: success; 2: wrong usage, or a file that is no trace, truncated or damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scalewise.cli.answer import answer_options

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.cli.answer import Answer


@click.command(short_help="Measure exposed communication in profiler traces.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--partial", is_flag=True, help="Use the readable part of truncated files.")
@click.option(
    "--last-step", is_flag=True, help="Include the last GPU step, which may be truncated."
)
@answer_options()
def trace(
    files: tuple[str, ...],
    *,
    partial: bool,
    last_step: bool,
    answer: Answer,
) -> int:
    """Measure compute, overlapped and exposed communication, and idle time of profiled steps.

    FILE is a torch.profiler trace (.json or .json.gz), a folder of them, or a pattern; several
    files are several ranks. GPU traces with NCCL or RCCL and CPU traces with Gloo are supported.

    Overlap is defined as in HolisticTraceAnalysis: time in which communication and compute run
    concurrently, over the time of communication. As there, the last step of a GPU trace is left
    out, because the profiler may stop before the GPU finishes it.
    """
    from scalewise.trace.read import read_trace

    summary = read_trace(list(files), partial=partial, last_step=last_step)

    def file(ending: str) -> bytes:
        from scalewise.report.trace_figure import trace_file

        return trace_file(summary, ending)

    def table(console: Console) -> None:
        from scalewise.report.trace_table import print_trace

        print_trace(summary, console)

    answer.give(file=file, table=table)
    return 0
