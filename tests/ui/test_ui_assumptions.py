"""Effects of a tenth more and less, where the changed value may leave its bounds."""

import msgspec
import pytest

from scalewise.ask.question import Question
from scalewise.ui.assumptions import assumptions_answer


@pytest.fixture(scope="module")
def rows():
    question = Question(model="llama-2-7b", on="dgx-h100", gpus=2048, strategy="fsdp2048-mb2")
    answer = assumptions_answer(question)
    return {row["key"]: row for row in answer["rows"]}


def effects(row):
    return [None if value is None else round(value, 3) for value in row["time"]]


def test_a_value_out_of_bounds_has_no_effect_under_any_version_of_msgspec(rows):
    # 0.93 x 1.1 is above 1; 1 / 1.1 is below 1, and 1.1 needs a tier_size.
    assert rows["fabric.efficiency"]["value"] * 1.1 > 1
    assert rows["fabric.efficiency"]["time"][0] is None
    assert rows["fabric.efficiency"]["time"][1] > 0
    assert rows["cluster.oversubscription"]["time"] == [None, None]


def test_values_within_bounds_have_both_effects(rows):
    less, more = effects(rows["accelerator.peak_flops.bf16"])
    assert less < 0 < more
    assert None not in effects(rows["stack.contention"])


def test_a_larger_pue_changes_energy_not_time(rows):
    row = rows["cluster.pue"]
    assert effects(row) == [0, 0]
    assert row["joules"] == pytest.approx([0.1, 1 / 1.1 - 1])
    assert msgspec.json.encode(row)
