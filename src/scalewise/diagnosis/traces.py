"""A trace beside the predicted step: part by part, and what differs.

    beside = lay_beside(estimate, read_trace("traces/"))
    beside.rows[0].label, beside.rows[0].predicted, beside.rows[0].measured      # seconds per step
    beside.profile                   # the same as fractions: evidence for the odds of causes

Kernels are told apart by name, collectives by process group. The step that was predicted and the
one that was traced have the same parts, so that both columns add up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.diagnosis.measured import Measurement
from scalewise.diagnosis.parts import GROUPS, LABELS, seconds_by_part, shares
from scalewise.errors import InputError
from scalewise.trace.waiting import WAITS_FROM, late, sentence
from scalewise.units import format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from scalewise.step.result import Estimate
    from scalewise.trace.summary import TraceSummary, Waiting

COUNTS_FROM = 0.05
"""Fraction of the predicted step from which a difference is named."""

TIMES = 1.2
"""Factor between measured and predicted from which it is named."""

UNKNOWN_MOST = 0.02
"""Fraction of the step in collectives of unknown groups up to which groups are compared."""

_WORDS = (
    ("dp", r"\bdp\b|fsdp|data|shard|replica|zero"),
    ("pp", r"\bpp\b|pipe"),
    ("tp", r"\btp\b|tensor|\bmp group|model ?parallel"),
    ("cp", r"\bcp\b|context|ulysses|sequence ?parallel"),
    ("ep", r"\bep\b|expert"),
)
"""Part by words in the description of a process group: those of torchtitan's meshes, Megatron-LM,
DeepSpeed and simulated steps. The first that fits: Megatron-LM has "data parallel group with CP"
and "pipeline model parallel group"."""

_MEANS = {
    "gemm": "throttled GPUs, 32-bit compute, recompute, or other shapes than stated",
    "attention": "a kernel that is not fused, or another sequence length",
    "kernels": "eager code, casts, or an optimizer that is not fused",
    "compute": "throttled GPUs, 32-bit compute, recompute, eager code",
    "tp": "links inside the node, or groups that leave it",
    "cp": "links of the ring, or groups that leave the node",
    "ep": "all-to-all between nodes, or uneven experts",
    "dp": "the network between nodes, no overlap, or a slow rank",
    "sharding": "the network between nodes, or no overlap",
    "pp": "the pipeline bubble, uneven stages, or the network between nodes",
    "p2p": "the network between nodes",
    "exposed": "the network, no overlap, or a slow rank",
    "idle": "launch gaps, data loading, or synchronization with the host",
    "waiting": "launch gaps, the pipeline bubble, or a slow rank",
}
"""What more time in a part means."""


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """One part of the step, predicted and measured."""

    part: str
    """Key in `parts.PROFILE`."""
    label: str
    predicted: float
    """Seconds per step."""
    measured: float
    """Seconds per step."""
    differs: bool
    """Whether the difference is large enough to be named."""
    means: str
    """What more time in it means; empty unless it takes longer."""


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """Collectives of one parallelism, overlapped and exposed."""

    part: str
    group: str
    """Process group as the trace names it."""
    predicted: float
    """Seconds per step."""
    measured: float
    """Seconds per step, waiting included."""
    rate: float | None
    """Bytes per second of a rank's calls; None where the trace has no sizes."""


@dataclass(frozen=True, kw_only=True)
class TraceBeside:
    """A trace beside the prediction."""

    step_seconds: float
    """Time of a step as traced."""
    predicted_seconds: float
    rows: tuple[PartRow, ...]
    """Parts that add up to the step."""
    groups: tuple[GroupRow, ...]
    waiting: tuple[Waiting, ...]
    """Waits for a late rank that are worth naming; seconds are those of all traced steps."""
    waited: dict[str, float]
    """Fraction of the traced time that ranks wait for late ones, by part of the group."""
    findings: tuple[str, ...]
    """What differs, in sentences, largest first."""
    profile: dict[str, float]
    """Measured fractions of the step, the evidence."""
    notes: tuple[str, ...]


def steps_of(trace: TraceSummary) -> int | None:
    """Return the steps that the times of a trace cover; None where it has no steps."""
    counted = sum(step.counted for step in trace.steps)
    return counted or (1 if len(trace.steps) == 1 else None)


