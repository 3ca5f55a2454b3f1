"""Quantities with units: reading what users write, printing SI values.

Inside scalewise every number is SI: bytes, seconds, FLOP/s, watts, dollars. Other units exist only
in files, on the command line and in reports, and are converted in this file.

    parse("80GiB", "bytes")                  # 85899345920.0
    parse("400Gbit/s", "bytes_per_second")   # 50000000000.0
    format_seconds(0.0123)                   # "12.3 ms"

1 GB = 1e9 bytes, 1 GiB = 2**30 bytes. A small `b` in a rate is a bit, a capital `B` a byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from scalewise.errors import InputError, did_you_mean

_DECIMAL = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

GIB = float(2**30)
"""Bytes in a GiB."""


class _Kind(NamedTuple):
    """One kind of quantity: accepted units, and examples for errors."""

    units: Mapping[str, float]
    """Factor to SI by unit as written; keys are lower case unless `case_matters`."""
    forms: str
    """Examples for the error message."""
    case_matters: bool = False
    """True where `b` and `B`, or `m` and `M`, mean different things."""
    whole: bool = False
    """True where a fraction is a mistake."""


def _scaled(unit: str, prefixes: Mapping[str, float], factor: float = 1.0) -> dict[str, float]:
    return {prefix + unit: value * factor for prefix, value in prefixes.items()}


def _byte_rates() -> dict[str, float]:
    """Return all spellings of rates: only the case of `b` distinguishes bits from bytes."""
    spelled: dict[str, float] = {}
    prefixes = {**_DECIMAL, **_BINARY}
    for prefix, value in prefixes.items():
        for written in {prefix, prefix.upper(), prefix.capitalize()}:
            for per in ("/s", "ps"):
                spelled[f"{written}B{per}"] = value
                spelled[f"{written}bit{per}"] = value / 8
                spelled[f"{written}b{per}"] = value / 8
    return spelled


def _flop_rates() -> dict[str, float]:
    spelled: dict[str, float] = {}
    for unit in ("", "f", "f/s", "flop/s", "flops", "flops/s"):
        spelled.update(_scaled(unit, _DECIMAL))
    return spelled


_MANY = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}

KINDS: Mapping[str, _Kind] = {
    "bytes": _Kind(_scaled("b", {**_DECIMAL, **_BINARY}), "80GiB, 80GB, 512MB"),
    "bytes_per_second": _Kind(
        _byte_rates(), "3.35TB/s, 450GB/s, 400Gbit/s, 400Gbps", case_matters=True
    ),
    "flops_per_second": _Kind(_flop_rates(), "989TFLOP/s, 1.2PFLOP/s"),
    "seconds": _Kind(
        {
            "s": 1.0,
            "ms": 1e-3,
            "us": 1e-6,
            "\u00b5s": 1e-6,  # micro sign
            "\u03bcs": 1e-6,  # Greek mu, which looks the same
            "ns": 1e-9,
            "min": _MINUTE,
            "h": _HOUR,
            "d": _DAY,
        },
        "5us, 2ms, 1.5s, 10min, 3h",
    ),
    "watts": _Kind(
        {"W": 1.0, "w": 1.0, "kW": 1e3, "KW": 1e3, "kw": 1e3, "MW": 1e6},
        "700W, 1.2kW",
        case_matters=True,
    ),
    "hertz": _Kind(_scaled("hz", _DECIMAL), "1.83GHz, 1830MHz"),
    "dollars_per_hour": _Kind(
        {"": 1.0, "/h": 1.0, "/hr": 1.0, "/hour": 1.0}, "$2.5/h, 2.5$/h, 2.5"
    ),
    "failure_rate": _Kind(
        {"/node-day": 1.0 / _DAY, "/node-h": 1.0 / _HOUR}, "3.8e-3/node-day, 1.6e-4/node-h"
    ),
    "count": _Kind(_MANY, "2048, 1k", whole=True),
    "tokens": _Kind({**_MANY, **_scaled("tokens", _MANY)}, "15T, 300B, 1000000", whole=True),
}
"""All kinds of quantities of `parse`, by name."""

_NUMBER = re.compile(r"([+-]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)", re.DOTALL)


def parse(text: str | float, kind: str) -> float:
    """Parse a quantity with its unit.

    Args:
        text: A number with its unit, such as "80GiB"; a number without one is SI.
        kind: Expected kind, one of the names in `KINDS`.

    Returns:
        The value in SI: bytes, bytes/s, FLOP/s, seconds, watts, hertz, dollars/hour,
        failures per node and second, or a count.

    Raises:
        InputError: If the unit is of another kind, or the number is negative or not finite.
    """
    if kind not in KINDS:
        message = f"unknown kind of quantity `{kind}`"
        raise InputError(message, hint=did_you_mean(kind, KINDS))
    known = KINDS[kind]
    if isinstance(text, str):
        value = _parse_text(text, kind, known)
    elif isinstance(text, bool) or not isinstance(text, int | float):
        raise _refused(text, kind, known)
    else:
        value = float(text)
    if not math.isfinite(value) or value < 0:
        message = f"`{text}` is not a {_words(kind)}: it must be finite and not negative"
        raise InputError(message)
    if known.whole and not math.isclose(value, round(value), rel_tol=1e-12):
        message = f"`{text}` is not a {_words(kind)}: it must be a whole number"
        raise InputError(message)
    return float(round(value)) if known.whole else value


def parse_count(text: str | float) -> int:
    """Parse a count: "2k" is 2000.

    Args:
        text: The count as written.

    Returns:
        The count.

    Raises:
        InputError: If it is not a whole number.
    """
    return int(parse(text, "count"))


def _parse_text(text: str, kind: str, known: _Kind) -> float:
    bare = text.strip()
    if kind == "dollars_per_hour":
        # The currency may precede or follow the number; neither changes the value.
        bare = re.sub(r"(?i)\$|\busd\b", "", bare, count=1).strip()
    match = _NUMBER.fullmatch(bare)
    if match is None:
        raise _refused(text, kind, known)
    number = float(match[1].replace(",", "").replace("_", ""))
    unit = match[2].replace(" ", "")
    if unit == "":
        return number
    factor = known.units.get(unit if known.case_matters else unit.lower())
    if factor is None:
        raise _refused(text, kind, known)
    # 5 / 1e6 is 5e-6 to the last bit; 5 * 1e-6 is not.
    return number / round(1 / factor) if factor < 1 else number * factor


def _words(kind: str) -> str:
    named = {
        "bytes": "size in bytes", "count": "count", "tokens": "number of tokens",
        "failure_rate": "failure rate",
    }  # fmt: skip
    return named.get(kind, "value in " + kind.replace("_per_", " per ").replace("flops", "FLOP"))


def _refused(text: object, kind: str, known: _Kind) -> InputError:
    return InputError(f"`{text}` is not a {_words(kind)}", hint=f"write it as {known.forms}")


def grouped(value: float, digits: int = 3) -> str:
    """Print a number to significant digits, with thousands separators: "7,990", "85.6", "1.00"."""
    if value == 0 or not math.isfinite(value):
        return str(value) if value else "0"
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:,.{decimals_of(rounded, digits)}f}"


def decimals_of(value: float, digits: int = 3) -> int:
    """Return how many decimals show a number to significant digits: 2 for 1.23, 0 for 7990."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(digits - 1 - math.floor(math.log10(abs(value))), 0)


