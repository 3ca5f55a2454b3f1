"""Rows of a mapping table: one fact of a plan, and the settings that say it in a framework.

    ROWS = (
        Number("tp", "tensor_model_parallel_size", default=1),
        Choice("precision", {"bf16": {"bf16": True}, "fp16": {"fp16": True}}, why="no flag"),
        Fixed("prefetch", (1,), why="set in code", refuse=False),
    )
    said = write_rows(ROWS, facts)          # settings, and what cannot be said
    facts = read_rows(ROWS, settings)       # the same rows the other way

A row is read and written, so that the two directions cannot disagree. What a framework cannot say
is a row too: it refuses the value, or warns, and reads as what the framework does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from scalewise.units import format_count

Value: TypeAlias = Any
"""A setting: number, word, switch, list, or None for one that is not given."""

Settings: TypeAlias = dict[str, Value]
"""Settings of a framework by their full name."""

Facts: TypeAlias = dict[str, Any]
"""Facts of a plan by their name (`facts.FACTS`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """A fact that a framework does not say."""

    field: str
    """Fact, by its name."""
    value: str
    """What the plan has."""
    why: str
    """What the framework does instead, or what to change, as a phrase."""

    def __str__(self) -> str:
        return f"{self.field} = {self.value}: {self.why}"


@dataclass(kw_only=True, slots=True)
class Said:
    """What the rows of a table wrote."""

    settings: Settings = field(default_factory=dict)
    """Settings by name."""
    refused: list[Gap] = field(default_factory=list)
    """Facts that would make the run another one: nothing is exported."""
    warned: list[Gap] = field(default_factory=list)
    """Facts that the framework decides itself, or that are said elsewhere."""

    def refuse(self, name: str, value: object, why: str) -> None:
        """Note a fact that cannot be said."""
        self.refused.append(Gap(field=name, value=_shown(value), why=why))

    def warn(self, name: str, value: object, why: str) -> None:
        """Note a fact that is not said."""
        self.warned.append(Gap(field=name, value=_shown(value), why=why))


class Row(Protocol):
    """One line of a mapping table."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Facts that it covers."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Settings that it writes and reads."""

    def write(self, facts: Facts, said: Said) -> None:
        """Add the settings of these facts, or why there are none."""

    def read(self, settings: Settings) -> Facts:
        """Return the facts that settings say; those that they leave open are absent."""


@dataclass(frozen=True, slots=True)
class Number:
    """A fact with one setting of the same value."""

    name: str
    key: str
    default: Value = None
    """Value that is not written, and that a missing setting reads as; None to always write."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fact."""
        return (self.name,)

    @property
    def keys(self) -> tuple[str, ...]:
        """Its setting."""
        return (self.key,)

    def write(self, facts: Facts, said: Said) -> None:
        """Write the value as it is."""
        value = facts.get(self.name)
        if value is not None and value != self.default:
            said.settings[self.key] = value

    def read(self, settings: Settings) -> Facts:
        """Read the value as it is."""
        value = settings.get(self.key)
        if value is None:
            value = self.default
        return {} if value is None else {self.name: value}


@dataclass(frozen=True, slots=True)
class Choice:
    """A fact whose values are words, each with its settings."""

    name: str
    values: Mapping[Value, Settings]
    """Settings by value; where several values match what is read, the first one counts."""
    why: str
    """Why the other values cannot be said."""
    refuse: bool = True
    """Whether other values are refused, or only warned of."""
    defaults: Mapping[str, Value] = field(default_factory=dict)
    """Values of settings that are not given; None for the others."""
    counts: Callable[[Facts], bool] = lambda facts: True
    """Whether the fact changes anything; else it is not written."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fact."""
        return (self.name,)

    @property
    def keys(self) -> tuple[str, ...]:
        """Every setting of any value."""
        return tuple(dict.fromkeys(key for each in self.values.values() for key in each))

    def write(self, facts: Facts, said: Said) -> None:
        """Write the settings of the value."""
        value = facts.get(self.name)
        if not self.counts(facts):
            return
        if value in self.values:
            said.settings |= {k: v for k, v in self.values[value].items() if v is not None}
        else:
            (said.refuse if self.refuse else said.warn)(self.name, value, self.why)

    def read(self, settings: Settings) -> Facts:
        """Read the first value whose settings all match."""
        for value, each in self.values.items():
            if all(same(settings.get(k, self.defaults.get(k)), v) for k, v in each.items()):
                return {self.name: value}
        return {}


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fact that has no setting: the framework does one thing."""

    name: str
    values: tuple[Value, ...]
    """What it does, first as it is read; empty for what it takes from elsewhere."""
    why: str
    refuse: bool = True
    counts: Callable[[Facts], bool] = lambda facts: True
    """Whether the fact changes anything; else every value will do."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fact."""
        return (self.name,)

    @property
    def keys(self) -> tuple[str, ...]:
        """It has no setting."""
        return ()

    def write(self, facts: Facts, said: Said) -> None:
        """Refuse or warn of any other value."""
        value = facts.get(self.name)
        if self.counts(facts) and value not in self.values:
            (said.refuse if self.refuse else said.warn)(self.name, value, self.why)

    def read(self, settings: Settings) -> Facts:
        """Read what the framework does."""
        del settings
        return {self.name: self.values[0]} if self.values else {}


@dataclass(frozen=True, slots=True)
class Joint:
    """Facts that are said together, by functions."""

    fields: tuple[str, ...]
    keys: tuple[str, ...]
    write: Callable[[Facts, Said], None]
    read: Callable[[Settings], Facts]


def same(one: Value, other: Value) -> bool:
    """Whether two settings are alike; None, off and nothing are."""
    if one in (None, False, ()) and other in (None, False, ()):
        return True
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return sorted(map(str, one)) == sorted(map(str, other))
    if isinstance(one, str) and isinstance(other, str):
        return one.lower() == other.lower()
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def write_rows(rows: Sequence[Row], facts: Facts) -> Said:
    """Return the settings of facts, and what has none."""
    said = Said()
    for row in rows:
        row.write(facts, said)
    return said


def read_rows(rows: Sequence[Row], settings: Settings) -> Facts:
    """Return the facts of settings."""
    facts: Facts = {}
    for row in rows:
        facts |= row.read(settings)
    return facts


def keys_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return every setting that a table writes."""
    return tuple(dict.fromkeys(key for row in rows for key in row.keys))


def fields_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return every fact that a table covers."""
    return tuple(dict.fromkeys(name for row in rows for name in row.fields))


def flat(value: Mapping[str, Any], prefix: str = "") -> Settings:
    """Return nested tables with dotted names.

    >>> flat({"parallelism": {"tensor_parallel_degree": 2}})
    {'parallelism.tensor_parallel_degree': 2}
    """
    found: Settings = {}
    for key, each in value.items():
        if isinstance(each, Mapping):
            found |= flat(each, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = each
    return found


def nested(settings: Settings) -> dict[str, Any]:
    """Return settings with dotted names as nested tables.

    >>> nested({"parallelism.tensor_parallel_degree": 2})
    {'parallelism': {'tensor_parallel_degree': 2}}
    """
    tables: dict[str, Any] = {}
    for key, value in settings.items():
        *path, name = key.split(".")
        inner = tables
        for each in path:
            inner = inner.setdefault(each, {})
        inner[name] = value
    return tables


def whole(value: Value) -> int | None:
    """Return a setting as a whole number, or None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def tokens_of(*factors: int) -> Facts:
    """Return a token budget as facts: none where no float holds it."""
    tokens = math.prod(factors)
    return {"tokens": float(tokens)} if 0 < tokens < MAX_TOKENS else {}


MAX_TOKENS = 10**30
"""Limit of a token budget, far beyond any run."""


def _shown(value: object) -> str:
    if isinstance(value, float) and value >= 1e6:
        return format_count(value)
    return str(getattr(value, "name", value))[:80]
