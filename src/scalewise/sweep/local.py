"""Sweeps on this machine: one task after the other, or on several cores.

    for outcomes in computed(work, tasks, jobs=4): ...

Workers are spawned, which is safe with threads and works everywhere: 0.3 s until the first result
where the function needs NumPy. Sending a task costs 0.2 ms, so quick tasks travel in chunks of
about 0.1 s, which is also all that a killed worker can lose.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from scalewise.errors import ScalewiseError
from scalewise.sweep.work import (
    Keyed,
    Outcome,
    Work,
    compute,
    compute_elsewhere,
    prepare_worker,
)

Outcomes = Generator[list[Outcome], None, None]
"""Some outcomes at a time; closing it ends the work."""

CHUNK_SECONDS = 0.1
"""How long a chunk should take."""

AHEAD = 2
"""Chunks under way per worker: one that runs, one that waits, so that no worker idles."""


def computed(work: Work, tasks: Sequence[Keyed], *, jobs: int) -> Outcomes:
    """Compute tasks, handing out outcomes as they get ready.

    Stopping early (an exception or `close`) ends the workers at once.

    Args:
        work: What to do.
        tasks: What to do it to.
        jobs: Worker processes; with 1, or for a single task, this process does it.

    Yields:
        Some outcomes, in no particular order.

    Raises:
        ScalewiseError: If a worker was killed.
    """
    if jobs <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield compute(work, [task])
        return
    yield from _pooled(work, tasks, min(jobs, len(tasks)))


def _pooled(work: Work, tasks: Sequence[Keyed], jobs: int) -> Outcomes:
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=prepare_worker
    )
    waiting = deque(tasks)
    running: set[Future[tuple[list[Outcome], float]]] = set()
    seconds = 0.0
    count = 0
    try:
        while waiting or running:
            while waiting and len(running) < AHEAD * jobs:
                size = chunk_size(seconds / count if count else None, len(waiting), jobs)
                chunk = [waiting.popleft() for _ in range(size)]
                running.add(executor.submit(compute_elsewhere, work, chunk))
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            outcomes: list[Outcome] = []
            broken: BrokenProcessPool | None = None
            for future in finished:
                try:
                    some, took = future.result()
                except BrokenProcessPool as error:
                    broken = error
                    continue
                outcomes += some
                seconds += took
                count += len(some)
            if outcomes:
                yield outcomes
            if broken is not None:
                raise broken
    except BrokenProcessPool as error:
        raise ScalewiseError(
            "a worker process was killed or did not start, often for lack of memory",
            hint="what was finished is kept if there is a store; try fewer --jobs",
        ) from error
    finally:
        unfinished = bool(waiting or running)
        executor.shutdown(wait=not unfinished, cancel_futures=True)
        if unfinished:
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
                child.join()


def chunk_size(seconds: float | None, left: int, jobs: int) -> int:
    """How many tasks to hand over at once.

    Args:
        seconds: What a task took so far, on average; None before the first is done.
        left: Tasks not handed over yet.
        jobs: Workers.

    Returns:
        At least 1, and never so many that workers run out of tasks while others have a heap.
    """
    if seconds is None:
        return 1
    fair = max(1, left // (AHEAD * jobs))
    return max(1, min(fair, int(CHUNK_SECONDS / max(seconds, 1e-6))))
