"""Groups of files: each file on one worker, longest groups first."""

from pathlib import Path

import pytest

import dispatch

TESTS = Path(__file__).parent
FILES = [path.relative_to(TESTS).as_posix() for path in sorted(TESTS.rglob("test_*.py"))]


def test_a_file_is_its_own_group_unless_it_shares_what_is_slow_to_start():
    assert (
        dispatch.group("tests/step/test_step_explain.py::test_a[x::y]")
        == "step/test_step_explain.py"
    )
    assert dispatch.group("tests/ui/test_ui_browser_plan.py::test_a") == "browser"
    assert dispatch.group("tests/ui/test_ui_api.py::TestA::test_b") == "ui"
    assert dispatch.group("tests/sweep/test_sweep_slurm.py::test_a") == "slurm"


def test_the_longest_groups_come_first():
    places = [dispatch.place(f"tests/{file}::test_a") for file in FILES]
    assert set(places) == set(range(len(dispatch.FIRST) + 1))


@pytest.mark.parametrize(("fixture", "name"), [("slurm_cluster", "slurm"), ("browser", "browser")])
def test_what_is_slow_to_start_is_started_once(request, fixture, name):
    items = request.session.items
    taking = [item for item in items if fixture in getattr(item, "fixturenames", ())]
    assert {dispatch.group(item.nodeid) for item in taking} <= {name}
