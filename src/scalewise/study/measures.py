"""What can a study vary, and what can it read off? The words of study files, with their units.

    AXES["accelerators"].label            # "accelerators"
    METRICS["mfu"].show(0.4077)           # "40.8 %"

An axis is what a point is asked for; a metric is what comes back. Values are SI inside; a
metric's `factor` and `label` say how axes of figures and heads of tables show it.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalewise.errors import InputError, did_you_mean
from scalewise.units import format_bytes

GIB = float(2**30)

Value = str | int | float
"""Of an axis."""


@dataclass(frozen=True)
class Axis:
    """One thing that points differ in."""

    name: str
    """In files."""
    label: str
    """In figures and tables."""
    log: bool = False
    """Whether its values double rather than rise by steps."""

    def show(self, value: Value) -> str:
        """Tell one value to people."""
        if self.name == "message_bytes":
            return format_bytes(float(value))
        if isinstance(value, str):
            return value.replace("_", "-") if self.name == "collective" else value
        return f"{value:,.10g}"


@dataclass(frozen=True)
class Metric:
    """One thing that a point answers."""

    name: str
    """In files."""
    label: str
    """Of axes and columns, with its unit."""
    factor: float = 1.0
    """From SI to the unit of the label."""
    digits: int = 3
    """Significant ones in tables."""
    zero: bool = True
    """Whether its axis begins at zero."""

    @property
    def is_share(self) -> bool:
        """Whether it is shown in per cent."""
        return self.factor == 100.0

    @property
    def words(self) -> tuple[str, str]:
        """What it is, and its unit: "bus bandwidth" and "GB/s"; no unit where the name has it."""
        name, comma, unit = self.label.rpartition(", ")
        return (name, unit) if comma else (self.label, "")

    def show(self, value: float | None) -> str:
        """Tell one value to people, without its unit unless that is per cent."""
        if value is None:
            return "-"
        shown = value * self.factor
        if self.is_share:
            return f"{shown:.1f} %"
        if abs(shown) >= 10.0**self.digits:
            return f"{shown:,.0f}"
        return f"{shown:.{self.digits}g}"


def _axes(*found: Axis) -> dict[str, Axis]:
    return {each.name: each for each in found}


def _metrics(*found: Metric) -> dict[str, Metric]:
    return {each.name: each for each in found}


AXES = _axes(
    Axis("model", "model"),
    Axis("cluster", "cluster"),
    Axis("variant", "variant of the cluster"),
    Axis("algorithm", "collective algorithm"),
    Axis("precision", "precision"),
    Axis("stack", "software stack"),
    Axis("sequence", "tokens per sequence", log=True),
    Axis("strategy", "strategy"),
    Axis("tp", "tensor parallelism", log=True),
    Axis("pp", "pipeline stages", log=True),
    Axis("cp", "context parallelism", log=True),
    Axis("accelerators", "accelerators", log=True),
    Axis("nodes", "scale-up domains (nodes)", log=True),
    Axis("collective", "collective"),
    Axis("message_bytes", "message", log=True),
    Axis("change", "what is changed"),
)
"""Every axis, in the order of columns."""

METRICS = _metrics(
    Metric("tokens_per_second", "tokens/s"),
    Metric("tokens_per_second_per_accelerator", "tokens/s per accelerator"),
    Metric("scaling_efficiency", "tokens/s per accelerator, % of the smallest size", 100.0),
    Metric("speedup", "speed over the smallest size"),
    Metric("tflops_per_accelerator", "model TFLOP/s per accelerator"),
    Metric("mfu", "MFU, %", 100.0),
    Metric("hfu", "HFU, %", 100.0),
    Metric("step_seconds", "step, s"),
    Metric("load_share", "communication load, % of the step", 100.0),
    Metric("exposed_share", "exposed communication, % of the step", 100.0),
    Metric("contention_share", "slow-down by hidden communication, % of the step", 100.0),
    Metric("communication_share", "exposed communication + contention, % of the step", 100.0),
    Metric("hidden_share", "communication hidden, % of its load", 100.0),
    Metric("bubble_share", "pipeline bubble, % of the step", 100.0),
    Metric("gather_seconds", "gather of one layer, ms", 1e3),
    Metric("gather_latency_share", "latency, % of a layer's gather", 100.0),
    Metric("memory_bytes", "memory of the fullest rank, GiB", 1 / GIB),
    Metric("watts_per_accelerator", "W per accelerator", zero=False),
    Metric("site_watts", "MW of the site", 1e-6),
    Metric("tokens_per_joule", "tokens per joule (site)"),
    Metric("usd_per_million_tokens", "$ per million tokens"),
    Metric("marginal_tokens_per_second", "tokens/s per added accelerator"),
    Metric("marginal_tokens_per_joule", "tokens/s per added watt"),
    Metric("marginal_usd_per_million_tokens", "$ per million added tokens"),
    Metric("marginal_return", "return of an added accelerator, % of the first", 100.0),
    Metric("collective_seconds", "time of the collective, ms", 1e3),
    Metric("bus_bandwidth", "bus bandwidth, GB/s", 1e-9),
    Metric("gain", "tokens/s gained, %", 100.0),
    Metric("energy_gain", "tokens per joule gained, %", 100.0),
    Metric("cost_gain", "tokens per dollar gained, %", 100.0),
    Metric("elasticity", "% of tokens/s per % of the quantity", zero=False),
)
"""Every metric, in the order of columns."""


def axis(name: str) -> Axis:
    """Find an axis.

    Raises:
        InputError: If there is no such axis.
    """
    if name not in AXES:
        raise InputError(f"there is no axis `{name}`", hint=did_you_mean(name, AXES))
    return AXES[name]


def metric(name: str) -> Metric:
    """Find a metric.

    Raises:
        InputError: If there is no such metric.
    """
    if name not in METRICS:
        raise InputError(f"there is no metric `{name}`", hint=did_you_mean(name, METRICS))
    return METRICS[name]
