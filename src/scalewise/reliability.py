"""Reliability of a cluster and of its recovery: what goodput depends on.

    r = parse_reliability("rate=3.8e-3/node-day,restart=5min,checkpoint=20s,spares=2")
    r.failure_rate, r.restart, r.sources["failure_rate"]
    parse_reliability("off")                           # None

One file per set of numbers under `catalog/reliability`, each number with its source; `usual` holds
published rates and times. What a user states replaces a number and its source.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.units import parse

USUAL = "usual"
"""Set of numbers where none is named."""

OFF = "off"
"""Word for a run that never fails, checkpoints or restarts."""

YOURS = "stated"
"""Source of a number that the user gave."""


class Reliability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Failures, restarts and checkpoints. SI units."""

    name: str
    """Name."""
    failure_rate: float
    """Failures per node and second that stop the job."""
    failure_rate_low: float | None = None
    """Low end of its published range; None for no range."""
    failure_rate_high: float | None = None
    """High end of it."""
    small_job_factor: float = 1.0
    """Factor on the high end for small jobs, which also fail for other reasons than hardware; on
    the typical rate its root."""
    small_gpus: int = 1024
    """GPUs up to which the factor holds in full."""
    large_gpus: int = 4096
    """GPUs from which it does not hold."""
    node_gpus: int | None = None
    """GPUs of the node that the rates are of; None for the nodes of the cluster."""
    detect: float = 0.0
    """Mean time from a failure until it is noticed, seconds."""
    requeue: float = 0.0
    """Time to start the job again through the scheduler at `requeue_gpus`, seconds."""
    requeue_gpus: int = 2048
    """GPUs of the job that `requeue` is of."""
    requeue_exponent: float = 0.0
    """How it grows with the number of GPUs."""
    standby: float = 1.0
    """Time to start again with a spare node over that through the scheduler."""
    warm_up: float = 0.0
    """Time of initialization and first steps after a restart, seconds."""
    restart: float | None = None
    """Time from a failure until the job trains again, in all, seconds; None for the sum of
    detection, requeue, reload and warm-up."""
    checkpoint: float | None = None
    """Time of one checkpoint, seconds; None for `checkpoint_base` and state over write rate."""
    checkpoint_base: float = 0.0
    """Time of a checkpoint that does not depend on its size, seconds."""
    snapshot_base: float = 0.0
    """The same of a copy to host memory, seconds."""
    write_per_gpu: float | None = None
    """Write rate of storage per GPU, bytes/s; None for no limit."""
    read_per_gpu: float | None = None
    """Read rate of storage per GPU, bytes/s; None for no limit."""
    storage: float | None = None
    """Rate of storage for the whole job, bytes/s; None for no limit."""
    asynchronous: bool = False
    """Whether compute waits for the copy to host memory only, not for the write."""
    interval: float | None = None
    """Training between checkpoints, seconds; None for the best."""
    spares: int = 0
    """Nodes in standby; they cost as much as others."""
    repair: float = 0.0
    """Time until a failed node is back as a spare, seconds."""
    stragglers: float = 0.0
    """Fraction of training time lost to slow nodes beyond the stragglers of the step."""
    planned: float = 0.0
    """Planned stops per failure; each costs a restart without detection and rework."""
    sources: dict[str, str] = {}
    """Source of the numbers by field."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, int | float) and not 0.0 <= value < math.inf:
                raise InputError(f"{field} = {value:g} must be a number from 0 on", field="goodput")
        if self.stragglers >= 1.0:
            raise InputError(
                f"stragglers = {self.stragglers:g} must be below 1", hint="2% is stragglers=0.02"
            )
        for field in ("interval", "write_per_gpu", "read_per_gpu", "storage"):
            if getattr(self, field) == 0.0:
                raise InputError(f"{field} = 0 must be positive", field="goodput")
        if not 0 <= self.spares <= MAX_SPARES:
            raise InputError(f"spares = {self.spares} must be between 0 and {MAX_SPARES:,}")
        if not 1 <= self.small_gpus < self.large_gpus:
            raise InputError(
                f"small_gpus = {self.small_gpus} must be below large_gpus = {self.large_gpus}",
                field="goodput",
            )

    def rates(self, gpus: int) -> tuple[float, float, float]:
        """Return failures per node and second for a job: low, typical, high.

        The high end grows by `small_job_factor` from `large_gpus` down to `small_gpus`, as a power
        of the size, so that a larger job never fails less often. The typical rate grows by its
        root, and stays in the middle of the range.
        """
        low = self.failure_rate if self.failure_rate_low is None else self.failure_rate_low
        high = self.failure_rate if self.failure_rate_high is None else self.failure_rate_high
        full, none = self.small_gpus, self.large_gpus
        part = math.log(none / min(max(gpus, full), none)) / math.log(none / full)
        factor = self.small_job_factor**part
        return low, self.failure_rate * math.sqrt(factor), high * factor


MAX_SPARES = 4096
"""Largest number of spare nodes."""

UNITS = {
    "failure_rate": "failure_rate", "failure_rate_low": "failure_rate",
    "failure_rate_high": "failure_rate", "detect": "seconds", "requeue": "seconds",
    "warm_up": "seconds", "restart": "seconds", "checkpoint": "seconds",
    "checkpoint_base": "seconds", "snapshot_base": "seconds",
    "write_per_gpu": "bytes_per_second", "read_per_gpu": "bytes_per_second",
    "storage": "bytes_per_second", "interval": "seconds", "repair": "seconds",
}  # fmt: skip
"""Kind of quantity by field, for fields that are written with a unit."""

SETTINGS = {
    "rate": "failure_rate", "detect": "detect", "requeue": "requeue", "warm-up": "warm_up",
    "restart": "restart", "checkpoint": "checkpoint", "write": "write_per_gpu",
    "read": "read_per_gpu", "storage": "storage", "interval": "interval", "spares": "spares",
    "repair": "repair", "stragglers": "stragglers", "planned": "planned",
}  # fmt: skip
"""Fields by the word for them in a setting."""

_WORDS = {"async": True, "blocking": False}


def load_reliability(name: str) -> Reliability:
    """Load reliability by name or path to a TOML file."""
    from scalewise.catalog import load

    return load("reliability", name, Reliability, UNITS)


def parse_reliability(text: str | None) -> Reliability | None:
    """Read what is said of failures and checkpoints.

    Args:
        text: Settings, separated by commas: a name of the catalog or a TOML file, `async`,
            `blocking`, or numbers such as "restart=5min"; "off" for none of it; None or "on" for
            what is usual.

    Returns:
        The numbers with their sources; None for off.

    Raises:
        InputError: If a setting is unknown, or its value cannot be.

    >>> parse_reliability("restart=5min,async").restart
    300.0
    """
    parts = [part.strip() for part in (text or "on").split(",")]
    if parts == [OFF]:
        return None
    found, changes, sources = load_reliability(USUAL), dict[str, Any](), dict[str, str]()
    for place, part in enumerate(parts):
        word, equals, value = (each.strip() for each in part.partition("="))
        if equals:
            field, number = _setting(word.lower(), value)
            changes[field], sources[field] = number, YOURS
        elif word.lower() in _WORDS:
            changes["asynchronous"], sources["asynchronous"] = _WORDS[word.lower()], YOURS
        elif word.lower() == OFF:
            raise InputError(
                f"--goodput {_short(text)}: off excludes other settings", hint="--goodput off",
                field="goodput",
            )  # fmt: skip
        elif place == 0:
            found = found if word.lower() == "on" else _named(word)
        else:
            raise _unknown(word)
    if "failure_rate" in changes:
        # A rate of one's own has no published range, and is of one's own nodes.
        changes |= {
            "failure_rate_low": None, "failure_rate_high": None, "small_job_factor": 1.0,
            "node_gpus": None,
        }  # fmt: skip
    if "requeue" in changes:
        changes["requeue_exponent"] = 0.0
    if not changes:
        return found
    try:
        return msgspec.structs.replace(found, **changes, sources=found.sources | sources)
    except InputError as error:
        message = f"--goodput {_short(text)}: {error}"
        raise InputError(message, hint=error.hint, field="goodput") from None


def file_of(text: str | None) -> str | None:
    """Return the file that settings name, or None.

    >>> file_of("ours.toml,async"), file_of("rate=1e-3/node-day")
    ('ours.toml', None)
    """
    word = (text or "").split(",")[0].strip()
    named = "=" not in word and (word.lower().endswith(".toml") or "/" in word or "\\" in word)
    return word if named else None


def _named(word: str) -> Reliability:
    """A set of numbers by its name or file."""
    from scalewise.catalog import knows

    if not word.endswith(".toml") and not knows("reliability", word):
        raise _unknown(word)
    return load_reliability(word)


def _setting(word: str, value: str) -> tuple[str, float | int]:
    """Read one setting: the field and its value in SI."""
    if word not in SETTINGS:
        raise _unknown(word)
    field = SETTINGS[word]
    try:
        if field == "spares":
            return field, int(parse(value, "count"))
        if field in ("stragglers", "planned"):
            return field, _fraction(value)
        return field, _rate(value) if field == "failure_rate" else parse(value, UNITS[field])
    except InputError as error:
        message = f"--goodput {word}: {error}"
        raise InputError(message, hint=error.hint, field="goodput") from None


def _rate(value: str) -> float:
    """Read a failure rate; only that of zero needs no unit."""
    rate = parse(value, "failure_rate")
    if rate > 0.0 and "/" not in value:
        raise InputError(f"`{_short(value)}` has no unit", hint=f"rate={_short(value)}/node-day")
    return rate


def _fraction(value: str) -> float:
    """Read a fraction: "2%" or "0.02"."""
    text, percent = value.removesuffix("%"), value.endswith("%")
    try:
        number = float(text)
    except ValueError:
        raise InputError(f"`{_short(value)}` is not a fraction", hint="2% or 0.02") from None
    if not math.isfinite(number):
        raise InputError(f"`{_short(value)}` is not a fraction", hint="2% or 0.02")
    return number / 100.0 if percent else number


def _unknown(word: str) -> InputError:
    known = (*SETTINGS, *_WORDS, OFF, "on")
    return InputError(
        f"--goodput: unknown setting {_short(word)}",
        hint=did_you_mean(word, known),
        field="goodput",
    )


def _short(text: str | None) -> str:
    return (text or "")[:40]
