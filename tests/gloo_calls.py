"""Collectives of a step: those of a profiler trace of a real Gloo run, and those of a capture.

    difference(capture, "rank0.json.gz")        # None: the same count, bytes and order

The profiler of PyTorch knows nothing of a capture. It lists what Gloo did, in threads of its own,
with bytes, and what was issued, in the order of issue, with elements.
"""

import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

from waiting import PATIENCE

SOURCE = Path(__file__).parents[1] / "src"
RANK = Path(__file__).with_name("gloo_rank.py")

BYTES = {"float": 4, "c10::BFloat16": 2, "double": 8, "long int": 8, "int": 4, "unsigned char": 1}
WIDTHS = {"float32": 4, "bfloat16": 2, "float64": 8, "int64": 8, "int32": 4, "uint8": 1}

ISSUED = {
    "_allgather_base_": ("all_gather", 0), "allgather_": ("all_gather", None),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1), "reduce_scatter_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "allreduce_": ("all_reduce", 0), "alltoall_base_": ("all_to_all", 1),
    "broadcast_": ("broadcast", 0), "send": ("send", 0), "recv_": ("recv", 0),
}  # fmt: skip
"""Collective of an operator that is issued, and the place of the whole message in its inputs; the
profiler leaves out lists of lists."""


def _step(path):
    """Events of the last step of a trace, by time."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    events = [event for event in events if event.get("ph") == "X"]
    step = max((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    end = step["ts"] + step["dur"]
    return sorted((e for e in events if step["ts"] <= e["ts"] < end), key=lambda e: e["ts"])


def gloo_calls(path):
    """What Gloo did: (operation, bytes of the input)."""
    found = []
    for event in _step(path):
        name = event["name"]
        if name.startswith("gloo:") and "barrier" not in name:
            given = zip(event["args"]["Input Dims"], event["args"]["Input type"], strict=True)
            size = sum(math.prod(shape) * BYTES[kind] for shape, kind in given)
            found.append((name.removeprefix("gloo:"), size))
    return found


def issued_calls(path):
    """What the rank issued, in that order: (operation, elements of the whole message)."""
    found = []
    for event in _step(path):
        name = event["name"].removeprefix("c10d::")
        if name != event["name"] and name != "barrier":
            operation, place = ISSUED[name]
            shapes = event["args"]["Input Dims"]
            found.append((operation, None if place is None else _elements(shapes[place])))
    return found


def _elements(shape):
    """Elements of a tensor, or of all in a list."""
    if shape and isinstance(shape[0], list):
        return sum(map(_elements, shape))
    return math.prod(shape)


def captured_gloo(capture):
    """What Gloo would do; it reduces and scatters by an all-reduce of the whole."""
    found = []
    for event in capture.collectives():
        ranks = capture.groups[event.group].size
        if event.name == "all_gather":
            found.append(("all_gather", event.bytes / ranks))
        else:
            name = "all_reduce" if event.name == "reduce_scatter" else event.name
            found.append((name, event.bytes))
    return found


def captured_issues(capture):
    """What a captured rank issued."""
    return [(event.name, event.bytes / WIDTHS[event.dtype]) for event in capture.collectives()]


def difference(capture, path):
    """What a capture and a trace of the same rank differ in; None if in nothing."""
    real, captured = gloo_calls(path), captured_gloo(capture)
    if not real or sorted(real) != sorted(captured):
        return f"{capture.program}: {len(captured)} calls captured, {len(real)} of Gloo"
    issued, captured = issued_calls(path), captured_issues(capture)
    for place, (one, other) in enumerate(zip(captured, issued, strict=True)):
        if one[0] != other[0] or other[1] not in (None, one[1]):
            return f"{capture.program}: call {place} is {one} captured, {other} issued"
    return None


def run_on_gloo(program, folder, *, ranks, adapter="script", python=sys.executable, path=()):
    """Run a program for real; trace `rank0.json.gz` and others in the folder.

    Args:
        program: Script, or -m and module, and arguments.
        folder: Where it runs.
        ranks: Their number.
        adapter: Whose stand-ins it gets.
        python: Interpreter.
        path: More folders of modules.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [python, str(RANK), adapter, str(folder), *program]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(SOURCE), *path)), "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    logs = [folder / f"rank{rank}.txt" for rank in range(ranks)]
    processes = []
    try:
        for rank, log in enumerate(logs):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            with log.open("wb") as out:
                processes.append(
                    subprocess.Popen(
                        command, cwd=folder, env=environment | place, stdout=out, stderr=out
                    )
                )
        for process, log in zip(processes, logs, strict=True):
            assert process.wait(PATIENCE) == 0, log.read_text()[-3000:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
