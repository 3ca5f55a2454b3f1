"""Kill processes at random moments: nothing lost, nothing doubled, nothing torn.

    python fuzz/kills.py --count 1000

Kinds take turns. A sweep and a study with a store are killed until one run comes to its end;
its output must be the output of a run without a store, to the byte, and no stored point may get
lost. Two writers of records are killed; every acknowledged record must be there, once. A writer of
a catalog is killed; readers must find the old file or the new one. A calibration is killed until it
comes to its end; its files must be those of one that was not. `study measure` is killed until it
has measured everything; every point must be there once, and no process may be left. Processes are
forked from one that has everything imported, so that kills fall into the work and not into the
start.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from scalewise import catalog
from scalewise.cli.main import cli
from scalewise.records.files import append, read_records
from scalewise.stack import load_stack
from scalewise.sweep.store import Store
from scalewise.writing import TEMPORARY, write_atomically

SEEDS = Path(__file__).parent / "seeds"

SCALE = ("scale", "llama-2-7b", "--on", "dgx-h100", "--gpus", "8..4096", "--weak",
         "--strategy", "fsdp,hsdp8,fsdp-tp2,fsdp-tp4,ddp,best", "--csv")  # fmt: skip
POINTS = 4
"""Points of `seeds/study.toml` on one machine with two cores."""

STUDY = ("study", "run", "what-to-buy", "--quick", "--json")


def forked(work: Callable[[], None]) -> int:
    """Start work in a copy of this process; return its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def killed(child: int, after: float) -> bool:
    """Kill a process after some seconds; return whether it was alive until then."""
    end = time.monotonic() + after
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    # It may have ended in between, which the status tells.
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def command(args: tuple[str, ...], output: Path) -> Callable[[], None]:
    """A command with its standard output in a file."""

    def work() -> None:
        with (
            output.open("w") as out,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(SystemExit),
        ):
            cli.main(list(args))

    return work


def try_sweep(
    args: tuple[str, ...], folder: Path, draw: random.Random, kills: int, whole: dict[str, float]
) -> int:
    """Kill a sweep until it comes to its end; return the kills."""
    # The output of a study names its folder.
    name = args[1] if args[0] == "study" else args[0]
    output, plain, store = folder / f"{name}.out", folder / f"{name}.plain", folder / f"{name}.db"
    more = ("-o", str(folder / "report")) if args[0] == "study" else ()
    if name not in whole:
        began = time.monotonic()
        fresh = ("--store", str(folder / "plain.db")) if args[0] == "study" else ()
        os.waitpid(forked(command((*args, *more, *fresh), plain)), 0)
        whole[name] = time.monotonic() - began
        assert plain.read_text(), f"{name} printed nothing"
    for old in folder.glob(f"{name}.db*"):
        old.unlink()
    count = kept = 0
    while True:
        child = forked(command((*args, *more, "--store", str(store)), output))
        # Later and later, so that it ends.
        seconds = draw.uniform(0.0, 0.3 * whole[name] * (1.0 + count / 10.0))
        seconds = seconds if count < kills else 3600.0
        alive = killed(child, seconds)
        if store.exists():
            said: list[str] = []
            with Store(store, say=said.append) as points:
                assert len(points) >= kept, "stored points are lost"
                kept = len(points)
            assert not said, said
        if not alive:
            break
        count += 1
    assert output.read_text() == plain.read_text(), f"{name}: another output after {count} kills"
    return count


def try_records(folder: Path, draw: random.Random, number: int) -> int:
    """Kill two writers of one file; return the kills."""
    source = SEEDS / "train.jsonl"
    one = read_records(source).records[0]
    file, heard = folder / f"records{number}.jsonl", []
    for place in range(2):
        read, write = os.pipe()

        def work(write: int = write, place: int = place) -> None:
            for turn in range(10_000):
                name = f"{place}-{turn}"
                append(file, msgspec.structs.replace(one, id=name))
                os.write(write, f"{name}\n".encode())

        heard.append((forked(work), read))
        os.close(write)
    for child, _ in heard:
        killed(child, draw.uniform(0.0, 0.1))
    found = [record.id for record in read_records(file).records] if file.exists() else []
    assert len(found) == len(set(found)), "a record is there twice"
    for _, read in heard:
        with os.fdopen(read) as stream:
            missing = {line.strip() for line in stream if line.endswith("\n")} - set(found)
        assert not missing, f"acknowledged records are missing: {sorted(missing)[:3]}"
    return len(heard)


