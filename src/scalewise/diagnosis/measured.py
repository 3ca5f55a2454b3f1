"""Measured numbers as people write them: values, units, and the run each belongs to.

    parse_measured(["1,786 tok/s"])              # one number, for the run that is asked about
    parse_measured(["8=7000,32=1786"])           # two sizes; the unit once, or tok/s
    parse_measured(["fsdp32-mb1=41% MFU"])       # another strategy

A rate counts per GPU unless it says `total`. Logs are read in `diagnosis.logs`, and end as the same
`Measurement`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

Unit = Literal["tok/s", "tok/s total", "seq/s total", "MFU", "s/step", "TFLOP/s"]

EXAMPLES = "1786 tok/s, 57152 tok/s total, 41% MFU, 0.86 s/step, 864 ms, 407 TFLOP/s"

_NUMBER = re.compile(r"(?P<number>\d[\d,_]*\.?\d*(?:e[+-]?\d+)?|\.\d+)\s*(?P<unit>.*)", re.I)
_NEXT = re.compile(r",(?=[^,=]*=)")
"""A comma before the next `key=`; other commas separate thousands."""

_TOKENS = re.compile(
    r"(?P<prefix>[km]?)\s*(?:tok(?:en)?s?|wp|t(?=ps))\s*(?:/|per|p)?\s*s(?:ec(?:ond)?)?"
)
_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "min": 60.0, "us": 1e-6}
_STEP = r"(?:\s*(?:/|per)\s*(?:step|it|iter|iteration))?"
_TIMES = re.compile(rf"(?P<unit>{'|'.join(_SECONDS)}){_STEP}")
_STEPS = re.compile(r"(?:steps?|its?|iters?|iterations?)\s*/\s*s")
_FLOPS = re.compile(r"(?P<prefix>[gtp])(?:flops?(?:/s|ps)?)")
_DEVICE = re.compile(r"\s*(?:/|per)\s*(?:gpu|device|chip|rank|accelerator)$")

MOST = 1e15
"""Largest number that is read: beyond any cluster."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measured number."""

    key: str
    """GPUs or strategy it belongs to, as written; empty for the run that is asked about."""
    value: float
    """Number in its unit; MFU as a fraction."""
    unit: Unit
    """What it counts."""
    text: str
    """Number and unit as written."""
    noise: float = 0.0
    """Standard error of the number itself (log), such as that of a median over steps."""

    @property
    def gpus(self) -> int | None:
        """Number of GPUs it was measured on; None if the key is no number."""
        return int(self.key) if self.key.isdecimal() and len(self.key) < 19 else None

    def rate(self, e: Estimate) -> float:
        """Return it as tokens/s per GPU of a run.

        Args:
            e: Estimate of the run: its tokens, GPUs, FLOPs and convention.
        """
        gpus, tokens = e.cluster.accelerators, e.workload.tokens_per_step
        if self.unit == "tok/s":
            return self.value
        if self.unit == "tok/s total":
            return self.value / gpus
        if self.unit == "seq/s total":
            return self.value * e.workload.seq_len / gpus
        if self.unit == "s/step":
            return tokens / self.value / gpus
        flops = e.model.training_flops(e.workload.seq_len, e.convention)
        rate = self.value * (e.peak_flops if self.unit == "MFU" else 1e12)
        return rate / flops


def parse_measured(texts: Iterable[str]) -> tuple[Measurement, ...]:
    """Read measured numbers.

    Args:
        texts: Each one number, or several as `key=number` separated by commas.

    Raises:
        InputError: If a number or unit is not understood, or a key comes twice.

    >>> [(m.key, m.value, m.unit) for m in parse_measured(["8=7,000,32=1,786"])]
    [('8', 7000.0, 'tok/s'), ('32', 1786.0, 'tok/s')]
    >>> parse_measured(["864 ms"])[0].value
    0.864
    """
    pieces: list[tuple[str, str, str]] = []
    for text in texts:
        for part in _NEXT.split(text):
            key, _, number = part.rpartition("=")
            if "=" in part and not key.strip():
                raise _refused(part, "a number of GPUs or a strategy must precede =")
            pieces.append((key.strip(), *_number(number)))
    if not pieces:
        raise InputError("--measured is missing", hint=f"for example {EXAMPLES}", field="measured")
    units = [unit for _, _, unit in pieces if unit]
    found = tuple(_measurement(key, number, unit or (units[-1] if units else "tok/s"))
                  for key, number, unit in pieces)  # fmt: skip
    keys = [each.key for each in found]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(
                f"--measured {key or 'without a key'}: given twice",
                hint="give each run once, such as 8=7000,32=1786",
                field="measured",
            )
    return found


def _number(text: str) -> tuple[str, str]:
    """Split a number from its unit."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise _refused(text, "not a positive number with a unit")
    return match["number"], match["unit"].strip()


def _measurement(key: str, number: str, written: str) -> Measurement:
    """One number in one of the units."""
    text = f"{number} {written}"
    value = float(number.replace(",", "").replace("_", ""))
    factor, unit = _unit(written)
    value = 1.0 / value if factor == 0.0 and value else value * factor
    if not 0.0 < value < MOST or not math.isfinite(value):
        raise _refused(text, "must be greater than 0")
    if unit == "MFU" and value > 1.0:
        raise _refused(text, "MFU must be at most 100%")
    return Measurement(key=key, value=value, unit=unit, text=text)


def _unit(written: str) -> tuple[float, Unit]:
    """Factor to the unit, and the unit; 0 for steps per second, which are inverted."""
    word = written.lower()
    total = word.endswith("total")
    word = word.removesuffix("total").strip()
    plain = _DEVICE.sub("", word)
    if total and plain != word:
        raise _refused(written, "total and per GPU exclude each other")
    if match := _TOKENS.fullmatch(plain):
        factor = {"": 1.0, "k": 1e3, "m": 1e6}[match["prefix"]]
        return factor, "tok/s total" if total else "tok/s"
    if plain in ("%", "% mfu", "%mfu", "percent mfu"):
        return 0.01, "MFU"
    if plain == "mfu":
        return 1.0, "MFU"
    if (match := _FLOPS.fullmatch(plain)) and not total:
        return {"g": 1e-3, "t": 1.0, "p": 1e3}[match["prefix"]], "TFLOP/s"
    if (match := _TIMES.fullmatch(plain)) and not total:
        return _SECONDS[match["unit"]], "s/step"
    if _STEPS.fullmatch(plain) and not total:
        return 0.0, "s/step"
    raise _refused(written, "unknown unit")


def _refused(text: str, rule: str) -> InputError:
    return InputError(
        f"--measured {text.strip()[:60]}: {rule}", hint=f"for example {EXAMPLES}", field="measured"
    )
