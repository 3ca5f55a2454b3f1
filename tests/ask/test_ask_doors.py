"""One question, one answer: command line, web UI, plan file and Python give equal digits."""

import shlex

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import scalewise as sw
from scalewise.ask.question import Question, question_from
from scalewise.ask.state import command, to_toml
from scalewise.ask.state import given as stated
from scalewise.cli.main import cli
from scalewise.errors import ScalewiseError
from scalewise.ui.api import ask

questions = st.builds(
    Question,
    model=st.sampled_from(["llama-2-7b", "llama 3 70b", "gpt3-1.3b", "gpt2", "llama-3.1-405b"]),
    on=st.sampled_from(["dgx-h100", "dgx a100", "gb200-nvl72", "mi300x", "v5p", "v100"]),
    gpus=st.none() | st.sampled_from([1, 8, 24, 64, 256, 1000, 2048, "4k"]),
    strategy=st.none()
    | st.sampled_from(
        [
            "best", "best-tp2", "fsdp", "fsdp-mb1", "hsdp8-tp2", "zero1-tp2-pp4-mb1", "ddp",
            "tp8-pp2-zero1-acfull", "fsdp64-mb2", "zero1x16-tp4-mb1", "fsdp-cp2",
        ]
    ),
    seq=st.none() | st.sampled_from([2048, "8k"]),
    batch=st.none() | st.sampled_from([512, 2048, "1Mtok"]),
    precision=st.none() | st.sampled_from(["bf16", "fp8"]),
    stack=st.none() | st.sampled_from(["megatron", "torchtitan", "pytorch-compiled", "unheard-of"]),
    tokens=st.just("2T"),
    price=st.none() | st.just("1.25"),
    power_cap=st.none() | st.just("400W"),
    algorithm=st.none() | st.just("ring"),
    sets=st.sampled_from([(), ("cluster.pue=1.4",), ("stack.contention=0.1",)]),
    fit=st.none() | st.just(0.5),
    by=st.sampled_from(["time", "memory"]),
)  # fmt: skip


def on_the_command_line(words):
    done = CliRunner().invoke(cli, [*words, "--json"])
    return done.stderr if done.exit_code == 2 else msgspec.json.decode(done.stdout)


def in_the_web_ui(question):
    try:
        answer = ask("/api/estimate", msgspec.json.encode(question))
    except ScalewiseError as error:
        return str(error)
    decoded = msgspec.json.decode(answer)
    return decoded["estimate"], decoded["moved"]


def in_python(question):
    words = stated(question)
    try:
        return sw.estimate(words.pop("model"), **words).to_dict()
    except ScalewiseError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(questions)
def test_every_door_gives_equal_digits(question):
    shell = on_the_command_line(shlex.split(command(question))[1:])
    python = in_python(question)
    page = in_the_web_ui(question)
    if isinstance(python, str):
        assert python in shell
        # The web UI takes the shape of a strategy to another size instead of refusing it.
        assert page == python or question.strategy
        return
    estimate, moved = page
    same = msgspec.json.decode(msgspec.json.encode(python))
    assert {key: shell[key] for key in same} == same
    if not moved:
        assert estimate == same


def test_a_plan_file_is_the_same_question(tmp_path):
    question = Question(model="llama 3 70b", gpus=128, batch="2Mtok", sets=("cluster.pue=1.3",))
    (tmp_path / "plan.toml").write_text(to_toml(question))
    planned = on_the_command_line(["estimate", "--plan", str(tmp_path / "plan.toml")])
    assert planned["terms"] == in_python(question)["terms"]


