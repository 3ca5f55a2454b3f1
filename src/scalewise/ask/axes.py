"""Quantities of `--over`: names, values and what each changes of a question.

    quantity = parse_over("network=25..800Gbit/s")
    quantity.axis.texts                      # ("25Gbit/s", "50Gbit/s", ..., "800Gbit/s")
    quantity.put(Question(), 2).network      # "100Gbit/s"

A name is a field of a question, a word of a strategy (tp, ga, hsdp), a field of one, or a key of
`--set`. `A..B` doubles from A to B, `A..B+STEP` adds, commas list; both ends are values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import msgspec

from scalewise.ask.network import Network, parse_network
from scalewise.ask.overrides import kind_of_key
from scalewise.ask.question import Question, question_fields, question_from
from scalewise.errors import InputError, did_you_mean
from scalewise.explore.axis import Axis
from scalewise.explore.sizes import MAX_SIZES
from scalewise.explore.templates import BEST
from scalewise.recompute import RECOMPUTE_TOKENS, recompute_of_token
from scalewise.strategy import COUNT_TOKENS, Strategy
from scalewise.units import parse

EXAMPLES = "network=25..800Gbit/s, seq=4096..65536, ga=1..16 or cluster.pue=1.1,1.3"

TOKENS = {**COUNT_TOKENS, "cp": "cp", "ac": "recompute"}
"""Fields of a strategy by the word that begins their token."""

ALIASES = {"cluster.network": "network", "cap": "power_cap"}
"""Other names of fields of a question."""

NOT_AXES = ("sets", "by", "strategy")
"""Fields of a question that are no quantity: strategies are series."""

LABELS = {
    "gpus": "GPUs", "node": "GPUs per node", "network": "network per node",
    "seq": "sequence length", "batch": "global batch", "tokens": "token budget",
    "power_cap": "power limit", "pue": "PUE", "price": "price per GPU-hour",
    "imbalance": "expert imbalance", "capacity": "capacity factor", "fit": "chance to fit",
    "on": "cluster", "tp": "TP degree", "pp": "pipeline stages", "cp": "CP degree",
    "ep": "EP degree", "etp": "expert TP degree", "virtual_stages": "virtual stages",
    "micro_batch": "micro-batch size", "num_microbatches": "gradient accumulation steps",
    "hsdp": "sharding group", "prefetch": "FSDP prefetch",
}  # fmt: skip

_BARE = {
    "gpus": "GPUs", "hsdp": "ranks", "bytes": "B", "bytes_per_second": "B/s",
    "flops_per_second": "FLOP/s", "seconds": "s", "watts": "W",
    "hertz": "Hz", "dollars_per_hour": "$/h",
}  # fmt: skip
"""Unit of numbers without one, by field or kind of quantity."""

_RANGE = re.compile(r"(?P<first>.*?)\.\.(?P<last>[^+]*)(?:\+(?P<step>.*))?")
_NUMBER = re.compile(r"(?P<before>\d+\s*x\s*|\$)?(?P<number>\d*\.?\d+)(?P<after>.*)")
_TOKENS = re.compile(r"\s*tok(?:ens?)?$", flags=re.IGNORECASE)

Reader = Callable[[str], float]
"""Reads a value as a number, SI; raises InputError."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One `--over`: an axis, and how its values get into a question."""

    axis: Axis
    target: Literal["question", "strategy", "group", "set"]
    """A field of the question, a field of the strategy, ranks of a sharding group, or a key."""
    key: str
    """Field or key."""

    def put(self, question: Question, place: int) -> Question:
        """Return the question with the value at a place.

        Raises:
            InputError: If the value cannot be, or needs a strategy that is not given.
        """
        text = self.axis.texts[place]
        if self.target == "question":
            value = float(text) if question_fields()[self.key].number else text
            plain = msgspec.structs.asdict(question)
            return question_from(plain | {self.key: value})
        if self.target == "group":
            return msgspec.structs.replace(question, strategy=_grouped(question.strategy, text))
        if self.target == "set":
            added = f"{self.key}={text}"
            return msgspec.structs.replace(question, sets=(*question.sets, added))
        strategy = question.strategy
        if strategy is None or strategy.strip().lower().split("-")[0] in (BEST, "auto"):
            limited = f"{(strategy or BEST).strip()}-{self._token(text)}"
            return msgspec.structs.replace(question, strategy=limited)
        added = f"strategy.{self.key}={text}"
        return msgspec.structs.replace(question, sets=(*question.sets, added))

    def _token(self, text: str) -> str:
        """Spell a value as a limit of a search."""
        if self.key == "recompute":
            spelled = {kind: token for token, kind in RECOMPUTE_TOKENS.items()} | {"none": "acnone"}
            return spelled.get(text, f"ac{text}")
        if self.key == "sharding":
            return {"zero3": "fsdp"}.get(text, text)
        if self.key == "schedule":
            return text
        token = next((word for word, field in TOKENS.items() if field == self.key), None)
        if token in (None, "ga", "pf", "first", "last"):
            raise InputError(
                f"--over {self.axis.name}: the strategy is open",
                hint="name one: --strategy fsdp",
                field="strategy",
            )
        return f"{token}{text}"


