"""Strategies that a search evaluates per CPU second.

    python benchmarks/search_speed.py

The spaces other planners were measured on: GPT-3 175B, batch 1536, sequence 2048, on 1,024 and
4,096 A100s, with every schedule, and once more with all overlaps on. The rate that counts is that
of the Pareto front of time, cost and energy, where every strategy gets time, memory, power and
cost. The other searches leave power and cost out and are shown for comparison. Each search runs in
a process of its own, so that its peak memory is its own. A wall time above the CPU time means that
other programs used the machine.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")
SIZES = (1024, 4096)
OVERLAPS = {"each on or off": (True, False), "on": (True,)}
MESHES = "tp x pp: time, memory"
FRONTS: dict[str, tuple[str, ...]] = {
    "front: all four": ("time", "cost", "energy"),
    "best: time, memory": (),
    MESHES: (),
}
"""What is asked for, with what is evaluated for it."""
TARGET = 4_000_000
"""Strategies per CPU second, with all four evaluated."""
ROUNDS = 3


def measure(count: int, overlap: str, asked: str) -> None:
    """Search one space a few times and print the best round; the first one warms up."""
    import scalewise as sw
    from scalewise.explore.search import search
    from scalewise.explore.space import Limits

    model, cluster = sw.load_model("gpt3-175b"), sw.load_cluster("dgx-a100", count)
    workload = sw.Workload(seq_len=2048, global_batch=1536)
    limits = Limits(schedule=SCHEDULES, overlap=OVERLAPS[overlap])
    used, waited, evaluated = float("inf"), 0.0, 0
    for _ in range(ROUNDS):
        cpu, wall = time.process_time(), time.perf_counter()
        found = search(
            model,
            cluster,
            workload,
            limits=limits,
            pareto=FRONTS[asked],
            best_by_tp_pp=asked == MESHES,
        )
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if cpu < used:
            used, waited, evaluated = cpu, wall, found.evaluated
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count:>6,}  {overlap:<15}  {asked:<21}  {evaluated:>10,}  {used:>6.2f}  {waited:>6.2f}  "
        f"{evaluated / used:>11,.0f}  {peak:>5.0f}",
        flush=True,
    )


def main() -> None:
    """Print one line per space and question."""
    if len(sys.argv) > 1:
        count, overlap, asked = sys.argv[1:]
        measure(int(count), overlap, asked)
        return
    print(f"GPT-3 175B on A100s, the best of {ROUNDS} rounds; target {TARGET:,} per CPU second")
    print(
        f"{'GPUs':>6}  {'overlap':<15}  {'asked: evaluated':<21}  {'strategies':>10}  "
        f"{'CPU s':>6}  {'wall s':>6}  {'per CPU s':>11}  {'MiB':>5}",
        flush=True,
    )
    for count in SIZES:
        for overlap in OVERLAPS:
            for asked in FRONTS:
                words = [sys.executable, __file__, str(count), overlap, asked]
                subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
