"""Result of a diagnosis: data only; drawing is `report.diagnose_table`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from scalewise.results import Result

if TYPE_CHECKING:
    from scalewise.ask.defaults import Default
    from scalewise.diagnosis.logs import LogSummary
    from scalewise.diagnosis.stalls import StallCost
    from scalewise.diagnosis.traces import TraceBeside
    from scalewise.step.result import Estimate

Verdict = Literal["normal", "slow", "fast"]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One measured run against its prediction."""

    label: str
    """GPUs and strategy."""
    text: str
    """Number as it was written."""
    gpus: int
    strategy: str
    stack: str
    measured: float
    """Tokens/s per GPU."""
    expected: float
    """Predicted tokens/s per GPU."""
    low: float
    """Low end of the 80% prediction interval."""
    high: float
    percentile: float
    """Fraction of healthy runs that are slower, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One cause with its odds, and the value of its parameter that meets the measurements."""

    key: str
    label: str
    group: str
    odds: float
    """Probability, 0 to 1."""
    value: float | None
    """Of its parameter, SI; None without one."""
    low: float | None
    """10% quantile of the value."""
    high: float | None
    text: str
    """Value and its range as text; empty without a parameter."""
    healthy: str
    """Healthy value as text."""
    misfit: float
    """Largest error of the explained runs, |log(measured / predicted)|, level included."""
    mended: float
    """Tokens/s per GPU after it is mended."""
    check: str
    mend: str


@dataclass(frozen=True, kw_only=True)
class Group:
    """Causes that look alike."""

    key: str
    label: str
    odds: float
    causes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NextMeasurement:
    """One further measurement: what it would say, and what it needs."""

    key: str
    label: str
    bits: float
    """Expected information about the cause."""
    gpu_hours: float
    """What it occupies."""
    outcomes: tuple[tuple[str, tuple[str, ...]], ...]
    """What it shows, and which causes that means."""
    usd: float | None = None
    """Cost; None where the price of a GPU is unknown."""


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """One published run that is close."""

    source: str
    reference: str
    model: str
    gpus: int
    accelerator: str
    seq_len: int
    strategy: str
    rate: float
    """Tokens/s per GPU."""
    mfu: float
    """In the causal convention."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Diagnosis(Result):
    """Measured runs against predictions: verdict, causes with odds, what to measure next."""

    estimate: Estimate
    """Prediction of the first run."""
    runs: tuple[Judged, ...]
    verdict: Verdict
    healthy: float
    """Probability that all is as predicted."""
    other: float
    """Probability of a cause that is not on the list."""
    causes: tuple[Finding, ...]
    """Most likely first."""
    groups: tuple[Group, ...]
    """Most likely first."""
    ruled_out: tuple[str, ...]
    """Labels of causes that could be here, and have odds below 1%."""
    entropy: float
    """Uncertainty about the cause that is left, bits."""
    following: tuple[NextMeasurement, ...]
    """Next measurements, best first."""
    comparable: tuple[Comparable, ...]
    """Published runs, nearest first."""
    faster: tuple[str, ...]
    """What may make a run look faster than it can be; for the verdict "fast"."""
    notes: tuple[str, ...]
    changes: tuple[str, ...]
    defaults: tuple[Default, ...]
    logs: tuple[LogSummary, ...] = ()
    """What logs say besides the measured numbers: steps used, stalls, drift."""
    stalls: tuple[StallCost, ...] = ()
    """What stalls in the log of the first run cost."""
    trace: TraceBeside | None = None
    """A trace beside the prediction."""

    @property
    def loss(self) -> float:
        """Predicted over measured tokens/s of the first run."""
        return self.runs[0].expected / self.runs[0].measured

    @property
    def mfu(self) -> float:
        """Measured MFU of the first run, causal."""
        e = self.estimate
        flops = e.model.training_flops(e.workload.seq_len, "causal")
        return self.runs[0].measured * flops / e.peak_flops

    @property
    def best(self) -> Finding | None:
        """The most likely cause."""
        return self.causes[0] if self.causes else None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON and tables."""
        e = self.estimate
        return {
            "model": e.model.name,
            "cluster": {"name": e.cluster.name, "accelerators": e.cluster.accelerators},
            "strategy": str(e.strategy),
            "stack": e.stack.name,
            "workload": {"seq_len": e.workload.seq_len, "global_batch": e.workload.global_batch,
                         "precision": e.workload.precision},
            "verdict": self.verdict,
            "loss": self.loss,
            "mfu": self.mfu,
            "healthy": self.healthy,
            "other": self.other,
            "entropy_bits": self.entropy,
            "runs": [asdict(each) for each in self.runs],
            "causes": [asdict(each) for each in self.causes],
            "groups": [asdict(each) for each in self.groups],
            "ruled_out": list(self.ruled_out),
            "next": [asdict(each) for each in self.following],
            "comparable": [asdict(each) for each in self.comparable],
            "faster": list(self.faster),
            "logs": [each.to_dict() for each in self.logs],
            "stalls": [asdict(each) for each in self.stalls],
            "trace": _trace_dict(self.trace),
            "notes": list(self.notes),
            "changes": list(self.changes),
            "defaults": [str(each) for each in self.defaults],
        }  # fmt: skip


def _trace_dict(trace: TraceBeside | None) -> dict[str, Any] | None:
    """Return a trace beside the prediction as plain types."""
    if trace is None:
        return None
    plain = asdict(trace)
    return plain | {"waiting": [msgspec.to_builtins(each) for each in trace.waiting]}
