"""Overrides stay within physics, unless they are forced."""

import pytest

from scalewise.ask.question import Question
from scalewise.ask.resolve import inputs, resolve
from scalewise.ask.state import command, from_query, from_toml, to_query, to_toml
from scalewise.errors import InputError


def asked(*sets, **words):
    return Question(gpus=64, strategy="fsdp64-mb2", sets=sets, **words)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("stack.gemm=100", "stack.gemm = 100: 7057% of the peak of h100-sxm-80gb must be at most"),
        ("stack.attention_forward=10", "stack.attention_forward = 10: 370% of the peak"),
        ("stack.tp_overlap=5", "stack.tp_overlap = 5 must be between 0 and 1"),
        ("stack.straggler=1.01", "stack.straggler = 1.01 must be between 0 and 1"),
    ],
)
def test_software_stays_within_physics(override, sentence):
    for door in (resolve, inputs):
        with pytest.raises(InputError, match=sentence) as caught:
            door(asked(override))
        assert "--force" in caught.value.hint


def test_the_limit_of_the_hint_is_accepted():
    with pytest.raises(InputError) as caught:
        resolve(asked("stack.gemm=100"))
    limit = caught.value.hint.removeprefix("use at most ").partition(",")[0]
    assert resolve(asked(f"stack.gemm={float(limit) - 0.01}")).estimate().mfu < 1.0


def test_force_lifts_the_bounds_but_not_what_is_finite():
    assert resolve(asked("stack.gemm=100", force=True)).estimate().mfu > 0.3
    with pytest.raises(InputError, match=r"^with stack.gemm = 0 \(was .*\): .*no finite time"):
        resolve(asked("stack.gemm=0", force=True)).estimate()


def test_force_goes_through_every_form_of_a_question():
    question = asked("stack.gemm=100", force=True)
    assert from_query(to_query(question)).force
    assert from_toml(to_toml(question)).force
    assert "--force" in command(question).split()
    assert not from_query(to_query(asked())).force
    assert "force" not in to_toml(asked())
