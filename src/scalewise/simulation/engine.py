"""Discrete-event engine: start and end of every task of a graph.

    times = simulation(graph, contention=0.3, ranks=4)
    times.start[task], times.end[task]

Three rules. A task starts when all its dependencies have ended, and the task before it on its
stream. A resource runs one task at a time, in the order in which they became ready. Compute that
overlaps communication is slowed by `contention` seconds per second of its own overlapped work. This
is the contention of `step.data_parallel`, with the overlap simulated instead of assumed.

The cost is one heap entry per task, two where communication overlapped: linear in tasks, times the
logarithm of concurrent tasks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from scalewise.errors import ScalewiseError
from scalewise.simulation.graph import Graph


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskTimes:
    """Start and end of each task of a graph, seconds from the start of the step."""

    start: list[float]
    end: list[float]

    @property
    def seconds(self) -> float:
        """End of the last task, seconds."""
        return max(self.end, default=0.0)


class DeadlockError(ScalewiseError):
    """Tasks that wait for each other: a schedule that deadlocks."""


def simulation(graph: Graph, *, contention: float = 0.0, ranks: int = 1) -> TaskTimes:
    """Simulate a graph.

    Args:
        graph: Tasks and dependencies.
        contention: Seconds lost per second of compute that communication overlaps.
        ranks: Number of ranks in the graph.

    Raises:
        DeadlockError: If some tasks can never start.
    """
    count = len(graph)
    seconds, resources, rank, slows = graph.seconds, graph.resources, graph.rank, graph.slows
    followers, start_followers = graph.followers, graph.start_followers
    waiting = graph.waits_for.copy()
    start, end = [-1.0] * count, [-1.0] * count
    free = [True] * graph.resource_count
    queues: list[deque[int]] = [deque() for _ in range(graph.resource_count)]
    # Seconds of communication that slows compute of a rank: ended, and running.
    beside, running, since = [0.0] * ranks, [0] * ranks, [0.0] * ranks
    seen = [0.0] * count
    heap: list[tuple[float, int, int, bool]] = []
    order = 0

    def begin(first: int, now: float) -> None:
        """Start a ready task, and the tasks that wait for its start."""
        nonlocal order
        stack = [first]
        while stack:
            task = stack.pop()
            needs = resources[task]
            if needs:
                if not all(free[each] for each in needs):
                    for each in needs:
                        queues[each].append(task)
                    continue
                for each in needs:
                    free[each] = False
            start[task] = now
            owner = rank[task]
            held_up = False
            if owner >= 0:
                if slows[task]:
                    if running[owner] == 0:
                        since[owner] = now
                    running[owner] += 1
                else:
                    held_up = True
                    seen[task] = beside[owner] + (now - since[owner] if running[owner] else 0.0)
            order += 1
            heappush(heap, (now + seconds[task], order, task, held_up))
            early = start_followers[task]
            if early is not None:
                for other in early:
                    waiting[other] -= 1
                    if waiting[other] == 0:
                        stack.append(other)

    def next_of(each: int, now: float) -> None:
        """Give a freed resource to the first task in its queue that can run."""
        queue = queues[each]
        for place, task in enumerate(queue):
            if start[task] >= 0.0:
                continue
            if all(free[other] for other in resources[task]):
                # Copies of it in other queues are dropped when they are reached.
                for _ in range(place + 1):
                    head = queue.popleft()
                    if head != task and start[head] < 0.0:
                        skipped.append(head)
                queue.extendleft(reversed(skipped))
                skipped.clear()
                begin(task, now)
                return

    skipped: list[int] = []
    for task in [task for task in range(count) if waiting[task] == 0]:
        begin(task, 0.0)
    while heap:
        now, _, task, held_up = heappop(heap)
        owner = rank[task]
        if held_up:
            overlap = beside[owner] + (now - since[owner] if running[owner] else 0.0) - seen[task]
            if overlap > 0.0 and contention > 0.0:
                order += 1
                heappush(heap, (now + contention * overlap, order, task, False))
                continue
        elif owner >= 0 and slows[task]:
            running[owner] -= 1
            if running[owner] == 0:
                beside[owner] += now - since[owner]
        end[task] = now
        needs = resources[task]
        for each in needs:
            free[each] = True
        for other in followers[task]:
            waiting[other] -= 1
            if waiting[other] == 0:
                # Tasks that already wait for a resource go first: they were ready before.
                if needs and resources[other]:
                    for each in needs:
                        if free[each]:
                            next_of(each, now)
                begin(other, now)
        for each in needs:
            if free[each]:
                next_of(each, now)
    stuck = sum(1 for each in end if each < 0.0)
    if stuck:
        raise DeadlockError(
            f"{stuck:,} of {count:,} tasks wait for each other and never start",
            hint="this is a bug in the order of a schedule: please report the strategy",
        )
    return TaskTimes(start=start, end=end)
