"""Task graph of a step: tasks, their streams, dependencies and shared resources.

    graph = Graph()
    lane = graph.stream()                      # runs its tasks one after another, in order
    link = graph.resource()                    # one task at a time, first come first served
    a = graph.add(1e-3, stream=lane)
    b = graph.add(2e-3, after=(a,), resources=(link,))

A graph has no times: `engine.simulation` computes them. Plain lists, because a step can have a
million tasks and each needs a few list cells.
"""

from __future__ import annotations

from collections.abc import Sequence

NONE = -1
"""No stream, no rank."""


class Graph:
    """Tasks in the order in which they were added; a task is its index in the lists."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        """Duration of each task without contention."""
        self.waits_for: list[int] = []
        """Number of tasks that each task waits for."""
        self.followers: list[list[int]] = []
        """Tasks that wait for the end of each task."""
        self.start_followers: list[list[int] | None] = []
        """Tasks that wait for the start of each task: a prefetch is issued when a block starts."""
        self.resources: list[tuple[int, ...]] = []
        """Resources that each task occupies."""
        self.rank: list[int] = []
        """Rank whose compute it slows, or whose communication slows it; NONE without contention."""
        self.slows: list[bool] = []
        """Whether it slows compute of the rank."""
        self.streams = 0
        self.resource_count = 0
        self._last_of_stream: list[int] = []

    def __len__(self) -> int:
        return len(self.seconds)

    def stream(self) -> int:
        """Add a stream: its tasks run in the order in which they are added."""
        self._last_of_stream.append(NONE)
        self.streams += 1
        return self.streams - 1

    def resource(self) -> int:
        """Add a resource: one task at a time, in the order in which they become ready."""
        self.resource_count += 1
        return self.resource_count - 1

    def last(self, stream: int) -> int:
        """Return the task that was added to a stream last, or NONE."""
        return self._last_of_stream[stream]

    def add(
        self,
        seconds: float,
        *,
        stream: int = NONE,
        after: Sequence[int] = (),
        after_start: int = NONE,
        resources: tuple[int, ...] = (),
        rank: int = NONE,
        slows: bool = False,
    ) -> int:
        """Add a task.

        Args:
            seconds: Duration without contention.
            stream: Stream whose order it keeps.
            after: Tasks that must have ended; NONE is ignored.
            after_start: A task that must have started.
            resources: Resources that it occupies.
            rank: With `slows`, the rank whose compute it slows; without, the rank whose
                communication slows it.
            slows: Whether it is communication that slows compute.

        Returns:
            Its index.
        """
        task = len(self.seconds)
        waits = 0
        for other in after:
            if other >= 0:
                self.followers[other].append(task)
                waits += 1
        if after_start >= 0:
            early = self.start_followers[after_start]
            if early is None:
                self.start_followers[after_start] = [task]
            else:
                early.append(task)
            waits += 1
        if stream >= 0:
            before = self._last_of_stream[stream]
            if before >= 0:
                self.followers[before].append(task)
                waits += 1
            self._last_of_stream[stream] = task
        self.seconds.append(seconds)
        self.waits_for.append(waits)
        self.followers.append([])
        self.start_followers.append(None)
        self.resources.append(resources)
        self.rank.append(rank)
        self.slows.append(slows)
        return task

    def wait(self, task: int, other: int) -> None:
        """Make an existing task wait for the end of another."""
        self.followers[other].append(task)
        self.waits_for[task] += 1
