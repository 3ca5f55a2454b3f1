"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from scalewise.errors import InputError, ScalewiseError
from scalewise.writing import csv_text, visible, write_atomically


def test_text_and_bytes_are_written_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    assert write_atomically(file, "ä") == file
    assert file.read_bytes() == b"\xc3\xa4"
    file.chmod(0o600)
    write_atomically(file, b"new")
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" / "a")
    write_atomically(link, "x")
    assert link.is_symlink()
    assert (tmp_path / "real" / "a").read_text() == "x"


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_atomically("/dev/null", "x")
    assert Path("/dev/null").is_char_device()


def test_a_wrong_place_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none/a cannot be written: no such file or directory"):
        write_atomically(tmp_path / "none" / "a", "x")
    with pytest.raises(InputError, match="cannot be written: is a directory"):
        write_atomically(tmp_path, "x")
    with pytest.raises(InputError, match="no home folder ~nosuchuser"):
        write_atomically("~nosuchuser/a", "x")
    write_atomically(tmp_path / "new" / "a", "x", make_folder=True)
    assert (tmp_path / "new" / "a").read_text() == "x"


def test_a_full_disk_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_text("old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScalewiseError, match=r"a cannot be written: no space left on device") as e:
        write_atomically(file, "new")
    assert not isinstance(e.value, InputError)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_readers_never_see_half_a_file_of_several_writers(tmp_path: Path) -> None:
    file = tmp_path / "a"
    whole = {str(n) * 20_000 for n in range(3)}
    write_atomically(file, "0" * 20_000)
    writers = [
        threading.Thread(target=lambda t=text: [write_atomically(file, t) for _ in range(30)])
        for text in whole
    ]
    for each in writers:
        each.start()
    while any(each.is_alive() for each in writers):
        assert file.read_text() in whole
    assert list(tmp_path.iterdir()) == [file]


NASTY = "llama\x1b]0;pwned\x07\x1b[31mred\x85\u202eevil"


def test_control_characters_are_written_out():
    assert visible(NASTY) == r"llama\x1b]0;pwned\x07\x1b[31mred\x85\u202eevil"
    assert visible(NASTY, colored=True) == "llama\\x1b]0;pwned\\x07\x1b[31mred\\x85\\u202eevil"
    assert visible("two\nlines\tand 混元") == "two\nlines\tand 混元"


def test_cells_of_a_table_have_no_control_characters():
    assert csv_text([{"model": NASTY}], ["model"]).splitlines()[1] == visible(NASTY)
    # A formula that hides behind one is seen all the same.
    assert csv_text([{"model": "\r=1+1"}], ["model"]) == "model\n\\x0d=1+1\n"
