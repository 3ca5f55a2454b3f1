"""A saved plan gives the same digits on the page and in every command that asks one question."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from scalewise.ask.question import Question
from scalewise.ask.state import to_toml
from scalewise.cli.main import cli
from scalewise.ui import assumptions, scale, search, timeline
from scalewise.ui.estimate import estimate_answer
from scalewise.ui.requests import ScaleRequest, SearchRequest

# Every field that changes a number, so that a command which drops one of them is found out.
ASKED = Question(
    model="llama 2 7b", gpus="16", batch="128", seq="2048", strategy="fsdp16-mb4", tokens="300B",
    power_cap="500W", protocol="simple", stack="llm-foundry",
    sets=("cluster.pue=1.3", "fabric.efficiency=0.7", "stack.gemm=0.9"),
)  # fmt: skip


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "plan.toml"
    path.write_text(to_toml(ASKED))
    return str(path)


def run(*words, code=0):
    result = CliRunner(env={"COLUMNS": "100"}).invoke(cli, list(words))
    assert result.exit_code == code, result.stderr
    return result


def test_estimate(plan):
    answer = json.loads(run("estimate", "--plan", plan, "--json").stdout)
    for key, value in estimate_answer(ASKED)["estimate"].items():
        assert answer[key] == value, key
    assert answer["inputs"]["cluster"]["pue"] == 1.3
    assert answer["inputs"]["cluster"]["power_cap_watts"] == 500.0


def test_search(plan):
    answer = json.loads(run("search", "--plan", plan, "--top", "3", "--json").stdout)
    same = search.search_answer(SearchRequest(question=ASKED, top=3))
    assert [e["strategy"] for e in answer["strategies"]] == [
        row["strategy"] for row in same["rows"]
    ]
    assert answer["best"]["step_seconds"] == same["rows"][0]["step_seconds"]


def test_scale(plan):
    words = ("scale", "--plan", plan, "--gpus", "8,16,32", "--strategy", "fsdp", "--json")
    answer = json.loads(run(*words).stdout)
    request = ScaleRequest(question=ASKED, sizes="8,16,32", templates=("fsdp",))
    same = scale.scale_answer(request)["curves"][0]["points"]
    (curve,) = answer["curves"]
    assert [p["step_seconds"] for p in curve["points"]] == [p["step_seconds"] for p in same]
    assert [p["days"] for p in curve["points"]] == [p["days"] for p in same]


def test_timeline(plan):
    answer = json.loads(run("timeline", "--plan", plan, "--json").stdout)
    assert (
        answer["step_seconds"] == msgspec.json.decode(timeline.timeline_json(ASKED))["step_seconds"]
    )


def test_sensitivity(plan):
    answer = json.loads(run("sensitivity", "--plan", plan, "--json").stdout)
    same = assumptions.sensitivity_answer(ASKED)
    # The command line tries one more kind of upgrade: what both have must agree.
    ours = {row["name"]: row["gain"] for row in same["rows"]}
    theirs = {row["name"]: row["gain"] for row in answer["rows"]}
    assert ours
    assert ours == {name: theirs[name] for name in ours}


def test_flags_win_over_the_plan(plan):
    words = ("estimate", "--plan", plan, "--batch", "256", "--set", "cluster.pue=1.5", "--json")
    answer = json.loads(run(*words).stdout)
    assert answer["inputs"]["workload"]["global_batch"] == 256
    assert answer["inputs"]["cluster"]["pue"] == 1.5
    assert answer["inputs"]["workload"]["seq_len"] == 2048


def test_a_plan_without_a_strategy_gets_the_one_of_the_page(tmp_path):
    path = tmp_path / "few.toml"
    path.write_text('model = "llama 2 13b"\ngpus = 64\n')
    answer = json.loads(run("estimate", "--plan", str(path), "--json").stdout)
    same = estimate_answer(Question(model="llama-2-13b", gpus="64"))
    assert answer["strategy"] == same["question"]["strategy"]
    assert answer["terms"] == same["estimate"]["terms"]
    assert answer["inputs"]["workload"]["global_batch"] == 1024


def test_a_plan_that_is_none_is_a_sentence(tmp_path):
    assert (
        "cannot be read: it is a folder" in run("estimate", "--plan", str(tmp_path), code=2).stderr
    )
    path = tmp_path / "bad.toml"
    path.write_text('modle = "x"')
    assert "did you mean `model`" in run("search", "--plan", str(path), code=2).stderr


def test_without_plan_and_model_the_model_is_missed():
    assert "MODEL" in run("estimate", "--on", "dgx-h100", code=2).stderr


def test_a_curve_with_a_changed_field_is_of_one_cluster():
    words = ("scale", "llama-2-7b", "--on", "dgx-h100,dgx-a100", "--gpus", "8,16")
    lines = run(*words, "--set", "cluster.pue=1.3", code=2).stderr
    assert "change one model, one cluster, one length" in lines
