"""How many strategies does a search try per CPU second?

    python benchmarks/search_speed.py

The spaces other planners were measured on: GPT-3 175B, batch 1536, on 1,024 and 4,096 A100s. Every
strategy gets time, memory, power and cost; the count and the CPU seconds are printed.
"""

from __future__ import annotations

import resource
import time

import scalewise as sw
from scalewise.explore.search import search


def main() -> None:
    """Search both spaces, twice each; the second time is warm."""
    model = sw.load_model("gpt3-175b")
    workload = sw.Workload(sequence=2048, global_batch=1536)
    for count in (1024, 4096):
        cluster = sw.load_cluster("dgx-a100", count)
        for state in ("cold", "warm"):
            start = time.process_time()
            found = search(model, cluster, workload, by="energy")
            used = time.process_time() - start
            print(
                f"{count:>6,} accelerators, {state}: {found.examined:>9,} strategies, "
                f"{found.feasible:>9,} can run, {used:6.2f} CPU s, "
                f"{found.examined / used:>11,.0f} strategies/CPU s; best {found.best.strategy}"
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MiB, whatever the size of the space")


if __name__ == "__main__":
    main()
