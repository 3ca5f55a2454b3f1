"""CPU time of estimates: one from Python, a hundred thousand at once, and the command line.

    python benchmarks/estimate_speed.py

Prints CPU time, the best of several rounds, beside the targets. Wall time would include other
programs; on a busy machine CPU time still grows, by up to a half.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import scalewise as sw

ROUNDS = 8
CALLS = 100
"""Estimates of one round."""
MANY = 100_000


def one_estimate(model: str, cluster: str, count: int, strategy: str, batch: int) -> float:
    """Return the CPU time of one warm estimate, ms."""
    inputs = (
        sw.load_model(model),
        sw.load_cluster(cluster, count),
        sw.Workload(seq_len=4096, global_batch=batch),
        sw.parse_strategy(strategy),
    )

    return milliseconds(lambda: sw.estimate(*inputs))


def milliseconds(run: Callable[[], object]) -> float:
    """Return the CPU time of one call, ms."""

    def round_() -> None:
        for _ in range(CALLS):
            run()

    return fastest(round_) / CALLS * 1e3


def fastest(run: Callable[[], None]) -> float:
    """Return the CPU time of the fastest round, seconds; the first one warms up."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def many_estimates() -> float:
    """Return strategies per CPU second through the same function, all results read."""
    model, cluster = sw.load_model("gpt3-175b"), sw.load_cluster("dgx-a100", 1024)
    rng = np.random.default_rng(0)
    tp, pp = 2.0 ** rng.integers(0, 4, MANY), 2.0 ** rng.integers(0, 5, MANY)
    strategies = sw.Strategies.columns(
        tp=tp,
        pp=pp,
        dp_shard=1024 / tp / pp,
        sharding=rng.integers(1, 4, MANY),
        micro_batch=2.0 ** rng.integers(0, 3, MANY),
        recompute=rng.integers(0, 3, MANY),
    )
    workload = sw.Workload(seq_len=2048, global_batch=1536 * 2)

    def round_() -> None:
        result = sw.estimate(model, cluster, workload, strategies)
        for name in ("step_seconds", "memory_bytes", "feasible", "joules_per_token", "mfu"):
            getattr(result, name)

    return MANY / fastest(round_)


def command(*words: str) -> float:
    """Return the CPU time of a command, seconds, the minimum of five runs."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "scalewise", *words], check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        best = min(best, used)
    return best


def main() -> None:
    """Print every number beside its target."""
    fsdp = one_estimate("llama-2-7b", "dgx-h100", 2048, "fsdp2048-mb2", 4096)
    mixed = one_estimate("llama-3.1-405b", "dgx-h100", 8192, "zero1x64-tp8-pp16", 4096)
    names = {"on": "dgx-h100", "gpus": 2048, "strategy": "fsdp2048-mb2"}
    named = milliseconds(lambda: sw.estimate("llama-2-7b", **names))
    print(f"one estimate, fsdp              {fsdp:8.3f} CPU ms   (target < 0.6)")
    print(f"one estimate, zero1 x tp x pp   {mixed:8.3f} CPU ms   (target < 0.6)")
    print(f"one estimate, fsdp, by name     {named:8.3f} CPU ms   (target < 0.6)")
    print(f"{MANY:,} strategies at once  {many_estimates():12,.0f} strategies/CPU s")
    print(f"scalewise --help                {command('--help'):8.3f} CPU s    (target < 0.1)")
    line = ("estimate", "llama-2-7b", "--on", "dgx-h100", "--gpus", "2048",
            "--strategy", "fsdp2048-mb2")  # fmt: skip
    print(f"scalewise estimate              {command(*line):8.3f} CPU s    (target < 0.35)")


if __name__ == "__main__":
    main()
