"""The fields of a question are the flags, the keys and the address."""

import msgspec
import pytest

from scalewise.ask.question import Question, question_fields, question_from
from scalewise.errors import InputError
from scalewise.workload import WORK, Workload


def test_every_field_says_what_it_is():
    fields = question_fields("plan")
    assert list(fields) == list(Question.__struct_fields__)
    for field in fields.values():
        assert field.metavar or field.switch, field.name
        assert field.help[0].isupper(), field.name
        assert not field.help.endswith("."), field.name


def test_the_flags_of_a_question_are_pinned():
    # They are flags of every command: a new question should be a `--set`, a file or Python.
    assert [field.flag for field in question_fields().values()] == [
        "MODEL", "--on", "--gpus", "--node", "--network", "--strategy", "--seq", "--batch",
        "--precision", "--imbalance", "--capacity", "--optimizer", "--weights", "--tuning",
        "--loss", "--lengths", "--batching", "--stack", "--tokens", "--goodput",
        "--critical-batch", "--price", "--pue", "--power-cap", "--algorithm", "--protocol",
        "--set", "--force", "--fit", "--by",
    ]  # fmt: skip


def test_the_flags_of_a_plan_are_no_part_of_other_questions():
    own = question_fields("plan").keys() - question_fields().keys()
    assert own == {"region", "own", "deadline", "budget"}


def test_flags_and_keys_follow_from_the_names():
    fields = question_fields()
    assert fields["power_cap"].flag == "--power-cap"
    assert fields["sets"].flag == "--set"
    assert {field.name: field.key for field in fields.values() if field.key != field.name} == {
        "gpus": "n", "power_cap": "cap", "sets": "set",
    }  # fmt: skip


def test_choices_and_units_are_read_from_the_types():
    fields = question_fields()
    assert fields["protocol"].choices == ("auto", "ll", "ll128", "simple")
    assert fields["price"].unit == "dollars_per_hour"
    assert fields["fit"].number
    assert fields["sets"].repeated


def test_numbers_may_be_words_or_numbers():
    assert question_from({"gpus": 8, "batch": "4k", "fit": 0.5, "price": 2.5}).gpus == 8


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"gpus": 0}, "gpus"),
        ({"model": ""}, "model"),
        ({"fit": 1.5}, "fit"),
        ({"by": "beauty"}, "by"),
        ({"sets": ["x"] * 65}, "sets"),
    ],
)
def test_values_that_cannot_be_name_their_field(values, field):
    with pytest.raises(InputError) as caught:
        question_from(values)
    assert caught.value.field == field
    assert field in str(caught.value)


@pytest.mark.parametrize("values", [{"model": "l-\udcff"}, {"sets": ["stack.gemm=\udcff"]}])
def test_a_byte_that_is_not_unicode_is_refused(values):
    with pytest.raises(InputError, match="is not Unicode text"):
        question_from(values)


def test_the_schema_has_every_field():
    schema = msgspec.json.schema(Question)
    assert set(schema["$defs"]["Question"]["properties"]) == set(Question.__struct_fields__)


def test_every_word_of_a_workload_can_be_asked():
    steps = {"seq_len", "global_batch", "precision"}
    assert set(Workload.__struct_fields__) == set(WORK) | steps
    assert set(WORK) <= set(question_fields())
