import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import msgspec
import pytest

from scalewise.errors import InputError
from scalewise.sweep.store import APPLICATION, Record, Store, StoreError, on_network
from waiting import PATIENCE


def record(key, result=b"\xc0", **changes):
    fields = {
        "key": key,
        "function": "m.f",
        "fingerprint": "abc",
        "task": b'{"x":1}',
        "result": result,
    }
    return Record(**(fields | changes))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "sweep.db"


def test_what_is_put_is_there_for_the_next_process(path):
    with Store(path) as store:
        assert len(store) == 0
        assert store
        store.put([record("a", b"\x01"), record("b", b"\x02")])
        store.put([record("a", b"\x03")])
    with Store(path) as store:
        assert len(store) == 2
        assert store.get(["a", "b", "c"]) == {"a": b"\x03", "b": b"\x02"}
        assert "a" in store
        assert "c" not in store


def test_more_keys_than_sqlite_takes_at_once(path):
    with Store(path) as store:
        store.put([record(str(n)) for n in range(1200)])
        assert len(store.get(map(str, range(2000)))) == 1200


def test_two_open_stores_share_their_points(path):
    with Store(path) as one, Store(path) as two:
        one.put([record("a", b"\x01")])
        assert two.get(["a"]) == {"a": b"\x01"}
        two.put([record("b", b"\x02")])
        assert len(one) == 2


def test_iteration_gives_plain_types(path):
    result = msgspec.msgpack.encode({"seconds": float("inf"), "name": "x"})
    with Store(path) as store:
        store.put([record("b", result, made=2.0), record("a", result, made=1.0)])
        store.put([record("broken", b"\xc1", made=3.0)])
        points = list(store)
    assert [point.key for point in points] == ["a", "b"]
    assert points[0].task == {"x": 1}
    assert points[0].result == {"seconds": float("inf"), "name": "x"}
    assert (points[0].function, points[0].version) == ("m.f", "0.1.0")


def test_it_describes_itself_to_people(path):
    day = time.mktime((2026, 3, 4, 12, 0, 0, 0, 0, -1))
    with Store(path) as store:
        store.put([record(str(n), made=day) for n in range(3)])
        store.put([record("old", fingerprint="old", made=day - 86400)])
        lines = store.describe().splitlines()
    assert lines[0].startswith(f"{path}: 4 points, ")
    assert lines[0].endswith(" KiB")
    assert lines[1:] == [
        "  3 of m.f, scalewise 0.1.0, physics abc, last on 2026-03-04",
        "  1 of m.f, scalewise 0.1.0, physics old, last on 2026-03-03",
    ]


def filled(path, count=300):
    with Store(path) as store:
        store.put([record(f"{n:064}", b"x" * 200) for n in range(count)])
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["magic", "middle", "cut"])
def test_a_damaged_file_is_set_aside_and_a_fresh_one_begun(path, damage):
    whole = filled(path)
    broken = {
        "magic": b"q" + whole[1:],
        "middle": whole[:8192] + b"\xff" * 16384 + whole[8192 + 16384 :],
        "cut": whole[: len(whole) // 2],
    }[damage]
    path.write_bytes(broken)
    lines = []
    with Store(path, say=lines.append) as store:
        assert len(store) == 0
        store.put([record("a")])
    aside = path.with_name("sweep.db.corrupt-1")
    assert aside.read_bytes() == broken
    assert len(lines) == 1
    assert lines[0].startswith(f"the store {path} was damaged (")
    assert "set aside as sweep.db.corrupt-1, and its points are computed again" in lines[0]

    path.write_bytes(broken)
    with Store(path, say=lines.append) as store:
        assert len(store) == 0
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "sweep.db", "sweep.db.corrupt-1", "sweep.db.corrupt-2",
    ]  # fmt: skip


def test_damage_that_shows_only_later_is_met_as_well(path):
    filled(path, 3000)
    lines = []
    with Store(path, say=lines.append) as store:
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
        store._connection.execute("PRAGMA shrink_memory")  # forget the pages it has read
        assert store.get([f"{2999:064}"]) == {}
        store.put([record("a")])
        assert "a" in store
    assert len(lines) == 1


def test_other_peoples_files_are_left_alone(path):
    path.parent.mkdir()
    table = path.with_suffix(".csv")
    table.write_text("a,b\n")
    with pytest.raises(InputError, match=r"does not look like a store by its ending `.csv`"):
        Store(table)
    assert table.read_text() == "a,b\n"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(InputError, match="is a database of another program"):
        Store(path)
    assert [p.name for p in path.parent.glob("*.db*")] == ["sweep.db"]


def test_a_store_of_the_future_is_not_touched(path):
    filled(path, 1)
    with sqlite3.connect(path) as other:
        other.execute("ALTER TABLE points ADD COLUMN more")
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(InputError, match="later version of scalewise"):
        Store(path)


def test_a_file_that_is_no_store_keeps_its_name(path):
    path.parent.mkdir()
    path.write_text("my notes")
    with pytest.raises(InputError, match="is not a store of results"):
        Store(path)
    assert [p.name for p in path.parent.iterdir()] == ["sweep.db"]
    assert path.read_text() == "my notes"


