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

NEEDED = ("model", "on")
"""Fields of a question that nothing is chosen for."""


def question_options(
    *,
    leave: Sequence[str] = (),
    instead: Mapping[str, tuple[str, str]] | None = None,
    unplanned: Sequence[str] = (),
    aside: str = "",
    silent: Sequence[str] = (),
    unless: str = "",
    partial: bool = False,
) -> Callable[[Command], Command]:
    """Add MODEL and the flags of a question; the command gets them as one `question`.

    Args:
        leave: Fields that the command has no use for.
        instead: Metavar and help of fields that mean more here, such as a list.
        unplanned: Fields that a plan file does not fill in, because they mean more here.
        aside: Name of the command, if it has fields of its own.
        silent: Fields without a flag here, which a plan file fills in.
        unless: Option that stands for MODEL and --on.
        partial: Whether the command gets `words`, those that are given, and completes them itself.
    """
    fields = [
        field for name, field in question_fields(aside).items() if name not in (*leave, *silent)
    ]
    changed = instead or {}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            words = {field.name: given.pop(field.name) for field in fields}
            planned = [field.name for field in fields if field.name not in unplanned]
            found = _words(words, given.pop("plan"), [*planned, *silent])
            if partial:
                return command(words=found, **given)
            needed = () if given.get(unless) else tuple(name for name in NEEDED if name in words)
            return command(question=complete(found, needed), **given)

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
    if field.switch:
        words = f"{text.rstrip('.')}."
        return click.option(field.flag, field.name, is_flag=True, default=None, help=words)
    default = f" [{field.default}]" if field.default and field.name != "on" else ""
    return click.option(
        field.flag,
        field.name,
        type=click.Choice(field.choices) if field.choices else (float if field.number else str),
        metavar=None if field.choices else metavar,
        multiple=field.repeated,
        help=f"{text.rstrip('.')}.{default}",
    )


def _words(words: dict[str, Any], path: str | None, planned: Sequence[str]) -> dict[str, Any]:
    """The words of the flags, over those of a plan file."""
    given = {name: value for name, value in words.items() if value not in (None, ())}
    for name, value in given.items():
        if isinstance(value, str) and not value.strip():
            flag = question_fields()[name].flag
            raise InputError(f"{flag} is empty", hint=f"give {flag} a value, or leave it out")
    if path is not None:
        from scalewise.ask.state import read_plan

        plan = read_plan(path)
        filled = {name: getattr(plan, name) for name in planned}
        return {name: value for name, value in filled.items() if value not in (None, ())} | given
    return given


def complete(given: Mapping[str, Any], needed: Sequence[str] = NEEDED) -> Question:
    """Return the question of some words.

    Args:
        given: The words by field.
        needed: Fields that must be among them.

    Raises:
        InputError: If the model or the cluster is missing, or a value cannot be.
    """
    for name in needed:
        if name not in given:
            flag = question_fields()[name].flag
            raise InputError(
                f"{flag} is missing",
                hint="scalewise models lists models, scalewise clusters clusters",
            )
    return question_from(given)


def stated_fields(question: Question) -> dict[str, Any]:
    """Return the fields of a question that stand on the command line, not in a plan file."""
    context, source = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    return {
        name: getattr(question, name)
        for name in question.__struct_fields__
        if context.get_parameter_source(name) == source
    }
