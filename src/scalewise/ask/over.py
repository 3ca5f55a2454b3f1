"""Curves and maps over any quantity: a question with one or two `--over`.

    over(Question(gpus=256, strategy="fsdp"), ["network=25..800Gbit/s"])

Every point is an ordinary question, resolved as that of `estimate`: its digits are those of the
same words on the command line. MODEL, --on and --strategy may join several with commas, each of
which is a series of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.axes import EXAMPLES, Quantity, parse_over
from scalewise.ask.defaults import Default
from scalewise.ask.names import is_file
from scalewise.ask.question import Question, question_fields
from scalewise.ask.resolve import Inputs, Objects, inputs, resolve
from scalewise.errors import InputError
from scalewise.explore.assemble import assemble
from scalewise.explore.axis import Cell, Series, Sweep
from scalewise.explore.causes import gather_parts
from scalewise.explore.points import InfeasibleSize
from scalewise.explore.tasks import PointResult, point_of
from scalewise.explore.templates import BEST, parse_template
from scalewise.lengths import is_lengths_file, read_lengths
from scalewise.model import Convention
from scalewise.reliability import file_of, load_reliability

if TYPE_CHECKING:
    from scalewise.explore.scale import Run

MAX_POINTS = 2048
"""Maximum points of all series together."""


class OverTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One point: a question, and what its words stand for."""

    question: Question
    """The question, with the values of the axes in it."""
    convention: Convention = "causal"
    """How the FLOPs of MFU are counted."""
    exhaustive: bool = False
    """Whether `best` is the best of all strategies, and not of the usual ones."""
    files: str = ""
    """Digest of what was read from the user's files: a stored result is of the same content."""


