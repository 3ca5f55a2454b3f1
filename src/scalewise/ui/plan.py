"""The plan view: whole runs against a deadline and a budget, and a queue of runs.

    plan_answer(PlanRequest(question=Question(model="llama-3-70b", gpus="256,512", tokens="2T")))
    queue_answer(QueueRequest(runs=(QueuedRun(name="a", question=...),)))["lead"]

Numbers are those of `scalewise plan`; its words come from `report`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scalewise.ask.planning import planning
from scalewise.ask.question import Question, question_from
from scalewise.ask.queueing import queue_of, queue_toml
from scalewise.ask.state import arguments, command, from_toml, given, to_query
from scalewise.errors import InputError
from scalewise.explore.plan import Plan
from scalewise.reading import parse_toml
from scalewise.report import plan_words, queue_words
from scalewise.report.plan_figure import plan_figure
from scalewise.report.plan_files import plan_dict
from scalewise.report.plan_table import cells_of, is_answer, shown_rows
from scalewise.report.queue_figure import queue_figure
from scalewise.report.queue_files import queue_dict
from scalewise.report.queue_table import cells_of_run
from scalewise.ui.requests import PlanRequest, QueueRequest, no_files
from scalewise.ui.study import drawn

Progress = Callable[[int, int], None]

MAX_PAIRS = 12
"""Models times clusters of one plan."""

COMMON = (
    "on", "gpus", "precision", "stack", "price", "region", "goodput", "pue", "power_cap",
    "algorithm", "protocol", "sets", "force", "fit",
)  # fmt: skip
"""Fields of a question that hold for all runs of a queue."""


def plan_answer(request: PlanRequest, progress: Progress | None = None) -> dict[str, Any]:
    """Plan whole runs.

    Args:
        request: What is asked.
        progress: Called with how much is done, and how much there is; may raise to stop.

    Raises:
        InputError: If a word is not understood.
    """
    question = request.question
    no_files(question)
    pairs = (question.model.count(",") + 1) * (question.on.count(",") + 1)
    if pairs > MAX_PAIRS:
        raise InputError(
            f"{pairs} pairs of models and clusters, more than {MAX_PAIRS}",
            hint="the command line has no such limit",
            field="on",
        )
    far_end = request.meet == "far-end"
    found = planning(question, by=request.by, far_end=far_end, progress=progress)
    return {
        "plan": plan_dict(found),
        "title": plan_words.title(found),
        "shown": [_row(found, place) for place in range(len(found.rows))],
        "words": {
            "Nearest": plan_words.nearest_lines(found),
            "Goodput": plan_words.goodput_lines(found),
            "Break-even": plan_words.break_even_lines(found),
            "Own or rent": plan_words.own_lines(found),
            "Note": list(found.notes),
        },
        "emissions": plan_words.carbon_line(found),
        "next": plan_words.next_line(found),
        "figure": drawn(plan_figure(found)),
        "copy": _copies(request, found),
    }


def _row(found: Plan, place: int) -> dict[str, Any]:
    """What the table shows of one row, beside its numbers."""
    row = found.rows[place]
    listed = any(row is each for each in shown_rows(found))
    plain = {
        "size": plan_words.size_words(row),
        "listed": listed,
        "answer": is_answer(row, found),
        "met": found.wanted.any and found.wanted.met(row),
    }
    return plain | cells_of(row, found)


def _copies(request: PlanRequest, found: Plan) -> dict[str, str]:
    """The plan in every form it can be taken away in; a plan file where there is one answer."""
    question, more = request.question, ""
    options: dict[str, str] = {}
    if request.by is not None:
        options["by"], more = request.by, f", by={request.by!r}"
    if request.meet != "far-end":
        options["meet"] = request.meet
        more += ", far_end=False"
    call = f"found = sw.plan({arguments(question, 'plan')}{more})"
    single = bool(found.file) and len(found.answers) == 1
    return {
        "cli": command(question, "plan", **options),
        "python": f"import scalewise as sw\n\n{call}\nprint(found)\n",
        "toml": found.file if single else "",
        "query": to_query(from_toml(found.file)) if single else "",
    }


def queue_answer(request: QueueRequest, progress: Progress | None = None) -> dict[str, Any]:
    """Place runs in a calendar.

    Args:
        request: What is asked.
        progress: Called with how much is done, and how much there is; may raise to stop.

    Raises:
        InputError: If a word is not understood, or a run cannot be placed.
    """
    no_files(request.question)
    stated = given(request.question, "plan")
    common = {name: stated[name] for name in COMMON if name in stated}
    runs: list[dict[str, Any]] = [
        _known({"name": run.name, "after": run.after, "earliest": run.earliest})
        | given(run.question, "plan")
        for run in request.runs
    ]
    start = request.start
    if request.text is not None:
        table = parse_toml(request.text, "the text")
        more, here = _pasted(table, len(runs))
        common |= here
        start = str(table["start"]) if "start" in table else start
        runs += more
    for run in runs:
        # A cluster holds all runs, and a size of the cluster is no size of a run.
        run.pop("on", None)
        no_files(question_from({key: run[key] for key in run if key in Question.__struct_fields__}))
    no_files(question_from({key: common[key] for key in ("on",) if key in common}))
    table = common | {"run": runs} | ({} if start is None else {"start": start})
    found = queue_of(table, None, {}, progress=progress)
    return {
        "queue": queue_dict(found),
        "cells": [cells_of_run(run, found) for run in found.calendar.runs],
        "others": queue_words.other_lines(found),
        "figure": drawn(queue_figure(found)),
        "on": common.get("on"),
        "gpus": found.calendar.accelerators,
        "queries": [_query(run) for run in runs],
        "copy": {
            "cli": "scalewise plan --queue queue.toml",
            "python": 'import scalewise as sw\n\nprint(sw.queue("queue.toml"))\n',
            "toml": queue_toml(common, runs, found.start),
        },
    }


def _pasted(table: Mapping[str, Any], before: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Runs of a pasted file, and what it says of the cluster: a queue, or a plan as one run."""
    fields = {key: value for key, value in table.items() if key not in ("run", "start")}
    if "run" not in table:
        if "model" not in fields:
            raise InputError(
                "the text has no model and no [[run]]", hint="paste a plan file or a queue file"
            )
        name = f"{fields['model']}-{before + 1}"
        return [{"name": name} | fields], {}
    here = {key: fields.pop(key) for key in COMMON if key in fields}
    runs = table["run"] if isinstance(table["run"], list) else []
    return [fields | dict(run) for run in runs if isinstance(run, Mapping)], here


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _query(run: Mapping[str, Any]) -> dict[str, str]:
    """One run as the part of an address that holds it, and its name and order."""
    fields = {key: run[key] for key in run if key in Question.__struct_fields__}
    after = run.get("after", "")
    return {
        "query": to_query(question_from(fields)),
        "name": str(run.get("name", "")),
        "after": after if isinstance(after, str) else ",".join(map(str, after)),
        "earliest": str(run.get("earliest", "")),
    }
