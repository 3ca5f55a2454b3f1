"""Golden estimates: 2,400 random questions with every number of their answers.

2,000 are about dense models, 400 about models with experts or latent attention.

A change that moves numbers on purpose takes a new table with `scripts/golden_estimates.py`.
"""

from collections import defaultdict

import pytest
from golden_estimates import (
    QUESTION,
    answer,
    answered,
    ask,
    difference,
    draw,
    has_experts,
    read,
    write,
)

from scalewise.model import load_model
from scalewise.step.estimate import estimate

WORDS = (
    "ddp", "zero1", "zero2", "fsdp", "hsdp", "-tp", "-cp", "ag-", "-pp", "-v2", "gpipe", "zbh1",
    "zbv", "acsel", "acfull", "acattn", "acop", "ac1of4", "noreshard", "pf0", "nosp", "nodpoverlap",
)  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    return read()


def test_every_number_is_that_of_the_table(rows):
    assert len(rows) == 2400
    moved = defaultdict(list)
    for place, row in enumerate(rows):
        numbers = answer(ask(row))
        assert set(numbers) == set(row) - set(QUESTION)
        for column, value in numbers.items():
            if difference(column, value, row) > 1e-12:
                moved[column].append((place, row["strategy"], row[column], value))
    assert not moved, {column: (len(found), found[0]) for column, found in moved.items()}


def test_one_row_and_many_are_equal_to_the_last_bit(rows):
    for row in rows[::10]:
        alone = ask(row)
        of = (alone.model, alone.cluster, alone.workload, [alone.strategy] * 2)
        assert answer(estimate(*of, stack=alone.stack)[1]) == answer(alone), row["strategy"]


def test_dense_models_have_no_terms_of_experts(rows):
    columns = ("term.experts", "term.routing", "term.expert_parallel", "comm.expert_parallel")
    for row in rows[:2000]:
        assert [row[column] for column in columns] == ["0.0"] * 4, row["strategy"]


def test_the_table_covers_every_technique_of_experts(rows):
    sparse = rows[2000:]
    assert all(has_experts(load_model(row["model"])) for row in sparse)
    spelled = " ".join(row["strategy"] for row in sparse)
    for word in ("-ep", "-etp", "acnorm", "aclatent", "acact", "acmlp", "noepoverlap"):
        assert spelled.count(word) > 20, word
    assert len({row["model"] for row in sparse}) > 20
    assert len({row["imbalance"] for row in sparse}) == 3
    assert len({row["capacity"] for row in sparse}) == 3
    # Most have an all-to-all.
    assert sum(float(row["comm.expert_parallel"]) > 0.0 for row in sparse) > 150


def test_the_table_covers_every_technique(rows):
    spelled = " ".join(row["strategy"] for row in rows[:2000])
    for word in WORDS:
        assert spelled.count(word) > 40, word
    assert len({row["model"] for row in rows}) > 40
    assert len({row["cluster"] for row in rows}) > 40


@pytest.mark.parametrize("experts", [False, True])
def test_a_new_table_answers_as_the_estimate_does(tmp_path, experts):
    questions = draw(20, seed=1, experts=experts)
    assert questions == draw(20, seed=1, experts=experts)
    assert {has_experts(load_model(question["model"])) for question in questions} == {experts}
    path = tmp_path / "table.csv.gz"
    write([answered(question) for question in questions], path)
    for question, row in zip(questions, read(path), strict=True):
        assert {name: row[name] for name in QUESTION} == question
        for column, value in answer(ask(row)).items():
            assert row[column] == ("" if value is None else repr(float(value)))


def test_differences_are_relative_and_unknown_differs_from_known():
    row = {"step_seconds": "2.0", "term.gemm": "1.0", "term.host": "0.0", "watts": ""}
    assert difference("step_seconds", 3.0, row) == 0.5
    assert difference("term.host", 0.001, row) == 0.5
    assert difference("watts", None, row) == 0.0
    assert difference("watts", 1.0, row) == difference("term.gemm", None, row) == float("inf")
