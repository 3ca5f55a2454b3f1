import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from measure_jobs import record
from scalewise.errors import InputError
from scalewise.records.files import append, file_of, merge, new_id, read_records

ENDLESS = """
import sys
sys.path.insert(0, {tests!r})
from measure_jobs import record
from scalewise.records.files import append
n = 0
while True:
    append({file!r}, record(id=str(n), results={{"losses": [5.0] * 20000}}))
    print(n, flush=True)
    n += 1
"""


def test_records_come_back_as_they_were(tmp_path):
    file = tmp_path / "new" / "train.jsonl"
    first, second = record("ddp2-mb4"), record("fsdp2-mb4", warnings=["it was late"])
    append(file, first)
    append(file, second)
    found = read_records(tmp_path / "new")
    assert found.records == [first, second]
    assert found.notes == []
    assert file.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_torn_line_costs_only_itself(tmp_path, share):
    file = tmp_path / "train.jsonl"
    append(file, record(id="a"))
    whole = file.stat().st_size
    append(file, record(id="b"))
    kept = whole + max(1, int(share * (file.stat().st_size - whole)))
    os.truncate(file, kept)
    found = read_records(file)
    assert [r.id for r in found.records] == ["a"]
    assert found.notes == [
        f"{file} line 2 was skipped: it is truncated, as by a crash during a write"
    ]
    append(file, record(id="c"))
    found = read_records(file)
    assert [r.id for r in found.records] == ["a", "c"]
    assert len(found.notes) == 1


def test_a_flipped_bit_costs_its_line_and_is_said(tmp_path):
    file = tmp_path / "train.jsonl"
    for name in "abc":
        append(file, record(id=name))
    whole = file.read_bytes()
    first, second = whole.index(b"\n") + 1, whole.index(b"\n", whole.index(b"\n") + 1)
    records = {r.id: r for r in read_records(file).records}
    for bit in range(first * 8, second * 8, 5):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        file.write_bytes(broken)
        found = read_records(file)
        assert [r.id for r in found.records] == ["a", "c"]
        assert all(records[r.id] == r for r in found.records)
        assert found.notes
        assert found.notes[0].startswith(f"{file} line 2 was skipped: ")


def test_records_of_the_first_schema_have_no_checksum(tmp_path):
    file = tmp_path / "train.jsonl"
    old = msgspec.structs.replace(record(id="old"), schema=1)
    file.write_bytes(msgspec.json.encode(old) + b"\n")
    found = read_records(file)
    assert (found.records, found.notes) == ([old], [])
    merge([file], tmp_path / "new.jsonl")
    assert b'{"schema":2,' in (tmp_path / "new.jsonl").read_bytes()
    assert [r.id for r in read_records(tmp_path / "new.jsonl").records] == ["old"]


def test_only_the_line_break_is_missing(tmp_path):
    file = tmp_path / "train.jsonl"
    append(file, record(id="a"))
    os.truncate(file, file.stat().st_size - 1)
    append(file, record(id="b"))
    found = read_records(file)
    assert ([r.id for r in found.records], found.notes) == (["a", "b"], [])


def test_a_killed_writer_leaves_what_it_had_written(tmp_path):
    """Killed while it writes as fast as it can: whatever it had reported is there."""
    file = tmp_path / "train.jsonl"
    tests = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
    code = ENDLESS.format(tests=tests, file=str(file))
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    reported = -1
    for _ in range(5):
        reported = int(writer.stdout.readline())
    time.sleep(0.05)
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read().split()
    writer.wait()
    reported = int(rest[-1]) if rest else reported
    found = read_records(file)
    ids = [int(r.id) for r in found.records]
    assert ids == list(range(len(ids)))
    assert len(ids) > reported
    assert len(found.notes) <= 1
    append(file, record(id="after"))
    assert [r.id for r in read_records(file).records][-1] == "after"
    assert len(read_records(file).records) == len(ids) + 1


def test_writers_do_not_mix_their_lines(tmp_path):
    file = tmp_path / "train.jsonl"
    tests = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
    code = ENDLESS.format(tests=tests, file=str(file)).replace(
        "while True", "for n in range(int(sys.argv[1]), int(sys.argv[1]) + 20)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(start)], stdout=subprocess.DEVNULL)
        for start in (0, 100)
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    found = read_records(file)
    assert found.notes == []
    assert sorted(int(r.id) for r in found.records) == [*range(20), *range(100, 120)]


def test_newer_records_and_foreign_lines_are_skipped_and_said(tmp_path):
    file = tmp_path / "train.jsonl"
    append(file, record(id="a"))
    with file.open("a") as stream:
        stream.write('{"schema": 3, "kind": "train", "new": {}}\n{"schema": 1, "kind": "train"}\n')
    append(file, record(id="b"))
    found = read_records(file)
    assert [r.id for r in found.records] == ["a", "b"]
    assert found.notes[0].endswith("it has schema 3, newer than the 2 this scalewise reads")
    assert "missing required field" in found.notes[1]


def test_merging_twice_changes_nothing(tmp_path):
    append(tmp_path / "x" / "train.jsonl", record(id="a"))
    append(tmp_path / "y.jsonl", record(id="b"))
    append(tmp_path / "y.jsonl", record(id="a"))
    target = tmp_path / "all.jsonl"
    for _ in range(2):
        found = merge([tmp_path / "x", tmp_path / "y.jsonl"], target)
        assert [r.id for r in found.records] == ["a", "b"]
    assert target.read_bytes().count(b"\n") == 2


def test_where_records_go(tmp_path):
    assert file_of(tmp_path / "records", "train") == tmp_path / "records" / "train.jsonl"
    assert file_of(tmp_path / "mine.jsonl", "train") == tmp_path / "mine.jsonl"
    assert len({new_id() for _ in range(100)}) == 100


def test_no_records_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="holds no records"):
        read_records(tmp_path)
    with pytest.raises(InputError, match="there is no file or folder"):
        read_records(tmp_path / "nowhere")
