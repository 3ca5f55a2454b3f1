"""Wall clock of lines by the time stamps before their steps.

    clock_of([b"[2026-04-06 02:59:36] ", ..])      # seconds since 1970

The stamp of most lines stands where that of the first one does: those are read as columns of
digits. All others are searched for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from scalewise.numeric import Array

_ISO = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)")
_AMERICAN = re.compile(rb"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")

STAMP = 23
"""Bytes of a stamp with its milliseconds."""

_CLOCK = (11, 12, 14, 15, 17, 18)
_SECONDS = (36000.0, 3600.0, 600.0, 60.0, 10.0, 1.0)
"""Places of the digits of the time in a stamp, and seconds of each."""


def clock_of(heads: Sequence[bytes]) -> Array:
    """Return the wall clock of lines, s; NaN without one."""
    if not any(heads):
        return np.full(len(heads), np.nan)
    found = _at_one_place(heads)
    return _searched(heads) if found is None else found


def _at_one_place(heads: Sequence[bytes]) -> Array | None:
    """The clock where all stamps stand at one place; None where they do not."""
    match = _ISO.search(heads[0]) or _AMERICAN.search(heads[0])
    if match is None:
        return None
    at = match.start()
    stamps = [head[at : at + STAMP].ljust(STAMP) for head in heads]
    table = np.frombuffer(b"".join(stamps), dtype=np.uint8).reshape(len(heads), STAMP)
    digits = table - np.uint8(ord("0"))
    # As in the first one: what is a digit there, and what is not.
    shape = digits[0, :19] < 10
    same = np.where(shape, digits[:, :19] < 10, table[:, :19] == table[0, :19])
    if not same.all():
        return None
    dates = [stamp[:10] for stamp in stamps]
    days: dict[bytes, float] = {}
    text = b"\n".join(heads)
    for date, count in zip(*np.unique(dates, return_counts=True), strict=True):
        # Another stamp behind it: the first one is of another line that was cut.
        if text.count(bytes(date)) != count:
            return None
        days[bytes(date)] = _day(bytes(date))
    found = np.array([days[date] for date in dates])
    found += sum(digits[:, place] * each for place, each in zip(_CLOCK, _SECONDS, strict=True))
    point = (table[:, 19] == ord(".")) | (table[:, 19] == ord(","))
    fine = point & (digits[:, 20:] < 10).all(axis=1)
    parts = 0.1 * digits[:, 20] + 0.01 * digits[:, 21] + 0.001 * digits[:, 22]
    return np.asarray(found + np.where(fine, parts, 0.0))


def _searched(heads: Sequence[bytes]) -> Array:
    """The clock of lines whose stamps stand anywhere."""
    minutes: dict[bytes, float] = {}
    found = np.full(len(heads), np.nan)
    at = 0
    for place, head in enumerate(heads):
        # The stamp is where it was, and mostly in the same minute.
        base = minutes.get(head[at : at + 17])
        if base is None:
            match = _ISO.search(head) or _AMERICAN.search(head)
            if match is None:
                continue
            at = match.start()
            base = _day(match[0][:10]) + 3600.0 * int(match[4]) + 60.0 * int(match[5])
            minutes[head[at : at + 17]] = base
        text = head[at + 17 : at + STAMP]
        # Another stamp behind it: the first one is of another line that was cut.
        if not text[:2].isdigit() or head.count(head[at : at + 10]) > 1:
            continue
        part = text[2:].replace(b",", b".", 1)
        digits = part[1:].isdigit() and part[:1] == b"."
        found[place] = base + float(text[:2] + part if digits else text[:2])
    return found


def _day(date: bytes) -> float:
    """Seconds since 1970 at the start of a day, 2026-04-06 or 04/06/2026; NaN if there is none."""
    text = date.decode()
    if "/" in text:
        month, day, year = text.split("/")
        text = f"{year}-{month}-{day}"
    try:
        return float(np.datetime64(text, "s").astype(np.int64))
    except ValueError:
        return float("nan")
