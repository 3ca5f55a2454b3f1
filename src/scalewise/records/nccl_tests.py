"""Logs of nccl-tests (`all_reduce_perf` and others) as rows.

    rows = read_nccl_tests("log.txt")
    rows[0]["op"], rows[0]["message_bytes"], rows[0]["time_us"], rows[0]["busbw_gb_per_s"]

One file may hold the logs of several programs. The rows have the columns of `measure collectives`.
The out-of-place time is used, as in published tables; the in-place time is a column of its own.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalewise.errors import InputError
from scalewise.reading import MAX_TABLE, read_bytes, user_path
from scalewise.records.environment import accelerator_of
from scalewise.records.rows import bus_factor

PROGRAMS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "alltoall": "all_to_all", "sendrecv": "send_recv",
}  # fmt: skip
"""Programs of nccl-tests (before `_perf`) by the name of their operation here."""

OTHERS = ("reduce", "gather", "scatter", "hypercube")
"""Programs whose rows are left out: training does not call them."""

_COMMAND = re.compile(r"([a-z_]+)_perf\b")
_TITLE = re.compile(r"Collective test starting:\s*([a-z_]+)_perf")
# "#  Rank  0 Group  0 Pid  1234 on  node-1 device  0 [0x07] NVIDIA H100 80GB HBM3"
_DEVICE = re.compile(r"#\s*Rank\s+(\d+).*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
_TYPES = {"float", "half", "bfloat16", "double", "int8", "uint8", "int32", "uint32", "int64",
          "uint64", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"}  # fmt: skip
# Up to an exabyte: a longer number is damage.
_COUNT = re.compile(r"[0-9]{1,18}")
_NO_TIME = "N/A"


@dataclass
class _Log:
    """What the header of one program said."""

    op: str | None = None
    other: str | None = None
    """A program that is left out."""
    hosts: dict[int, str] = field(default_factory=dict)
    device: str = ""
    fresh: bool = True
    """Whether no row has followed the header yet."""

    @property
    def ranks(self) -> int:
        return len(self.hosts)

    @property
    def nodes(self) -> int:
        return len(set(self.hosts.values()))


def read_nccl_tests(path: str | Path) -> list[dict[str, Any]]:
    """Read a log.

    Args:
        path: What the programs printed, one or several behind each other.

    Returns:
        A row for each size of each operation that training calls.

    Raises:
        InputError: If the file cannot be read, or has no such row, or a header lacks what a row
            needs.
    """
    file = user_path(path)
    text = read_bytes(file, what="log", most=MAX_TABLE).decode(errors="replace")
    rows: list[dict[str, Any]] = []
    log = _Log()
    skipped: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if (found := _DEVICE.search(line)) is not None:
            if not log.fresh:
                log = _Log(op=log.op, other=log.other)
            log.hosts[int(found[1])] = found[2]
            log.device = found[3].strip()
            continue
        if (named := _program(line)) is not None:
            # A title may come before or after the list of devices.
            if not log.fresh:
                log = _Log()
            log.op, log.other = PROGRAMS.get(named), None if named in PROGRAMS else named
            continue
        row = _row(line, log, file, number)
        if row is not None:
            log.fresh = False
            if log.other is not None:
                skipped.add(log.other)
            else:
                rows.append({**row, "source": f"{file.name} line {number}"})
    if not rows:
        why = (
            f"only {', '.join(sorted(skipped))}, which training does not call"
            if skipped
            else ("no line of size, count, type and time")
        )
        raise InputError(
            f"{file} holds {why}",
            hint="pass the output of all_reduce_perf, all_gather_perf or reduce_scatter_perf",
        )
    return rows


def _program(line: str) -> str | None:
    """The program that a line names, if it is one of nccl-tests'."""
    found = _TITLE.search(line)
    if found is None and (line.startswith("#") or "_perf" in line):
        found = _COMMAND.search(line)
    if found is None or found[1] not in (*PROGRAMS, *OTHERS):
        return None
    return found[1]


def _row(line: str, log: _Log, file: Path, number: int) -> dict[str, Any] | None:
    """One line of the table, or None for any other line."""
    cells = line.split()
    if len(cells) < 8 or cells[2] not in _TYPES or not all(map(_COUNT.fullmatch, cells[:2])):
        return None
    # size count type redop root | time algbw busbw wrong | the same in place
    numbers = cells[5:]
    if log.op is None and log.other is None:
        raise InputError(
            f"{file} line {number}: no line before it names the collective",
            hint="keep the command line, for example `all_reduce_perf -b 8 -e 1G -f 2 -g 8`",
        )
    if log.other is not None:
        return {}
    assert log.op is not None
    if log.ranks < 2:
        raise InputError(
            f"{file} line {number}: no line before it lists the ranks",
            hint="keep the lines from `# Using devices` on",
        )
    out, inside = _time(numbers, 0), _time(numbers, 4 if len(numbers) > 4 else None)
    used = out if out is not None else inside
    if used is None:
        return None
    size = int(cells[0])
    if size == 0 or used <= 0.0:
        return None
    algorithm = size / used / 1e3
    return {
        "op": log.op,
        "accelerator": accelerator_of(log.device),
        "hardware_stated": log.device,
        "accelerators": log.ranks,
        "nodes": log.nodes,
        "scaleup_domain": -(-log.ranks // log.nodes),
        "placement": "packed",
        "message_bytes": size,
        "time_us": used,
        "time_us_in_place": inside,
        "algbw_gb_per_s": algorithm,
        "busbw_gb_per_s": algorithm * bus_factor(log.op, log.ranks),
        "dtype": cells[2],
        "library": "nccl-tests",
    }


def _time(numbers: list[str], place: int | None) -> float | None:
    """A time in microseconds; None where it is absent or N/A."""
    if place is None or place >= len(numbers) or numbers[place] == _NO_TIME:
        return None
    try:
        time = float(numbers[place])
    except ValueError:
        return None
    return time if math.isfinite(time) else None