def measurement_of(trace: TraceSummary) -> Measurement:
    """Return the time of a step as a measured number.

    Raises:
        InputError: If the trace has no steps.
    """
    steps = steps_of(trace)
    if steps is None:
        raise InputError(
            "the trace has no steps, so it does not say how long one takes",
            hint='add --measured, such as "0.86 s/step", or call prof.step() after each step',
            field="measured",
        )
    seconds = trace.window_seconds / steps
    return Measurement(
        key="", value=seconds, unit="s/step", text=f"{format_seconds(seconds)}/step in the trace"
    )


def lay_beside(e: Estimate, trace: TraceSummary, step_seconds: float | None = None) -> TraceBeside:
    """Return a trace beside the prediction of its run.

    Args:
        e: Prediction.
        trace: What was read.
        step_seconds: Measured time of a step, where the trace has no steps.
    """
    steps = steps_of(trace)
    window = trace.window_seconds
    step = window / steps if steps is not None else step_seconds or e.step_seconds
    simulated = all(rank.step_clock == "simulated" for rank in trace.ranks)
    measured, notes = _measured(e, trace, simulated=simulated)
    usual = seconds_by_part(e.terms)
    rows = []
    for part, fraction in measured.items():
        expected, found = float(shares(usual, part)), fraction * step
        more = abs(found - expected) > COUNTS_FROM * e.step_seconds
        differs = more and max(found, expected) > TIMES * min(found, expected)
        if max(found, expected) < 1e-3 * step:
            continue
        rows.append(
            PartRow(
                part=part, label=LABELS[part], predicted=expected, measured=found, differs=differs,
                means=_MEANS[part] if differs and found > expected else "",
            )
        )  # fmt: skip
    groups = _groups(e, trace, step / window)
    named = late(trace.waiting, window)
    return TraceBeside(
        step_seconds=step,
        predicted_seconds=e.step_seconds,
        rows=tuple(rows),
        groups=groups,
        waiting=named,
        waited=_waited(e, trace),
        findings=(
            *(sentence(row, window) for row in named),
            *_differences(rows),
            *_slow_groups(e, groups),
        ),
        profile=measured,
        notes=notes,
    )


def part_of(name: str, size: int | None, e: Estimate) -> str | None:
    """Return the part of a process group: by its name, else by its size; None where it is unknown.

    Args:
        name: Of the group, as the trace has it.
        size: Its ranks, if known.
        e: Prediction: the degrees of its strategy.
    """
    split = e.strategy
    degrees = {"tp": split.tp, "pp": split.pp, "cp": split.cp, "ep": split.ep,
               "dp": split.data_parallel}  # fmt: skip
    # In regular expressions an underscore is a letter.
    words_of = re.sub("[_-]+", " ", name.lower())
    for part, words in _WORDS:
        if re.search(words, words_of):
            return part if degrees[part] > 1 else None
    several = [part for part, degree in degrees.items() if degree > 1]
    if len(several) == 1:
        return several[0]
    alike = [part for part in several if degrees[part] == size]
    return alike[0] if len(alike) == 1 else None


