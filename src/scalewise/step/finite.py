"""Refusal of results that are no numbers: NaN, infinite, or no time at all.

    check_finite(many)           # one look at an array of step times
    check_row(e)                 # every number of one estimate

Constants far outside of physics overflow or divide by zero somewhere in a step. The result is
refused where it arises, so that no command, page or script takes it for an answer.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.step.estimate import Estimates
    from scalewise.step.result import Estimate


class NotFiniteError(InputError):
    """A result is no number."""


_HINT = "undo the last --set, or correct the file of the model, cluster or stack"


def check_finite(many: Estimates) -> None:
    """Refuse step times that are not positive finite numbers.

    Strategies that cannot run may have any finite time: nobody reads it.

    Raises:
        InputError: Naming the term that is none.
    """
    # NaN fails both comparisons; two numbers cost less than a mask of all.
    seconds = many.step_seconds
    if np.min(seconds, initial=np.inf) > 0.0 and np.max(seconds, initial=0.0) < np.inf:
        return
    for name, part in many.terms.parts().items():
        if not np.all(np.isfinite(part)):
            raise NotFiniteError(f"{_where(many)}: no finite time for {_words(name)}", hint=_HINT)
    if not np.all((seconds > 0.0) | ~many.feasible):
        raise NotFiniteError(f"{_where(many)}: no step time above zero", hint=_HINT)


def check_row(e: Estimate) -> None:
    """Refuse an estimate with a number that is not finite, or below zero if it can run.

    Raises:
        InputError: Naming the number.
    """
    # Rounding leaves terms of -1e-16 where two of them cancel.
    least = -1e-9 * e.step_seconds if e.feasible else -math.inf
    for name, value in _numbers(e):
        if not math.isfinite(value) or value < least:
            raise NotFiniteError(f"{_where(e)}: {_words(name)} = {value:g} cannot be", hint=_HINT)


def _numbers(e: Estimate) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for field in fields(e):
        value: Any = getattr(e, field.name)
        if isinstance(value, float):
            found.append((field.name, value))
        elif isinstance(value, dict):
            found += [(name, part) for name, part in value.items() if isinstance(part, float)]
    return found


def _where(e: Estimates | Estimate) -> str:
    return f"{e.model.name} on {e.cluster.name}"


def _words(name: str) -> str:
    return name.replace("_", " ")
