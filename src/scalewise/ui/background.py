"""Worker processes of the web UI, and tickets that can be stopped.

    with Workers() as workers:
        ticket = workers.ticket()
        ticket.run(function, *arguments)       # in a process; raises Stopped after ticket.stop()

A process has its own interpreter, so a search on both cores leaves the event loop free to answer
sliders. A client that goes away stops its ticket: workers look at the flag after every piece of a
search, some milliseconds each, and give up.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from scalewise.errors import ScalewiseError

T = TypeVar("T")

SLOTS = 256
"""Tickets at one time: more than any page asks."""

KINDNESS = 5
"""How much workers give way to the process that answers sliders, as `nice` counts."""


class Stopped(ScalewiseError):  # noqa: N818 - nothing went wrong: the client left
    """Nobody waits for the answer any more."""


class Busy(ScalewiseError):  # noqa: N818 - the same
    """More is under way than can be."""


# What a worker process knows of the server: flags to look at, and where to write progress.
_flags: Any = None
_done: Any = None


def _start(flags: Any, done: Any, parent: int) -> None:
    """Prepare a worker: be kind, import what it will need, go when the server is gone."""
    global _flags, _done
    _flags, _done = flags, done
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if hasattr(os, "nice"):
        os.nice(KINDNESS)
    import signal

    # Ctrl-C is for the server, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    from scalewise.ui import api  # noqa: F401


def _watch(parent: int) -> None:
    """End this worker when the server was killed without a chance to say so."""
    while os.getppid() == parent:
        time.sleep(2.0)
    os._exit(0)


def _call(slot: int, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
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

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Compute in a process."""
        future = self._workers.submit(_call, self.slot, function, arguments)
        self.futures.append(future)
        return future

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Compute in a process, and wait.

        Raises:
            Stopped: If the ticket was stopped meanwhile.
        """
        return self._wait(self.submit(function, *arguments))

    def _wait(self, future: Future[T]) -> T:
        from concurrent.futures import CancelledError

        try:
            return future.result()
        except CancelledError:
            raise Stopped("stopped") from None
        except BrokenProcessPool:
            self._workers.renew()
            raise ScalewiseError(
                "a worker ended in the middle of this", hint="try again; it was started anew"
            ) from None


class Workers:
    """A small pool of processes."""

    def __init__(self, count: int = 2) -> None:
        # Threads of the server must not be copied half-way: no plain fork.
        self._context = multiprocessing.get_context("spawn")
        self.flags: Any = self._context.RawArray("b", SLOTS)
        self.done: Any = self._context.RawArray("d", SLOTS)
        self.count = count
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
            initargs=(self.flags, self.done, os.getpid()),
        )

    def renew(self) -> None:
        """Start anew after a worker ended on its own."""
        with self._lock:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._new()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Compute in a process."""
        try:
            return self._pool.submit(function, *arguments)
        except BrokenProcessPool:
            self.renew()
            return self._pool.submit(function, *arguments)

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
                raise Busy("too many searches are under way", hint="try again in a moment")
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
