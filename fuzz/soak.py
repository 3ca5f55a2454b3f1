"""Fuzz every door and count what came of it.

    python fuzz/soak.py --minutes 10
    python fuzz/soak.py --count 1000000 --processes 2 --progress soak       # run again to continue
    python fuzz/soak.py --minutes 5 --doors configs,units --seed 7

Doors take turns, each with its share of the inputs. A finding is shortened and goes to
`fuzz/corpus/DOOR.jsonl`, which a test replays for ever. Inputs follow from the seed and their
number: processes and pieces of a run draw different ones. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import array
import base64
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fuzz_door import Door, Outcome
from fuzz_doors import DOORS

CORPUS = Path(__file__).parent / "corpus"

CPU_SECONDS = 20.0
"""CPU time of one input before it counts as a hang."""

MEMORY = 4 << 30
"""Address space of the process, bytes: an input that takes it all is a finding."""

ROUND = 1000
"""Inputs of all doors in one round of turns."""

WRITING = 60.0
"""Seconds between two writes of the progress."""

SHORTENINGS = 400
"""Attempts to shorten a finding."""

KINDS = ("answered", "refused", "priced", "failed")


class HangError(BaseException):
    """An input takes longer than any should; no handler of exceptions may swallow it."""


def _hang(signum: int, frame: Any) -> None:
    raise HangError(f"{CPU_SECONDS:g} s of CPU time")


def ask(door: Door, given: Any) -> Outcome | BaseException:
    """Return what became of an input, or what it raised."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        return door.outcome(given)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def place(error: BaseException) -> str:
    """Return what tells findings apart: the kind of error and its line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {Path(last.filename).name}:{last.lineno}"


def smaller(value: Any) -> Iterator[Any]:
    """Yield simpler variants of an input: without an item, half of a text, an item simpler."""
    if isinstance(value, str | bytes):
        size = len(value)
        cut = size // 2
        while cut:
            for start in range(0, size, cut):
                yield value[:start] + value[start + cut :]
            cut //= 2 if cut > 4 or size < 200 else cut + 1
    elif isinstance(value, dict):
        for key in value:
            yield {name: each for name, each in value.items() if name != key}
        for key, each in value.items():
            yield from ({**value, key: new} for new in smaller(each))
    elif isinstance(value, list):
        for at in range(len(value)):
            yield [*value[:at], *value[at + 1 :]]
        for at, each in enumerate(value):
            yield from ([*value[:at], new, *value[at + 1 :]] for new in smaller(each))


def shortened(door: Door, given: Any, error: BaseException) -> Any:
    """Return the simplest variant of an input that fails in the same place."""
    tries, found = SHORTENINGS, True
    while found and tries > 0 and not isinstance(error, HangError | MemoryError):
        found = False
        for simpler in smaller(given):
            tries -= 1
            if tries <= 0:
                break
            outcome = ask(door, simpler)
            if isinstance(outcome, BaseException) and place(outcome) == place(error):
                given, found = simpler, True
                break
    return given


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


def keep(name: str, given: Any, error: BaseException) -> None:
    """Add a finding to the corpus."""
    why = f"{type(error).__name__}: {error}"[:300] + f" ({place(error).split()[-1]})"
    CORPUS.mkdir(exist_ok=True)
    with (CORPUS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps({"why": why, "input": packed(given)}) + "\n")


def hashed(value: str) -> int:
    """Return 64 bits of a text."""
    plain = value.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(plain, digest_size=8).digest(), "big")


def _text(numbers: Iterable[int]) -> str:
    return base64.b64encode(array.array("Q", numbers).tobytes()).decode()


def _numbers(text: str) -> array.array[int]:
    return array.array("Q", base64.b64decode(text))


class Soak:
    """What one process has done; with a file, so that another can go on where it stopped."""

    def __init__(self, names: list[str], seed: int, file: Path | None = None) -> None:
        self.names, self.seed, self.file = names, seed, file
        self.tallies = {name: Counter[str]() for name in names}
        self.marks: dict[str, set[int]] = {}
        self.inputs: dict[str, array.array[int]] = {name: array.array("Q") for name in names}
        self.places: set[str] = set()
        if file is not None and file.exists():
            self._read(file)

    def _read(self, file: Path) -> None:
        told = json.loads(file.read_text())
        self.seed, self.places = told["seed"], set(told["places"])
        for name, each in told["doors"].items():
            self.tallies[name] = Counter(each["tally"])
            for kind in KINDS[:2]:
                self.marks[f"{name} {kind}"] = set(_numbers(each[kind]))
            self.inputs[name] = _numbers(each["inputs"])

    def write(self) -> None:
        """Write the progress, whole or not at all."""
        if self.file is None:
            return
        doors = {
            name: {
                "tally": dict(tally),
                **{kind: _text(self.marks.get(f"{name} {kind}", ())) for kind in KINDS[:2]},
                "inputs": _text(self.inputs[name]),
            }
            for name, tally in self.tallies.items()
        }
        new = self.file.with_suffix(".new")
        told = {"seed": self.seed, "places": sorted(self.places), "doors": doors}
        new.write_text(json.dumps(told))
        new.replace(self.file)

    def done(self, name: str) -> int:
        """Return the inputs of a door."""
        return sum(self.tallies[name][kind] for kind in ("answered", "refused", "failed"))

    def turn(self, name: str) -> None:
        """Check the next input of a door."""
        door, tally = DOORS[name], self.tallies[name]
        given = door.draw(random.Random(f"{self.seed} {name} {self.done(name)}"))
        self.inputs[name].append(hashed(repr(given)))
        outcome = ask(door, given)
        if isinstance(outcome, BaseException):
            tally["failed"] += 1
            self._found(name, given, outcome)
            return
        tally[outcome.kind] += 1
        tally["priced"] += outcome.priced
        self.marks.setdefault(f"{name} {outcome.kind}", set()).add(hashed(outcome.mark))

    def _found(self, name: str, given: Any, error: BaseException) -> None:
        where = f"{name} {place(error)}"
        if where in self.places:
            return
        self.places.add(where)
        given = shortened(DOORS[name], given, error)
        keep(name, given, error)
        print(f"{where}\n  {str(error)[:200]}\n  {given!r:.300}", flush=True)


def wanted(names: list[str], count: int) -> dict[str, int]:
    """Return how many inputs each door takes of a whole count, by its share."""
    shares = {name: DOORS[name].share for name in names}
    return {name: -(-count * share // sum(shares.values())) for name, share in shares.items()}


def run(soak: Soak, count: int | None, seconds: float | None) -> None:
    """Check inputs until there are so many, or the time is over."""
    end = None if seconds is None else time.monotonic() + seconds
    written = time.monotonic()
    goals, each = wanted(soak.names, count or 10**9), wanted(soak.names, ROUND)
    while any(soak.done(name) < goals[name] for name in soak.names):
        for name in soak.names:
            for _ in range(min(each[name], goals[name] - soak.done(name))):
                soak.turn(name)
                if end is not None and time.monotonic() > end:
                    return
        if time.monotonic() > written + WRITING:
            soak.write()
            written = time.monotonic()


def total(parts: list[Soak]) -> int:
    """Print the counts of all processes; return the exit code."""
    heads = ("inputs", "distinct", *KINDS, "answers", "refusals")
    print(f"{'door':14}" + "".join(f"{head:>10}" for head in heads))
    columns: list[list[int]] = []
    for name in parts[0].names:
        tally = sum((part.tallies[name] for part in parts), Counter[str]())
        seen = set().union(*(part.inputs[name] for part in parts))
        marks = [
            len(set().union(*(part.marks.get(f"{name} {kind}", set()) for part in parts)))
            for kind in KINDS[:2]
        ]
        inputs = sum(part.done(name) for part in parts)
        columns.append([inputs, len(seen), *(tally[kind] for kind in KINDS), *marks])
        _row(name, columns[-1])
    whole = [sum(column) for column in zip(*columns, strict=True)]
    _row("all", whole)
    print(f"seed {parts[0].seed}; refusals by line of code, answers by content")
    return 1 if whole[heads.index("failed")] else 0


def _row(name: str, counts: list[int]) -> None:
    print(f"{name:14}" + "".join(f"{count:10,}" for count in counts))


def main() -> int:
    """Fuzz, print counts by door, and say whether anything was found."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, help="inputs of all processes")
    options.add_argument("--minutes", type=float, help="wall time [1, or until --count]")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--progress", type=Path, help="folder that a later run continues from")
    options.add_argument("--doors", default=",".join(DOORS))
    options.add_argument("--seed", type=int, default=int(time.time()))
    asked = options.parse_args()
    names, processes = asked.doors.split(","), asked.processes
    minutes = 1.0 if asked.count is None and asked.minutes is None else asked.minutes
    folder = asked.progress
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGPROF, _hang)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def part(place: int) -> Soak:
        file = None if folder is None else folder / f"{place}.json"
        return Soak(names, asked.seed + 1_000_003 * place, file)

    def work(place: int) -> Soak:
        soak = part(place)
        try:
            count = None if asked.count is None else -(-asked.count // processes)
            run(soak, count, None if minutes is None else 60.0 * minutes)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
        soak.write()
        return soak

    if processes == 1:
        return total([work(0)])
    if folder is None:
        options.error("--processes needs --progress")
    children = []
    for number in range(processes):
        children.append(os.fork())
        if not children[-1]:
            code = 1
            try:
                work(number)
                code = 0
            finally:
                os._exit(code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for child in children:
        os.waitpid(child, 0)
    return total([part(number) for number in range(processes)])


if __name__ == "__main__":
    sys.exit(main())
