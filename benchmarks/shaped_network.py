"""Predicted and measured exposed communication on a network of decreasing bandwidth.

    sudo python benchmarks/shaped_network.py --records records/shaped --figure shaped.svg

Two pretend nodes of one rank stand for two machines (`scalewise.measure.shaped`). Kernels and steps
on one device are measured once. At every rate a short sweep of collectives recalibrates the links,
the steps of two ranks are predicted, then measured under the profiler. The figure shows predicted
and measured exposed communication and slow-down against rate. Needs Linux, root, `ip` and `tc`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import msgspec

from close_the_loop import job_of, say, sweep, train
from scalewise.catalog import load_cluster
from scalewise.evidence.compare import Row, compare
from scalewise.evidence.machine import MachineFit
from scalewise.evidence.machine_files import write_machine
from scalewise.evidence.machine_rows import gather
from scalewise.measure.collective_plan import CollectivePlan, sizes_of
from scalewise.measure.host_plan import HostPlan
from scalewise.measure.idle import disturbance, idle_checked, journal_of, read_journal
from scalewise.measure.kernel_plan import join_plans, plan_kernels
from scalewise.measure.launch import threads_for
from scalewise.measure.launch_shaped import ShapedLauncher
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.machine import idle_warnings
from scalewise.measure.sweeps import SweepSpec
from scalewise.model import load_model
from scalewise.records.files import Record, file_of, new_id, read_records
from scalewise.records.links import ShapedLinks
from scalewise.strategy import parse_strategy

MODELS = ("tiny", "tiny-19m")
STRATEGIES = ("ddp2", "fsdp2")
RATES = (100, 250, 500, 1000, 2500, 0)
"""Mbit/s; 0 is not shaped."""


@dataclass(frozen=True)
class Point:
    """One job at one rate."""

    megabits: int
    row: Row


def measure_rate(folder: Path, megabits: int, *, seq_len: int, steps: int, launches: int) -> None:
    """Time collectives and train at one rate."""
    links = ShapedLinks(ranks_per_node=1, bandwidth=megabits * 1e6 / 8)
    launcher = ShapedLauncher(timeout=900.0, logs=folder / "logs")
    threads = threads_for("cpu", 2)
    # A slow wire needs no gigabytes to show its rate.
    largest = "16MiB" if megabits == 0 or megabits >= 1000 else "4MiB"
    plan = CollectivePlan(
        ops=["all_gather", "reduce_scatter", "all_reduce"], sizes=sizes_of(f"64KiB..{largest}"),
        group_sizes=[2], iters=8, budget=2.0,
    )  # fmt: skip
    spec = SweepSpec(
        what="collective", plan=msgspec.to_builtins(plan), processes=2, id=new_id(),
        records=str(file_of(folder, "collective")), device="cpu", threads=threads,
        warnings=list(idle_warnings()), links=links,
    )  # fmt: skip
    with idle_checked(spec.records, spec.id):
        launcher.run(spec)
    for launch, model, strategy in product(range(1, launches + 1), MODELS, STRATEGIES):
        say(f"{megabits or 'not shaped'} Mbit/s: {model} {strategy}, launch {launch}")
        job = job_of(model, strategy, seq_len=seq_len, steps=steps, trace=True)
        planned = PlannedJob(job=job, id=new_id(), launch=launch, warnings=list(idle_warnings()))
        records = str(file_of(folder, "train"))
        order = LaunchSpec(
            planned=[planned], records=records, device="cpu", threads=threads, links=links
        )
        with idle_checked(records, planned.id):
            launcher.run(order)


def measure_alone(folder: Path, *, seq_len: int, steps: int, launches: int) -> None:
    """Kernels, and steps on one device."""
    plans = [
        plan_kernels(load_model(name), parse_strategy("mb1"), seq_len=seq_len, dtype="fp32")
        for name in MODELS
    ]
    say("kernels")
    sweep("kernel", join_plans(plans), folder, "cpu")
    say("host time")
    sweep("host", HostPlan(), folder, "cpu")
    for launch, model in product(range(1, launches + 1), MODELS):
        say(f"{model} on one device, launch {launch}")
        job = job_of(model, "ddp1-mb1", seq_len=seq_len, steps=steps, trace=False)
        train(job, folder, "cpu", launch)


def judge(alone: list[Record], folder: Path, megabits: int) -> list[Point]:
    """Calibrate at one rate, and compare."""
    at = read_records(folder).records
    links = [record for record in at if record.kind == "collective"]
    name = f"shaped-{megabits}"
    fit = MachineFit(name).fit(gather([*alone, *links]))
    catalog = folder / "catalog"
    write_machine(fit, catalog)
    os.environ["SCALEWISE_CATALOG"] = str(catalog)
    done = compare(at, load_cluster(name), name, min_ranks=2)
    return [Point(megabits, row) for row in done.rows]


def report(points: list[Point], folders: Iterable[Path]) -> None:
    """Print a row for each job and rate, and the noise floor."""
    print(f"{'Mbit/s':>8}  {'job':<22} {'step measured':>14} {'predicted':>10} {'error':>8} "
          f"{'exposed measured':>17} {'predicted':>10}")  # fmt: skip
    for point in points:
        row = point.row
        seen, said = row.terms["exposed"]
        print(f"{point.megabits or 'none':>8}  {row.model + ' ' + row.strategy:<22} "
              f"{row.measured:>12.3f} s {row.predicted:>8.3f} s {row.error:>+7.1%} "
              f"{'-' if seen is None else f'{seen:.3f} s':>17} {said:>8.3f} s")  # fmt: skip
    errors = sorted(abs(point.row.error) for point in points)
    loops = {k: v for f in folders for k, v in read_journal(journal_of(f)).items()}
    slowed = [math.exp(disturbance([id], loops)) for id in loops]
    repeats = sorted(point.row.noise for point in points if point.row.launches > 1)
    varied = f"{repeats[len(repeats) // 2]:.1%}" if repeats else "unknown (one repeat)"
    print(f"noise floor: repeats vary by {varied}; other load slowed the fixed loop around "
          f"{sum(each > 1.0 for each in slowed)} of {len(slowed)} launches")  # fmt: skip
    print(f"median error {errors[len(errors) // 2]:.1%} over {len(errors)} jobs")


def draw(points: list[Point], path: Path) -> None:
    """Exposed communication and slow-down against rate, predicted (lines) and measured (marks)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    rates = sorted({point.megabits for point in points if point.megabits})
    top = 4 * max(rates, default=1)

    def place(point: Point) -> int:
        return point.megabits or top

    jobs = dict.fromkeys((point.row.model, point.row.strategy) for point in points)
    for number, (model, strategy) in enumerate(jobs):
        mine = [p for p in points if (p.row.model, p.row.strategy) == (model, strategy)]
        mine = sorted(mine, key=place)
        x, color, label = [place(p) for p in mine], f"C{number}", f"{model} {strategy}"
        left.plot(x, [p.row.terms["exposed"][1] for p in mine], color=color, label=label)
        seen = [(place(p), p.row.terms["exposed"][0]) for p in mine
                if p.row.terms["exposed"][0] is not None]  # fmt: skip
        left.plot([a for a, _ in seen], [b for _, b in seen], "o", color=color)
        free = mine[-1].row
        right.plot(x, [p.row.predicted / free.predicted for p in mine], color=color, label=label)
        right.plot(x, [p.row.measured / free.measured for p in mine], "o", color=color)
    for axis, name in ((left, "exposed communication, seconds per step"),
                       (right, "step over step without shaping")):  # fmt: skip
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks([*rates, top], [*map(str, rates), "not shaped"], fontsize=8)
        axis.minorticks_off()
        axis.set_xlabel("rate of the network, Mbit/s")
        axis.set_ylabel(name)
        axis.grid(visible=True, alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle("Lines: predicted. Points: measured.", fontsize=10)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> int:
    """Measure and judge every rate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, default=Path("records/shaped"))
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="Mbit/s; 0: none")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--fit-only", action="store_true", help="Use the records that are there.")
    given = parser.parse_args()
    sizes = {"seq_len": given.sequence, "steps": given.steps, "launches": given.repeats}
    if not given.fit_only:
        measure_alone(given.records / "alone", **sizes)
        for megabits in given.rates:
            measure_rate(given.records / str(megabits), megabits, **sizes)
    alone = read_records(given.records / "alone").records
    points = [
        point
        for megabits in given.rates
        for point in judge(alone, given.records / str(megabits), megabits)
    ]
    report(points, [given.records / str(each) for each in ("alone", *given.rates)])
    if given.figure:
        draw(points, given.figure)
        say(f"wrote {given.figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
