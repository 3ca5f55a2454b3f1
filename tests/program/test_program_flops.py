"""FLOPs by part, by hand: one layer of width 4, 2 sequences of 16 tokens."""

import pytest

from captures import capture, kernel
from scalewise.model import Model
from scalewise.program.flops import explained, flops_by_part

MODEL = Model(
    name="toy", layers=1, hidden=4, heads=1, kv_heads=1, ffn=8, vocab=100, gated=False, tied=False
)
TOKENS = 32.0

HEAD = 6 * 4 * 100 * TOKENS
MATRICES = 6 * (4 * 16 + 2 * 4 * 8) * TOKENS
# Per token 2,400 of the head, 768 of matrices, 384 of attention: 3,552.
# Two products of 2 FLOPs over 8 keys in the mean and a width of 4, forward; twice that, backward.
FORWARD = 2 * 2 * 8 * 4 * TOKENS


def parts(events, tp=1):
    one = capture(events, vocab=100, hidden=4, multiplied=float(MODEL.matmul_parameters))
    return flops_by_part([one], MODEL, seq_len=16, tokens=TOKENS, tp=tp)


def step(*, square=1.0, again=2.0, head=1.0, name="flash_attention", matrices=1.0):
    return [
        kernel(1, flops=FORWARD * square, name=name),
        kernel(2, flops=FORWARD * square * again, name=name, phase="backward"),
        kernel(3, flops=HEAD * head, shapes=((32, 4), (4, 100))),
        kernel(4, flops=MATRICES * matrices, shapes=((32, 4), (4, 8))),
    ]


def test_a_program_that_computes_what_its_model_does_has_nothing_to_explain():
    found = parts(step())
    assert [(each.name, each.program / each.model) for each in found] == [
        ("attention", 1.0), ("head", 1.0), ("other matrices", 1.0),
    ]  # fmt: skip
    assert explained(found) == ""


@pytest.mark.parametrize(
    ("changed", "part", "reason"),
    [
        ({"square": 2.0}, "attention +10.8%", "no causal mask halves it"),
        ({"again": 2.5}, "attention +1.8%", "its backward repeats the scores"),
        ({"square": 2.0, "name": "bmm"}, "attention +10.8%",
         "written as matrix products and no causal mask halves it"),
        ({"head": 4 / 3}, "head +22.5%", "4.0 products of the head per token instead of 3"),
        ({"matrices": 1.5}, "other matrices +10.8%", "not explained"),
    ],
)  # fmt: skip
def test_a_part_that_differs_is_named_with_its_reason(changed, part, reason):
    assert explained(parts(step(**changed))) == f"{part} ({reason})"


def test_matrices_that_the_model_does_not_have_are_counted():
    one = capture(step(matrices=2.0), vocab=100, hidden=4, multiplied=656.0)
    found = flops_by_part([one], MODEL, seq_len=16, tokens=TOKENS, tp=1)
    assert found[2].reason == "matrices of 656 parameters, 528 in the model"


def test_a_head_that_is_no_wider_than_others_is_one_of_the_matrices():
    found = parts(step(), tp=8)
    assert [each.name for each in found] == ["attention", "matrices"]
    assert sum(each.program for each in found) == pytest.approx(sum(each.model for each in found))