def parse_over(text: str) -> Quantity:
    """Read one quantity with its values.

    Args:
        text: Such as "seq=4k,8k", "network=25..800Gbit/s" or "power-cap=400..700W+50".

    Raises:
        InputError: If the name is unknown, a value cannot be read, or there are too many.
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not name or not values:
        raise InputError(
            f"--over {text[:60]}: not of the form NAME=VALUES", hint=f"for example {EXAMPLES}"
        )
    target, key, unit, kind = _find(name)
    found = _values(name, values, unit, kind)
    if len(found.texts) > MAX_SIZES:
        raise InputError(
            f"--over {text[:60]}: {len(found.texts)} values, more than {MAX_SIZES}",
            hint="a range doubles without a +STEP",
        )
    for each in found.texts:
        if found.texts.count(each) > 1:
            raise InputError(f"--over {text[:60]}: {each} is given twice", hint="give it once")
    axis = Axis(
        name=name,
        label=LABELS.get(key, name if "." in name else key.replace("_", " ")),
        unit=found.unit,
        texts=tuple(found.texts),
        numbers=None if found.numbers is None else tuple(found.numbers),
    )
    return Quantity(axis=axis, target=target, key=key)


def _find(name: str) -> tuple[Any, str, str, Literal["number", "whole", "word"]]:
    """Return target, key, kind of quantity (empty if none) and kind of value of a name."""
    plain = name.lower().lstrip("-").replace("-", "_")
    plain = ALIASES.get(plain, plain)
    fields = {key: each for key, each in question_fields().items() if key not in NOT_AXES}
    if plain in ("strategy", "by", "sets", "set"):
        hint = {"strategy": "--strategy fsdp,hsdp64 draws a curve for each", "by": "--by cost"}
        raise InputError(
            f"--over {name}: no quantity", hint=hint.get(plain, "name its key: --over cluster.pue")
        )
    if plain in fields:
        field = fields[plain]
        if field.unit in ("count", "tokens"):
            return "question", plain, field.unit, "whole"
        if field.unit or field.number or plain == "network":
            return "question", plain, field.unit, "number"
        return "question", plain, "", "word"
    if plain == "hsdp":
        return "group", plain, "count", "whole"
    strategy = TOKENS.get(plain, plain.removeprefix("strategy."))
    if strategy in Strategy.__struct_fields__:
        type_, _ = kind_of_key(f"strategy.{strategy}")
        whole = int in _members(type_)
        return "strategy", strategy, "count" if whole else "", "whole" if whole else "word"
    if "." in name:
        try:
            type_, unit = kind_of_key(name)
        except InputError as error:
            raise InputError(f"--over {name}: {error}", hint=error.hint) from None
        members = _members(type_)
        if unit is not None or {int, float} & set(members):
            whole = unit in ("count", "tokens") or (unit is None and float not in members)
            return "set", name, unit or ("count" if whole else ""), "whole" if whole else "number"
        return "set", name, "", "word"
    known = [each.replace("_", "-") for each in fields]
    raise InputError(
        f"--over {name}: unknown quantity",
        hint=did_you_mean(name, [*known, *TOKENS, *Strategy.__struct_fields__, "hsdp"]),
    )


def _members(type_: Any) -> tuple[Any, ...]:
    """The types of a union, or the type; the words of a Literal by their type."""
    options = (type_,) if get_origin(type_) is None or get_origin(type_) is Literal else (
        get_args(type_)
    )  # fmt: skip
    return tuple(
        type(word) if get_origin(each) is Literal else each
        for each in options
        for word in (get_args(each) if get_origin(each) is Literal else (None,))
    )


@dataclass(frozen=True)
class _Values:
    """Values of an axis."""

    texts: list[str]
    numbers: list[float] | None = None
    unit: str = ""


def _values(name: str, text: str, unit: str, kind: str) -> _Values:
    """Read a list of values and ranges, ascending where they are numbers."""
    where = f"--over {name}={text[:40]}"
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(f"{where}: a value is missing", hint=f"for example {EXAMPLES}")
    if kind == "word":
        parts = [recompute_of_token(part) or part for part in parts]
        if ranged := [part for part in parts if ".." in part]:
            raise InputError(
                f"{where}: {ranged[0]} is a range of words", hint=f"list them: {name}=one,another"
            )
        return _Values(parts)
    if name in ("network", "cluster.network"):
        return _networks(_listed(parts, where, _network_rate))
    ending = _TOKENS.search(parts[-1].split("+")[0]) if name == "batch" else None
    if ending is not None:
        parts = ["..".join(_TOKENS.sub("", end) for end in part.split("..")) for part in parts]
        unit = "tokens"
    reader = _reader(unit)
    texts = _listed(parts, where, reader)
    pairs = sorted((reader(each), each) for each in texts)
    if kind == "whole":
        values = [value for value, _ in pairs]
        end = "" if ending is None else "tok"
        texts = [f"{value:.0f}{end}" for value in values]
        return _Values(texts, values, "tokens" if end else _BARE.get(name, ""))
    shown = _NUMBER.fullmatch(pairs[0][1])
    suffix = "" if shown is None else shown["after"].strip()
    # In the unit of the first value: 0.4 Tbit/s after 200 Gbit/s is 400 Gbit/s.
    one = reader(f"1{suffix}")
    numbers = [_tidy(value / one) for value, _ in pairs]
    shown_unit = _BARE[unit] if unit == "dollars_per_hour" else suffix or _BARE.get(unit, "")
    return _Values([each for _, each in pairs], numbers, shown_unit)


def _reader(unit: str) -> Reader:
    """Return what reads the values of a kind of quantity; plain numbers if it is empty."""

    def plain(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"`{text}` is not a number", hint="for example 1.5")
        return value

    return (lambda text: parse(text, unit)) if unit else plain


def _listed(parts: list[str], where: str, reader: Reader) -> list[str]:
    """Return the values of a list as texts, ranges spelled out."""
    found: list[str] = []
    last = parts[-1].rpartition("..")[2].partition("+")[0]
    for part in parts:
        match = _RANGE.fullmatch(part)
        try:
            if match is None:
                # 25,50,100Gbit/s: the last unit counts for all.
                each = _with_unit_of(part, last)
                reader(each)
                found.append(each)
            else:
                found += _range(match, reader)
        except InputError as error:
            raise InputError(f"{where}: {error}", hint=error.hint) from None
        if len(found) > MAX_SIZES:
            raise InputError(
                f"{where}: more than {MAX_SIZES} values", hint="a range doubles without a +STEP"
            )
    return found


def _range(match: re.Match[str], reader: Reader) -> list[str]:
    """Spell out a range: doubling, or in steps; both ends are values."""
    first, last, step = (match[name] for name in ("first", "last", "step"))
    if not first.strip() or not last.strip():
        raise InputError(
            f"the range has no {'upper' if first.strip() else 'lower'} end", hint="A..B, or A..B+S"
        )
    first = _with_unit_of(first.strip(), last.strip())
    last = _with_unit_of(last.strip(), first)
    low, high = reader(first), reader(last)
    if not high > low:
        raise InputError("the range ends at or below its start", hint=f"{last}..{first}")
    spelled = _NUMBER.fullmatch(first)
    if spelled is None:
        raise InputError(f"`{first}` is not a number with a unit", hint=f"for example {EXAMPLES}")
    number = float(spelled["number"])
    places: list[float] = []
    if step is None:
        if not low > 0.0:
            raise InputError("a range that doubles starts above 0", hint="0,1..8, or 0..8+1")
        value = 1.0
        while value < high / low * (1.0 - 1e-9) and len(places) <= MAX_SIZES:
            places.append(value * number)
            value *= 2.0
        places.append(high / low * number)
    else:
        added = reader(_with_unit_of(step.strip(), last.strip()))
        if not added > 0.0:
            raise InputError("a step is above 0", hint="for example 400..700W+50W")
        scale = number / low if low else 1.0
        count = int((high - low) / added * (1.0 + 1e-9))
        if count > MAX_SIZES:
            raise InputError(f"more than {MAX_SIZES} values", hint="a larger step")
        places = [number + n * added * scale for n in range(count + 1)]
        if high - low - count * added > 1e-9 * high:
            places.append(high * scale)
    before, after = spelled["before"] or "", spelled["after"]
    return [f"{before}{_tidy(place):.12g}{after}" for place in places]


def _with_unit_of(text: str, other: str) -> str:
    """Return a number with what stands around another one, where it is bare: "25" as "25Gbit/s"."""
    mine, its = _NUMBER.fullmatch(text.strip()), _NUMBER.fullmatch(other.strip())
    if mine is None or its is None:
        return text
    before, after = mine["before"] or its["before"] or "", mine["after"] or its["after"]
    return f"{before}{mine['number']}{after}"


def _tidy(value: float) -> float:
    """Return a number without the last bits of a conversion."""
    return float(f"{value:.12g}")


def _network_rate(text: str) -> float:
    try:
        network = parse_network(text)
    except InputError as error:
        raise InputError(f"`{text}` is not a network of a node", hint=error.hint) from None
    return (network.nics or 1) * (network.nic_rate or 0.0)


def _networks(texts: list[str]) -> _Values:
    """Return networks of a node as rates, or as words where more than the rate differs."""
    read = [parse_network(text) for text in texts]
    rates = [(each.nics or 1) * (each.nic_rate or 0.0) * 8e-9 for each in read]

    def speaks(network: Network) -> tuple[str | None, bool]:
        return network.fabric, network.measured

    if len({speaks(each) for each in read}) > 1 or not all(rates):
        return _Values(texts)
    pairs = sorted(zip(rates, texts, strict=True))
    numbers = [_tidy(rate) for rate, _ in pairs]
    if read[0].measured:
        return _Values([text for _, text in pairs], [_tidy(n / 8.0) for n in numbers], "GB/s")
    return _Values([text for _, text in pairs], numbers, "Gbit/s")


def _grouped(strategy: str | None, ranks: str) -> str:
    """Return a strategy with sharding groups of some ranks."""
    tokens = (strategy or "fsdp").strip().lower().split("-")
    kept = [each for each in tokens if not re.fullmatch(r"fsdp|zero3|hsdp\d+", each)]
    if kept and re.match(r"best|auto|ddp|zero|fsdp|hsdp", kept[0]):
        raise InputError(
            f"--over hsdp: --strategy {strategy} has a data-parallel part of its own",
            hint="--strategy fsdp, or leave it out",
            field="strategy",
        )
    return "-".join([f"hsdp{ranks}", *kept])


__all__ = ["EXAMPLES", "Quantity", "parse_over"]
