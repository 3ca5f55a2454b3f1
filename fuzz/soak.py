"""Fuzz every door for some minutes and count what came of it.

    python fuzz/soak.py --minutes 10
    python fuzz/soak.py --minutes 5 --doors configs,units --seed 7

Doors take turns in batches of equal time. Hypothesis draws the inputs and shortens those that fail;
a finding goes to `fuzz/corpus/DOOR.jsonl`, which a test replays for ever. One process, on one core;
exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import base64
import json
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from fuzz_doors import DOORS, Door
from hypothesis import HealthCheck, Phase, given, seed, settings

CORPUS = Path(__file__).parent / "corpus"

CPU_SECONDS = 20.0
"""CPU time of one input before it counts as a hang."""

MEMORY = 4 << 30
"""Address space of the process, bytes: an input that takes it all is a finding."""


class HangError(BaseException):
    """An input takes longer than any should; no handler of exceptions may swallow it."""


def _hang(signum: int, frame: Any) -> None:
    raise HangError(f"{CPU_SECONDS:g} s of CPU time")


def batch(door: Door, number: int, count: int, seconds: float, tally: Counter[str]) -> Any:
    """Check some inputs of a door; return the input that failed with its exception, or None.

    Args:
        door: What is asked.
        number: Seed.
        count: Inputs at most.
        seconds: Time after which no more are checked.
        tally: Gets the counts.
    """
    end = time.monotonic() + seconds
    failed: list[Any] = []
    late: list[bool] = []

    # Hypothesis shortens what fails; the last one that failed is the shortest.
    @seed(number)
    @settings(
        max_examples=count, database=None, deadline=None, print_blob=False,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(door.inputs())
    def check(each: Any) -> None:
        if time.monotonic() > end and not failed:
            # The only way out of Hypothesis in the middle; a Ctrl-C of the user comes out below.
            late.append(True)
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            outcome = door.check(each)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed[:] = [each, error]
            # A hang is not shortened: every attempt would take as long.
            if isinstance(error, HangError | MemoryError):
                raise KeyboardInterrupt from error
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        if not failed:
            tally[outcome] += 1

    try:
        check()
    except KeyboardInterrupt:
        if not failed and not late:
            raise
    except BaseException:
        if not failed:
            raise
    return failed or None


def packed(value: Any) -> Any:
    """Return an input as JSON: bytes as {"base64": ...}."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: packed(each) for key, each in value.items()}
    return [packed(each) for each in value] if isinstance(value, list | tuple) else value


def unpacked(value: Any) -> Any:
    """Return an input from JSON."""
    if isinstance(value, dict):
        if set(value) == {"base64"}:
            return base64.b64decode(value["base64"])
        return {key: unpacked(each) for key, each in value.items()}
    return [unpacked(each) for each in value] if isinstance(value, list) else value


def keep(name: str, given_: Any, error: BaseException) -> None:
    """Add a finding to the corpus."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    why = f"{type(error).__name__}: {error}"[:300] + f" ({Path(place.filename).name})"
    CORPUS.mkdir(exist_ok=True)
    with (CORPUS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps({"why": why, "input": packed(given_)}) + "\n")


def main() -> int:
    """Fuzz, print counts by door, and say whether anything was found."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--doors", default=",".join(DOORS))
    options.add_argument("--seed", type=int, default=int(time.time()))
    asked = options.parse_args()
    signal.signal(signal.SIGPROF, _hang)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    names = asked.doors.split(",")
    tallies = {name: Counter[str]() for name in names}
    end, number, seen = time.monotonic() + 60.0 * asked.minutes, asked.seed, set[str]()
    each_seconds = max(0.5, min(4.0, 60.0 * asked.minutes / len(names) / 2))
    while time.monotonic() < end:
        for name in names:
            left = min(each_seconds, end - time.monotonic())
            if left <= 0:
                break
            number += 1
            found = batch(DOORS[name], number, 2000, left, tallies[name])
            if found is None:
                continue
            tallies[name]["failed"] += 1
            place = traceback.extract_tb(found[1].__traceback__)[-1]
            key = f"{name} {type(found[1]).__name__} {place.filename}:{place.lineno}"
            if key not in seen:
                seen.add(key)
                keep(name, *found)
                print(f"{key}\n  {str(found[1])[:200]}\n  {str(found[0])[:300]!r}", flush=True)
    return report(tallies, asked.seed)


def report(tallies: dict[str, Counter[str]], number: int) -> int:
    """Print the counts; return the exit code."""
    total: Counter[str] = Counter()
    print(f"{'door':14}{'inputs':>10}{'answered':>10}{'refused':>10}{'failed':>10}")
    for name, tally in tallies.items():
        total += tally
        _row(name, tally)
    _row("all", total)
    print(f"seed {number}")
    return 1 if total["failed"] else 0


def _row(name: str, tally: Counter[str]) -> None:
    counts = [tally["answered"], tally["refused"], tally["failed"]]
    print(f"{name:14}" + "".join(f"{count:10,}" for count in (sum(counts), *counts)))


if __name__ == "__main__":
    sys.exit(main())