def format_column(values: Sequence[float | None], digits: int = 3) -> list[str]:
    """Print the numbers of one column of a table with one number of decimals, "-" for None.

    The smallest number has its significant digits unless the largest would have two more of them,
    or is 1,000 or more.
    """
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    decimals = 0
    if sizes and max(sizes) < 10**digits:
        decimals = min(decimals_of(min(sizes), digits), decimals_of(max(sizes), digits) + 1)

    def show(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return "-"
        if not decimals and abs(value) >= 10**digits:
            return grouped(value, digits)
        return f"{value:,.{decimals}f}"

    return [show(value) for value in values]


def _with_prefix(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    """Print with the largest unit that leaves at least 1 in front of it.

    Args:
        value: The value in the base unit.
        steps: (size, unit) from small to large.
    """
    if not math.isfinite(value):
        return str(value)
    chosen = steps[0]
    for size, unit in steps:
        # 0.9995 of a unit prints as "1", so it belongs to that unit already.
        if abs(value) >= size * 0.9995:
            chosen = (size, unit)
    return f"{grouped(value / chosen[0])}{chosen[1]}"


def _steps(unit: str, prefixes: str, base: float = 1e3) -> tuple[tuple[float, str], ...]:
    return tuple((base**i, f" {prefix.strip()}{unit}") for i, prefix in enumerate(prefixes))


_BYTES = tuple(
    (2.0 ** (10 * i), unit) for i, unit in enumerate((" B", " KiB", " MiB", " GiB", " TiB", " PiB"))
)
_SHORT_TIMES = ((1e-9, " ns"), (1e-6, " us"), (1e-3, " ms"), (1.0, " s"))
_LONG_TIMES = ((_DAY, " days"), (_HOUR, " h"), (_MINUTE, " min"))


def format_bytes(value: float) -> str:
    """Print a size with binary prefixes, as device memory is counted: "45.1 GiB"."""
    return _with_prefix(value, _BYTES)


def format_rate(value: float) -> str:
    """Print a bandwidth given in bytes per second: "450 GB/s"."""
    return _with_prefix(value, _steps("B/s", " kMGTP"))


def format_bit_rate(value: float) -> str:
    """Print a bandwidth given in bytes per second the way NICs are sold: "400 Gbit/s"."""
    return _with_prefix(value * 8, _steps("bit/s", " kMGTP"))


def format_flops(value: float) -> str:
    """Print a rate of arithmetic given in FLOP per second: "412 TFLOP/s"."""
    return _with_prefix(value, _steps("FLOP/s", " kMGTPE"))


def format_seconds(value: float) -> str:
    """Print a duration: "12.3 ms", "1.50 s", "3.40 h", "54.0 days"."""
    for size, unit in _LONG_TIMES:
        # "90 s" reads better than "1.5 min": a unit starts at two of it.
        if math.isfinite(value) and abs(value) >= 2 * size:
            return f"{grouped(value / size)}{unit}"
    return "0 s" if value == 0 else _with_prefix(value, _SHORT_TIMES)


def format_watts(value: float) -> str:
    """Print a power: "620 W", "10.2 kW", "1.40 MW"."""
    return _with_prefix(value, _steps("W", " kMG"))


def format_joules(value: float) -> str:
    """Print an energy: "0.381 J", "12.5 kJ", "2.10 GJ"."""
    return _with_prefix(value, _steps("J", " kMGTP"))


def format_energy(value: float) -> str:
    """Print an energy given in joules as it is metered and billed: "12.5 kWh", "433 MWh"."""
    return _with_prefix(value / 3.6e6, ((1e-3, " Wh"), (1.0, " kWh"), (1e3, " MWh"), (1e6, " GWh")))


def format_dollars(value: float) -> str:
    """Print an amount: "$0.153", "$12.30", "$4,120", "$3.21M"."""
    sign, size = ("-" if value < 0 else ""), abs(value)
    if not math.isfinite(size):
        return f"{sign}${size}"
    if size < 1:
        return f"{sign}${grouped(size)}"
    if size < 999.995:
        return f"{sign}${size:.2f}"
    if size < 999_500:
        return f"{sign}${size:,.0f}"
    return sign + "$" + _with_prefix(size, ((1e6, "M"), (1e9, "B"), (1e12, "T")))


def short_dollars(value: float) -> str:
    """Print an amount in a few characters: "$153", "$309k", "$3.21M"."""
    return "$" + _with_prefix(value, ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "B"), (1e12, "T")))


def format_count(value: float) -> str:
    """Print a number of things: "512", "2,048", "16.4k", "8.03B", "15.0T"."""
    if abs(value) < 10_000 and value == int(value):
        return f"{int(value):,}"
    return _with_prefix(value, ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "B"), (1e12, "T")))


def format_percent(value: float, *, sign: bool = False, decimals: int = 1) -> str:
    """Print a fraction: 0.4077 is "40.8%", never "-0.0%".

    Args:
        value: The fraction.
        sign: Print a plus, too.
        decimals: Digits after the point.
    """
    text = f"{100 * value:{'+' if sign else ''},.{decimals}f}"
    if math.isfinite(value) and not float(text.replace(",", "")):
        text = text.lstrip("+-")
    return text + "%"


FORMATS: Mapping[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "bytes_per_second": format_rate,
    "flops_per_second": format_flops,
    "seconds": format_seconds,
    "watts": format_watts,
    "dollars_per_hour": lambda value: format_dollars(value) + "/h",
}
"""How values are printed, by kind of quantity; other kinds are plain numbers."""
