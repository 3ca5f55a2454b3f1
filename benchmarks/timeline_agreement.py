"""Agreement of the analytical and the simulated step, over random strategies.

    python benchmarks/timeline_agreement.py --strategies 3000 --seed 1 --worst 10

Models, clusters, software stacks, batches and strategies are drawn at random. `estimate` gives the
analytical step, `timeline` the simulated one. Printed: the relative difference of the step time,
and the difference of the exposed communication as a fraction of the step, by median, 90th and 99th
percentile, for all, for dense models and those with experts, and by technique, then the worst cases
with their terms.

The sample is of what runs in practice. Left out, because no framework has it or because the
analytical model does not claim it: pipeline schedules that the software stack lacks, interleaving
with unequal chunks or with micro-batches that do not fill rounds of the stages (not supported by
Megatron), more than 32 stages, and steps of more than 60,000 blocks. A wide sample (`--wide 1000`)
draws schedules for every stack; its numbers follow.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass

import msgspec
import numpy as np

import scalewise as sw
from scalewise.catalog import names
from scalewise.errors import InputError
from scalewise.explore.space import divisors
from scalewise.simulation.simulate import Simulation, simulate_step
from scalewise.stack import Stack, load_stack
from scalewise.step.estimate import estimate
from scalewise.step.feasibility import REASONS
from scalewise.step.result import Estimate
from scalewise.strategy import SCHEDULES, Strategy
from scalewise.workload import Workload

MODELS = (
    "gpt3-175b", "llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3.1-405b", "llama-3.1-8b",
)  # fmt: skip
EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3-mtp", "gpt-oss-120b")
CLUSTERS = ("dgx-h100", "dgx-a100", "gb200-nvl72", "gcp-tpu-v5p", "dgx-b200", "aws-p5", "frontier")
SIZES = (1, 8, 32, 64, 256, 512, 1024, 4096)
SEQUENCES = (2048, 4096, 8192, 32768)
MAX_BLOCKS = 60_000
"""Steps with more are left out: they say nothing new and take seconds each."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One strategy by both ways."""

    estimate: Estimate
    simulation: Simulation

    @property
    def step(self) -> float:
        """Relative difference of the step time."""
        return self.simulation.seconds / self.estimate.step_seconds - 1.0

    @property
    def exposed(self) -> float:
        """Difference of the exposed communication, as a share of the step."""
        mine = sum(self.simulation.exposed(self.simulation.critical_rank).values())
        return (mine - sum(self.estimate.exposed.values())) / self.estimate.step_seconds


