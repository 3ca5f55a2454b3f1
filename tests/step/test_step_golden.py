"""Golden estimates: 2,000 random questions with every number of their answers.

A change that moves numbers on purpose takes a new table with `scripts/golden_estimates.py`.
"""

from collections import defaultdict

import pytest
from golden_estimates import QUESTION, answer, answered, ask, difference, draw, read, write

WORDS = (
    "ddp", "zero1", "zero2", "fsdp", "hsdp", "-tp", "-cp", "ag-", "-pp", "-v2", "gpipe", "zbh1",
    "zbv", "acsel", "acfull", "acattn", "acop", "ac1of4", "noreshard", "pf0", "nosp", "nodpoverlap",
)  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    return read()


def test_every_number_is_that_of_the_table(rows):
    assert len(rows) == 2000
    moved = defaultdict(list)
    for place, row in enumerate(rows):
        numbers = answer(ask(row))
        assert set(numbers) == set(row) - set(QUESTION)
        for column, value in numbers.items():
            if difference(column, value, row) > 1e-12:
                moved[column].append((place, row["strategy"], row[column], value))
    assert not moved, {column: (len(found), found[0]) for column, found in moved.items()}


def test_the_table_covers_every_technique(rows):
    spelled = " ".join(row["strategy"] for row in rows)
    for word in WORDS:
        assert spelled.count(word) > 40, word
    assert len({row["model"] for row in rows}) > 40
    assert len({row["cluster"] for row in rows}) > 40


def test_a_new_table_answers_as_the_estimate_does(tmp_path):
    questions = draw(20, seed=1)
    assert questions == draw(20, seed=1)
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
