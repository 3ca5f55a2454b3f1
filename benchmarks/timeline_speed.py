"""CPU time of simulating a step, and how it grows with its events.

    python benchmarks/timeline_speed.py

Prints CPU seconds (best of several) of a sharded step of 32 layers, of a pipeline of 126 layers, 16
stages and 64 micro-batches under every schedule, and of steps with more and more micro-batches with
the time per event, which stays the same while every event is simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import scalewise as sw
from scalewise.simulation.simulate import Timeline, timeline
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload

TARGETS = {"fsdp256-mb2": 0.05, "tp8-pp16-fsdp64-mb1": 3.0}
"""CPU seconds that a step should stay below."""


def best(run: Callable[[], Timeline], times: int) -> tuple[float, Timeline]:
    """Return the CPU time of the fastest of several runs, seconds, and the result of the last."""
    minimum = float("inf")
    for _ in range(times):
        start = time.process_time()
        line = run()
        minimum = min(minimum, time.process_time() - start)
    return minimum, line


def show(model: str, strategy: str, accelerators: int, seq_len: int, batch: int) -> None:
    """Time one step and print a line."""
    plan = parse_strategy(strategy)
    cluster = sw.load_cluster("dgx-h100", accelerators)
    workload = Workload(seq_len=seq_len, global_batch=batch)

    def run() -> Timeline:
        return timeline(sw.load_model(model), cluster, workload, plan)

    run()
    seconds, line = best(run, 5 if batch < 4096 else 2)
    events = len(line.simulation.step.labels)
    target = f"  target {TARGETS[strategy]:g} s" if strategy in TARGETS else ""
    count = line.estimate.num_microbatches
    print(
        f"{model:<15} {strategy:<24} {count:>6} micro-batches {events:>8,} events  "
        f"{seconds:.4f} CPU s  {1e6 * seconds / events:5.2f} us per event{target}"
    )


def main() -> None:
    """Time all of them."""
    show("llama-2-7b", "fsdp256-mb2", 256, 4096, 512)
    for schedule in ("", "-gpipe", "-v7", "-zbh1", "-zbv"):
        show("llama-3.1-405b", f"tp8-pp16-fsdp64{schedule}-mb1", 8192, 8192, 4096)
    for num_microbatches in (8, 32, 128, 512, 2048, 10_000):
        show("llama-2-7b", "fsdp8-mb1", 8, 4096, 8 * num_microbatches)


if __name__ == "__main__":
    main()
