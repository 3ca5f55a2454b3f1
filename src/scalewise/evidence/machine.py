"""Calibration of a user's own machine: few physical constants, fitted to its records.

    fit = MachineFit("my-cluster").fit(gather(read_records("records/").records))
    fit.constants_                     # name, value, unit, spread, where it came from
    fit.cluster_, fit.chip_, fit.stack_
    fit.predict([job, ...])            # seconds of a step

Three fits, each on the records that determine it: kernels give the rates of a device, collectives
its links, and whole steps on one device what kernels alone do not show. Steps on several devices
are never fitted: they validate the calibration.

Estimates count 16-bit elements. A machine calibrated in fp32 (CPUs) moves four bytes where they
count two, so its links count as half as fast; the files say so.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from scalewise.chip import Calibration
from scalewise.cluster import Accelerator, Cluster, Fabric
from scalewise.errors import InputError
from scalewise.evidence.machine_host import host_constants
from scalewise.evidence.machine_kernels import KernelRates, Residual
from scalewise.evidence.machine_links import LinkRates
from scalewise.evidence.machine_nouns import Learned, accelerator_of, cluster_of, stack_of
from scalewise.evidence.machine_rows import MachineData, Step
from scalewise.evidence.parameters import Parameter
from scalewise.evidence.robust import Key, learn
from scalewise.numeric import Array
from scalewise.ranges import Basis, knowledge_of, level_range, parts_of
from scalewise.records.job import TrainJob
from scalewise.stack import Stack
from scalewise.step.compose import compose
from scalewise.step.layout import lay_out
from scalewise.step.terms import step_terms
from scalewise.strategies import Strategies

STEP_SCALE = 0.05
"""Residual (log) at which a step starts to count less: about the repeatability of launches."""

MIN_SIGMA = 0.05
"""Launches on one machine differ by more than this whatever the fit says (log)."""

WORST = 0.5
"""Median residual (log) from which timings do not follow the model at all."""

WIRE_SHARE = 0.3
"""Share of a step on several devices that communication may be: how much the residuals of links
count in the interval. An assumption."""

# Factors by which whole steps may move a constant: log spread of the belief that it stays. A step
# sustains 0.81 to 0.91 of a GEMM alone on GPUs; traffic of a block in a step has cold caches; the
# launches of a layer are counted, not measured.
STEP_FACTORS = {"gemm": 0.3, "memory_traffic": 0.5, "host_layer_seconds": 0.7}
# Constant of a step, seconds, with its log spread: from nothing to a launch per parameter.
STEP_SECONDS = (2e-3, 1.5)


class Constant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number of a calibration."""

    name: str
    """What it is."""
    value: float
    """SI."""
    unit: str
    """Of the value; "" for a factor."""
    spread: float
    """Factor of one standard deviation; 1 if it was not fitted."""
    source: str
    """Kind of timing that taught it: "kernels", "collectives", "host", "steps", "not measured"."""