def draw(
    rng: random.Random, *, any_schedule: bool = False, models: tuple[str, ...] = MODELS
) -> tuple[sw.Model, sw.Cluster, Workload, Strategy, Stack] | None:
    """Draw a step; None where the pieces do not fit together.

    Args:
        rng: Source of all choices.
        models: Among which.
        any_schedule: Draw pipeline schedules that the software stack does not have, too.
    """
    model = sw.load_model(rng.choice(models))
    cluster = sw.load_cluster(rng.choice(CLUSTERS), rng.choice(SIZES))
    kind, count = cluster.accelerator.kind, cluster.accelerators
    stack = load_stack(
        rng.choice([s for s in names("stacks") if load_stack(s).devices in (kind, "any")])
    )
    known = SCHEDULES if any_schedule else stack.schedules
    seq_len = rng.choice(SEQUENCES)
    tp = rng.choice([d for d in divisors(count) if model.heads % d == 0 and d <= 16])
    deepest = min(model.layers, 32) if known else 1
    pp = rng.choice([d for d in divisors(count // tp) if d <= deepest])
    cp = rng.choice([1, 1, *(d for d in divisors(count // tp // pp) if d <= 16)])
    ranks = count // (tp * pp * cp)
    shards = rng.choice([ranks, *divisors(ranks)])
    sharding = rng.choice(("ddp", "zero1", "zero2", "zero3", "zero3"))
    if sharding == "ddp":
        shards = 1
    micro, steps = rng.choice((1, 2, 4)), rng.choice((1, 4, 8, 16, 32, 64))
    # Interleaving as frameworks take it: equal chunks (the embedding and the head may stand for a
    # layer each), and micro batches in rounds of the stages.
    able = [
        v
        for v in (2, 3, 4, 8)
        if steps % pp == 0 and 0 in (model.layers % (pp * v), (model.layers + 2) % (pp * v))
    ]
    schedules = [s for s in known if able or s != "interleaved"]
    schedule = rng.choice(schedules) if pp > 1 and schedules else "1f1b"
    chunks = rng.choice(able) if schedule == "interleaved" else 1
    workload = Workload(seq_len=seq_len, global_batch=ranks * micro * steps)
    experts: dict[str, object] = {}
    if (moe := model.moe) is not None:
        whole = tp * cp * shards
        ep = rng.choice([d for d in divisors(whole) if moe.experts % d == 0])
        etp = rng.choice([1, 1, *(d for d in divisors(whole // ep) if moe.ffn % d == 0 and d <= 8)])
        modules = rng.choice(("", "", "norm", "latent+activation", "mlp"))
        experts = {"ep": ep, "etp": etp, "overlap_ep": rng.random() < 0.9}
        experts["recompute_modules"] = modules
        stack = msgspec.structs.replace(
            stack,
            dispatcher=rng.choice(("nccl", "deepep", "hybridep")),
            cuda_graphs=rng.choice(("none", "attention", "full")),
            overlaps_all_to_all=rng.random() < 0.5,
        )
    try:
        strategy = Strategy(
            dp_replicate=ranks // shards, dp_shard=shards, sharding=sharding, tp=tp, cp=cp, pp=pp,
            virtual_stages=chunks, schedule=schedule, micro_batch=micro,
            sequence_parallel=bool(experts) or rng.random() < 0.8,
            reshard_after_forward=rng.random() < 0.7,
            prefetch=rng.choice((0, 1, 1, 1, 1, 2)), overlap_dp=rng.random() < 0.9,
            overlap_tp=rng.random() < 0.9, overlap_pp=rng.random() < 0.9,
            recompute=rng.choice(("none", "selective", "full")),
            cp_method=rng.choice(("ring", "allgather")), **experts,
        )  # fmt: skip
    except InputError:
        return None
    return model, cluster, workload, strategy, stack


def collect(
    count: int,
    seed: int,
    *,
    any_schedule: bool = False,
    models: tuple[str, ...] = MODELS,
    tunings: tuple[str, ...] = (),
) -> list[Case]:
    """Estimate and simulate this many random steps; of full training, or of some tunings."""
    rng = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        drawn = draw(rng, any_schedule=any_schedule, models=models)
        if drawn is None:
            continue
        model, cluster, workload, strategy, stack = drawn
        if tunings:
            workload = msgspec.structs.replace(workload, tuning=rng.choice(tunings))
        if model.layers * strategy.microbatches_of(workload) > MAX_BLOCKS:
            continue
        try:
            many = estimate(model, cluster, workload, [strategy], stack=stack)
        except InputError:
            continue
        reason = REASONS[int(many.infeasible_code[0])]
        if not reason.startswith(("fits", "memory")):
            continue
        found.append(Case(estimate=many[0], simulation=simulate_step(many.case)))
    return found


def report(cases: list[Case], worst: int) -> None:
    """Print percentiles by technique, and the worst cases."""
    step = np.array([abs(case.step) for case in cases])
    exposed = np.array([abs(case.exposed) for case in cases])

    def line(name: str, chosen: list[bool]) -> None:
        mask = np.array(chosen)
        if not mask.any():
            return
        cells = [
            f"{100 * np.quantile(values[mask], q):8.2f}"
            for values in (step, exposed)
            for q in (0.5, 0.9, 0.99)
        ]
        print(f"{name:26s} {mask.sum():6d} " + " ".join(cells))

    print(
        f"{'% of the step':26s} {'n':>6} "
        + " ".join(f"{kind} {q}".rjust(8) for kind in ("time", "exp.") for q in (50, 90, 99))
    )
    plans = [case.estimate.strategy for case in cases]
    line("all", [True] * len(cases))
    line("dense", [case.estimate.model.moe is None for case in cases])
    line("experts", [case.estimate.model.moe is not None for case in cases])
    line("all-to-all", [s.ep > 1 for s in plans])
    line("no zero bubble", [s.pp == 1 or not s.schedule.startswith("zb") for s in plans])
    line("no pipeline", [s.pp == 1 for s in plans])
    line("fits in memory", [case.estimate.feasible for case in cases])
    for sharding in ("ddp", "zero1", "zero2", "zero3"):
        line(f"{sharding}, no pipeline", [s.sharding == sharding and s.pp == 1 for s in plans])
    for sharding in ("ddp", "zero1", "zero2", "zero3"):
        line(f"{sharding}, pipeline", [s.sharding == sharding and s.pp > 1 for s in plans])
    for schedule in SCHEDULES:
        line(f"{schedule}", [s.schedule == schedule and s.pp > 1 for s in plans])
    for name, values in (("time", step), ("exposed", exposed)):
        print(f"\nworst by {name}: simulated over analytical step; exposed; strategy")
        for place in np.argsort(-values)[:worst]:
            print(_tell(cases[place]))


def _tell(case: Case) -> str:
    e, durations = case.estimate, case.simulation.durations
    shares = {k: v / e.step_seconds for k, v in e.terms.items()}
    text = " ".join(f"{k} {100 * v:.0f}%" for k, v in shares.items() if abs(v) > 0.03)
    return (
        f"{100 * case.step:+6.1f} % {100 * case.exposed:+6.1f} % {e.model.name} on "
        f"{e.cluster.accelerators} x {e.cluster.name}, {e.stack.name}, {e.strategy}, "
        f"{e.num_microbatches} micro-batches, seq {e.workload.seq_len}: {text}; "
        f"f {durations.forward:.2e} b {durations.backward:.2e} g {durations.gather:.2e} "
        f"r {durations.reduce:.2e} send {durations.message:.2e}"
    )


def main() -> None:
    """Draw, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategies", type=int, default=3000)
    parser.add_argument("--experts", type=int, default=1000, help="strategies with experts, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worst", type=int, default=8)
    parser.add_argument("--wide", type=int, default=0, help="strategies with any schedule, too")
    options = parser.parse_args()
    start = time.perf_counter()
    cases = collect(options.strategies, options.seed)
    cases += collect(options.experts, options.seed, models=EXPERTS)
    print(f"{len(cases):,} strategies in {time.perf_counter() - start:.0f} s")
    report(cases, options.worst)
    if options.wide:
        print("\nwith pipeline schedules that the software stack lacks")
        report(collect(options.wide, options.seed + 1, any_schedule=True), options.worst)


if __name__ == "__main__":
    main()
