"""`scalewise plan --queue`: the calendar of several runs on one cluster.

scalewise plan --queue queue.toml --on dgx-h100 --gpus 512
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.cli.common import put, show, to_json, write_bytes
from scalewise.cli.options import stated_fields
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.ask.question import Question

LEFT = ("model", "strategy", "tokens", "deadline", "budget", "own", "by")
"""Fields that belong to the runs, or to a plan without a queue."""


def run_queue(
    path: str,
    question: Question,
    *,
    output: str | None,
    ending: str | None,
    as_json: bool,
    as_csv: bool,
) -> int:
    """Print or write the calendar of a queue; arguments are those of the command."""
    from scalewise.ask.queueing import read_queue

    stated = stated_fields(question)
    for name in LEFT:
        if name in stated:
            raise InputError(
                f"{name} belongs to the runs of --queue", hint="write it into the file", field=name
            )
    if ending == ".toml":
        raise InputError(f"-o {output}: a queue is no plan file", hint="-o queue.html")
    found = read_queue(path, stated)
    if output is not None and ending is not None:
        from scalewise.report.queue_files import queue_file

        write_bytes(output, queue_file(found, ending))
    if as_csv:
        from scalewise.report.queue_files import queue_file

        put(None, queue_file(found, ".csv").decode().rstrip("\n"))
    elif as_json:
        from scalewise.report.queue_files import queue_dict

        put(None, to_json(queue_dict(found)))
    elif output is None:
        from scalewise.report.queue_table import print_queue

        show(lambda console: print_queue(found, console))
    return 0