@pytest.mark.parametrize("gpus", [8, 64, 2048])
def test_estimate_scale_and_the_page_agree_on_three_words(gpus):
    """MFU of llama-2-7b on 2,048 H100s was 28.9, 38.3 and 41.1 % from three doors once."""
    e = sw.estimate("llama-2-7b", on="dgx-h100", gpus=gpus)
    (point,) = sw.scale("llama-2-7b", on="dgx-h100", gpus=[gpus]).curves[0].points
    assert (point.strategy, point.mfu) == (str(e.strategy), e.mfu)
    page = msgspec.json.decode(ask("/api/estimate", msgspec.json.encode({"gpus": gpus})))
    assert page["headline"]["mfu"][0] == e.mfu
    request = {"question": {}, "sizes": str(gpus), "templates": ["best"]}
    curve = msgspec.json.decode(ask("/api/scale", msgspec.json.encode(request)))["curves"][0]
    assert curve["points"][0]["mfu"] == e.mfu


def test_a_question_without_a_strategy_fits_where_something_does():
    e = sw.estimate("llama-3.1-70b", on="dgx-h100", gpus=256)
    assert e.feasible
    assert e.fit >= 0.9


def test_unknown_fields_of_a_question_are_named():
    with pytest.raises(sw.InputError, match="a question has no field `gpu`") as caught:
        question_from({"gpu": 8})
    assert "`gpus`" in caught.value.hint


PLANS = [
    {"model": "llama-2-13b,llama-3-70b", "on": "dgx-h100", "gpus": "128,256", "tokens": "300B"},
    {"model": "llama-3-8b", "on": "dgx-h100,dgx-a100", "gpus": "64,128", "tokens": "1T",
     "deadline": "30d", "budget": "400k", "region": "france", "price": "2"},
    {"model": "llama-3-8b", "on": "dgx-h100", "gpus": "72..144+72", "seq": "8k", "own": "on",
     "region": "us"},
]  # fmt: skip


@pytest.mark.parametrize("by", [None, "carbon"])
@pytest.mark.parametrize("words", PLANS)
def test_a_plan_has_equal_digits_from_every_door(words, by):
    request = {"question": words, "by": by, "meet": "prediction"}
    page = msgspec.json.decode(ask("/api/plan", msgspec.json.encode(request)))
    same = msgspec.json.decode(msgspec.json.encode(page["plan"]))
    assert on_the_command_line(shlex.split(page["copy"]["cli"])[1:]) == same
    found = {}
    exec(page["copy"]["python"].removesuffix("print(found)\n"), found)
    python = msgspec.json.decode(msgspec.json.encode(found["found"].to_dict()))
    assert {key: same[key] for key in python} == python


def test_a_queue_has_equal_digits_from_every_door(tmp_path):
    runs = [
        {"name": "a", "question": {"model": "llama-3-70b", "tokens": "200B"}},
        {"name": "b", "question": {"model": "llama-3-8b", "tokens": "1T", "gpus": "128"}},
        {"name": "c", "question": {"model": "llama-3-8b", "tokens": "50B", "seq": "8k"},
         "after": "b", "earliest": "2027-02-01"},
    ]  # fmt: skip
    request = {
        "question": {"on": "dgx-h100", "gpus": "256", "price": "2.5", "batch": "64"},
        "runs": runs,
        "start": "2027-01-04",
    }
    page = msgspec.json.decode(ask("/api/queue", msgspec.json.encode(request)))
    path = tmp_path / "queue.toml"
    path.write_text(page["copy"]["toml"])
    assert on_the_command_line(["plan", "--queue", str(path)]) == page["queue"]
    python = msgspec.json.decode(msgspec.json.encode(sw.queue(path).to_dict()))
    assert {key: page["queue"][key] for key in python} == python
    assert page["queue"]["runs"][2]["start"] >= "2027-02-01"
    # The batch of the sentence is that of one model and size.
    assert page["queue"]["runs"][0]["global_batch"] == 1024
    # The file that was written is read again, and gives the same calendar.
    again = {"question": {}, "text": page["copy"]["toml"]}
    pasted = msgspec.json.decode(ask("/api/queue", msgspec.json.encode(again)))
    assert pasted["queue"] == page["queue"]
    assert (pasted["on"], pasted["gpus"]) == ("dgx-h100", 256)
