"""Flip random bits of stores, records and results of jobs: nothing wrong may come out.

    python fuzz/flips.py --count 1000

Each trial flips 1 to 8 bits of a sound file and reads it. Whatever is returned must be what was
written; what is missing must be noted or computed again; nothing but a sentence may be raised.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from scalewise.errors import ScalewiseError
from scalewise.records.files import read_records
from scalewise.sweep.chunks import read_sealed, write_sealed
from scalewise.sweep.store import Record, Store

SEEDS = Path(__file__).parent / "seeds"
POINTS = 200


def flip(path: Path, draw: random.Random) -> None:
    """Flip one bit, or up to eight."""
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        place = draw.randrange(len(content))
        content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(bytes(content))


def points(draw: random.Random) -> dict[str, bytes]:
    """Results as sweeps have them."""
    return {
        f"{place:04}": msgspec.msgpack.encode({"seconds": draw.random(), "terms": [draw.random()]})
        for place in range(POINTS)
    }


def try_store(sound: Path, expected: dict[str, bytes], folder: Path, draw: random.Random) -> str:
    """Return what became of a damaged store."""
    path = folder / "sweep.db"
    for old in folder.glob("sweep.db*"):
        old.unlink()
    shutil.copy(sound, path)
    flip(path, draw)
    said: list[str] = []
    try:
        with Store(path, say=said.append) as store:
            found = store.get(expected)
            listed = {point.key: point for point in store}
            store.put([Record(key="new", function="m.f", fingerprint="f", task=b"{}", result=b"1")])
            assert store.get(["new"]) == {"new": b"1"}, "a damaged store takes no results"
    except ScalewiseError as error:
        return f"refused: {type(error).__name__}"
    assert all(expected[key] == result for key, result in found.items()), "another result"
    assert set(listed) <= set(expected), "another key"
    if len(found) < len(expected):
        assert said, "results are missing without a word"
        return "missing results are said" if path.exists() and found else "set aside"
    return "unchanged"


def try_records(folder: Path, draw: random.Random) -> str:
    """Return what became of damaged records; the checksum is of schema 2."""
    lines = (SEEDS / "train.jsonl").read_bytes().splitlines()[:2]
    sound = folder / "sound" / "train.jsonl"
    sound.parent.mkdir(exist_ok=True)
    sound.write_bytes(b"\n".join(lines) + b"\n")
    expected = {each.id: each for each in read_records(sound).records}
    assert len(expected) == 2
    path = folder / "train.jsonl"
    shutil.copy(sound, path)
    flip(path, draw)
    found = read_records(path)
    for each in found.records:
        assert expected.get(each.id) == each, "another record"
    if len(found.records) < len(expected):
        assert found.notes, "records are missing without a word"
        return "missing records are said"
    return "unchanged"


def try_sealed(folder: Path, draw: random.Random) -> str:
    """Return what became of damaged results of a job."""
    path, content = folder / "chunk0.results", msgspec.msgpack.encode(list(range(500)))
    write_sealed(path, content)
    flip(path, draw)
    try:
        assert read_sealed(path) == content, "other results"
    except (ValueError, ScalewiseError):
        return "missing results are said"
    return "unchanged"


def run(count: int, number: int) -> Counter[str]:
    """Try many flips; return what became of the files.

    Args:
        count: Trials.
        number: Seed.
    """
    draw, tally = random.Random(number), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="flips-") as name:
        folder = Path(name)
        sound, expected = folder / "sound.db", points(draw)
        with Store(sound) as store:
            store.put(
                [
                    Record(key=key, function="m.f", fingerprint="f", task=b'{"x":1}', result=result)
                    for key, result in expected.items()
                ]
            )
        for trial in range(count):
            kind = ("store", "store", "records", "results")[trial % 4]
            if kind == "store":
                outcome = try_store(sound, expected, folder, draw)
            else:
                outcome = (
                    try_records(folder, draw) if kind == "records" else try_sealed(folder, draw)
                )
            tally[f"{kind}: {outcome}"] += 1
    return tally


def main() -> int:
    """Flip, and print what became of the files; a wrong result ends in a traceback."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    tally = run(given.count, given.seed)
    for outcome, count in sorted(tally.items()):
        print(f"{count:6,}  {outcome}")
    print(f"{tally.total():6,}  flips, nothing wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
