"""`scalewise plan --queue`: the calendar of several runs on one cluster.

scalewise plan --queue queue.toml --on dgx-h100 --gpus 512
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.cli.options import stated_fields
from scalewise.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.question import Question
    from scalewise.cli.answer import Answer

LEFT = ("model", "strategy", "tokens", "deadline", "budget", "own", "by")
"""Fields that belong to the runs, or to a plan without a queue."""


def run_queue(path: str, question: Question, answer: Answer) -> int:
    """Print or write the calendar of a queue; arguments are those of the command."""
    from scalewise.ask.queueing import read_queue

    stated = stated_fields(question)
    for name in LEFT:
        if name in stated:
            raise InputError(
                f"{name} belongs to the runs of --queue", hint="write it into the file", field=name
            )
    if answer.ending == ".toml":
        raise InputError(f"-o {answer.path}: a queue is no plan file", hint="-o queue.html")
    found = read_queue(path, stated)

    def file(ending: str) -> bytes:
        from scalewise.report.queue_files import queue_file

        return queue_file(found, ending)

    def data() -> object:
        from scalewise.report.queue_files import queue_dict

        return queue_dict(found)

    def table(console: Console) -> None:
        from scalewise.report.queue_table import print_queue

        print_queue(found, console)

    answer.give(file=file, data=data, table=table)
    return 0
