"""Options of a question: every field of `Question` as a flag, with --plan beneath them.

    @click.command()
    @question_options()
    def estimate(question: Question, ...): ...

Flags, metavars, help texts and defaults come from the fields and docstrings of `Question`: a new
field is a new flag of every command.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from scalewise.ask.question import Field, Question, question_fields, question_from
from scalewise.errors import InputError

Command = Callable[..., Any]


def question_options(
    *,
    leave: Sequence[str] = (),
    instead: Mapping[str, tuple[str, str]] | None = None,
    unplanned: Sequence[str] = (),
) -> Callable[[Command], Command]:
    """Add MODEL and the flags of a question; the command gets them as one `question`.

    Args:
        leave: Fields that the command has no use for.
        instead: Metavar and help of fields that mean more here, such as a list.
        unplanned: Fields that a plan file does not fill in, because they mean more here.
    """
    fields = [field for name, field in question_fields().items() if name not in leave]
    changed = instead or {}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            words = {field.name: given.pop(field.name) for field in fields}
            planned = [field.name for field in fields if field.name not in unplanned]
            return command(question=_question(words, given.pop("plan"), planned), **given)

        decorated: Command = click.option(
            "--plan", metavar="FILE", help="Plan file that fills in what is not given here."
        )(run)
        for field in reversed(fields):
            decorated = _option(field, *changed.get(field.name, (field.metavar, field.help)))(
                decorated
            )
        return decorated

    return decorate


def _option(field: Field, metavar: str, text: str) -> Callable[[Command], Command]:
    """One field as an argument or a flag."""
    if field.flag == "MODEL":
        return click.argument(field.name, metavar=metavar, required=False)
    default = f" [{field.default}]" if field.default and field.name != "on" else ""
    return click.option(
        field.flag,
        field.name,
        type=click.Choice(field.choices) if field.choices else (float if field.number else str),
        metavar=None if field.choices else metavar,
        multiple=field.repeated,
        help=f"{text.rstrip('.')}.{default}",
    )


def _question(words: dict[str, Any], path: str | None, planned: Sequence[str]) -> Question:
    """The question of the flags, over that of a plan file."""
    given = {name: value for name, value in words.items() if value not in (None, ())}
    for name, value in given.items():
        if isinstance(value, str) and not value.strip():
            flag = question_fields()[name].flag
            raise InputError(f"{flag} is empty", hint=f"give {flag} a value, or leave it out")
    if path is not None:
        from scalewise.ask.state import read_plan

        plan = read_plan(path)
        return question_from({name: getattr(plan, name) for name in planned} | given)
    for name in ("model", "on"):
        if name in words and name not in given:
            flag = question_fields()[name].flag
            raise InputError(
                f"{flag} is missing",
                hint="scalewise models lists models, scalewise clusters clusters",
            )
    return question_from(given)
