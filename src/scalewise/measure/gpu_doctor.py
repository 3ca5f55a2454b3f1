"""Checks of every path that needs GPUs, each in processes of its own with a time limit.

    for check in examine_gpus("cuda", folder):
        print(check.name, check.status, check.problem)

Collectives and training go through the launcher of `measure`, and everything on one device through
`gpu_probes`. With device "cpu" the same checks run over Gloo, where CPUs have what they check.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from scalewise.errors import ScalewiseError
from scalewise.measure.collective_plan import CollectivePlan, Op
from scalewise.measure.kernel_plan import Gemm, KernelPlan
from scalewise.measure.launch import LocalLauncher, threads_for
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.sweeps import Kind, SweepSpec
from scalewise.model import Model, Moe, load_model
from scalewise.records.files import Record, new_id, read_records
from scalewise.records.job import Device, Precision, TrainJob
from scalewise.records.metrics import peak_of
from scalewise.strategy import parse_strategy

Status = Literal["passed", "failed", "not applicable", "not run"]

TOTAL_SECONDS = 300.0
"""Time limit of all checks."""

CHECK_SECONDS = 75.0
"""Time limit of one check: compilation takes the longest."""

LOSS_TOLERANCE = 1e-3
"""Largest relative difference of losses in fp32, see `LEARNING_RATE`."""

PEAK_SLACK = 1.02
"""Rate over the datasheet's peak from which a clock or a precision must be wrong."""

LEAST_OF_PEAK = 0.25
"""Fraction of the peak that a large product reaches at least: an assumption."""

STEPS, WARMUP = 4, 1

LEARNING_RATE = 2.0
"""Of plain SGD, which shows a wrong scale of gradients: half of them change a loss of `tiny` by
3e-3, another order of sums by 1e-7."""

ADAMW: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 3e-4}
"""AdamW has fused kernels on GPUs."""

MOE = Moe(experts=8, experts_per_token=2, ffn=256, layers=4)


@dataclass(frozen=True, kw_only=True)
class Check:
    """Outcome of a check."""

    name: str
    """Name."""
    status: Status
    """Result."""
    measured: dict[str, Any] = field(default_factory=dict)
    """Numbers by name; SI units."""
    problem: str | None = None
    """Why it failed or was not run, in one sentence."""
    seconds: float = 0.0
    """Its duration."""


class WrongNumbersError(ScalewiseError):
    """A check whose numbers are wrong."""

    def __init__(self, message: str, measured: dict[str, Any]) -> None:
        super().__init__(message)
        self.measured = measured


@dataclass(kw_only=True)
class Devices:
    """The devices, and what earlier checks found."""

    device: Device
    """Kind of device."""
    folder: Path
    """For records and logs."""
    count: int = 0
    """Devices."""
    accelerator: str | None = None
    """Catalog name."""
    losses: list[float] = field(default_factory=list)
    """Of the steps on one device."""
    limit: float = CHECK_SECONDS
    """Time limit of the current check, seconds."""

    @property
    def on_gpu(self) -> bool:
        """Whether the checks run on GPUs."""
        return self.device == "cuda"


Run = Callable[[Devices], dict[str, Any] | None]
"""Numbers of a check; None where the device does not have what it checks."""


def examine_gpus(
    device: Device, folder: Path, names: tuple[str, ...] | None = None
) -> Iterator[Check]:
    """Run the checks; yield each as it ends.

    Args:
        device: "cuda", or "cpu" for a trial without GPUs.
        folder: Empty folder for records and logs of failed launches.
        names: Checks to run beside the first, which finds the devices; None for all.
    """
    began = time.monotonic()
    devices = Devices(device=device, folder=folder)
    for name, run in CHECKS.items():
        if names is not None and name not in (FIRST, *names):
            continue
        if not devices.count and name != FIRST:
            yield Check(name=name, status="not run", problem="there is no device")
            continue
        devices.limit = min(CHECK_SECONDS, TOTAL_SECONDS - (time.monotonic() - began))
        if devices.limit <= 0.0:
            yield Check(
                name=name, status="not run", problem=f"the {TOTAL_SECONDS:g} s for all are over"
            )
            continue
        yield _carried_out(name, run, devices)


