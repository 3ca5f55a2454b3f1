"""Questions of the web UI: catalog names only, a token budget, a strategy that follows the size.

    answered = resolve(Question(model="llama 2 7b", gpus="512", strategy="fsdp256-mb2"))
    answered.estimate.strategy      # fsdp512-mb2
    answered.moved                  # ("fsdp256-mb2 became fsdp512-mb2: 512 GPUs, batch 1,024",)

Everything else is `ask.resolve`, as on the command line: same words, same answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from scalewise.ask import resolve as ask
from scalewise.ask.defaults import Default, default_tokens
from scalewise.ask.question import Question
from scalewise.ask.resolve import Asked, Inputs
from scalewise.errors import InputError
from scalewise.explore.templates import BEST, choices, parse_template
from scalewise.report.scale_words import open_spelling
from scalewise.step.result import Estimate
from scalewise.strategy import Strategy
from scalewise.ui.requests import no_files


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A question as inputs, answered."""

    asked: Asked
    estimate: Estimate
    moved: tuple[str, ...]
    """What was changed of the strategy to suit size and batch, one sentence each."""

    @property
    def question(self) -> Question:
        """With every name and number filled in."""
        return self.asked.question

    @property
    def defaults(self) -> tuple[Default, ...]:
        """What was chosen for the user."""
        return self.asked.defaults


def resolve(question: Question) -> Answered:
    """Answer a question.

    Raises:
        InputError: If a word is not understood, or nothing suits the size and the batch.
    """
    no_files(question)
    found = inputs(question)
    strategy = question.strategy
    if strategy is not None and strategy.strip().lower() not in (BEST, "auto"):
        strategy = _repaired(found, strategy, batch=question.batch is not None)
    words = msgspec.structs.replace(question, strategy=strategy, tokens=found.question.tokens)
    asked = ask.resolve(words)
    e = asked.estimate()
    budget = [each for each in found.defaults if each.flag == "--tokens"]
    asked = replace(asked, defaults=(*asked.defaults, *budget))
    moved = () if strategy == question.strategy else (_moved(question.strategy, strategy, asked),)
    return Answered(asked=asked, estimate=e, moved=moved)


def _moved(before: str | None, after: str | None, asked: Asked) -> str:
    """Return what became of a strategy, one sentence."""
    count, batch = asked.cluster.accelerators, asked.workload.global_batch
    if after is None:
        return f"{before} does not suit {count:,} GPUs and a batch of {batch:,}: unpinned"
    return f"{before} became {asked.strategy}: {count:,} GPUs, batch {batch:,}"


def inputs(question: Question) -> Inputs:
    """The inputs of a question whose strategy does not matter, with a token budget.

    The views show days and dollars of the whole run, so a budget is chosen where none is given.

    Raises:
        InputError: If a word is not understood.
    """
    no_files(question)
    found = ask.inputs(msgspec.structs.replace(question, strategy=None))
    if found.workload.tokens is not None:
        return found
    tokens, default = default_tokens(found.model)
    return replace(
        found,
        question=msgspec.structs.replace(found.question, tokens=tokens),
        workload=msgspec.structs.replace(found.workload, tokens=tokens),
        defaults=(*found.defaults, default),
    )


def _repaired(found: Inputs, text: str, *, batch: bool) -> str | None:
    """Keep a given strategy if it suits the size; else its shape without sizes; else none.

    A change of size or batch must not break a plan: the degrees inside a replica stay, and data
    parallelism takes what is left.

    Args:
        found: Size and batch.
        text: The strategy.
        batch: Whether the batch was given; one that is chosen follows the strategy.
    """
    count, sequences = found.cluster.accelerators, found.workload.global_batch
    template = parse_template(text)
    if not template.fixed:
        return text
    given = template.base
    if given.accelerators == count and (not batch or _divides(given, sequences)):
        return text
    opened = open_spelling(str(given.with_(num_microbatches=None)))
    for shape in (opened, "-".join(part for part in opened.split("-") if part[:2] != "mb")):
        try:
            choices(parse_template(shape), count, sequences)
        except InputError:
            continue
        return shape
    return None


def _divides(given: Strategy, batch: int) -> bool:
    steps, rest = divmod(batch, given.micro_batch * given.data_parallel)
    return rest == 0 and given.num_microbatches in (None, steps)
