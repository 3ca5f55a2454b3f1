"""What does a rank draw at each moment? The activity model of `estimate`, event by event.

    power_samples(play, cluster, rank=0)[0].value      # watts

Blocks draw what their kernels, collectives and waits draw on average; a rank that waits for
communication draws like one that communicates, and one that waits for another stage idles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.physics.power import COMMUNICATION, COMPUTE, MEMORY, WAITING
from scalewise.timeline.events import Sample

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.timeline.layer import Block
    from scalewise.timeline.play import Play


def block_activity(block: Block) -> float:
    """Share of the range between idle and cap that a block draws on average."""
    if block.seconds <= 0.0:
        return WAITING
    talks = block.tensor + block.context
    waits = max(block.seconds - block.busy - talks, 0.0)
    drawn = COMPUTE * block.busy + COMMUNICATION * talks + WAITING * waits
    return drawn / block.seconds


def power_samples(play: Play, cluster: Cluster, rank: int) -> list[Sample]:
    """Watts of a rank over time; empty where the device's power is not published."""
    limit, idle = cluster.power_limit, cluster.idle
    if limit is None or idle is None:
        return []
    prices = play.prices
    shares = {
        "forward": block_activity(prices.forward_block),
        "backward": block_activity(prices.backward_block),
    }
    talking = play.spans(rank)["data"]
    samples: list[Sample] = []
    now, place = 0.0, 0

    def say(moment: float, share: float) -> None:
        watts = idle + (limit - idle) * share
        if not samples or samples[-1].value != watts:
            samples.append(Sample(start=moment, value=watts))

    def gap(until: float) -> None:
        """Tell what a rank draws while it does not compute."""
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

    for task, label in enumerate(play.step.labels):
        if label is None or label.rank != rank or label.stream != "compute":
            continue
        start, end = play.played.start[task], play.played.end[task]
        if end <= start:
            continue
        if start > now:
            gap(start)
        share = shares.get(label.kind, shares["backward"])
        say(start, COMPUTE if label.kind.startswith("head") else share)
        now = end
    done, closing = play.played.seconds, play.closing
    if done > now:
        gap(done)
    if closing.straggler > 0.0:
        say(done, COMMUNICATION)
    say(done + closing.straggler, MEMORY)
    say(done + closing.straggler + closing.optimizer[rank], WAITING)
    return samples
