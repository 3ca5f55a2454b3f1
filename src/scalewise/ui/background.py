"""Worker processes of the web UI, and tickets that can be stopped.

    with Workers() as workers:
        answer = await workers.answer(function, *arguments)       # in a process, without a thread
        ticket = workers.ticket()
        await workers.answer(function, ticket.slot, ticket=ticket)    # Stopped after ticket.stop()

A process has its own interpreter, so a search on both cores leaves the event loop free to answer
sliders. A client that goes away stops its ticket: workers look at the flag after every piece of a
search, some milliseconds each, and give up. A worker that is killed takes all jobs of its pool with
it: the pool is replaced once, and its jobs are computed again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from scalewise.errors import ScalewiseError

T = TypeVar("T")

SLOTS = 256
"""Tickets at one time: more than any page asks."""

KINDNESS = 10
"""How much searches give way to the processes that answer sliders, as `nice` counts."""

ATTEMPTS = 3
"""How often a job is computed whose worker is killed: most likely another job is to blame."""


class Stopped(ScalewiseError):  # noqa: N818 - nothing went wrong: the client left
    """Nobody waits for the answer any more."""


class Busy(ScalewiseError):  # noqa: N818 - the same
    """More is under way than can be."""


class WorkerLostError(ScalewiseError):
    """Workers were killed whenever they computed this."""


# What a worker process knows of the server: flags to look at, and where to write progress.
_flags: Any = None
_done: Any = None


def _start(flags: Any, done: Any, parent: int, kindness: int) -> None:
    """Prepare a worker: be kind, import what it will need, go when the server is gone."""
    # Ctrl-C is for the server, which then ends its workers; until here it was blocked.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    global _flags, _done
    _flags, _done = flags, done
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if hasattr(os, "nice"):
        os.nice(kindness)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    from scalewise.ui import api  # noqa: F401


def _watch(parent: int) -> None:
    """End this worker when the server was killed without a chance to say so."""
    while os.getppid() == parent:
        time.sleep(2.0)
    os._exit(0)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Start processes with Ctrl-C blocked, which they inherit until they ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _call(slot: int | None, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    if slot is not None:
        check(slot)
    return function(*arguments)


def check(slot: int, done: int = 0, size: int = 0) -> None:
    """Report how far a job is, and stop it if its client left: a `progress` for `search`.

    Raises:
        Stopped: If its ticket was stopped.
    """
    if size:
        _done[slot] = done / size
    if _flags[slot]:
        raise Stopped("stopped")


class Ticket:
    """What one request has under way."""

    def __init__(self, workers: Workers, slot: int) -> None:
        self._workers, self.slot = workers, slot
        self.futures: list[Future[Any]] = []
        self.started = False

    @property
    def stopped(self) -> bool:
        """Whether its client left."""
        return bool(self._workers.flags[self.slot])

    @property
    def progress(self) -> float:
        """How much of its search is done, 0 to 1."""
        return float(self._workers.done[self.slot])

    def stop(self) -> None:
        """Give up: what has not begun will not, what runs ends at its next look."""
        self._workers.flags[self.slot] = 1
        for future in self.futures:
            future.cancel()


class Workers:
    """A small pool of processes."""

    def __init__(self, count: int = 2, *, kindness: int = KINDNESS) -> None:
        # Threads of the server must not be copied half-way: no plain fork.
        self._context = multiprocessing.get_context("spawn")
        self.flags: Any = self._context.RawArray("b", SLOTS)
        self.done: Any = self._context.RawArray("d", SLOTS)
        self.count, self.kindness = count, kindness
        self._free = list(range(SLOTS))
        self._lock = threading.Lock()
        self._pool = self._new()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.count,
            mp_context=self._context,
            initializer=_start,
            initargs=(self.flags, self.done, os.getpid(), self.kindness),
        )

    def _renew(self, broken: ProcessPoolExecutor) -> None:
        """Replace a pool that lost a worker; whoever notices second finds the new one."""
        with self._lock:
            if self._pool is broken:
                broken.shutdown(wait=False)
                self._pool = self._new()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Compute in a process."""
        return self._submit(function, arguments)[1]

    def _submit(
        self, function: Callable[..., T], arguments: tuple[Any, ...]
    ) -> tuple[ProcessPoolExecutor, Future[T]]:
        """Return the pool that computes, and the future."""
        for _ in range(ATTEMPTS):
            pool = self._pool
            try:
                with _no_interrupt():
                    return pool, pool.submit(function, *arguments)
            except BrokenProcessPool:
                self._renew(pool)
            except RuntimeError:
                # Another thread has just replaced and shut down this pool.
                if self._pool is pool:
                    raise
        raise WorkerLostError("workers end as soon as they start", hint="scalewise doctor")

    async def answer(
        self, function: Callable[..., T], *arguments: Any, ticket: Ticket | None = None
    ) -> T:
        """Compute in a process, and again if it is killed.

        Args:
            function: At the top of a module.
            *arguments: Its arguments.
            ticket: With it the job can be stopped.

        Raises:
            Stopped: If the ticket was stopped meanwhile.
            WorkerLostError: If every worker that computed this was killed.
        """
        for _ in range(ATTEMPTS):
            if ticket is not None and ticket.stopped:
                raise Stopped("stopped")
            slot = None if ticket is None else ticket.slot
            pool, future = self._submit(_call, (slot, function, arguments))
            if ticket is not None:
                ticket.futures.append(future)
            try:
                return await asyncio.wrap_future(future)
            except BrokenProcessPool:
                self._renew(pool)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if ticket is None or not ticket.stopped or (task and task.cancelling()):
                    raise
                raise Stopped("stopped") from None
        raise WorkerLostError(
            f"the worker was killed {ATTEMPTS} times while it computed this",
            hint="ask for fewer sizes or a smaller cluster",
        )

    def warm(self) -> None:
        """Start all processes now, so that the first question does not wait for them."""
        for _ in range(self.count):
            self.submit(time.sleep, 0.05)

    def ticket(self) -> Ticket:
        """Open a ticket; `close_ticket` gives its place back.

        Raises:
            Busy: If too many are open.
        """
        with self._lock:
            if not self._free:
                raise Busy(
                    f"the server is busy: {SLOTS} searches are under way",
                    hint="ask again in a moment",
                )
            slot = self._free.pop()
        self.flags[slot], self.done[slot] = 0, 0.0
        return Ticket(self, slot)

    def close_ticket(self, ticket: Ticket) -> None:
        """Give a ticket's place back once nothing of it runs any more."""
        pending = [future for future in ticket.futures if not future.done()]
        if pending:
            # Its flag must stay up until the last job has seen it.
            ticket.stop()
            left = [len(pending)]

            def seen(_: object) -> None:
                with self._lock:
                    left[0] -= 1
                    if not left[0]:
                        self._free.append(ticket.slot)

            for future in pending:
                future.add_done_callback(seen)
            return
        with self._lock:
            self._free.append(ticket.slot)

    def close(self) -> None:
        """End all processes."""
        for slot in range(SLOTS):
            self.flags[slot] = 1
        self._pool.shutdown(wait=True, cancel_futures=True)


class Cache:
    """Answers by question, the most recent ones, up to so many bytes."""

    def __init__(self, most_bytes: int = 16 * 2**20) -> None:
        self._most, self._size = most_bytes, 0
        self._kept: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, bytes]) -> bytes | None:
        """The answer, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: tuple[str, bytes], answer: bytes) -> None:
        """Keep an answer, and forget the oldest ones if there are too many."""
        size = len(answer) + len(key[1]) + 200
        if size > self._most // 4:
            return
        with self._lock:
            old = self._kept.pop(key, None)
            if old is not None:
                self._size -= len(old) + len(key[1]) + 200
            self._kept[key] = answer
            self._size += size
            while self._size > self._most:
                (_, body), gone = self._kept.popitem(last=False)
                self._size -= len(gone) + len(body) + 200

    def __len__(self) -> int:
        return len(self._kept)
