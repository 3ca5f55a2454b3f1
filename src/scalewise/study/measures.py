"""Axes and metrics of study files, by name.

    axis("accelerators").label            # "GPUs"
    metric("mfu").show(0.4077)            # "40.8%"

An axis is what a point is asked for; a metric (`scalewise.metrics`) is what comes back.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalewise.errors import InputError, did_you_mean
from scalewise.metrics import METRICS, Metric
from scalewise.units import format_bytes

__all__ = ["AXES", "METRICS", "Axis", "Metric", "Value", "axis", "metric"]

Value = str | int | float
"""Value of an axis."""


@dataclass(frozen=True)
class Axis:
    """One property in which points differ."""

    name: str
    """Name in study files and data files."""
    label: str
    """Name in figures and tables."""
    log: bool = False
    """Whether its values double rather than increase by steps."""

    def show(self, value: Value) -> str:
        """Return a value as text."""
        if self.name == "message_bytes":
            return format_bytes(float(value))
        if isinstance(value, str):
            return value.replace("_", "-") if self.name == "collective" else value
        return f"{value:,.10g}"


def _axes(*found: Axis) -> dict[str, Axis]:
    return {each.name: each for each in found}


AXES = _axes(
    Axis("model", "model"),
    Axis("case", "case"),
    Axis("cluster", "cluster"),
    Axis("variant", "cluster variant"),
    Axis("algorithm", "collective algorithm"),
    Axis("precision", "precision"),
    Axis("stack", "software stack"),
    Axis("seq_len", "sequence length", log=True),
    Axis("strategy", "strategy"),
    Axis("tp", "tensor parallel degree", log=True),
    Axis("pp", "pipeline stages", log=True),
    Axis("cp", "context parallel degree", log=True),
    Axis("accelerators", "GPUs", log=True),
    Axis("nodes", "nodes", log=True),
    Axis("collective", "collective"),
    Axis("message_bytes", "message size", log=True),
    Axis("change", "change"),
)
"""Every axis, in the order of columns."""


def axis(name: str) -> Axis:
    """Return an axis by name.

    Raises:
        InputError: If it is unknown.
    """
    if name not in AXES:
        raise InputError(f"unknown axis `{name}`", hint=did_you_mean(name, AXES))
    return AXES[name]


def metric(name: str) -> Metric:
    """Return a metric by name.

    Raises:
        InputError: If it is unknown.
    """
    if name not in METRICS:
        raise InputError(f"unknown metric `{name}`", hint=did_you_mean(name, METRICS))
    return METRICS[name]
