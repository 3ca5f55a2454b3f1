"""From what the page asks to nouns: forgiving names, a default budget, a strategy that is repaired.

    asked = resolve(Question(model="llama 2 7b", gpus="512", strategy="fsdp256-mb2"))
    asked.estimate.strategy      # fsdp512-mb2
    asked.moved                  # ("fsdp256-mb2 became fsdp512-mb2: 512 accelerators",)

Everything else is `cli.inputs.ask`, the parser of the command line: same words, same answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.cli.inputs import ask
from scalewise.errors import InputError
from scalewise.explore.templates import fill, parse_template
from scalewise.model import load_model
from scalewise.report.curve_words import open_spelling
from scalewise.step.estimate import estimate
from scalewise.step.support import check_supported
from scalewise.strategy import Strategy, parse_strategy
from scalewise.ui.lookup import find_name
from scalewise.ui.requests import Question, no_files
from scalewise.ui.solve import solve
from scalewise.ui.state import read_plan
from scalewise.units import parse

if TYPE_CHECKING:
    from scalewise.cli.inputs import Question as Nouns
    from scalewise.step.result import Estimate

TOKENS_PER_PARAMETER = 20.0
"""Token budget where none is given, tokens per parameter: `BUDGET_SOURCE`."""
BUDGET_SOURCE = (
    "about what Hoffmann et al. 2022 find compute-optimal (arXiv 2203.15556): their Chinchilla has "
    "70 B parameters and saw 1.4 T tokens"
)

TOKENS_PER_STEP = 2**22
"""Tokens of a step where no batch is given: `BATCH_SOURCE`."""
BATCH_SOURCE = (
    "4 Mi, the power of two next to the 4 M tokens with which all sizes of Llama 2 were trained "
    "(arXiv 2307.09288, table 1)"
)

MOST_GPUS = 2**20
"""Most accelerators of one question: beyond any cluster."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question as nouns, answered."""

    question: Question
    """With every name and number filled in, strategy included."""
    nouns: Nouns
    estimate: Estimate
    pinned: bool
    """Whether the strategy was given, and not chosen."""
    tried: int
    """Strategies priced to choose one; 0 where it was given."""
    moved: tuple[str, ...]
    """What had to be changed to make sense of the question, one sentence each."""
    chosen: tuple[str, ...]
    """What was chosen for the user."""


def resolve(question: Question) -> Asked:
    """Answer a question.

    Raises:
        InputError: If a word is not understood, or nothing suits the size and the batch.
    """
    named, chosen = named_question(question)
    moved: list[str] = []
    touched = any(text.strip().startswith("strategy.") for text in named.sets)
    strategy = named.strategy
    if strategy is not None and strategy.strip().lower() in ("best", "auto"):
        strategy = None
    if strategy is not None:
        strategy = _repaired(named, strategy, moved)
    nouns = ask(**flags(replace_strategy(named, strategy)))
    # A changed assumption may be impossible: that is said here, not on the server's terminal.
    with np.errstate(all="ignore"):
        e, tried = _answered(nouns, named.by, given=strategy is not None or touched)
    if not 0.0 < e.step_seconds < float("inf"):
        raise InputError(
            f"with {'; '.join(nouns.changed) or 'these inputs'} a step takes no finite time",
            hint="undo the last change",
        )
    told = [each for each in nouns.chosen if not each.endswith("(--strategy)")]
    return Asked(
        question=replace_strategy(named, str(e.strategy)),
        nouns=replace(nouns, strategy=e.strategy),
        estimate=e,
        pinned=strategy is not None or touched,
        tried=tried,
        moved=tuple(moved),
        chosen=(*chosen, *told),
    )


def _answered(nouns: Nouns, by: str, *, given: bool) -> tuple[Estimate, int]:
    """The estimate of the given strategy, or of a good one, and how many were tried for it."""
    if given:
        e = estimate(nouns.model, nouns.cluster, nouns.workload, nouns.strategy, stack=nouns.stack)
        return e, 0
    check_supported(nouns.model)
    # A strategy is eager or compiled only if it says so, and these do not: the stack stays.
    found = solve(nouns.model, nouns.cluster, nouns.workload, nouns.stack, by=by)
    return found.estimate, found.tried


