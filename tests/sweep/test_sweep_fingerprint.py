import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from sweep_tasks import Number, square

from scalewise.catalog import PACKAGE
from scalewise.errors import InputError
from scalewise.sweep.fingerprint import fingerprint, key_of, name_of

# Before whatever finds this copy of scalewise.
SEEN = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))


class Limit(msgspec.Struct, frozen=True):
    maximum: float | None = None


class Other(msgspec.Struct, frozen=True):
    maximum: float | None = None


class Opaque(msgspec.Struct, frozen=True):
    thing: object


def test_a_key_names_function_task_and_fingerprint():
    keys = {
        key_of("m.f", Limit(1.0), "a"),
        key_of("m.g", Limit(1.0), "a"),
        key_of("m.f", Limit(2.0), "a"),
        key_of("m.f", Limit(1.0), "b"),
        key_of("m.f", Other(1.0), "a"),
        key_of("m.f", Limit(None), "a"),
        key_of("m.f", Limit(float("inf")), "a"),
        key_of("m.fm", Limit(1.0), "a"),
    }
    assert len(keys) == 8
    assert key_of("m.f", Limit(1.0), "a") == key_of("m.f", Limit(1.0), "a")


def test_keys_are_the_same_in_every_process():
    code = (
        "from sweep_tasks import Number, square\n"
        "from scalewise.sweep.fingerprint import *\n"
        "print(key_of(name_of(square), Number(7), fingerprint(square)))"
    )
    env = {**os.environ, "PYTHONPATH": SEEN, "PYTHONHASHSEED": "5"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == key_of(name_of(square), Number(7), fingerprint(square))


def test_a_task_that_cannot_be_written_down_is_refused():
    with pytest.raises(InputError, match="cannot be written down"):
        key_of("m.f", Opaque(object()), "a")


def test_only_functions_that_others_can_import():
    def inner(task):
        return task

    assert name_of(square) == "sweep_tasks.square"
    for wrong in (inner, lambda task: task, functools.partial(square), [].append):
        with pytest.raises(InputError, match="top of a module"):
            name_of(wrong)


def test_constants_of_the_catalog_count(tmp_path, monkeypatch):
    monkeypatch.delenv("SCALEWISE_CATALOG", raising=False)
    plain = fingerprint()
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    assert fingerprint() == plain  # an empty folder changes nothing
    (tmp_path / "calibrations").mkdir()
    shutil.copy(PACKAGE / "calibrations" / "hopper.toml", tmp_path / "calibrations")
    own = fingerprint()
    assert own != plain
    file = tmp_path / "calibrations" / "hopper.toml"
    file.write_text(file.read_text() + "\n# refitted\n")
    assert len({plain, own, fingerprint()}) == 3
    file.unlink()
    assert fingerprint() == plain


def copied(tmp_path, edit=None):
    """The fingerprint in a copy of the package, after an edit of one of its files."""
    root = tmp_path / "copy"
    if not root.exists():
        shutil.copytree(PACKAGE.parent, root / "scalewise", ignore=shutil.ignore_patterns("*.pyc"))
    if edit:
        file = root / "scalewise" / edit
        before = file.read_bytes()
        file.write_bytes(before + b"\n# changed\n")
    code = "from scalewise.sweep.fingerprint import fingerprint; print(fingerprint())"
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    if edit:
        file.write_bytes(before)
    return done.stdout.strip()


def test_physics_counts_and_drawing_does_not(tmp_path, monkeypatch):
    monkeypatch.delenv("SCALEWISE_CATALOG", raising=False)
    plain = copied(tmp_path)
    assert plain == copied(tmp_path, "report/estimate_html.py")
    assert plain == copied(tmp_path, "cli/main.py")
    changed = {
        copied(tmp_path, name)
        for name in (
            "physics/collectives.py", "step/terms.py", "explore/search.py", "model.py",
            "catalog/fabrics/efa.toml", "catalog/accelerators/h100-sxm-80gb.toml",
        )
    }  # fmt: skip
    assert len(changed) == 6
    assert plain not in changed
