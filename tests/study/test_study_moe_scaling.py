"""The shipped study of dense and sparse models, at the points of its main claims."""

import msgspec
import pytest

from scalewise.study.files import load_study
from scalewise.study.rows import select
from scalewise.study.run import run_study

STUDY = load_study("moe-scaling")


def answer_of(name, **changes):
    """Rows of one experiment of the study, and its verdicts by statement."""
    (one,) = (each for each in STUDY.experiments if each.id == name)
    one = msgspec.structs.replace(one, **changes)
    answer = run_study(msgspec.structs.replace(STUDY, experiment=(one,)))
    return answer.rows, {each.claim.statement: each for each in answer.verdicts}


def test_pairs_have_about_equal_active_parameters():
    from scalewise.model import load_model

    for name in ("small", "middle", "large"):
        (one,) = (each for each in STUDY.experiments if each.id == name)
        sparse, dense = map(load_model, one.models)
        assert sparse.moe is not None
        assert dense.moe is None
        assert 0.75 < sparse.active_parameters / dense.parameters < 1.25


def test_a_larger_domain_helps_the_largest_model_with_experts_most():
    rows, verdicts = answer_of("domain", models=("deepseek-v3", "qwen2.5-32b"))
    sparse, dense = (
        next(each for text, each in verdicts.items() if name in text).value
        for name in ("DeepSeek-V3", "Qwen2.5 32B")
    )
    assert sparse > 1.1 > dense > 1.0
    wide, narrow = (
        select(rows, {"model": "deepseek-v3", "variant": f"domain of {size}"})[0].metrics
        for size in (64, 8)
    )
    assert wide["ep_degree"] > narrow["ep_degree"]
    assert wide["pp_degree"] < narrow["pp_degree"]


def test_imbalance_is_an_axis_of_a_study():
    rows, _ = answer_of("routing", models=("qwen3-235b-a22b",), sizes=[256])
    rates = [row.metrics["tokens_per_second_per_accelerator"] for row in rows]
    balanced, uneven = rates[:3], rates[3:]
    assert all(0.6 < b / a < 0.95 for a, b in zip(balanced, uneven, strict=True))


@pytest.mark.slow
def test_sparse_models_have_a_lower_mfu_at_every_size():
    rows, _ = answer_of("small", sizes=[64, 1024], clusters=("dgx-b200", "gb200-nvl72"))
    sparse = [row.metrics["mfu"] for row in select(rows, {"model": "qwen3-30b-a3b"})]
    dense = [row.metrics["mfu"] for row in select(rows, {"model": "llama-3.2-3b"})]
    assert all(s < 0.8 * d for s, d in zip(sparse, dense, strict=True))
