"""Work of a sweep in any process: compute tasks, and turn errors into outcomes.

    work = Work.of(price)
    outcomes = compute(work, [(key, task), ...])       # one Outcome per task

Results leave a worker encoded, so that a printed result and a stored one are the same bytes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from scalewise.errors import InputError, ScalewiseError
from scalewise.sweep.fingerprint import fingerprint, name_of
from scalewise.sweep.store import Record

Keyed = tuple[str, msgspec.Struct]
"""A task and the name of its point."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a task has no result."""

    kind: Literal["input", "failed", "bug"]
    """Wrong input, something that failed, or an unexpected exception."""
    message: str
    """One sentence."""
    hint: str | None = None
    """What to try next."""
    trace: str = ""
    """Where it happened; only for bugs."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of one task: a result or a failure."""

    key: str
    """Name of the point."""
    result: bytes = b""
    """The encoded result."""
    failure: Failure | None = None
    """Set if there is no result."""


@dataclass(frozen=True)
class Work:
    """What is done to every task of a sweep."""

    function: Callable[[Any], Any]
    """Computes one point."""
    name: str
    """Its qualified name."""
    fingerprint: str
    """Physics and constants that the process which started the sweep has."""

    @classmethod
    def of(cls, function: Callable[[Any], Any]) -> Work:
        """Describe a function.

        Raises:
            InputError: If other processes could not find it.
        """
        return cls(function, name_of(function), fingerprint(function))


def encode_result(result: Any) -> bytes:
    """Write a result down, NumPy's numbers as plain ones."""
    return _ENCODER.encode(result)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a result cannot hold {type(value).__qualname__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")


def record_of(work: Work, task: msgspec.Struct, outcome: Outcome) -> Record:
    """A finished point as it is kept."""
    return Record(
        key=outcome.key,
        function=work.name,
        fingerprint=work.fingerprint,
        task=msgspec.json.encode(task, order="deterministic"),
        result=outcome.result,
        made=time.time(),
    )


def compute(work: Work, tasks: Iterable[Keyed]) -> list[Outcome]:
    """Compute tasks in this process; a failure is an outcome, not an end."""
    return [outcome_of(work, key, task) for key, task in tasks]


def outcome_of(work: Work, key: str, task: msgspec.Struct) -> Outcome:
    """Compute one task."""
    try:
        return Outcome(key=key, result=encode_result(work.function(task)))
    except ScalewiseError as error:
        kind: Literal["input", "failed"] = "input" if isinstance(error, InputError) else "failed"
        return Outcome(key=key, failure=Failure(kind=kind, message=str(error), hint=error.hint))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        failure = Failure(kind="bug", message=message, trace=traceback.format_exc())
        return Outcome(key=key, failure=failure)


def compute_elsewhere(work: Work, tasks: Sequence[Keyed]) -> tuple[list[Outcome], float]:
    """Compute a chunk in another process than the one that named its points.

    Args:
        work: What to do.
        tasks: The chunk.

    Returns:
        Outcomes in order, and the seconds it took.
    """
    start = time.perf_counter()
    changed = _difference(work)
    if changed is None:
        outcomes = compute(work, tasks)
    else:
        outcomes = [Outcome(key=key, failure=changed) for key, _ in tasks]
    return outcomes, time.perf_counter() - start


@lru_cache(maxsize=8)
def _difference(work: Work) -> Failure | None:
    """Refuse to compute under a name that stands for other physics."""
    if fingerprint(work.function) == work.fingerprint:
        return None
    return Failure(
        kind="failed",
        message="scalewise or its catalog is not the same in the worker as where the sweep began",
        hint="start the sweep again; on a cluster, both must see the same files",
    )


def prepare_worker() -> None:
    """Make a process a good worker: quiet on Ctrl-C, on one core, and gone with its parent."""
    # The parent decides what an interrupt means; without this every worker prints a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "numpy" not in sys.modules:
        # Each worker is one of many: a thread per core in each would only be in the way.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """End when the parent is gone, even killed: a worker would wait for work for ever."""
    from multiprocessing import connection, parent_process

    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
