"""Sweeps: a list of independent tasks, each computed once, on this machine or on Slurm.

    for index, price in run(tasks, price_of, result_type=Price, store="sweep.db", jobs=8):
        ...
    run_all(tasks, price_of, result_type=Price, slurm=SlurmOptions(partition="cpu"), store="s.db")

Stored results come first and are never computed again; new ones are stored as they are ready. An
interrupted sweep is resumed by running it again, and sweeps that share a store share their points.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from scalewise.errors import InputError, ScalewiseError
from scalewise.sweep.fingerprint import key_of
from scalewise.sweep.local import computed
from scalewise.sweep.store import Store, StoreError, say_on_stderr
from scalewise.sweep.work import Failure, Keyed, Work, record_of

if TYPE_CHECKING:
    from scalewise.sweep.slurm import SlurmOptions

R = TypeVar("R")

SHOWN = 160
"""Characters of a task in a message."""


def run(
    tasks: Iterable[msgspec.Struct],
    function: Callable[[Any], R],
    *,
    result_type: Any,
    store: Store | str | Path | None = None,
    jobs: int = 1,
    slurm: SlurmOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[tuple[int, R]]:
    """Compute every task, yielding results as they get ready.

    Equal tasks are computed once. If the store cannot be written any more (a full disk), that is
    said in one sentence and the sweep goes on without it: results are still yielded.

    Args:
        tasks: Frozen structs; what a point is computed from.
        function: Computes one point. It stands at the top of a module, because workers import it
            by name; a script that uses `jobs` needs the usual `if __name__ == "__main__":`.
        result_type: What the function returns: a struct, or a union of tagged ones.
        store: Where results are kept, open or as a path; None keeps nothing.
        jobs: Processes on this machine; 0 for one per core.
        slurm: If given, compute on a Slurm cluster instead; needs a store.
        progress: Told how many results there are, and of how many.
        say: Told in one sentence what people should know; by default printed on stderr.

    Returns:
        An iterator of (position in `tasks`, result): stored ones first, then as they get ready.

    Raises:
        InputError: If an argument is wrong, or a task's input is; the message names the task.
        ScalewiseError: If a task or a worker failed. What was finished is in the store.
    """
    listed = list(tasks)
    for task in listed:
        if not isinstance(task, msgspec.Struct):
            raise InputError(f"a task is a msgspec struct, not {task!r}")
    if jobs < 0:
        raise InputError(f"jobs = {jobs} is negative", hint="use 0 for all cores")
    if slurm is not None and store is None:
        raise InputError(
            "a sweep on Slurm needs a store, which remembers the jobs it submitted",
            hint="name a file with --store",
        )
    sweep: _Sweep[R] = _Sweep(
        tasks=listed, work=Work.of(function), result_type=result_type, progress=progress, say=say
    )
    if slurm is not None:
        from scalewise.slurm.queue import require_slurm
        from scalewise.sweep.slurm import NO_SLURM

        if sweep.work.name.startswith("__main__."):
            raise InputError(
                f"jobs cannot import {function.__name__} from the script that submits them",
                hint="move it into a module of its own",
            )
        require_slurm(NO_SLURM)
    return sweep.results(store, jobs or cores(), slurm)


def run_all(
    tasks: Iterable[msgspec.Struct], function: Callable[[Any], R], **options: Any
) -> list[R]:
    """Compute every task and return the results in the order of the tasks.

    Args:
        tasks: See `run`.
        function: See `run`.
        **options: See `run`.
    """
    listed = list(tasks)
    found = dict(run(listed, function, **options))
    return [found[index] for index in range(len(listed))]


def cores() -> int:
    """Cores this process may use, which a batch system or a container may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Sweep(Generic[R]):
    """One sweep on its way: which tasks share a point, and what is done."""

    def __init__(
        self,
        *,
        tasks: Sequence[msgspec.Struct],
        work: Work,
        result_type: Any,
        progress: Callable[[int, int], None] | None,
        say: Callable[[str], None] | None,
    ) -> None:
        self.tasks = tasks
        self.work = work
        self.decoder: msgspec.msgpack.Decoder[R] = msgspec.msgpack.Decoder(result_type)
        self.progress = progress
        self.say = say or say_on_stderr
        self.done = 0
        self.places: dict[str, list[int]] = {}
        for index, task in enumerate(tasks):
            key = key_of(work.name, task, work.fingerprint)
            self.places.setdefault(key, []).append(index)

    def results(
        self, store: Store | str | Path | None, jobs: int, slurm: SlurmOptions | None
    ) -> Iterator[tuple[int, R]]:
        """Yield what the store knows, then what is computed."""
        opened = store if isinstance(store, Store) or store is None else Store(store, say=self.say)
        try:
            known = {} if opened is None else opened.get(self.places)
            pending: list[Keyed] = []
            for key, places in self.places.items():
                result = self._decoded(known.get(key))
                if result is None:
                    pending.append((key, self.tasks[places[0]]))
                else:
                    yield from self._at(key, result[0])
            if pending:
                yield from self._computed(pending, opened, jobs, slurm)
        except KeyboardInterrupt:
            if opened is not None and slurm is None:
                self.say(
                    f"{self.done} of {len(self.tasks)} results are in {opened.path}: run the same "
                    "again to resume"
                )
            raise
        finally:
            if opened is not None and opened is not store:
                opened.close()

    def _computed(
        self, pending: list[Keyed], store: Store | None, jobs: int, slurm: SlurmOptions | None
    ) -> Iterator[tuple[int, R]]:
        """Compute what is missing, keep it, hand it out."""
        if slurm is None:
            source = computed(self.work, pending, jobs=jobs)
        else:
            from scalewise.sweep.slurm import ChunkRun

            assert store is not None
            source = ChunkRun(self.work, pending, store, slurm, self.say).results()
        # Results of jobs are kept before their job is forgotten, which only `slurm` can do in time.
        keeping = store if slurm is None else None
        # Closed whatever happens, so that workers end with the sweep.
        with closing(source):
            for outcomes in source:
                good = [one for one in outcomes if one.failure is None]
                results = [self.decoder.decode(one.result) for one in good]
                if keeping is not None:
                    try:
                        keeping.put(
                            [record_of(self.work, self._task(one.key), one) for one in good]
                        )
                    except StoreError as error:
                        self.say(f"{error}; results from here on are not kept")
                        keeping = None
                for one, result in zip(good, results, strict=True):
                    yield from self._at(one.key, result)
                for one in outcomes:
                    if one.failure is not None:
                        raise self._error(one.key, one.failure)

    def _at(self, key: str, result: R) -> Iterator[tuple[int, R]]:
        """Yield a result at every place that asked for it."""
        places = self.places[key]
        self.done += len(places)
        if self.progress is not None:
            self.progress(self.done, len(self.tasks))
        for index in places:
            yield index, result

    def _decoded(self, written: bytes | None) -> tuple[R] | None:
        """Read a stored result; one that does not fit the type any more counts as missing."""
        if written is None:
            return None
        try:
            return (self.decoder.decode(written),)
        except ValueError:
            return None

    def _task(self, key: str) -> msgspec.Struct:
        return self.tasks[self.places[key][0]]

    def _error(self, key: str, failure: Failure) -> Exception:
        """The failure of one task as an exception that names it."""
        index = self.places[key][0]
        text = msgspec.json.encode(self.tasks[index]).decode()
        short = text if len(text) <= SHOWN else text[:SHOWN] + "..."
        message = f"task {index + 1} of {len(self.tasks)}, {short}: {failure.message}"
        if failure.kind == "bug":
            error = RuntimeError(message)
            error.add_note(failure.trace)
            return error
        kind = InputError if failure.kind == "input" else ScalewiseError
        return kind(message, hint=failure.hint)
