"""The user's own runs: beside the published ones, never among them."""

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from scalewise.ask.question import Question
from scalewise.cli.main import cli
from scalewise.evidence.runs import Run
from scalewise.study.overlays import read_overlays
from scalewise.ui import nearest
from scalewise.ui.guard import local_hosts
from scalewise.ui.inputs import resolve
from scalewise.ui.own import Own
from scalewise.ui.server import create
from ui_records import write_records


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    write_records(folder)
    return read_overlays([str(folder)])


@pytest.fixture(scope="module")
def kept(own):
    return Own(own)


def test_a_run_belongs_to_curves_of_its_model_and_chip(kept):
    (dot,) = nearest.overlay(kept.index, resolve(Question()).estimate)["runs"]
    # 64 sequences of 4,096 tokens on 8 devices in 3.2 s.
    assert dot["measured"] == pytest.approx(64 * 4096 / 3.2 / 8)
    assert dot["accelerators"] == 8
    assert dot["source"] == "measured"
    for other in (
        Question(model="llama-2-13b"),
        Question(on="dgx-a100"),
        Question(precision="fp8"),
    ):
        assert nearest.overlay(kept.index, resolve(other).estimate)["runs"] == []


def test_every_run_is_listed_and_what_cannot_be_predicted_says_why(kept):
    one, two = kept.rows
    assert one["error"] == pytest.approx(one["predicted"] / 10240.0 - 1)
    assert two["predicted"] is None
    assert "cpu" in two["reason"]


def test_published_runs_are_not_told_from_own_ones(own):
    assert all(run.source != "measured" for run in nearest.runs())
    assert all(run.source == "measured" for run in own)


def test_the_server_hands_them_out_apart(own):
    app = create(token=None, hosts=local_hosts(8765), own=own, workers=1)
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        answer = client.post("/api/overlay", json={}).json()
        assert (len(answer["own"]), answer["own_count"]) == (1, 2)
        assert answer["own"][0]["id"] not in {run["id"] for run in answer["runs"]}
        assert answer["own"][0]["error"] == pytest.approx(Own(own).rows[0]["error"])
        bias = answer["bias"]
        errors = sorted(run["error"] for run in answer["runs"])
        assert bias["count"] == len(errors)
        assert errors[0] <= bias["low"] <= bias["median"] <= bias["high"] <= errors[-1]


def test_without_records_there_are_none(ask):
    answer = ask("overlay")
    assert (answer["own"], answer["own_count"]) == ([], 0)


@pytest.fixture
def served(monkeypatch):
    asked = {}
    monkeypatch.setattr("scalewise.ui.server.serve", lambda **given: asked.update(given))
    return asked


def test_records_are_read_before_the_page_opens(served, tmp_path):
    write_records(tmp_path)
    result = CliRunner().invoke(cli, ["ui", "--no-open", "--records", str(tmp_path)])
    assert result.exit_code == 130, result.stderr
    assert [type(run) for run in served["own"]] == [Run, Run]


def test_a_folder_without_records_is_a_sentence(served, tmp_path):
    result = CliRunner().invoke(cli, ["ui", "--no-open", "--records", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds no records" in result.stderr
    assert served == {}