class MachineFit:
    """Constants of one machine; learned values end in an underscore.

    Args:
        name: Under which the catalog shall know it.

    Attributes:
        constants_: Everything that was learned.
        residuals_: One for each timing that taught something.
        accelerator_: The device: the catalog's, or one made of what was measured.
        chip_, fabric_, cluster_, stack_: Catalog structs with the constants.
        interval_: 80 % interval of throughput, as factors.
        fitted_on_: What it was fitted on, when, with which software, in a sentence.
        notes_: What a reader should know.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.constants_: list[Constant] = []
        self.residuals_: list[Residual] = []
        self.notes_: list[str] = []
        self.interval_: tuple[float, float] = (1.0, 1.0)
        self.fitted_on_ = ""
        self.accelerator_: Accelerator
        self.chip_: Calibration
        self.fabric_: Fabric
        self.cluster_: Cluster
        self.stack_: Stack

    def fit(self, data: MachineData) -> MachineFit:
        """Learn from what was measured.

        Raises:
            InputError: If timings do not follow the model at all.
        """
        self.constants_, self.residuals_, self.notes_ = [], [], list(data.notes)
        known = data.accelerator is not None
        _refuse_devices(data)
        units, nvls = _silicon(data)
        kernels = KernelRates(units=units)
        if data.kernels:
            kernels.fit(data.kernels)
        elif not known:
            raise InputError(
                "no kernel was timed, and this device is not in the catalog",
                hint="run `scalewise measure kernels`",
            )
        links = LinkRates(domain=1 if data.kind == "cpu" else data.ranks_per_node,
                          nvls=nvls)  # fmt: skip
        if data.collectives:
            links.fit(data.collectives)
        for what, residuals in (("kernels", kernels.residuals_), ("collectives", links.residuals_)):
            _refuse_nonsense(what, residuals)
        self._note(kernels.values_, kernels.spread_, "kernels")
        self._note(links.values_, links.spread_, "collectives")
        hidden = overlap_of(data.beside)
        if hidden is not None:
            self._note({"overlap": hidden}, {}, "collectives")
        learned = Learned(
            name=self.name, data=data, rates=kernels.values_, links=links.values_, overlap=hidden,
            units=units, fitted_on=self._describe(data),
        )  # fmt: skip
        self.fitted_on_ = learned.fitted_on
        self.accelerator_, self.chip_ = accelerator_of(learned)
        self.fabric_, self.cluster_ = cluster_of(learned, self.accelerator_)
        self.stack_ = stack_of(learned)
        self.residuals_ = [*kernels.residuals_, *links.residuals_]
        sigma = self._fit_steps(data.steps) if data.steps and data.kernels else None
        if sigma is None:
            self.notes_.append(
                "no step on one device was measured: the interval is that of unknown software"
            )
            self.stack_ = msgspec.structs.replace(self.stack_, largest_run=0)
        else:
            self.stack_ = msgspec.structs.replace(
                self.stack_, own_runs=len(data.steps), own_noise=round(sigma, 4)
            )
        self._fit_host(data, kernels)
        self.interval_ = interval_of(self.stack_)
        return self

    def predict(self, jobs: Sequence[TrainJob]) -> Array:
        """Seconds of one step of each job, on as many devices as its strategy needs."""
        return np.array([self._seconds(job, self.stack_) for job in jobs])

    def _seconds(self, job: TrainJob, stack: Stack) -> float:
        workload = job.workload("bf16")
        cluster = msgspec.structs.replace(self.cluster_, accelerators=job.ranks)
        case = lay_out(
            job.model, cluster, workload, Strategies.of([job.strategy]), stack, self.chip_
        )
        return float(np.asarray(step_terms(case, compose(case))[1])[0])

    def _fit_steps(self, steps: Sequence[Step]) -> float:
        """Move what kernels alone do not show; the log spread of what is left."""
        base = self.stack_
        measured = np.array([step.seconds for step in steps])
        beliefs = {name: (1.0, spread) for name, spread in STEP_FACTORS.items()
                   if getattr(base, name) > 0.0}  # fmt: skip
        beliefs["overhead_seconds"] = STEP_SECONDS
        parameters: dict[Key, Parameter] = {
            ("stack", "", name): Parameter(
                name=name, scope="stack", prior=prior, spread=spread,
                low=prior / 1e3, high=prior * 1e3,
            )
            for name, (prior, spread) in beliefs.items()
        }  # fmt: skip

        def stack(values: dict[Key, float]) -> Stack:
            changes: dict[str, float] = {}
            for (_, _, name), value in values.items():
                whole = name == "overhead_seconds"
                changes[name] = value if whole else getattr(base, name) * value
            return msgspec.structs.replace(base, **changes)

        def error(values: dict[Key, float]) -> Array:
            software = stack(values)
            seconds = [self._seconds(step.job, software) for step in steps]
            return np.asarray(np.log(np.array(seconds) / measured))

        found = learn(error, parameters, np.ones(len(steps)), STEP_SCALE)
        self.stack_ = stack(found.values)
        off = error(found.values)
        for name in beliefs:
            text = "step_gemm_factor" if name == "gemm" else name
            self.constants_ = [c for c in self.constants_ if c.name != text]
            spread = found.spread["stack", "", name]
            self._note({text: float(getattr(self.stack_, name))}, {text: spread}, "steps")
        stepped = [
            Residual(
                part="step",
                label=f"{step.job.model.name} {step.job.strategy}",
                size=float(step.job.tokens_per_step),
                measured=step.seconds,
                predicted=float(seconds),
            )
            for step, seconds in zip(steps, self.predict([s.job for s in steps]), strict=True)
        ]
        _refuse_nonsense("steps on one device", stepped)
        self.residuals_.extend(stepped)
        # Few steps under several constants leave residuals that are too good to be true.
        free = max(len(steps) - len(beliefs), 1)
        fit_variance = float(np.sum(off * off)) / free
        launches = [np.log(np.array(s.launches) / s.seconds) for s in steps if len(s.launches) > 1]
        noise = float(np.mean(np.concatenate(launches) ** 2)) if launches else 0.0
        links = [r.off for r in self.residuals_ if r.part in ("all_gather", "all_reduce")]
        # A step on several devices is part communication, of which residuals know the error.
        wire = (WIRE_SHARE * float(np.median(np.abs(links)))) ** 2 if links else 0.0
        return max(float(np.sqrt(fit_variance + noise + wire)), MIN_SIGMA)

    def _fit_host(self, data: MachineData, kernels: KernelRates) -> None:
        """Add the time of PyTorch's wrappers, which no kernel and no step on one device has."""
        if not data.host or "memory_rate" not in kernels.values_:
            if data.kind == "cpu":
                self.notes_.append("host time was not measured: FSDP and TP are predicted too fast")
            return
        found = host_constants(
            data.host,
            data.host_plan,
            lambda job: self._seconds(job, self.stack_),
            kernels.values_["memory_rate"],
        )
        self.stack_ = msgspec.structs.replace(self.stack_, **found.values)
        self._note(found.values, found.spread, "host")

    def _note(self, values: dict[str, float], spread: dict[str, float], source: str) -> None:
        for name, value in values.items():
            self.constants_.append(
                Constant(name=name, value=value, unit=UNITS.get(name, ""),
                         spread=spread.get(name, 1.0), source=source)
            )  # fmt: skip

    def _describe(self, data: MachineData) -> str:
        days = " to ".join(dict.fromkeys(day for day in data.dates if day))
        parts = [
            f"{len(data.kernels)} kernels",
            f"{len(data.collectives)} collectives",
            *([f"{len(data.host)} steps of host time"] if data.host else []),
            f"{len(data.steps)} jobs on one device",
        ]
        when = f", {days}" if days else ""
        return f"{', '.join(parts)} measured on {data.device}{when} ({data.software})"