def try_catalog(folder: Path, draw: random.Random) -> int:
    """Kill a writer of a stack file; return the kills."""
    path = folder / "stacks" / "mine.toml"
    text = (catalog.PACKAGE / "stacks" / "pytorch.toml").read_text()
    versions = (text, text + "\n# fitted again\n" * 500)

    def work() -> None:
        for turn in range(10_000):
            write_atomically(path, versions[turn % 2], make_folder=True)

    killed(forked(work), draw.uniform(0.0, 0.05))
    if path.exists():
        assert path.read_text() in versions, "half a file"
        assert load_stack(str(path)).gemm > 0.0
        for left in path.parent.glob(f"{TEMPORARY}*"):
            left.unlink()
    return 1


def try_calibration(folder: Path, draw: random.Random, kills: int) -> int:
    """Kill a fit to runs of one's own until it comes to its end; return the kills."""
    table = SEEDS / "tables" / "runs.csv"
    args = ("calibrate", "mine", "--from", str(table), "-o")
    plain, out, count = folder / "plain", folder / "own", 0
    if not plain.exists():
        os.waitpid(forked(command((*args, str(plain)), folder / "plain.txt")), 0)
    names = ("stacks/mine.toml", "runs/mine.csv")
    for name in names:
        (out / name).unlink(missing_ok=True)
    while count < kills:
        # All of it takes half a second, most of which is the fit.
        seconds = draw.uniform(0.0, 0.5 * (1.0 + count / 10.0))
        if not killed(forked(command((*args, str(out)), folder / "own.txt")), seconds):
            break
        count += 1
        for name in names:
            if (out / name).exists():
                assert (out / name).read_text() == (plain / name).read_text(), f"half of {name}"
    os.waitpid(forked(command((*args, str(out)), folder / "own.txt")), 0)
    for name in names:
        assert (out / name).read_text() == (plain / name).read_text(), f"another {name}"
    return count


def try_measurement(folder: Path, draw: random.Random, kills: int, number: int) -> int:
    """Kill `study measure` until everything is measured; return the kills."""
    records, temporary = folder / f"measured{number}.jsonl", folder / "tmp"
    temporary.mkdir(exist_ok=True)
    args = ("study", "measure", str(SEEDS / "study.toml"), "--repeats", "1", "-o", str(records))
    os.environ["TMPDIR"] = str(temporary)
    count = 0
    try:
        while True:
            child = forked(command(args, folder / "measured.txt"))
            alive = killed(child, draw.uniform(0.0, 12.0) if count < kills else 3600.0)
            found = read_records(records).records if records.exists() else ()
            names = [record.id for record in found]
            assert len(names) == len(set(names)), "a record is there twice"
            if not alive:
                break
            count += 1
        # Points have names that follow from what they are.
        assert len(names) == POINTS, f"measured: {sorted(names)}"
        end = time.monotonic() + 30.0
        while left := processes_with(str(temporary)):
            assert time.monotonic() < end, f"processes are left: {left}"
            time.sleep(0.2)
    finally:
        del os.environ["TMPDIR"]
    return count


def processes_with(text: str) -> list[str]:
    """Return the processes with a text in their command line."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in each.read_bytes():
                found.append(each.parent.name)
    return found


def main() -> int:
    """Kill, and print how often; anything lost or torn ends in a traceback."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--kinds", default="sweep,study,records,catalog,calibration,measurement")
    given = options.parse_args()
    draw, tally, turn, number = random.Random(given.seed), Counter[str](), 0, 0
    whole: dict[str, float] = {}
    kinds = given.kinds.split(",")
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        while tally.total() < given.count:
            turn, number = turn + 1, number + 1
            kind = kinds[turn % len(kinds)]
            left = min(given.count - tally.total(), 8)
            if kind in ("sweep", "study"):
                args = SCALE if kind == "sweep" else STUDY
                tally[kind] += try_sweep(args, folder, draw, left, whole)
            elif kind == "calibration":
                tally[kind] += try_calibration(folder, draw, left)
            elif kind == "measurement":
                tally[kind] += try_measurement(folder, draw, min(left, 4), number)
            elif kind == "records":
                for _ in range(4):
                    number += 1
                    tally[kind] += try_records(folder, draw, number)
            else:
                tally[kind] += sum(try_catalog(folder, draw) for _ in range(8))
    for kind, count in tally.items():
        print(f"{count:6,}  {kind}")
    print(f"{tally.total():6,}  kills, nothing lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
