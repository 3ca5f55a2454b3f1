"""Reader of logs: which framework wrote it, and its steps.

    log = read_log("train.log")            # plain or .gz; any framework of `FRAMEWORKS`

Lines are found by a text that every step line of a framework has, and only those are matched. A
step line that does not match is damaged and left out; a log that has more damaged lines than others
is refused. Ranks that print the same step count once.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from scalewise.errors import InputError
from scalewise.logs import (
    deepspeed,
    hf_trainer,
    litgpt,
    maxtext,
    megatron_bridge,
    megatron_lm,
    nanogpt,
    nanotron,
    nemo,
    torchtitan,
)
from scalewise.logs.blocks import line_blocks
from scalewise.logs.clock import clock_of
from scalewise.logs.dense import HEAD, columns_of, read_dense
from scalewise.logs.line import ANSI, StepLine
from scalewise.logs.progress_bar import MARKS, Reading, longest, reading, windows
from scalewise.logs.run_log import CHECKPOINT, EVALUATION, MAX_STEP, RunLog, Stated, Steps
from scalewise.numeric import Array, Index

LINES: tuple[StepLine, ...] = (
    *torchtitan.LINES,
    *megatron_lm.LINES,
    *megatron_bridge.LINES,
    *nemo.LINES,
    *nanotron.LINES,
    *maxtext.LINES,
    *litgpt.LINES,
    *nanogpt.LINES,
    *deepspeed.LINES,
)
"""All kinds; where a log has several, the first one counts: DeepSpeed's timer prints besides
Megatron-DeepSpeed, and leaves out what is between steps."""

FRAMEWORKS = (*dict.fromkeys(each.framework for each in LINES), "transformers", "accelerate")
"""Frameworks whose logs are read."""

MAX_HEAD = 4 << 20
"""Bytes before the first step that are kept for configurations."""

SETTLED = 16 << 20
"""Bytes after which only the kinds of lines are looked for that were found."""

_EVENTS = (
    (b"heckpoint", CHECKPOINT),
    (b"alidation", EVALUATION),
    (b"valuat", EVALUATION),
    (b"eval_", EVALUATION),
    (b"eval metrics", EVALUATION),
    (b"val loss", EVALUATION),
)
_RANK = re.compile(rb"\s*(?:\S+\s)??\[?(?:rank|default)?(\d{1,6})\]?: ?(?=[^\d\s]|\s)")

SAVING = b"Saving model checkpoint"
"""What the Trainer prints before it saves."""

LAG = 3
"""Lines by which one rank may print behind another; a step further back is a new start."""


@dataclass
class _Lines:
    """Step lines of one kind as they are found."""

    kind: StepLine
    line: list[int] = field(default_factory=list)
    parts: list[dict[str, Array]] = field(default_factory=list)
    """Numbers by column, of one block after the other."""
    heads: list[bytes] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


@dataclass
class _Scan:
    """What one pass over a log finds."""

    lines: list[_Lines]
    bars: list[Reading] = field(default_factory=list)
    trainer: list[tuple[int, bytes]] = field(default_factory=list)
    saves: list[int] = field(default_factory=list)
    """Lines that speak of a checkpoint, where steps are those of a progress bar."""
    head: list[bytes] = field(default_factory=list)
    first: bool = False
    """Whether a step was found."""


def read_log(path: str | Path) -> RunLog:
    """Read a log of any framework.

    Args:
        path: Text, plain or gzip.

    Raises:
        InputError: If it cannot be read, has no step, or more damaged lines than whole ones.
    """
    scan = _scan(path)
    found = [each for each in scan.lines if each.line]
    head = b"".join(scan.head)
    if found:
        return _of_lines(str(path), found, head)
    for each in scan.lines:
        if each.damaged:
            raise InputError(
                f"log {path}, line {each.damaged[0]}: not a whole step line of "
                f"{each.kind.framework}",
                hint="name a log with whole lines",
            )
    log = hf_trainer.of_bars(
        str(path),
        windows(longest(scan.bars), scan.saves),
        scan.trainer,
        head.decode("utf-8", "replace"),
    )
    if log is None:
        raise InputError(
            f"log {path} has no step line of {', '.join(FRAMEWORKS)}",
            hint="name another log, or a CSV or JSONL export of its metrics",
        )
    return log


def _scan(path: str | Path) -> _Scan:
    """Find all step lines of a log in one pass."""
    scan = _Scan(lines=[_Lines(kind) for kind in LINES])
    active, bars, read, events = scan.lines, True, 0, 0
    for first, block in line_blocks(path):
        spans: list[tuple[int, int, _Lines, int]] = []
        for each in active:
            _find(each, block, first, spans)
        if bars:
            _find_bars(scan, block, first)
        if not scan.first:
            end = min((span[0] for span in spans), default=len(block))
            if sum(map(len, scan.head)) < MAX_HEAD:
                scan.head.append(block[:end][:MAX_HEAD])
            scan.first = bool(spans)
        if spans:
            events = _find_events(block, spans, events)
        read += len(block)
        if read >= SETTLED and any(each.line for each in active):
            active = [each for each in active if each.line]
            bars = False
    return scan


def _find(
    found: _Lines, block: bytes, first: int, spans: list[tuple[int, int, _Lines, int]]
) -> None:
    """Find the step lines of one kind in a block of whole lines."""
    kind = found.kind
    if kind.dense and (whole := read_dense(kind, block)) is not None:
        spans.append((0, len(block), found, len(found.line)))
        count = len(whole.heads)
        found.line.extend(range(first, first + count))
        found.heads.extend(whole.heads)
        found.events.extend([0] * count)
        found.parts.append(whole.columns)
        return
    groups: list[tuple[bytes | None, ...]] = []
    mark, search, find = kind.mark, kind.pattern.search, block.find
    words = [(mark, 1), *((word, 1) for word in kind.once), *((word, 2) for word in kind.twice)]
    colored, returns = b"\x1b" in block, b"\r" in block
    # Ends of lines are looked for once each: a progress bar may fill a block without any.
    line, counted, end, size = first, 0, 0, len(block)
    newline, carriage = -1, -1 if returns else size
    at = find(mark)
    while at >= 0:
        begin = block.rfind(b"\n", end, at) + 1 or end
        if returns:
            begin = block.rfind(b"\r", begin, at) + 1 or begin
            if carriage < at:
                carriage = find(b"\r", at) % (size + 1)
        if newline < at:
            newline = find(b"\n", at) % (size + 1)
        end = min(newline, carriage)
        line += block.count(b"\n", counted, begin)
        counted = begin
        text = block[begin:end]
        if colored:
            text = ANSI.sub(b"", text)
        match = search(text)
        if match is not None:
            for word, times in words:
                if text.count(word) != times:
                    match = None
                    break
        if match is None or b"\0" in match[0]:
            found.damaged.append(line)
        else:
            spans.append((begin, end, found, len(found.line)))
            found.line.append(line)
            groups.append(match.groups())
            found.heads.append(text[: min(match.start(), HEAD)])
            found.events.append(0)
        at = find(mark, end)
    if groups:
        found.parts.append(columns_of(kind, list(zip(*groups, strict=True))))


def _find_bars(scan: _Scan, block: bytes, first: int) -> None:
    """Find progress bars, and what the Trainer prints at the end."""
    for mark in MARKS:
        at, line, counted = block.find(mark), first, 0
        while at >= 0:
            line += block.count(b"\n", counted, at)
            counted = at
            # A bar is no longer than this.
            before = max(0, at - 4096)
            start = (
                max(block.rfind(b"\n", before, at), block.rfind(b"\r", before, at), before - 1) + 1
            )
            found = reading(block[start : at + len(mark)], line)
            if found is not None:
                scan.bars.append(found)
            at = block.find(mark, at + len(mark))
    scan.bars.sort()
    at = block.find(SAVING)
    while at >= 0:
        scan.saves.append(first + block.count(b"\n", 0, at))
        at = block.find(SAVING, at + 1)
    at = block.find(hf_trainer.MARK)
    if at >= 0:
        start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
        line = first + block.count(b"\n", 0, at)
        scan.trainer.append((line, block[start : end if end >= 0 else len(block)]))


def _find_events(block: bytes, spans: list[tuple[int, int, _Lines, int]], events: int) -> int:
    """Note what is printed between steps; return what stands behind the last one."""
    spans.sort(key=lambda span: span[0])
    before = 0
    for begin, end, found, place in spans:
        if begin - before > 8:
            events |= _events(block, before, begin)
        found.events[place] = events
        before, events = end, 0
    return _events(block, before, len(block))


def _events(block: bytes, start: int, end: int) -> int:
    """Bits of what a part of a log speaks of."""
    bits = 0
    for word, bit in _EVENTS:
        if not bits & bit and block.find(word, start, end) >= 0:
            bits |= bit
    return bits


def _of_lines(path: str, found: list[_Lines], head: bytes) -> RunLog:
    """The log of the first kind of lines that was found."""
    names = [each.kind.framework for each in found]
    lines, notes = found[0], []
    framework = lines.kind.framework
    if framework == "megatron-lm" and "megatron-bridge" in names:
        framework = "megatron-bridge"
    elif len(set(names)) > 1:
        others = ", ".join(name for name in dict.fromkeys(names) if name != framework)
        notes.append(f"lines of {others} besides, not used")
    if len(lines.damaged) > len(lines.line):
        raise InputError(
            f"log {path}, line {lines.damaged[0]}: not a whole step line of {framework}; so are "
            f"{len(lines.damaged):,} of {len(lines.damaged) + len(lines.line):,}",
            hint="name a log with whole lines",
        )
    columns = _columns(lines)
    clock = clock_of(lines.heads)
    kept, start, more = _once(lines, columns, clock)
    notes += more
    if lines.damaged:
        some = f"{len(lines.damaged):,} step line" + ("s are" if len(lines.damaged) > 1 else " is")
        notes.append(f"{some} cut or mixed with others, the first in line {lines.damaged[0]:,}")
    steps = _steps(lines, columns | {"clock": clock}, kept, start)
    stated = _stated(lines, columns, kept, head, notes)
    return RunLog(
        path=path,
        framework=framework,
        steps=steps,
        stated=stated,
        head=head.decode("utf-8", "replace"),
        memory=lines.kind.memory,
        window=lines.kind.window,
        digits=lines.kind.digits,
        damaged=tuple(lines.damaged),
        notes=tuple(notes),
    )


def _columns(lines: _Lines) -> dict[str, Array]:
    """Numbers of all lines by column; NaN where a line lacks one."""
    columns = {
        name: np.concatenate([part[name] for part in lines.parts]) for name in lines.parts[0]
    }
    if "step" not in columns:
        columns["step"] = np.arange(1.0, len(lines.line) + 1.0)
    columns["step"] = np.minimum(columns["step"], MAX_STEP)
    return columns


def _once(lines: _Lines, columns: dict[str, Array], clock: Array) -> tuple[Index, Index, list[str]]:
    """Return the places of lines that count, which start each belongs to, and notes."""
    notes: list[str] = []
    places = np.arange(len(lines.line))
    # Every step once, in order: no rank repeats another, and no start follows another.
    if np.all(np.diff(columns["step"]) > 0.0):
        return places, np.zeros(len(places), dtype=np.int64), notes
    labels = [found[1] if (found := _RANK.match(each)) else b"" for each in lines.heads]
    ranks = Counter(labels)
    if len(ranks) > 1:
        first, count = ranks.most_common(1)[0]
        if count > 0.9 * len(labels):
            pass
        else:
            places = np.array([at for at, label in enumerate(labels) if label == first])
            notes.append(f"{len(ranks)} ranks print; those of rank {first.decode() or '0'} count")
    steps = columns["step"][places].astype(np.int64).tolist()
    ahead = np.diff(np.unique(columns["step"][places]))
    lag = LAG * float(np.median(ahead)) if len(ahead) else LAG
    clocks = clock[places].tolist()
    kept, starts = [], []
    seen: set[int] = set()
    start, top, latest = 0, -1, -np.inf
    double = 0
    for at, step in enumerate(steps):
        now = clocks[at]
        if step > top:
            top = step
        elif top - step > lag and not now < latest:
            start += 1
            top = step
            seen = set()
        elif step in seen:
            double += 1
            continue
        seen.add(step)
        latest = now if now > latest else latest
        kept.append(places[at])
        starts.append(start)
    if double:
        notes.append(f"{double:,} lines repeat a step, as of other ranks: each step counts once")
    if start:
        notes.append(f"the run was started {start + 1} times")
    return np.array(kept), np.array(starts), notes


def _steps(lines: _Lines, columns: dict[str, Array], kept: Index, start: Index) -> Steps:
    """Columns of the lines that count."""
    missing = np.full(len(kept), np.nan)

    def of(name: str) -> Array:
        return columns[name][kept] if name in columns else missing

    step = of("step").astype(np.int64)
    every = np.ones(len(step), dtype=np.int64)
    if len(step) > 1:
        ahead = np.diff(step)
        same = np.diff(start) == 0
        usual = int(np.median(ahead[same])) if same.any() else 1
        every[1:] = np.where(same & (ahead > 0), ahead, max(usual, 1))
    seconds = of("seconds")
    if "micro" in columns:
        seconds = seconds * _micro_batches(of("micro"), step)
    events = np.zeros(len(kept), dtype=np.int64)
    for place, bits in enumerate(lines.events):
        if bits:
            at = min(int(np.searchsorted(kept, place)), len(kept) - 1)
            events[at] |= bits
    return Steps(
        line=np.array(lines.line, dtype=np.int64)[kept], step=step, every=every, start=start,
        seconds=seconds, device_tokens=of("device_tokens"), total_tokens=of("total_tokens"),
        samples=of("samples"), loss=of("loss"), memory=of("memory"),
        clock=of("clock"), events=events, waited=missing,
    )  # fmt: skip


def _micro_batches(micro: Array, step: Index) -> float:
    """Micro-batches of a step by two running numbers."""
    steps = float(step[-1] - step[0])
    if steps <= 0.0:
        return float("nan") if len(step) < 2 else max(1.0, float(micro[-1] - micro[0]))
    return max(1.0, float(np.round((micro[-1] - micro[0]) / steps)))


def _stated(
    lines: _Lines, columns: dict[str, Array], kept: Index, head: bytes, notes: list[str]
) -> dict[str, Stated]:
    """What the lines and the text before them state."""
    stated: dict[str, Stated] = {}
    if lines.kind.states is not None:
        plain = ANSI.sub(b"", head)
        for name, (value, place) in lines.kind.states(plain).items():
            stated[name] = Stated(value=value, line=1 + plain.count(b"\n", 0, place))
    if lines.kind.framework == "nanotron":
        return stated | nanotron.stated(
            {name: column[kept] for name, column in columns.items()}, lines.line[int(kept[-1])]
        )
    if "batch" in columns:
        batches = columns["batch"][kept]
        known = batches[np.isfinite(batches)]
        if len(known):
            last = int(known[-1])
            at = int(kept[np.flatnonzero(batches == last)[0]])
            stated["batch"] = Stated(value=str(last), line=lines.line[at])
            if not np.all(known == last):
                notes.append(
                    f"the batch changes, from {int(known[0]):,} to {last:,}: the last counts"
                )
    return stated