UNITS = {
    "gemm_flops": "FLOP/s", "attention_forward_flops": "FLOP/s",
    "attention_backward_flops": "FLOP/s", "memory_rate": "bytes/s", "scale_up_rate": "bytes/s",
    "scale_out_rate": "bytes/s", "hop_seconds": "s", "call_seconds": "s", "launch_seconds": "s",
    "overhead_seconds": "s", "host_layer_seconds": "s", "logit_bytes": "bytes",
    "optimizer_bytes": "bytes", "fsdp_host_seconds": "s", "fsdp_step_seconds": "s",
    "fsdp_copy_bytes": "bytes", "tp_host_seconds": "s", "tp_step_seconds": "s",
}  # fmt: skip


def overlap_of(beside: Sequence[dict[str, float]]) -> float | None:
    """Fraction of an all-reduce that is overlapped, 0 to 1; None if not measured."""
    shares = [
        1.0 - (each["together_seconds"] - each["compute_seconds"]) / each["communication_seconds"]
        for each in beside
    ]
    return float(np.clip(np.median(shares), 0.0, 1.0)) if shares else None


def _refuse_devices(data: MachineData) -> None:
    """Refuse devices of which too little is known to write a file."""
    if data.accelerator is None and data.kind != "cpu":
        raise InputError(
            f"{data.device} is not in the catalog, so its memory and datasheet are missing",
            hint="write an accelerator file for it, and measure again with --on its name",
        )
    if data.accelerator is not None and data.dtype != "bf16":
        raise InputError(
            f"{data.accelerator} was timed in {data.dtype}, but its datasheet is used in bf16",
            hint="run `scalewise measure kernels --precision bf16` into a new folder",
        )


def _silicon(data: MachineData) -> tuple[float, bool]:
    """Return the compute units of the device, and whether its switch can reduce."""
    if data.accelerator is None:
        return 1.0, False
    from scalewise.catalog import load_accelerator

    chip = load_accelerator(data.accelerator)
    return float(chip.compute_units or 1), chip.nvls


def _refuse_nonsense(what: str, residuals: Sequence[Residual]) -> None:
    """Refuse timings that no constants explain; long ones count most, as they do in a step."""
    if not residuals:
        return
    order = sorted(residuals, key=lambda r: abs(r.off))
    passed = np.cumsum([r.measured for r in order])
    middle = abs(order[int(np.searchsorted(passed, passed[-1] / 2.0))].off)
    if middle > WORST:
        raise InputError(
            f"no set of constants fits the timings of {what}: for half of the time they are "
            f"off by more than {100 * float(np.expm1(middle)):.0f}% ({order[-1].label} most)",
            hint="measure again on an idle machine, into a new folder",
        )


def interval_of(stack: Stack) -> tuple[float, float]:
    """Return the 80% interval of a step like those that were measured, which compute only."""
    low, high = level_range(
        Basis(
            rate=1.0, parts=parts_of({"gemm": 1.0}, 1.0), software=stack.name, family="",
            chip="", accelerators=1, beyond=0.0, parameters=1.0, seq_len=1, tokens=1.0,
            knowledge=knowledge_of(stack, stated=True), own_runs=stack.own_runs,
            own_noise=stack.own_noise if stack.own_runs else 0.0,
        )
    )  # fmt: skip
    return round(low, 3), round(high, 3)