@dataclass(frozen=True, kw_only=True)
class Over:
    """A sweep, and how it came about."""

    sweep: Sweep
    first: Inputs
    """Inputs of the first point that has any."""
    batches: tuple[int, int]
    """Smallest and largest global batch."""
    sizes: tuple[int, int]
    """Smallest and largest number of GPUs."""
    defaults: tuple[Default, ...]
    """What was chosen for the user."""
    changes: tuple[str, ...]
    """What overrides and switches changed at every point."""
    notes: tuple[str, ...]
    """What looks odd."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """One point before it is computed."""

    place: tuple[int, ...]
    question: Question
    found: Inputs | None
    error: InputError | None
    """Why there are no inputs."""


def price_question(task: OverTask, objects: Objects | None = None) -> PointResult:
    """Answer one point as `estimate` does.

    Args:
        task: The question.
        objects: What is at hand instead of a name.

    Returns:
        The point, or the reason why there is none.
    """
    question, evaluated = task.question, None
    try:
        if task.exhaustive and (question.strategy or BEST).strip().lower() in (BEST, "auto"):
            found = inputs(question, objects).search(top=1).whole()
            nearest, evaluated = found.best or found.nearest, found.evaluated
            if nearest is not None:
                question = msgspec.structs.replace(question, strategy=str(nearest.strategy))
        asked = resolve(question, objects)
        e = asked.estimate(task.convention)
    except InputError as error:
        return PointResult(missing=InfeasibleSize(accelerators=0, reason=str(error)))
    if not asked.stated:
        evaluated = asked.evaluated
    point = point_of(e, parts=gather_parts(e.many, e.row), evaluated=evaluated)
    return PointResult(point=point, warnings=e.warnings)


def over(
    question: Question,
    texts: Sequence[str],
    *,
    convention: Convention = "causal",
    exhaustive: bool = False,
    run: Run | None = None,
    objects: Objects | None = None,
) -> Over:
    """Estimate a question at every value of one or two quantities.

    Args:
        question: With lists in `model`, `on` and `strategy`; the quantities replace its own values.
        texts: One or two quantities with their values, such as "seq=4096..65536".
        convention: FLOP convention of MFU.
        exhaustive: Whether `best` is the best of all strategies, and not of the usual ones.
        run: Computes the tasks; by default in this process, in order.
        objects: What is at hand instead of a name.

    Raises:
        InputError: If a word is not understood, or nothing can be resolved at any value.
    """
    quantities = _quantities(texts)
    series = _series(question, quantities, objects)
    count = len(series)
    for each in quantities:
        count *= len(each.axis.texts)
    if count > MAX_POINTS:
        raise InputError(
            f"--over: {count:,} points, more than {MAX_POINTS:,}",
            hint="fewer values: a range doubles without a +STEP",
        )
    lines = [[_asked(one, quantities, at, objects) for at in _places(quantities)] for one in series]
    points = [each for line in lines for each in line]
    _check(quantities, points)
    known = [each for each in points if each.found is not None]
    tasks = [
        OverTask(
            question=each.question,
            convention=convention,
            exhaustive=exhaustive,
            files=_files(each.question, each.found),
        )
        for each in known
    ]
    answers: dict[int, PointResult] = {}
    if run is None:
        answers = dict(enumerate(map(partial(price_question, objects=objects), tasks)))
    else:
        answers = dict(run(tasks, price_question))  # type: ignore[arg-type]
    results = {id(each): answers[place] for place, each in enumerate(known)}
    warnings = [text for answer in answers.values() for text in answer.warnings]
    first = known[0].found
    assert first is not None
    sweep = assemble(
        [each.axis for each in quantities],
        [
            _line(one, line, results, quantities)
            for one, line in zip(series, lines, strict=True)
        ],
        by=question.by,
        tokens=first.workload.tokens,
        warnings=warnings,
    )  # fmt: skip
    all_found = [each.found for each in known if each.found is not None]
    batches = [each.workload.global_batch for each in all_found]
    sizes = [each.cluster.accelerators for each in all_found]
    return Over(
        sweep=sweep,
        first=first,
        batches=(min(batches), max(batches)),
        sizes=(min(sizes), max(sizes)),
        defaults=(*_defaults(all_found, quantities), *_open_parts(question, quantities)),
        changes=_shared(all_found),
        notes=tuple(dict.fromkeys(text for each in all_found for text in each.notes)),
    )


def _quantities(texts: Sequence[str]) -> list[Quantity]:
    """Read one or two quantities."""
    if not 1 <= len(texts) <= 2:
        raise InputError(
            f"--over is given {len(texts)} times: one draws a curve, two a map",
            hint=f"for example {EXAMPLES}",
        )
    found = [parse_over(text) for text in texts]
    if len({(each.target, each.key) for each in found}) < len(found):
        raise InputError(
            f"--over {found[0].axis.name} is given twice", hint="name another quantity, or list all"
        )
    return found


def _series(
    question: Question, quantities: Sequence[Quantity], objects: Objects | None
) -> list[Question]:
    """Return one question for each model, cluster and strategy of the lists."""
    axes = {each.key for each in quantities if each.target == "question"}
    for name in ("gpus", "seq", "batch"):
        text = str(getattr(question, name) or "")
        if name not in axes and ("," in text or ".." in text):
            raise InputError(
                f"{question_fields()[name].flag} {text[:40]}: one value where another quantity is "
                "on the axis",
                hint=f"--over {name}={text[:40]}",
                field=name,
            )
    at_hand = objects or Objects()
    listed: dict[str, Sequence[str | None]] = {
        "model": [question.model] if at_hand.model else _parts(question.model),
        "on": [question.on] if at_hand.cluster else _parts(question.on),
        "strategy": [None] if question.strategy is None else _parts(question.strategy),
    }
    if at_hand.strategy is not None:
        listed["strategy"] = [question.strategy]
    for name, words in listed.items():
        for word in words:
            if words.count(word) > 1:
                raise InputError(f"{name} {word} is given twice", hint="give it once")
        if name in axes:
            listed[name] = words[:1]
    return [
        msgspec.structs.replace(question, **dict(zip(listed, words, strict=True)))
        for words in product(*listed.values())
    ]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _places(quantities: Sequence[Quantity]) -> list[tuple[int, ...]]:
    """Return the places of all points; the first axis changes fastest."""
    ranges = [range(len(each.axis.texts)) for each in reversed(quantities)]
    return [tuple(reversed(place)) for place in product(*ranges)]


def _asked(
    question: Question,
    quantities: Sequence[Quantity],
    place: tuple[int, ...],
    objects: Objects | None,
) -> _Asked:
    """Return one point with its inputs, or why there are none."""
    try:
        for quantity, at in zip(quantities, place, strict=True):
            question = quantity.put(question, at)
        found = inputs(question, objects)
    except InputError as error:
        return _Asked(place=place, question=question, found=None, error=error)
    return _Asked(place=place, question=question, found=found, error=None)


def _check(quantities: Sequence[Quantity], points: Sequence[_Asked]) -> None:
    """Refuse values that cannot be. Of strategies only if none can be: others are points."""
    for each in points:
        only = quantities[0] if len(quantities) == 1 else None
        counted = only is None or (only.target == "strategy" and only.axis.numbers is not None)
        alone = not counted
        if each.error is None or not (alone or all(one.found is None for one in points)):
            continue
        message = str(each.error)
        if alone:
            axis = quantities[0].axis
            given = f"--over {axis.name}={axis.texts[each.place[0]]}"
            message = message if message.startswith("--over") else f"{given}: {message}"
        raise InputError(message, hint=each.error.hint, field=each.error.field)


def _files(question: Question, found: Inputs | None) -> str:
    """Return a digest of the inputs if a word names a file; empty otherwise."""
    words = [getattr(question, name) for name in ("model", "on", "stack", "optimizer")]
    named = any(text and (is_file(text) or "/" in text) for text in words)
    documents = question.lengths is not None and is_lengths_file(question.lengths)
    runs = file_of(question.goodput)
    if found is None or not (named or documents or runs):
        return ""
    nouns = msgspec.json.encode((found.model, found.cluster, found.stack))
    if question.optimizer is not None and is_file(question.optimizer):
        from scalewise.optimizer import load_optimizer

        nouns += msgspec.json.encode(load_optimizer(question.optimizer))
    if question.lengths is not None and documents:
        nouns += msgspec.json.encode(read_lengths(question.lengths))
    if runs is not None:
        nouns += msgspec.json.encode(load_reliability(runs))
    return hashlib.sha256(nouns).hexdigest()


def _line(
    question: Question,
    line: Sequence[_Asked],
    results: dict[int, PointResult],
    quantities: Sequence[Quantity],
) -> Series:
    """Return one series from its answers."""
    cells = []
    for each in line:
        found, answer = each.found, results.get(id(each))
        point = None if answer is None else answer.point
        reason = None if point is None else point.infeasible
        if point is None:
            missing = None if answer is None else answer.missing
            reason = str(each.error) if missing is None else missing.reason
        cells.append(
            Cell(
                place=each.place,
                seq_len=0 if found is None else found.workload.seq_len,
                precision="" if found is None else found.workload.precision,
                point=point,
                infeasible=reason,
            )
        )
    all_found = [each.found for each in line if each.found is not None]
    models = {each.model.name: each.model.parameters for each in all_found}
    clusters = {each.cluster.name: each.cluster.accelerator.kind for each in all_found}
    axes = {each.key for each in quantities if each.target == "question"}
    return Series(
        label=BEST if question.strategy is None else _label(question.strategy),
        model="" if "model" in axes else next(iter(models), question.model),
        cluster="" if "on" in axes else next(iter(clusters), question.on),
        parameters=next(iter(models.values()), 0.0) if len(set(models.values())) == 1 else 0.0,
        kind=next(iter(clusters.values()), "gpu"),
        cells=tuple(cells),
    )


def _label(strategy: str) -> str:
    return strategy.strip().lower()


def _defaults(found: Sequence[Inputs], quantities: Sequence[Quantity]) -> list[Default]:
    """Return what was chosen, by flag: one value for all points, or the ends of several."""
    axes = {question_fields()[each.key].flag for each in quantities if each.target == "question"}
    chosen: dict[str, list[Default]] = {}
    for each in found:
        for default in each.defaults:
            if default.flag not in axes:
                chosen.setdefault(default.flag, []).append(default)
    merged = []
    for flag, several in chosen.items():
        values = list(dict.fromkeys(one.value for one in several))
        if len(values) == 1:
            merged.append(several[0])
            continue
        if all(value.isdecimal() for value in values):
            values = sorted(values, key=int)
        value = f"{values[0]}..{values[-1]}"
        merged.append(Default(flag=flag, value=value, why="as an estimate of each value"))
    return merged


def _open_parts(question: Question, quantities: Sequence[Quantity]) -> list[Default]:
    """Name what is chosen at every value anew."""
    found = []
    keys = {each.key for each in quantities}
    words = [] if question.strategy is None else _parts(question.strategy)
    if question.strategy is None and "hsdp" not in keys:
        why = "best of the usual ones at each value"
        if keys & {"tp", "pp", "cp", "ep", "etp", "micro_batch", "virtual_stages", "recompute"}:
            why = "best of all at each value"
        found.append(Default(flag="--strategy", value=BEST, why=why))
    elif not keys & {"micro_batch", "num_microbatches"} and any(map(_is_open, words)):
        why = "largest micro-batch that fits, at each value"
        found.append(Default(flag="--strategy", value="mb", why=why))
    if question.stack is None and "stack" not in keys:
        found.append(Default(flag="--stack", value="usual", why="follows the strategy"))
    return found


def _is_open(word: str) -> bool:
    template = parse_template(word)
    return template.limits is None and not template.has_micro_batch


def _shared(found: Sequence[Inputs]) -> tuple[str, ...]:
    """Return the changes that all points have."""
    if not found:
        return ()
    others: list[set[Any]] = [set(each.changes) for each in found[1:]]
    return tuple(text for text in found[0].changes if all(text in each for each in others))


__all__ = ["MAX_POINTS", "Over", "OverTask", "over", "price_question"]