def _measured(
    e: Estimate, trace: TraceSummary, *, simulated: bool
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return measured fractions of the step, as fine as the trace allows; they add up to 1."""
    window = trace.window_seconds
    notes = []
    found: dict[str, float] = {}
    kinds = trace.kernels
    if kinds.get("gemm", 0.0) > 0.0:
        names = {"gemm": "gemm", "attention": "attention", "other": "kernels"}
        found |= {part: kinds.get(kind, 0.0) / window for kind, part in names.items()}
    else:
        found["compute"] = trace.compute_seconds / window
        if trace.ranks[0].device != "cpu":
            notes.append("no kernel is a GEMM by its name: compute is compared as a whole")
    by_part = dict.fromkeys(("tp", "cp", "ep", "dp", "pp"), 0.0)
    unknown = 0.0
    for row in trace.groups:
        part = part_of(row.name, row.group_size, e)
        if part is None:
            unknown += row.exposed_seconds
        else:
            by_part[part] += row.exposed_seconds
    total = sum(by_part.values())
    if unknown > UNKNOWN_MOST * window:
        found["exposed"] = trace.exposed_seconds / window
        notes.append(
            "process groups of the trace have no known name: communication is compared as a whole"
        )
    else:
        # Concurrent calls each count in full.
        scale = trace.exposed_seconds / total if total > 0.0 else 0.0
        names = {"dp": "sharding", "pp": "p2p"} if simulated else {}
        found |= {names.get(part, part): scale * seconds / window
                  for part, seconds in by_part.items()}  # fmt: skip
    found["waiting" if simulated else "idle"] = (
        trace.idle_seconds + trace.copy_only_seconds
    ) / window
    return found, tuple(notes)


def _groups(e: Estimate, trace: TraceSummary, scale: float) -> tuple[GroupRow, ...]:
    """Return the collectives of every known group beside those predicted."""
    usual = {part: e.comm_seconds.get(group, 0.0) for group, part in GROUPS.items()}
    found = []
    for row in trace.groups:
        part = part_of(row.name, row.group_size, e)
        if part is None or row.communication_seconds <= 0.0:
            continue
        rate = None if row.bytes is None else row.bytes / row.communication_seconds
        found.append(
            GroupRow(part=part, group=row.name, predicted=usual[part],
                     measured=row.communication_seconds * scale, rate=rate)
        )  # fmt: skip
    return tuple(found)


def _waited(e: Estimate, trace: TraceSummary) -> dict[str, float]:
    """Return the fraction of the time that ranks wait for late ones, by part."""
    found: dict[str, float] = {}
    for row in trace.waiting:
        part = part_of(row.group, row.group_size, e)
        if part is not None:
            found[part] = found.get(part, 0.0) + row.waited_seconds / trace.window_seconds
    return found


def _differences(rows: list[PartRow]) -> list[str]:
    """Return the parts that differ, those that take most longer first."""
    texts = []
    for row in sorted(rows, key=lambda each: each.predicted - each.measured):
        if not row.differs:
            continue
        seconds = (
            f"{format_seconds(row.measured)} per step, {format_seconds(row.predicted)} predicted"
        )
        times = f"{row.measured / row.predicted:.1f} times" if row.predicted > 0.0 else "new"
        text = f"{row.label}: {seconds} ({times})"
        texts.append(f"{text}: {row.means}" if row.means else text)
    return texts


def _slow_groups(e: Estimate, groups: tuple[GroupRow, ...]) -> list[str]:
    """Return collectives that take longer than predicted, overlapped or not, with their rate."""
    parts: dict[str, list[GroupRow]] = {}
    for row in groups:
        parts.setdefault(row.part, []).append(row)
    texts = []
    for part, rows in parts.items():
        measured = sum(row.measured for row in rows)
        usual = rows[0].predicted
        if usual <= 0.0 or measured < TIMES * usual:
            continue
        if measured - usual < COUNTS_FROM * e.step_seconds:
            continue
        rates = [row.rate for row in rows]
        text = f"{part.upper()} collectives run at {format_percent(usual / measured, decimals=0)}"
        text += " of the predicted bandwidth, waiting included"
        if len(rates) == 1 and rates[0] is not None:
            text += f": {format_rate(rates[0])} of data per rank"
        texts.append(text)
    return texts


def has_all_nodes(e: Estimate, trace: TraceSummary) -> bool:
    """Return whether a rank of every node was traced."""
    node = e.cluster.scale_up_domain
    return len({rank.rank // node for rank in trace.ranks if rank.rank is not None}) >= max(
        e.cluster.nodes, 2
    )


def with_waits(
    profile: Mapping[str, float], beside: TraceBeside, *, whole: bool
) -> dict[str, float]:
    """Return a profile in which waiting for late ranks is apart from the collectives.

    Args:
        profile: Fractions of the step.
        beside: The trace.
        whole: Whether a rank of every node was traced; else a late one may be elsewhere.
    """
    found = dict(profile)
    waits = {part: min(share, found[part]) for part, share in beside.waited.items()
             if part in found}  # fmt: skip
    if "dp" not in found or not (whole or sum(waits.values()) > WAITS_FROM):
        return found
    found["sharding"] = found.pop("dp") - waits.pop("dp", 0.0)
    apart = profile["dp"] - found["sharding"]
    for part, share in waits.items():
        found[part] -= share
    found["straggler"] = apart + sum(waits.values())
    return found
