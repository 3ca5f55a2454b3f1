"""How long does playing a step take, and does it grow with its events?

    python benchmarks/timeline_speed.py

Prints CPU seconds (best of several) of a sharded step of 32 layers, of a pipeline of 126 layers, 16
stages and 64 micro batches under every schedule, and of steps with more and more micro batches with
the time per event, which stays the same while every event is played.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import scalewise as sw
from scalewise.strategy import parse_strategy
from scalewise.timeline.play import Timeline, timeline
from scalewise.workload import Workload

TARGETS = {"fsdp256-mb2": 0.05, "tp8-pp16-fsdp64-mb1": 3.0}
"""CPU seconds that a step should stay below."""


def best(run: Callable[[], Timeline], times: int) -> tuple[float, Timeline]:
    """Least CPU seconds of several runs, and what the last returned."""
    least = float("inf")
    for _ in range(times):
        start = time.process_time()
        line = run()
        least = min(least, time.process_time() - start)
    return least, line


def show(model: str, strategy: str, accelerators: int, sequence: int, batch: int) -> None:
    """Time one step and print a line."""
    plan = parse_strategy(strategy)
    cluster = sw.load_cluster("dgx-h100", accelerators)
    workload = Workload(sequence=sequence, global_batch=batch)

    def run() -> Timeline:
        return timeline(sw.load_model(model), cluster, workload, plan)

    run()
    seconds, line = best(run, 5 if batch < 4096 else 2)
    events = len(line.play.step.labels)
    target = f"  target {TARGETS[strategy]:g} s" if strategy in TARGETS else ""
    print(
        f"{model:<15} {strategy:<24} {line.estimate.micro_steps:>6} micro steps {events:>8,} "
        f"events  {seconds:.4f} CPU s  {1e6 * seconds / events:5.2f} us per event{target}"
    )


def main() -> None:
    """Time all of them."""
    show("llama-2-7b", "fsdp256-mb2", 256, 4096, 512)
    for schedule in ("", "-gpipe", "-v7", "-zbh1", "-zbv"):
        show("llama-3.1-405b", f"tp8-pp16-fsdp64{schedule}-mb1", 8192, 8192, 4096)
    for micro_steps in (8, 32, 128, 512, 2048, 10_000):
        show("llama-2-7b", "fsdp8-mb1", 8, 4096, 8 * micro_steps)


if __name__ == "__main__":
    main()
