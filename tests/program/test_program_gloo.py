"""Captured collectives against those of real Gloo runs: the same count, bytes and order.

Gloo starts collectives of different groups as their threads get time, so order is compared where
there is one group.

The profiler of PyTorch knows nothing of a capture: it lists what Gloo did, rank by rank.
"""

import gzip
import json
import math

import pytest

from measure_jobs import job, run_together
from scalewise.program.capture.spec import CaptureSpec
from scalewise.program.run import capture_program

BYTES = {"float": 4, "c10::BFloat16": 2, "double": 8, "long int": 8, "int": 4, "unsigned char": 1}

THREADS = 2
"""Threads of a Gloo group: calls that both start at once may change places."""

TWO = ["fsdp2-mb1", "fsdp2-mb2-noreshard", "ddp2-mb1", "ddp1-tp2-mb1", "ddp1-tp2-nosp-mb1",
       "ddp1-pp2-mb1", "ddp1-pp2-v2-mb1", "fsdp2-mb1-acfull", "zero1x2-mb1"]  # fmt: skip
FOUR = ["fsdp4-mb1", "hsdp2x2-mb1", "fsdp2-tp2-mb1", "fsdp2-pp2-mb1", "ddp4-mb1"]


def gloo_calls(path):
    """What Gloo did in the last step of a profiler trace: (operation, bytes of the input)."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    events = [event for event in events if event.get("ph") == "X"]
    step = max((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    found = []
    for event in sorted(events, key=lambda e: e["ts"]):
        name = event["name"]
        if not name.startswith("gloo:") or "barrier" in name:
            continue
        if step["ts"] <= event["ts"] < step["ts"] + step["dur"]:
            given = zip(event["args"]["Input Dims"], event["args"]["Input type"], strict=True)
            size = sum(math.prod(shape) * BYTES[kind] for shape, kind in given)
            found.append((name.removeprefix("gloo:"), size))
    return found


def captured_calls(capture):
    """The same of a capture; Gloo reduces and scatters by an all-reduce of the whole."""
    found = []
    for event in capture.collectives():
        ranks = capture.groups[event.group].size
        if event.name == "all_gather":
            found.append(("all_gather", event.bytes / ranks))
        else:
            name = "all_reduce" if event.name == "reduce_scatter" else event.name
            found.append((name, event.bytes))
    return found


def displaced(one, other):
    """The largest distance between the places of a call in two orders of the same calls."""
    places = [
        {(call, order[:place].count(call)): place for place, call in enumerate(order)}
        for order in (one, other)
    ]
    return max(abs(places[0][key] - places[1][key]) for key in places[0])


def test_displacement_is_that_of_the_call_that_moved_most():
    assert displaced(["a", "b", "b"], ["a", "b", "b"]) == 0
    assert displaced(["a", "b", "c", "d"], ["b", "a", "d", "c"]) == 1
    assert displaced(["a", "b", "c", "d"], ["d", "a", "b", "c"]) == 3


def both(spellings, folder):
    jobs = [job(each, optimizer="adamw", trace_steps=1) for each in spellings]
    run_together(jobs, folder)
    for place, each in enumerate(jobs):
        spec = CaptureSpec(adapter="decoder", world=each.ranks, job=each)
        captures = capture_program(spec)
        trace = folder / "traces" / f"job{place}" / f"rank{captures[0].rank}.json.gz"
        yield captures[0], captured_calls(captures[0]), gloo_calls(trace)


@pytest.mark.parametrize("spellings", [TWO, FOUR], ids=["two ranks", "four ranks"])
def test_a_capture_has_the_collectives_of_a_real_run(spellings, tmp_path):
    for capture, captured, real in both(spellings, tmp_path):
        assert captured, capture.program
        assert sorted(captured) == sorted(real), capture.program
        if len(capture.groups) == 1:
            assert displaced(captured, real) <= THREADS, capture.program
