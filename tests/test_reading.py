"""Files that users name: every fault is one sentence with the path."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from scalewise.errors import InputError
from scalewise.reading import (
    CsvTable,
    parse_json,
    parse_toml,
    read_bytes,
    read_csv,
    read_json,
    read_text,
    read_toml,
    user_path,
)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(file) == {"a": 1}
    file.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_toml(file) == {"a": 1}
    file.write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert read_csv(file) == CsvTable(["a", "b"], [(2, {"a": "1", "b": "2"})])


def test_rows_have_their_line_and_short_rows_have_empty_cells(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(b'a,b\r\n1\r\n"x\ny",2,3\r\n')
    assert read_csv(file).rows == [(2, {"a": "1", "b": ""}), (4, {"a": "x\ny", "b": "2"})]


@pytest.mark.parametrize("path", ["~nosuchuser", "~nosuchuser/a.toml"])
def test_an_unknown_home_folder_is_named(path: str) -> None:
    with pytest.raises(InputError, match=r"there is no home folder ~nosuchuser") as error:
        user_path(path)
    assert error.value.hint == "write the folder out, or ./~nosuchuser if that is its name"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(InputError, match=r"^plan \S+fifo cannot be read: it is a pipe or device"):
        read_bytes(fifo, what="plan")
    with pytest.raises(InputError, match="it is a pipe or device"):
        read_bytes("/dev/zero")
    with pytest.raises(InputError, match="it is a folder"):
        read_bytes(tmp_path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="too many levels of symbolic links"):
        read_bytes(loop)
    with pytest.raises(InputError, match="cannot be read: no such file or directory"):
        read_bytes(tmp_path / "none")
    with pytest.raises(InputError, match="embedded null byte"):
        read_bytes("a\0b")


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.toml"
    file.write_bytes(b" " * ((4 << 20) + 1))
    with pytest.raises(InputError, match=r"large\.toml cannot be read: it has more than 4 MiB"):
        read_toml(file)


def test_text_must_be_utf8(tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes(b"abc\xe4")
    with pytest.raises(InputError, match=r"it is not UTF-8 text \(byte 3\)"):
        read_text(file)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_json, "[" * 65 + "]" * 65),
        (parse_json, "[" * 100_000),
        (parse_toml, "a = " + "[" * 65 + "]" * 65),
        (parse_toml, "a = " + "[" * 5_000 + "]" * 5_000),
        (parse_toml, ".".join("a" * 100) + " = 1"),
        (parse_toml, ".".join(["a"] * 1_000_000) + " = 1"),
        (parse_toml, " . ".join(['"!"'] * 1_000_000) + " = 1"),
    ],
)
def test_depth_has_a_limit(read: object, text: str) -> None:
    with pytest.raises(InputError, match=r"^x: more than 64 tables or lists inside each other"):
        read(text, "x")  # type: ignore[operator]


def test_depth_below_the_limit_is_read() -> None:
    assert parse_json("[" * 64 + "]" * 64, "x")
    assert parse_toml("a = " + "[" * 62 + "1" + "]" * 62, "x")


@pytest.mark.parametrize("digits", [301, 5_000])
def test_digits_have_a_limit(digits: int) -> None:
    number = "9" * digits
    for read, text in ((parse_json, f'{{"a": [{number}]}}'), (parse_toml, f"a = -{number}")):
        with pytest.raises(InputError, match=r"^x: a whole number has more than 300 digits"):
            read(text, "x")


def test_errors_of_syntax_name_the_place() -> None:
    with pytest.raises(InputError, match=r"^a\.json, line 2: not valid JSON"):
        parse_json('{\n"a": }', "a.json")
    with pytest.raises(InputError, match=r"^a\.toml is not valid TOML: .*line 1"):
        parse_toml("a = \nb = 1", "a.toml")


def test_a_small_file_takes_little_memory_whatever_the_limit_is(tmp_path):
    path = tmp_path / "small.jsonl"
    path.write_bytes(b"{}")
    tracemalloc.start()
    try:
        assert read_bytes(path, most=4 << 30) == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
