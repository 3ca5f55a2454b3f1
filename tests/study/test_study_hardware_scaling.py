"""The shipped study of hardware scaling, at the sizes of its claims."""

import msgspec
import pytest

from scalewise.study.files import load_study
from scalewise.study.run import run_study

SIZES = {
    "weak-scaling": [128, 256, 1024, 2048],
    "model-parallelism": [1024, 1536, 2048],
    "marginal-returns": [8, 1024, 2048, 4096, 8192],
    "what-to-buy": [2048],
}


@pytest.fixture(scope="module")
def verdicts():
    study = load_study("hardware-scaling-trends")
    experiments = tuple(
        msgspec.structs.replace(each, sizes=SIZES[each.id])
        for each in study.experiments
        if each.id in SIZES
    )
    answer = run_study(msgspec.structs.replace(study, experiment=experiments))
    assert {each.verdict for each in answer.verdicts} <= {
        "holds", "holds with a difference", "does not hold",
    }  # fmt: skip
    return {each.claim.statement: each for each in answer.verdicts}


def found(verdicts, *words):
    (each,) = (v for text, v in verdicts.items() if all(word in text for word in words))
    return each


def test_the_loss_of_fsdp_is_near_the_published_one(verdicts):
    assert -0.44 < found(verdicts, "falls by 37.22%").value < -0.30


@pytest.mark.parametrize(
    "words",
    [("Tensor", "degree 2 beats"), ("Tensor", "degree 4 beats"), ("Pipeline", "degree 2 beats")],
)
def test_model_parallelism_beats_pure_fsdp(verdicts, words):
    each = found(verdicts, *words)
    assert each.verdict == "holds"
    assert each.value > 1.015


def test_the_second_conclusion_has_three_answers(verdicts):
    assert found(verdicts, "between 1,024 and 2,048").verdict == "holds"
    assert found(verdicts, "swept", "at 2,048").verdict == "does not hold"
    assert found(verdicts, "everything known today").verdict == "does not hold"
    assert found(verdicts, "fixed global batch", "per GPU-hour").verdict == "holds"
    assert found(verdicts, "fixed global batch", "per watt").verdict == "holds"


def test_nvlink_helps_what_uses_it(verdicts):
    assert found(verdicts, "doubling the rate of NVLink").verdict == "holds"
    assert found(verdicts, "NVLink domain of 16").verdict == "holds"


def test_what_does_not_hold_has_a_reason_in_words():
    study = load_study("hardware-scaling-trends")
    claims = [claim for each in study.experiments for claim in each.claims]
    assert len(claims) == 37
    known = ("most communication is exposed", "Beyond about 128 H100s", "variant: 256 sequences",
             "at 2,048, its largest size", "everything known today")  # fmt: skip
    for words in known:
        (claim,) = (each for each in claims if words in each.statement)
        assert len(claim.why.split()) > 15