def _carried_out(name: str, run: Run, devices: Devices) -> Check:
    start = time.monotonic()
    measured: dict[str, Any] | None = {}
    status: Status = "failed"
    problem = None
    try:
        measured = run(devices)
        status = "not applicable" if measured is None else "passed"
    except WrongNumbersError as error:
        measured, problem = error.measured, str(error)
    except ScalewiseError as error:
        problem = f"{error} ({error.hint})" if error.hint else str(error)
    return Check(
        name=name, status=status, measured=measured or {}, problem=problem,
        seconds=time.monotonic() - start,
    )  # fmt: skip


def _probe(name: str, devices: Devices) -> dict[str, Any] | None:
    """Run a check of `gpu_probes`."""
    command = [sys.executable, "-m", "scalewise.measure.gpu_probes", name, devices.device]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=devices.limit,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ScalewiseError(f"it did not end within {devices.limit:.0f} s") from error
    try:
        said = msgspec.json.decode(done.stdout.strip().rpartition("\n")[2])
    except msgspec.DecodeError as error:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ScalewiseError(f"its process ended with code {done.returncode}: {last}") from error
    if said["problem"] is not None:
        raise WrongNumbersError(said["problem"], said["measured"])
    measured: dict[str, Any] = said["measured"]
    return measured if said["applies"] else None


def _devices(devices: Devices) -> dict[str, Any] | None:
    measured = _probe(FIRST, devices)
    assert measured is not None
    devices.count, devices.accelerator = measured["count"], measured["accelerator"]
    return measured


def _sweep(what: Kind, plan: Any, ranks: int, devices: Devices) -> Record:
    """Run a sweep as `measure` runs it; its record."""
    spec = SweepSpec(
        what=what, plan=msgspec.to_builtins(plan), processes=ranks, id=new_id(),
        records=str(devices.folder / f"{what}.jsonl"), device=devices.device,
        threads=threads_for(devices.device, ranks),
    )  # fmt: skip
    LocalLauncher(timeout=devices.limit, logs=devices.folder).run(spec)
    return _record(spec)


def _record(spec: LaunchSpec) -> Record:
    return next(each for each in read_records(spec.records).records if each.id == spec.ids[0])


def _gemm(precision: Precision, devices: Devices) -> dict[str, Any] | None:
    """Rate of a large product, which no device exceeds, and a healthy one comes near to."""
    if not devices.on_gpu and precision == "bf16":
        return None
    size = 8192 if devices.on_gpu else 256
    plan = KernelPlan(
        dtype=precision, gemms=[Gemm(m=size, n=size, k=size, role="check")], launch=False
    )
    (row,) = _sweep("kernel", plan, 1, devices).results["rows"]
    peak = peak_of(devices.accelerator, precision)
    measured = {
        "tflops": row["tflops"],
        "peak_tflops": None if peak is None else peak / 1e12,
        "size": size,
    }
    if peak is not None and row["tflops"] * 1e12 > PEAK_SLACK * peak:
        raise WrongNumbersError(
            f"{row['tflops']:.0f} TFLOP/s in {precision} exceed the peak of {peak / 1e12:.0f}",
            measured,
        )
    if peak is not None and row["tflops"] * 1e12 < LEAST_OF_PEAK * peak:
        raise WrongNumbersError(
            f"{row['tflops']:.0f} TFLOP/s in {precision} are far from the peak of "
            f"{peak / 1e12:.0f}",
            measured,
        )
    return measured


def _collective(op: Op, devices: Devices) -> dict[str, Any] | None:
    """Bus bandwidth of a collective over all devices, small and large."""
    if devices.count < 2:
        return None
    sizes = [2**16, 2**28] if devices.on_gpu else [2**10, 2**16]
    plan = CollectivePlan(
        ops=[op], sizes=sizes, group_sizes=[devices.count], iters=10, beside=False
    )
    small, large = _sweep("collective", plan, devices.count, devices).results["rows"]
    return {
        "ranks": devices.count, "latency_us": small["time_us"],
        "busbw_gb_per_s": large["busbw_gb_per_s"], "message_bytes": large["message_bytes"],
    }  # fmt: skip