def named_question(question: Question) -> tuple[Question, list[str]]:
    """Find the names that were meant, and choose batch and budget where none is given.

    Raises:
        InputError: If a name is not known or a number is out of range.
    """
    no_files(question)
    chosen: list[str] = []
    values: dict[str, Any] = {name: getattr(question, name) for name in Question.__struct_fields__}
    values["model"] = find_name("models", question.model)
    values["on"] = find_name("clusters", question.on, also="accelerators")
    model = load_model(values["model"])
    count = _whole(question.gpus, "gpus")
    if not 1 <= count <= MOST_GPUS:
        raise _at("gpus", f"{count:,} accelerators must lie between 1 and {MOST_GPUS:,}")
    values["gpus"] = str(count)
    if question.seq is not None:
        values["seq"] = str(_whole(question.seq, "seq"))
    sequence = int(values["seq"]) if question.seq is not None else 4096
    if model.positions == "learned":
        sequence = min(sequence, model.max_positions) if question.seq is None else sequence
    if not 1 <= sequence <= 2**22:
        raise _at("seq", f"a sequence of {sequence:,} tokens must lie between 1 and {2**22:,}")
    values["seq"] = str(sequence)
    if question.batch is None:
        batch = max(TOKENS_PER_STEP // sequence, 1)
        chosen.append(f"global batch {batch:,} sequences: 4 Mi tokens per step (batch)")
    else:
        batch = _whole(question.batch, "batch")
        if not 1 <= batch <= 2**24:
            raise _at("batch", f"{batch:,} sequences must lie between 1 and {2**24:,}")
    values["batch"] = str(batch)
    if question.tokens is None:
        budget = TOKENS_PER_PARAMETER * model.parameters
        chosen.append("token budget 20 per parameter (tokens)")
        values["tokens"] = f"{budget:.0f}"
    else:
        values["tokens"] = f"{_number(question.tokens, 'tokens', 'tokens'):.0f}"
    return Question(**values), chosen


def flags(question: Question) -> dict[str, Any]:
    """The question as arguments of `cli.inputs.ask`."""
    names = (
        "model", "on", "gpus", "strategy", "seq", "batch", "precision", "stack", "tokens",
        "power_cap", "algorithm", "protocol", "sets",
    )  # fmt: skip
    found = {name: getattr(question, name) for name in names}
    return {name: str(v) if isinstance(v, int) else v for name, v in found.items()}


def plan_flags(path: str) -> dict[str, Any]:
    """A saved plan as arguments of `cli.inputs.ask`, with everything chosen that it leaves out.

    The same choices as on the page, so that one file gives the same digits in both.

    Raises:
        InputError: If there is no such file, it is no plan, or a word of it is not understood.
    """
    asked = resolve(read_plan(path)).question
    return {**flags(asked), "by": asked.by}


def replace_strategy(question: Question, strategy: str | None) -> Question:
    """The same question with another strategy."""
    return msgspec.structs.replace(question, strategy=strategy)


def _repaired(question: Question, text: str, moved: list[str]) -> str | None:
    """Keep a given strategy if it suits the size; else its shape; else none.

    A change of size or batch must not break a plan: the degrees inside a replica stay, and data
    parallelism takes what is left.
    """
    count, batch = int(question.gpus), int(question.batch or 1)
    try:
        given = parse_strategy(text)
        if given.accelerators == count and _divides(given, batch):
            return text
        opened = open_spelling(str(given.with_(accumulation=None)))
    except InputError:
        opened = text
    template = parse_template(opened)
    tries = [template]
    if template.limits is None and template.has_micro_batch:
        tries.append(parse_template("-".join(t for t in opened.split("-") if t[:2] != "mb")))
    for each in tries:
        try:
            filled = str(fill(each, count, batch))
        except InputError:
            continue
        if filled != text:
            moved.append(f"{text} became {filled}: {count:,} accelerators, batch {batch:,}")
        return filled
    moved.append(f"{text} does not suit {count:,} accelerators and a batch of {batch:,}: unpinned")
    return None


def _divides(given: Strategy, batch: int) -> bool:
    steps, rest = divmod(batch, given.micro_batch * given.data_parallel)
    return rest == 0 and given.accumulation in (None, steps)


def _number(text: str | int, kind: str, field: str) -> float:
    try:
        return parse(text, kind)
    except InputError as error:
        raise _at(field, f"{field}: {error}", error.hint) from None


def _whole(text: str | int, field: str) -> int:
    return int(_number(text, "count", field))


def _at(field: str, message: str, hint: str | None = None) -> InputError:
    error = InputError(message, hint=hint)
    error.field = field  # type: ignore[attr-defined]
    return error
