"""Files of a queue: runs on one cluster, in order of priority.

    found = read_queue("queue.toml", {"gpus": 512})
    found.calendar.days, found.others

    start = 2027-01-04
    on = "dgx-h100"
    gpus = 512              # of the cluster

    [[run]]
    name = "70b"
    plan = "70b.toml"       # or any field of a plan: model, tokens, gpus, batch, ...

    [[run]]
    name = "sft"
    model = "llama-3-70b"
    tokens = "50B"
    gpus = 128
    after = "70b"

A run without `gpus` takes the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.question import Question, question_from
from scalewise.ask.resolve import resolve
from scalewise.ask.state import read_plan, toml_value
from scalewise.catalog.regions import DEFAULT_REGION, load_region
from scalewise.errors import InputError, did_you_mean
from scalewise.explore.plan import Row, row_of
from scalewise.explore.queue import Job, Queue, calendar
from scalewise.explore.sizes import MAX_GPUS
from scalewise.reading import MAX_TOML, parse_toml, read_text, user_path
from scalewise.units import parse_count

if TYPE_CHECKING:
    from scalewise.explore.queue import Calendar

OTHER_SIZES = (0.5, 2.0)
"""Sizes of the cluster that are compared, over the asked one."""

MAX_RUNS = 200
"""Runs of one queue."""

_OF_RUN = ("name", "plan", "after", "earliest")
_OF_QUEUE = ("start", "run")


def read_queue(path: str | Path, stated: Mapping[str, Any], *, today: date | None = None) -> Queue:
    """Return the queue of a file.

    Args:
        path: Of the TOML file.
        stated: Fields of a question that stand before those of the file.
        today: First day where the file has none.

    Raises:
        InputError: If the file or a run in it is wrong.
    """
    text = read_text(path, what="queue", most=MAX_TOML)
    return queueing(text, user_path(path).parent, stated, today=today)


def queueing(
    text: str, folder: Path, stated: Mapping[str, Any], *, today: date | None = None
) -> Queue:
    """Return the queue of a text; arguments as of `read_queue`, plans relative to a folder."""
    return queue_of(parse_toml(text, "the queue"), folder, stated, today=today)


def queue_of(
    table: Mapping[str, Any],
    folder: Path | None,
    stated: Mapping[str, Any],
    *,
    today: date | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Queue:
    """Return the queue of a table.

    Args:
        table: Keys and runs of a queue file.
        folder: Where its plan files are; None if it may name none.
        stated: Fields of a question that stand before those of the table.
        today: First day where the table has none.
        progress: Called with the sizes of the cluster that are done, and all there are; may raise
            to stop.
    """
    table = dict(table)
    runs = table.pop("run", [])
    if not isinstance(runs, list) or not 1 <= len(runs) <= MAX_RUNS:
        raise InputError(
            f"the queue has no [[run]], or more than {MAX_RUNS}",
            hint='[[run]] with name = "a" and model, tokens, gpus or plan = "a.toml"',
        )
    start = _date(table.pop("start", today or date.today()), "start")
    common = _fields(table, (), "the queue") | dict(stated)
    if common.get("gpus") is None:
        raise InputError("the queue has no gpus", hint="gpus = 512, or --gpus 512", field="gpus")
    size = _count(common.pop("gpus"))
    questions = [_run(run, place, common, folder, start) for place, run in enumerate(runs)]
    names = [job.name for job, _ in questions]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"run {name} is there twice", hint="give each run its own name")
    known: dict[tuple[int, int], Row] = {}
    sizes = [size, *(round(size * factor) for factor in OTHER_SIZES)]
    sizes = [each for each in sizes if 1 <= each <= MAX_GPUS]
    found = []
    for place, each in enumerate(sizes):
        if progress is not None:
            progress(place, len(sizes))
        found.append(_calendar(questions, each, known))
    if found[0].missing is not None:
        raise InputError(found[0].missing)
    clusters = dict.fromkeys(run.row.cluster for run in found[0].runs)
    notes = []
    if len(clusters) > 1:
        raise InputError(
            f"the runs name several clusters: {', '.join(clusters)}",
            hint="--on, or on = ... above the runs, sets one for all",
            field="on",
        )
    others = [each for each in found[1:] if each.missing is None]
    notes += [f"{each.accelerators:,} GPUs: {each.missing}" for each in found[1:] if each.missing]
    return Queue(
        cluster=next(iter(clusters)),
        calendar=found[0],
        others=tuple(sorted(others, key=lambda each: each.accelerators)),
        start=start,
        notes=tuple(notes),
    )


def queue_toml(common: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], start: date) -> str:
    """Write a queue file.

    Args:
        common: What holds for all runs.
        runs: Keys of each run.
        start: First day.
    """
    lines = ["# A queue of scalewise: scalewise plan --queue THIS_FILE", f"start = {start}"]
    lines += [f"{name} = {toml_value(value)}" for name, value in common.items()]
    for run in runs:
        lines += ["", "[[run]]"]
        lines += [f"{name} = {toml_value(value)}" for name, value in run.items()]
    return "\n".join(lines) + "\n"


def _run(
    table: Any, place: int, common: Mapping[str, Any], folder: Path | None, start: date
) -> tuple[Job, Question]:
    """Read one run: how it is placed, and its question; without `gpus` it takes the cluster."""
    where = f"run {place + 1}"
    if not isinstance(table, dict):
        raise InputError(f"{where} is no table", hint="[[run]]")
    name = str(table.get("name", where))
    fields = _fields(table, _OF_RUN, where)
    if "plan" in table and folder is None:
        raise InputError(f"{where}: plan names a file", hint="write its lines into the run")
    if "plan" in table and folder is not None:
        planned = read_plan(folder / str(table["plan"]))
        said = {each: getattr(planned, each) for each in Question.__struct_fields__}
        fields = {each: value for each, value in said.items() if value is not None} | fields
    elif "model" not in fields:
        raise InputError(f"{where}: no model", hint='model = "llama-3-70b", or plan = "a.toml"')
    # What holds for the cluster stands before what a plan says; the rest only fills in.
    above = ("on", "price", "region", "goodput")
    fields = dict(common) | fields | {key: common[key] for key in above if key in common}
    after = table.get("after", ())
    job = Job(
        name=name,
        accelerators=_count(fields["gpus"]) if fields.get("gpus") is not None else 0,
        days=0.0,
        earliest=_days_from(start, table.get("earliest"), where),
        after=(after,) if isinstance(after, str) else tuple(map(str, after)),
    )
    question = question_from(fields)
    if question.tokens is None:
        raise InputError(f"run {name}: no tokens", hint='tokens = "2T"', field="tokens")
    return job, question


def _fields(table: Mapping[str, Any], more: Sequence[str], where: str) -> dict[str, Any]:
    """Return the fields of a question in a table."""
    known = (*Question.__struct_fields__, *more)
    for key in table:
        if key not in known:
            hint = did_you_mean(key, (*known, *(_OF_QUEUE if not more else ())))
            raise InputError(f"{where} has an unknown key `{key}`", hint=hint)
    return {key: value for key, value in table.items() if key not in more}


def _calendar(
    runs: Sequence[tuple[Job, Question]], size: int, known: dict[tuple[int, int], Row]
) -> Calendar:
    """Return the calendar at one size of the cluster; rows that are known are not made again."""
    rows: list[tuple[Job, Row]] = []
    for place, (job, question) in enumerate(runs):
        gpus = job.accelerators or size
        if (place, gpus) not in known:
            known[place, gpus] = _row(question, gpus, whole=not job.accelerators)
        rows.append((replace(job, accelerators=gpus), known[place, gpus]))
    return calendar(rows, size)


def _row(question: Question, gpus: int, *, whole: bool) -> Row:
    """Return one run at a size; a strategy with sizes holds at its own size only."""
    words = msgspec.structs.replace(question, gpus=gpus)
    if whole:
        words = msgspec.structs.replace(words, strategy=None)
    e = resolve(words).estimate()
    return row_of(e, region=load_region(question.region or DEFAULT_REGION))


def _count(value: Any) -> int:
    count = parse_count(value)
    if not 1 <= count <= MAX_GPUS:
        raise InputError(f"gpus = {count}: must be between 1 and {MAX_GPUS:,}", field="gpus")
    return count


def _date(value: Any, name: str) -> date:
    """Read a day: TOML's own or text."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise InputError(f"{name} = {value}: not a date", hint=f"{name} = 2027-01-04") from None


def _days_from(start: date, value: Any, where: str) -> float:
    """Days from the first day to an earliest start."""
    if value is None:
        return 0.0
    days = (_date(value, f"{where}: earliest") - start).days
    return float(max(days, 0))


__all__ = ["OTHER_SIZES", "queue_of", "queue_toml", "queueing", "read_queue"]
