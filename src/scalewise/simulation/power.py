"""Power of a rank over time, by the activity model of `estimate`.

    power_samples(simulation, cluster, rank=0)[0].value      # watts

A block draws the average of its kernels, collectives and waits. A rank that waits for communication
draws like one that communicates; one that waits for another stage is idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.physics.power import COMMUNICATION, COMPUTE, MEMORY, WAITING
from scalewise.simulation.events import Sample

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.simulation.layer import Block
    from scalewise.simulation.simulate import Simulation


def block_activity(block: Block) -> float:
    """Return the average activity of a block: fraction of the range between idle power and cap."""
    if block.seconds <= 0.0:
        return WAITING
    talks = block.tensor + block.context + block.expert
    waits = max(block.seconds - block.busy - talks, 0.0)
    drawn = COMPUTE * block.busy + COMMUNICATION * talks + WAITING * waits
    return drawn / block.seconds


def power_samples(simulation: Simulation, cluster: Cluster, rank: int) -> list[Sample]:
    """Return watts of a rank over time; empty where the power of the device is not published."""
    limit, idle = cluster.power_limit, cluster.idle
    if limit is None or idle is None:
        return []
    durations = simulation.durations
    shares = {
        "forward": block_activity(durations.forward_block),
        "backward": block_activity(durations.backward_block),
    }
    talking = simulation.spans(rank)["data"]
    samples: list[Sample] = []
    now, place = 0.0, 0

    def say(moment: float, share: float) -> None:
        watts = idle + (limit - idle) * share
        if not samples or samples[-1].value != watts:
            samples.append(Sample(start=moment, value=watts))

    def gap(until: float) -> None:
        """Return the watts of a rank while it does not compute."""
        nonlocal place
        moment = now
        while moment < until:
            while place < len(talking) and talking[place][1] <= moment:
                place += 1
            if place == len(talking) or talking[place][0] >= until:
                say(moment, WAITING)
                return
            start, end = talking[place]
            if start > moment:
                say(moment, WAITING)
            say(max(start, moment), COMMUNICATION)
            moment = min(end, until)

    for task, label in enumerate(simulation.step.labels):
        if label is None or label.rank != rank or label.stream != "compute":
            continue
        start, end = simulation.times.start[task], simulation.times.end[task]
        if end <= start:
            continue
        if start > now:
            gap(start)
        share = shares.get(label.kind, shares["backward"])
        say(start, COMPUTE if label.kind.startswith("head") else share)
        now = end
    done, closing = simulation.times.seconds, simulation.closing
    if done > now:
        gap(done)
    if closing.straggler > 0.0:
        say(done, COMMUNICATION)
    say(done + closing.straggler, MEMORY)
    say(done + closing.straggler + closing.optimizer[rank], WAITING)
    return samples
