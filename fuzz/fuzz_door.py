"""A door: a way in, with a function that draws inputs and one that answers or refuses.

    Door(draw=question, run=_estimate).check({"model": "llama-2-7b", "gpus": "64"})     # "answered"

A door answers with finite numbers or refuses with an `InputError`. Anything else is a finding: an
exception, a RuntimeWarning, NaN or infinity, a negative time, or an answer beyond physics.
"""

from __future__ import annotations

import math
import os
import random
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from scalewise.errors import InputError, ScalewiseError

ANSWERED, REFUSED = "answered", "refused"


class FindingError(AssertionError):
    """An answer that is none."""


class Priced(dict):  # type: ignore[type-arg]
    """Numbers of a priced step."""


class Refusal(NamedTuple):
    """What a door returns that refuses otherwise than by an exception."""

    place: str
    """Where, or in which words."""


class Outcome(NamedTuple):
    """What became of an input."""

    kind: str
    """`ANSWERED` or `REFUSED`."""
    mark: str
    """The line of code that refused, or the answer: how much of the code inputs reach."""
    priced: bool = False
    """Whether a step was priced."""


@dataclass(frozen=True, kw_only=True)
class Door:
    """One way in."""

    draw: Callable[[random.Random], Any]
    """Draws an input."""
    run: Callable[[Any], Any]
    """Answers, or raises an InputError."""
    share: int = 1
    """Inputs of a soak, in parts of all doors: cheap doors take more."""

    def inputs(self) -> Any:
        """Return a Hypothesis strategy of its inputs: the same draws, made by Hypothesis."""
        from hypothesis import strategies as st

        return st.randoms(use_true_random=False).map(self.draw)

    def check(self, given: Any) -> str:
        """Return whether an input was answered or refused; see `outcome`."""
        return self.outcome(given).kind

    def outcome(self, given: Any) -> Outcome:
        """Return what became of an input.

        Raises:
            Exception: Whatever it should not have raised.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                answer = self.run(given)
            except InputError as error:
                return _refused(error)
        if isinstance(answer, Refusal):
            return Outcome(REFUSED, answer.place)
        check_numbers(answer)
        return Outcome(ANSWERED, repr(answer), priced=isinstance(answer, Priced))


def _refused(error: ScalewiseError) -> Outcome:
    sentence = str(error)
    if not sentence or len(sentence) > 3000 or "Traceback" in sentence:
        raise FindingError(f"no sentence: {sentence[:200]!r}")
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = "" if last is None else f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
    return Outcome(REFUSED, place)


def check_numbers(answer: Any, where: str = "answer") -> None:
    """Refuse NaN and infinity anywhere in plain data."""
    if isinstance(answer, float):
        if not math.isfinite(answer):
            raise FindingError(f"{where} = {answer}")
    elif isinstance(answer, dict):
        for key, value in answer.items():
            check_numbers(value, f"{where}.{key}")
    elif isinstance(answer, list | tuple):
        for place, value in enumerate(answer):
            check_numbers(value, f"{where}[{place}]")


def physical(e: Any, *, forced: bool = False) -> Priced:
    """The numbers of an estimate.

    MFU above 100%, terms that are not the step and parts that are not the memory are findings.
    """
    if not e.step_seconds > 0.0 and e.feasible:
        raise FindingError(f"step time {e.step_seconds}")
    if e.feasible and not forced and e.convention == "causal" and e.hfu > 1.0:
        raise FindingError(f"HFU {e.hfu:.1%}: {e.strategy} on {e.cluster.name}")
    for whole, parts in ((e.step_seconds, e.terms), (e.memory_bytes, e.memory)):
        if not math.isclose(whole, math.fsum(parts.values()), rel_tol=1e-6):
            raise FindingError(f"{whole} is not the sum of {parts}")
    rate = e.tokens_per_second_per_accelerator
    if not e.low <= rate * (1.0 + 1e-9) or not rate <= e.high * (1.0 + 1e-9):
        raise FindingError(f"{rate} outside of [{e.low}, {e.high}]")
    named = ("step_seconds", "mfu", "hfu", "memory_bytes", "tokens_per_second", "low", "high",
             "joules_per_token", "usd_per_million_tokens", "watts_per_accelerator", "days",
             "run_usd", "run_joules")  # fmt: skip
    return Priced({name: getattr(e, name) for name in named} | e.terms | e.memory)


@cache
def folder() -> Path:
    """A folder in memory that ends with the process."""
    memory = Path("/dev/shm")
    made = tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if memory.is_dir() else None)
    _made.append(made)
    return Path(made.name)


_made: list[Any] = []


_written = count()


def put(name: str, content: bytes) -> Path:
    """Write a file whose version, the time of its change, no file had before.

    Loaded files are kept by version: they are dropped now and then, since a soak has a million.
    """
    from scalewise import catalog

    path, number = folder() / name, next(_written)
    path.write_bytes(content)
    os.utime(path, ns=(number, number))
    if number % 500 == 0:
        catalog._LOADED.clear()
    return path
