"""One question as address, TOML, command and Python: the same digits."""

import shlex
import subprocess
import sys
import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.ask.question import Question
from scalewise.ask.state import (
    command,
    copies,
    from_query,
    from_toml,
    python,
    read_plan,
    to_query,
    to_toml,
)
from scalewise.errors import InputError
from scalewise.ui.estimate import estimate_answer

words = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=40
)
questions = st.builds(
    Question,
    model=words,
    on=words,
    gpus=words,
    strategy=st.none() | words,
    seq=st.none() | words,
    batch=st.none() | words,
    precision=st.none() | words,
    stack=st.none() | words,
    tokens=st.none() | words,
    power_cap=st.none() | words,
    sets=st.lists(words, max_size=3).map(tuple),
    by=st.sampled_from(["time", "cost", "energy"]),
)


@given(questions)
def test_address_and_back(question):
    assert from_query(to_query(question)) == question


@given(questions)
def test_toml_and_back(question):
    assert from_toml(to_toml(question)) == question


def test_an_address_is_short_and_can_be_read():
    question = Question(gpus="256", batch="1024", sets=("cluster.pue=1.3",))
    assert to_query(question) == "model=llama-2-7b&on=dgx-h100&n=256&batch=1024&set=cluster.pue=1.3"


def test_keys_of_views_are_left_alone():
    assert from_query("view=scale&kind=weak&n=64&pin=x").gpus == "64"


def test_an_address_with_too_many_parts_is_refused():
    with pytest.raises(InputError, match="more than 200 parts"):
        from_query("&".join(f"x{place}=1" for place in range(300)))


def test_every_key_of_a_plan_has_its_meaning_over_it():
    lines = to_toml(Question(gpus=8, batch="64")).splitlines()
    for key in ("model", "on", "gpus", "batch"):
        place = next(i for i, line in enumerate(lines) if line.startswith(f"{key} = "))
        assert len(lines[place - 1]) > 10
        assert lines[place - 1].startswith("# ")


def test_a_misspelt_key_of_a_plan_is_refused():
    with pytest.raises(InputError, match="unknown key `modle`") as caught:
        from_toml('modle = "llama-2-7b"')
    assert caught.value.hint == "did you mean `model` or `node`?"


def test_a_plan_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"plan \S+none.toml cannot be read: no such file"):
        read_plan(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(InputError, match="not valid TOML"):
        read_plan(tmp_path / "bad.toml")


@pytest.fixture(scope="module")
def answered():
    asked = Question(model="llama 2 13b", gpus="64", batch="512", sets=("cluster.pue=1.3",))
    answer = estimate_answer(asked)
    return answer, msgspec.convert(answer["question"], Question)


def test_the_command_gives_the_same_digits(answered):
    answer, question = answered
    words = shlex.split(command(question))
    assert words[0] == "scalewise"
    done = subprocess.run(
        [sys.executable, "-m", *words, "--json"], capture_output=True, text=True, check=True
    )
    same = msgspec.json.decode(done.stdout)
    for key, value in answer["estimate"].items():
        # What was chosen is said in the command, so less is chosen for it.
        assert key == "defaults" or same[key] == value, key


def test_python_gives_the_same_digits(answered, capsys):
    answer, question = answered
    exec(compile(python(question), "copied", "exec"), {})
    step, mfu, memory = map(float, capsys.readouterr().out.split())
    assert step == answer["headline"]["step_seconds"][0]
    assert mfu == answer["headline"]["mfu"][0]
    assert memory == answer["headline"]["memory_bytes"][0]


def test_the_saved_plan_gives_the_same_digits(answered):
    answer, question = answered
    again = estimate_answer(from_toml(copies(question)["toml"]))
    assert again["estimate"]["terms"] == answer["estimate"]["terms"]
    assert tomllib.loads(copies(question)["toml"])["strategy"] == answer["question"]["strategy"]