def test_an_empty_file_becomes_a_store(path):
    path.parent.mkdir()
    path.touch()
    with Store(path) as store:
        store.put([record("a")])
        assert "a" in store


@pytest.mark.parametrize("column", ["key", "function", "task", "result", "made", "checksum"])
def test_a_row_with_a_flipped_bit_is_missing_and_said(path, column):
    with Store(path) as store:
        store.put([record("a", b"\x01"), record("b", b"\x02")])
    with sqlite3.connect(path) as other:
        new = {"made": 7.0, "key": "c", "function": "m.g"}.get(column, b"\xff\xfe")
        other.execute(f"UPDATE points SET {column} = ? WHERE key = 'a'", [new])
    other.close()
    said = []
    with Store(path, say=said.append) as store:
        assert store.get(["a", "b", "c"]) == {"b": b"\x02"}
        assert len(store) == 1
        assert said == [f"1 of the results in {path} was damaged (wrong checksum): computed again"]
        assert "1 points" in store.describe()
        store.put([record("a", b"\x01")])
        assert store.get(["a"]) == {"a": b"\x01"}


def test_any_flipped_bit_gives_the_same_results_or_none(path, tmp_path):
    whole = filled(path, 40)
    keys = [f"{n:064}" for n in range(40)]
    kept = 0
    for place in random.Random(1).sample(range(len(whole) * 8), 150):
        broken = bytearray(whole)
        broken[place // 8] ^= 1 << place % 8
        file = tmp_path / "one" / "broken.db"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(broken)
        said = []
        with Store(file, say=said.append) as store:
            found = store.get(keys)
            assert set(found.values()) <= {b"x" * 200}
            assert len(found) == 40 or said
            kept += len(found)
            store.put([record("new", b"y")])
            assert store.get(["new"]) == {"new": b"y"}
            assert [point.key for point in store] == ["new"]  # others are no MessagePack
        shutil.rmtree(file.parent)
    assert kept > 4000


def test_a_store_of_the_first_version_keeps_its_points(path):
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript(
        f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;"
        "CREATE TABLE points (\n    key TEXT PRIMARY KEY, function TEXT NOT NULL, fingerprint TEXT "
        "NOT NULL,\n    version TEXT NOT NULL, task BLOB NOT NULL, result BLOB NOT NULL, "
        "made REAL NOT NULL\n) WITHOUT ROWID;"
    )
    old.execute("INSERT INTO points VALUES ('a', 'f', 'x', '0', x'7b7d', x'c0', 1.0)")
    old.commit()
    old.close()
    for _ in range(2):
        with Store(path) as store:
            assert store.get(["a"]) == {"a": b"\xc0"}
            assert [point.task for point in store] == [{}]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder of the store"):
        Store(tmp_path / "file" / "sweep.db")
    with pytest.raises(InputError, match=r"cannot use the store .*: its folder cannot be"):
        Store(tmp_path)


def test_a_full_disk_is_one_sentence_and_loses_nothing(path):
    with Store(path) as store:
        store.put([record("a")])
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError) as caught:
            store.put([record(str(n), b"x" * 5000) for n in range(50)])
        assert str(caught.value) == f"cannot use the store {path}: the disk is full"
        assert caught.value.hint == "free space, or name another file with --store"
        assert len(store) == 1


WRITER = """
import sys
from scalewise.sweep.store import APPLICATION, Record, Store
with Store(sys.argv[1]) as store:
    for n in range(int(sys.argv[3])):
        key = f"{sys.argv[2]}-{n}"
        store.put([Record(key=key, function="f", fingerprint="x", task=b"{}", result=b"r" * 300)])
        print(key, flush=True)
"""


def writer(path, name, count):
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_several_processes_write_at_once(path):
    writers = [writer(path, name, 200) for name in "abc"]
    for one in writers:
        one.communicate(timeout=PATIENCE)
    assert [one.returncode for one in writers] == [0, 0, 0]
    with Store(path) as store:
        assert len(store) == 600


def test_a_killed_writer_loses_nothing_it_had_put(path):
    one = writer(path, "a", 100_000)
    said = [one.stdout.readline().strip() for _ in range(200)]
    os.kill(one.pid, signal.SIGKILL)
    said += one.communicate()[0].split()
    lines = []
    with Store(path, say=lines.append) as store:
        assert len(store.get(said)) == len(said) >= 200
    assert lines == []


def test_a_local_folder_is_no_network(tmp_path, monkeypatch):
    assert not on_network(tmp_path / "x")
    table = (
        "22 1 0:20 / / rw - ext4 /dev/sda rw\n"
        "23 22 0:21 / /home rw shared:1 - nfs4 server:/home rw\n"
        "24 23 0:22 / /home/local rw - xfs /dev/sdb rw\n"
    )
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: table)
    assert on_network(tmp_path.__class__("/home/me/x.db"))
    assert not on_network(tmp_path.__class__("/home/local/x.db"))
    assert not on_network(tmp_path.__class__("/homestead/x.db"))
