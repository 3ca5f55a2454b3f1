"""Compute, communication and exposed communication of a real run, from its profiler traces.

    summary = read_trace("rank0.json.gz")                # or a folder, a pattern, a list of files
    summary.exposed_seconds, summary.overlap_pct         # the mean over ranks
    [step.exposed_seconds for step in summary.steps]

Traces are those of torch.profiler's `export_chrome_trace` and `tensorboard_trace_handler`, on GPUs
(NCCL, RCCL) or on the CPU (Gloo). Files of any size are read in bounded memory.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import InputError
from scalewise.reading import user_path
from scalewise.trace.breakdown import break_down, mean_of
from scalewise.trace.collect import CPU, Collected, Lane, collect
from scalewise.trace.stream import EventStream
from scalewise.trace.summary import RankTrace, TraceSummary
from scalewise.trace.waiting import waiting

ENDINGS = (".json", ".json.gz")
"""Files that are taken from a folder."""
_RANK = re.compile(r"rank[-_=.]?(\d+)", re.IGNORECASE)

Source = str | Path


def read_trace(
    path: Source | Sequence[Source], *, partial: bool = False, last_step: bool = False
) -> TraceSummary:
    """Read the traces of one or several ranks.

    Args:
        path: A file, a folder of them, a pattern such as "run/*.json.gz", or a list of these.
        partial: Whether to use the readable part of truncated or damaged files.
        last_step: Whether to count the last step of a GPU, which may be truncated.

    Returns:
        Times that add up, by rank, step, collective, group and size.

    Raises:
        InputError: If no file is found, or a file is unreadable, not a trace, truncated, or has no
            work in it.
    """
    given = [path] if isinstance(path, str | Path) else list(path)
    ranks: list[RankTrace] = []
    notes: list[str] = []
    world: int | None = None
    lanes: list[tuple[int | None, Lane]] = []
    host_calls = barriers = 0
    for file in _files(given):
        stream = EventStream(file)
        collected = collect(stream)
        _check(stream, collected, notes, partial=partial)
        info = stream.meta.get("distributedInfo")
        answer: dict[str, Any] = info if isinstance(info, dict) else {}
        size = answer.get("world_size")
        world = size if isinstance(size, int) and world is None else world
        if any(lane.device == CPU for lane in collected.lanes):
            barriers += collected.barriers
        else:
            host_calls += collected.host_calls
        whole = stream.cut is None and not stream.damaged
        lanes += [(_rank(answer, file), lane) for lane in collected.lanes]
        ranks += [
            break_down(
                lane,
                last_step=last_step,
                rank=_rank(answer, file),
                file=str(file),
                events=stream.events,
                complete=whole,
            )
            for lane in collected.lanes
        ]
    ranks.sort(key=lambda each: (each.rank is None, each.rank or 0, each.device))
    notes += _general_notes(ranks, host_calls=host_calls, barriers=barriers)
    return TraceSummary(
        world_size=world,
        ranks=tuple(ranks),
        waiting=waiting(lanes, world),
        notes=tuple(notes),
        **mean_of(ranks),
    )


def _files(given: Sequence[Source]) -> list[Path]:
    """Return the files of folders, patterns and names, each once, in order."""
    found: list[Path] = []
    for each in given:
        path = user_path(each)
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.name.endswith(ENDINGS) and p.is_file())
            if not inside:
                raise InputError(
                    f"the folder {each} holds no trace",
                    hint="traces end in .json or .json.gz; folders in it are not searched",
                )
            found += inside
        elif not path.exists() and glob.has_magic(str(path)):
            inside = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
            if not inside:
                raise InputError(
                    f"no file matches {str(each)!r}", hint="put quotes around patterns"
                )
            found += [file for file in inside if file.is_file()]
        else:
            found.append(path)
    if not found:
        raise InputError("no trace is named", hint="for example read_trace('rank0.json.gz')")
    return list(dict.fromkeys(found))


def _rank(answer: dict[str, Any], file: Path) -> int | None:
    """Return the rank from the trace, else from the file name."""
    rank = answer.get("rank")
    if isinstance(rank, int):
        return rank
    match = _RANK.search(file.name)
    return int(match.group(1)) if match else None


def _check(stream: EventStream, collected: Collected, notes: list[str], *, partial: bool) -> None:
    """Reject unusable files; return notes on others."""
    file, count = stream.path, f"{stream.events:,}"
    if stream.cut is not None:
        if not partial:
            raise InputError(
                f"{file} is not whole: {stream.cut}; {count} events could be read",
                hint="copy or record it again, or use what is readable with --partial",
            )
        notes.append(f"{file} is not whole: {stream.cut}. Only {count} events were used.")
    if stream.damaged:
        if not partial:
            raise InputError(
                f"{file}: {stream.damaged:,} of {stream.events + stream.damaged:,} events are "
                "not valid JSON",
                hint="leave them out with --partial",
            )
        notes.append(f"{file}: {stream.damaged:,} damaged events were left out.")
    on_cpu = any(lane.device == CPU for lane in collected.lanes)
    if collected.launches and (on_cpu or not collected.lanes):
        raise InputError(
            f"{file} has what the host did, but no GPU kernels, although it launches NCCL",
            hint="record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    if not collected.lanes:
        raise InputError(
            f"{file} has {count} events, but no kernel and no operator among them",
            hint="record it with torch.profiler.profile(activities=[...])",
        )


def _general_notes(ranks: Sequence[RankTrace], *, host_calls: int, barriers: int) -> list[str]:
    """Return warnings about the ranks as a whole."""
    notes = []
    if host_calls:
        notes.append(
            "Collectives on the CPU (Gloo) are not counted beside those on the GPU; there are "
            f"{host_calls:,}."
        )
    if barriers:
        notes.append(
            "Barriers are not counted as communication, because they move nothing; waiting in "
            f"them is idle time. There are {barriers:,}."
        )
    numbers = [(each.rank, each.device) for each in ranks if each.rank is not None]
    twice = sorted({rank for rank, device in numbers if numbers.count((rank, device)) > 1})
    if twice:
        notes.append(f"Rank {twice[0]} was read from several files; each counts as a rank.")
    if any(not step.counted for each in ranks for step in each.steps):
        notes.append(
            "The last step is not counted, because the profiler may have stopped before the GPU "
            "had finished it (--last-step counts it)."
        )
    late = [each for each in ranks if each.device != CPU and each.step_clock == "host"]
    if any(each.steps for each in late):
        notes.append(
            "Steps are the times the host spent in them, because the trace does not say what the "
            "GPU did for each: a GPU that lags behind shows its work in the next step."
        )
    if not any(each.steps for each in ranks):
        notes.append("The trace has no steps: call prof.step() after each to have them.")
    return notes
