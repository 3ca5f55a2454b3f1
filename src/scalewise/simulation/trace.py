"""Trace-event JSON of a timeline for Perfetto, compressed or not.

    write_trace(line, Path("step.json.gz"))

Ranks are processes, streams are tracks, P2P transfers are flow arrows, memory and power are
counters. Times are whole nanoseconds, so that consecutive events do not overlap by a rounding
error. The format is Google's Trace Event Format.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING

from scalewise.simulation.events import STREAM_NAMES, STREAMS
from scalewise.units import GIB
from scalewise.writing import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from scalewise.simulation.events import Event
    from scalewise.simulation.simulate import Timeline


def write_trace(line: Timeline, path: Path) -> int:
    """Write a trace, compressed if the file name ends in `.gz`.

    Args:
        line: The step.
        path: File to write.

    Returns:
        Number of events.
    """
    text, count = trace_json(line)
    data = text.encode()
    # A fixed time in the header: the same step gives the same bytes.
    write_atomically(path, gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
    return count


def trace_json(line: Timeline) -> tuple[str, int]:
    """Return a timeline as trace-event JSON: (text, events)."""
    from scalewise._version import __version__

    rows = [row for rank in line.ranks for row in _rank(line, rank)]
    e = line.estimate
    title = f"{e.model.name} on {e.cluster.accelerators} x {e.cluster.name}, {e.strategy}"
    head = (
        '{"displayTimeUnit":"ms","otherData":'
        f'{{"producer":"scalewise {__version__}","step":{_text(title)}}},"traceEvents":[\n'
    )
    return head + ",\n".join(rows) + "\n]}\n", len(rows)


def _rank(line: Timeline, rank: int) -> Iterator[str]:
    """Yield all rows of one rank."""
    yield from _names(line, rank)
    shown = set(line.ranks)
    for event in line.events(rank):
        begin, length = _nanoseconds(event)
        if length <= 0:
            continue
        track = _track(rank, event.stream)
        arguments = {"micro": event.micro, "chunk": event.chunk, "layer": event.layer}
        text = ",".join(f'"{name}":{value}' for name, value in arguments.items() if value >= 0)
        if event.stream not in ("compute", "host"):
            # As PyTorch writes it, so that `scalewise trace` reads simulated steps too.
            group = f'"Process Group Description":{_text(STREAM_NAMES[event.stream])}'
            text = f"{text},{group}" if text else group
        yield (
            f'{{"ph":"X","name":{_text(event.name)},"cat":"{event.kind}","pid":{rank},'
            f'"tid":{track},"ts":{_micro(begin)},"dur":{_micro(length)},"args":{{{text}}}}}'
        )
        if event.flow >= 0 and len(shown) > 1:
            yield _arrow(event, rank, track, begin, length)
    for sample in line.memory(rank):
        yield _counter("memory", "GiB", rank, sample.start, sample.value / GIB)
    for sample in line.power(rank):
        yield _counter("power", "W", rank, sample.start, sample.value)


def _names(line: Timeline, rank: int) -> Iterator[str]:
    """Yield names and order of the process and its tracks."""
    stages = len(line.simulation.durations.stages)
    layers = line.simulation.durations.stages[rank].layers
    name = (
        f"stage {rank} of {stages}, {layers} layers" if stages > 1 else f"rank 0, {layers} layers"
    )
    yield f'{{"ph":"M","name":"process_name","pid":{rank},"args":{{"name":{_text(name)}}}}}'
    yield f'{{"ph":"M","name":"process_sort_index","pid":{rank},"args":{{"sort_index":{rank}}}}}'
    durations = line.simulation.durations
    absent = {"replica"} if durations.across <= 0.0 else set()
    if not any(piece.stream == "expert" for piece in durations.forward_block.pieces):
        absent.add("expert")
    for place, stream in enumerate(STREAMS):
        if stream in absent:
            continue
        track, text = _track(rank, stream), _text(STREAM_NAMES[stream])
        yield (
            f'{{"ph":"M","name":"thread_name","pid":{rank},"tid":{track},"args":{{"name":{text}}}}}'
        )
        yield (
            f'{{"ph":"M","name":"thread_sort_index","pid":{rank},"tid":{track},'
            f'"args":{{"sort_index":{place}}}}}'
        )


def _track(rank: int, stream: str) -> int:
    """Return the thread number of a stream, unique for Perfetto.

    In Perfetto, thread 0 is the idle thread of all processes, and a thread with the number of its
    process is that process's main thread. These numbers are above both, and unique in the file.
    """
    return rank * len(STREAMS) + STREAMS.index(stream) + 1


def _arrow(event: Event, rank: int, track: int, begin: int, length: int) -> str:
    """Return one end of the arrow of a P2P transfer."""
    sends = event.kind == "send"
    # Each end lies inside its slice: the arrow starts and ends with the transfer.
    moment = begin if sends else begin + length - 1
    return (
        f'{{"ph":"{"s" if sends else "f"}","bp":"e","id":{event.flow},"name":"message",'
        f'"cat":"pipeline","pid":{rank},"tid":{track},"ts":{_micro(moment)}}}'
    )


def _counter(name: str, unit: str, rank: int, start: float, value: float) -> str:
    """Return one value of a counter; Perfetto names the counter by name and unit."""
    moment = _micro(round(start * 1e9))
    return (
        f'{{"ph":"C","name":"{name}","pid":{rank},"ts":{moment},"args":{{"{unit}":{value:.6g}}}}}'
    )


def _nanoseconds(event: Event) -> tuple[int, int]:
    """Return start and length; both ends are rounded, so that neighbors touch without overlap."""
    begin = round(event.start * 1e9)
    return begin, round(event.end * 1e9) - begin


def _micro(nanoseconds: int) -> str:
    """Return microseconds with three decimals, exactly."""
    whole, rest = divmod(nanoseconds, 1000)
    return f"{whole}.{rest:03d}"


def _text(value: str) -> str:
    """Return a JSON string."""
    import json

    return json.dumps(value)
