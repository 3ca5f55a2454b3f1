"""Error of a calibrated machine on steps it was not fitted on: measure, fit, predict, measure.

    python benchmarks/close_the_loop.py --records records/ --repeats 3

On the devices that are here (two CPU cores will do): time kernels and collectives, train on one
device, fit the machine's constants to that alone; then predict steps on two devices under DDP,
FSDP, tensor and pipeline parallelism for several model sizes, measure them, and print both. The
run-to-run variation of the same job stands beside every error. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from itertools import product
from pathlib import Path

import msgspec

from scalewise.catalog import load_cluster
from scalewise.cli.common import show
from scalewise.evidence.compare import Comparison, compare
from scalewise.evidence.machine import MachineFit
from scalewise.evidence.machine_files import write_machine
from scalewise.evidence.machine_rows import gather
from scalewise.measure.check import check_job
from scalewise.measure.collective_plan import CollectivePlan, sizes_of
from scalewise.measure.host_plan import HostPlan
from scalewise.measure.idle import disturbance, idle_checked, journal_of, read_journal
from scalewise.measure.kernel_plan import join_plans, plan_kernels
from scalewise.measure.launch import LocalLauncher, choose_device, threads_for
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.machine import idle_warnings
from scalewise.measure.sweeps import SweepSpec
from scalewise.model import load_model
from scalewise.records.files import file_of, new_id, read_records
from scalewise.records.job import TrainJob
from scalewise.report.compare import print_comparison
from scalewise.strategy import parse_strategy

MODELS = ("tiny", "tiny-19m", "tiny-65m")
STRATEGIES = ("ddp2", "fsdp2", "tp2", "pp2-ga4")
RANKS = 2
NAME = "this-machine"
SIZES = "64KiB..16MiB"
"""From a norm's weights to a bucket of gradients: what steps of these models send."""
TARGET = 0.08


def sweep(what: str, plan: msgspec.Struct, folder: Path, device: str) -> None:
    """Time kernels, collectives or host time on all ranks, between two idle checks."""
    spec = SweepSpec(
        what=what,
        plan=msgspec.to_builtins(plan),
        processes=RANKS,
        id=new_id(),
        records=str(file_of(folder, what)),
        device=device,
        threads=threads_for(device, RANKS),
        warnings=list(idle_warnings()),
    )
    with idle_checked(spec.records, spec.id):
        LocalLauncher(timeout=1800.0, logs=folder / "logs").run(spec)


def job_of(model: str, strategy: str, *, seq_len: int, steps: int, trace: bool) -> TrainJob:
    """One job; the batch is the smallest that the strategy fills."""
    split = parse_strategy(strategy)
    return TrainJob(
        model=load_model(model),
        strategy=split,
        seq_len=seq_len,
        global_batch=split.micro_batch * split.data_parallel * (split.num_microbatches or 1),
        precision="fp32",
        steps=steps,
        warmup=max(steps // 4, 1),
        trace_steps=2 if trace else 0,
    )


def train(job: TrainJob, folder: Path, device: str, launch: int) -> None:
    """One launch on all ranks between two idle checks; a job on one device runs once on each.

    What devices share, they share in training too.
    """
    check_job(job, device)
    planned = PlannedJob(job=job, id=new_id(), launch=launch, warnings=list(idle_warnings()))
    spec = LaunchSpec(
        planned=[planned],
        records=str(file_of(folder, "train")),
        device=device,
        threads=threads_for(device, RANKS),
        copies=RANKS // job.ranks,
    )
    with idle_checked(spec.records, *spec.ids):
        LocalLauncher(timeout=1800.0, logs=folder / "logs").run(spec)


def measure_machine(folder: Path, device: str, seq_len: int, steps: int, launches: int) -> None:
    """Measure what a calibration needs."""
    plans = [
        plan_kernels(load_model(m), parse_strategy(s), seq_len=seq_len, dtype="fp32")
        for m, s in product(MODELS, ("mb1", "tp2-mb1"))
    ]
    say("kernels")
    sweep("kernel", join_plans(plans), folder, device)
    say("collectives")
    plan = CollectivePlan(
        ops=["all_gather", "reduce_scatter", "all_reduce", "send_recv"], sizes=sizes_of(SIZES),
        group_sizes=[RANKS],
    )  # fmt: skip
    sweep("collective", plan, folder, device)
    say("host time")
    sweep("host", HostPlan(), folder, device)
    for launch, model in product(range(1, launches + 1), MODELS):
        say(f"{model} on one device, launch {launch}")
        job = job_of(model, "ddp1-mb1", seq_len=seq_len, steps=steps, trace=False)
        train(job, folder, device, launch)


def say(text: str) -> None:
    """Tell what is going on, on stderr."""
    print(text, "...", file=sys.stderr, flush=True)


def judge(folder: Path, catalog: Path) -> Comparison:
    """Compare steps on two devices with what the calibration says."""
    os.environ["SCALEWISE_CATALOG"] = str(catalog)
    return compare(read_records(folder).records, load_cluster(NAME), NAME, min_ranks=RANKS)


def noise_floor(comparison: Comparison, *folders: Path) -> str:
    """A sentence about what no prediction can be better than: repeats, and other load."""
    loops = {k: v for f in folders for k, v in read_journal(journal_of(f)).items()}
    slowed = [math.exp(disturbance([id], loops)) for id in loops]
    busy = sum(each > 1.0 for each in slowed)
    repeats = comparison.median_noise
    return (
        f"noise floor: repeats vary by {repeats:.1%} (median over jobs), "
        if repeats is not None
        else "noise floor: unknown without repeats, "
    ) + (
        f"other load slowed the fixed loop around {busy} of {len(slowed)} launches, "
        f"at most {max(slowed, default=1.0):.2f} times"
    )


def main() -> int:
    """Close the loop; 1 if the median error is above the target."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, default=Path("records/loop"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--fit-only", action="store_true", help="Use the records that are there.")
    given = parser.parse_args()
    device, _ = choose_device("cpu")
    calibration, judged = given.records / "calibration", given.records / "judged"
    catalog = given.records / "catalog"
    if not given.fit_only:
        measure_machine(calibration, device, given.sequence, given.steps, given.repeats)
        for launch, model, strategy in product(range(1, given.repeats + 1), MODELS, STRATEGIES):
            say(f"{model} {strategy}, launch {launch}")
            job = job_of(model, strategy, seq_len=given.sequence, steps=given.steps, trace=True)
            train(job, judged, device, launch)
    # Nothing of the steps that are judged goes into the fit.
    fit = MachineFit(NAME).fit(gather(read_records(calibration).records))
    for constant in fit.constants_:
        print(f"{constant.name:<26} {constant.value:.4g} {constant.unit} (x/: "
              f"{constant.spread:.2f}, {constant.source})")  # fmt: skip
    for path in write_machine(fit, catalog):
        say(f"wrote {path}")
    comparison = judge(judged, catalog)
    show(lambda out: print_comparison(comparison, out))
    print(noise_floor(comparison, calibration, judged))
    return 0 if comparison.median_error <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