def _train(
    strategy: str, devices: Devices, *, model: Model | None = None, **changes: Any
) -> dict[str, Any] | None:
    """Four steps; the losses must be those of one device."""
    parsed = parse_strategy(strategy)
    if parsed.accelerators > devices.count:
        return None
    job = TrainJob(
        **{
            "model": model or load_model("tiny"), "strategy": parsed, "seq_len": 64,
            "global_batch": 4, "precision": "fp32", "steps": STEPS, "warmup": WARMUP,
            "optimizer": "sgd", "learning_rate": LEARNING_RATE, **changes,
        }
    )  # fmt: skip
    spec = LaunchSpec(
        planned=[PlannedJob(job=job, id=new_id())], records=str(devices.folder / "train.jsonl"),
        device=devices.device, threads=threads_for(devices.device, parsed.accelerators),
    )  # fmt: skip
    LocalLauncher(timeout=devices.limit, logs=devices.folder).run(spec)
    results = _record(spec).results
    measured = {
        "strategy": strategy,
        "step_seconds": sorted(results["step_seconds"][WARMUP:])[1],
        "losses": results["losses"],
        **{name: results[name] for name in ("peak_memory_bytes", "memory_basis", "energy_joules",
                                            "energy_source", "trace")},
    }  # fmt: skip
    if not all(math.isfinite(loss) for loss in results["losses"]):
        raise WrongNumbersError("losses are not finite", measured)
    if model is None and job.precision == "fp32" and job.optimizer == "sgd":
        devices.losses = devices.losses or results["losses"]
        pairs = zip(results["losses"], devices.losses, strict=True)
        off = max(abs(one / other - 1.0) for one, other in pairs)
        measured["loss_difference"] = off
        if off > LOSS_TOLERANCE:
            raise WrongNumbersError(
                f"losses of {strategy} differ by {off:.1%} from one device", measured
            )
    return measured


def _traced(devices: Devices) -> dict[str, Any] | None:
    """Profiler trace of steps, read by `scalewise trace`."""
    strategy = "fsdp2-mb2" if devices.count > 1 else "ddp1-mb4"
    measured = _train(strategy, devices, trace_steps=3, **ADAMW)
    if measured is None or not measured["trace"]:
        raise WrongNumbersError("the trace of a step could not be read", measured or {})
    trace = measured["trace"]
    if trace["compute_seconds"] <= 0.0 or (devices.count > 1 and not trace["collectives"]):
        raise WrongNumbersError("the trace of a step has no kernels or no collectives", measured)
    return measured


def _compiled(devices: Devices) -> dict[str, Any] | None:
    """Steps of compiled blocks; minutes on CPUs."""
    return _train("ddp1-mb4", devices, compile=True) if devices.on_gpu else None


def _context_parallel(devices: Devices) -> dict[str, Any] | None:
    """Context parallelism, which PyTorch has on GPUs alone."""
    changes: dict[str, Any] = {"precision": "bf16", "seq_len": 256, **ADAMW}
    return _train("fsdp1-cp2-mb4", devices, **changes) if devices.on_gpu else None


def _experts(devices: Devices) -> dict[str, Any] | None:
    """Experts over two devices."""
    model = msgspec.structs.replace(load_model("tiny"), name="tiny-moe", moe=MOE)
    return _train("fsdp2-ep2-mb2", devices, model=model, **ADAMW)


FIRST = "devices"

CHECKS: dict[str, Run] = {
    **{name: partial(_probe, name) for name in (FIRST, "power", "energy", "events", "memory",
                                                "attention")},
    FIRST: _devices,
    "gemm bf16": partial(_gemm, "bf16"),
    "gemm fp32": partial(_gemm, "fp32"),
    "train on one": partial(_train, "ddp1-mb4"),
    "train bf16": partial(_train, "ddp1-mb4", precision="bf16", **ADAMW),
    **{op: partial(_collective, op) for op in get_args(Op)},
    "train ddp": partial(_train, "ddp2-mb2"),
    "train fsdp": partial(_train, "fsdp2-mb2"),
    "train tp": partial(_train, "tp2-mb4"),
    "train pp": partial(_train, "pp2-mb2"),
    "train cp": _context_parallel,
    "train experts": _experts,
    "trace": _traced,
    "train compiled": _compiled,
}  # fmt: skip
"""Checks by name, in order: what others need first, and the slow ones last."""
