"""Plans from words: rows are estimates, limits try sizes, batches and prices are named."""

import pytest

import scalewise as sw
from scalewise.ask.planning import planning
from scalewise.ask.question import Question
from scalewise.ask.resolve import resolve
from scalewise.ask.state import from_toml
from scalewise.errors import InputError

BASE = {"model": "llama-2-7b", "on": "dgx-h100", "tokens": "1T"}


def plan(*, by=None, far_end=True, **words):
    return planning(Question(**(BASE | words)), by=by, far_end=far_end)


def test_a_row_is_the_estimate_of_the_same_words():
    found = plan(gpus="64,128")
    for row in found.rows:
        e = sw.estimate("llama-2-7b", on="dgx-h100", gpus=row.accelerators, tokens="1T")
        assert row.strategy == str(e.strategy)
        assert row.days.value == e.days
        assert row.usd.value == pytest.approx(e.run_usd)
    assert [row.accelerators for row in found.rows] == [128, 64]
    assert found.by == "time"
    assert found.answer.accelerators == 128


def test_the_answer_is_a_plan_that_every_command_takes():
    found = plan(gpus="64,128", deadline="30d", price="2", pue=1.2)
    question = from_toml(found.file)
    assert (question.gpus, question.deadline, question.price) == (64, "30d", "2")
    assert resolve(question).estimate().days == found.answer.days.value
    assert found.next.startswith("scalewise estimate llama-2-7b --on dgx-h100 --gpus 64 --strategy")
    assert "--deadline" not in found.next


def test_sizes_between_those_asked_for_are_tried():
    found = plan(gpus="64,512", deadline="10d")
    assert found.by == "cost"
    assert 64 < found.answer.accelerators < 512
    assert not found.answer.asked
    assert found.answer.days.high <= 10.0
    # The next smaller node is too slow.
    smaller = [row for row in found.rows if row.accelerators < found.answer.accelerators]
    assert all(row.days.high > 10.0 for row in smaller)
    assert max(row.accelerators for row in smaller) >= found.answer.accelerators - 16


def test_the_prediction_may_meet_the_limit():
    strict, loose = plan(gpus="64,512", deadline="10d"), plan(
        gpus="64,512", deadline="10d", far_end=False
    )  # fmt: skip
    assert loose.answer.accelerators < strict.answer.accelerators
    assert loose.answer.days.value <= 10.0 < loose.answer.days.high


def test_larger_sizes_are_named_where_none_is_enough():
    found = plan(gpus="64", deadline="5d")
    (answer,) = found.answers
    assert answer.row is None
    assert answer.nearest[0].accelerators == 64
    assert 64 < answer.beyond.accelerators <= 512
    assert answer.beyond.days.high <= 5.0
    assert found.next.startswith("scalewise estimate llama-2-7b")


def test_the_smallest_size_that_fits_is_named_where_none_does():
    found = plan(model="llama-3.1-405b", gpus="8")
    (answer,) = found.answers
    assert answer.row is None
    assert 8 < answer.beyond.accelerators <= 512
    assert answer.beyond.fit >= 0.9
    smaller = [row for row in found.rows if row.accelerators < answer.beyond.accelerators]
    assert smaller
    assert not any(row.feasible for row in smaller)


def test_a_budget_that_nothing_meets_tries_no_larger_size():
    found = plan(gpus="64", budget="1000")
    assert [row.accelerators for row in found.rows] == [64]
    assert found.answers[0].beyond is None
    assert found.file == ""


def test_each_model_has_an_answer():
    found = plan(model="llama-2-7b,llama-2-13b", gpus="128", deadline="20d")
    assert [each.model for each in found.answers] == ["llama-2-7b", "llama-2-13b"]


def test_kinds_of_price_are_never_mixed_silently():
    mixed = plan(on="dgx-h100,oci-h100", gpus="64", by="cost")
    (note,) = mixed.notes
    assert note == (
        "different kinds of price in the order by cost: market (dgx-h100), list (oci-h100); they "
        "are not comparable, --price sets one for all"
    )
    assert plan(on="dgx-h100,oci-h100", gpus="64", by="cost", price="3").notes == ()


def test_a_cluster_without_a_price_breaks_even():
    found = plan(on="dgx-h100,gb200-nvl72", gpus="64")
    (even,) = found.break_evens
    h100, gb200 = even.other, even.row
    assert even.usd_per_hour.low < even.usd_per_hour.value < even.usd_per_hour.high
    assert even.usd_per_hour.value == pytest.approx(2.95 * h100.gpu_hours / gb200.gpu_hours)
    at = planning(Question(**BASE | {"on": "gb200-nvl72", "gpus": "64",
                                     "price": even.usd_per_hour.value}))  # fmt: skip
    assert at.answer.usd.value == pytest.approx(h100.usd.value)


def test_a_batch_that_prevents_a_size_and_one_that_helps():
    found = plan(gpus="64,96", batch="1024", strategy="fsdp")
    (note,) = found.notes
    assert note.startswith("not tried: 96 GPUs: ")
    assert note.endswith("--batch 1056 suits 96")
    assert [row.accelerators for row in found.rows] == [64]


def test_owning_stands_beside_renting():
    found = plan(gpus="64", own="purchase=43000,years=4,utilization=0.8,kwh=0.08", by="cost")
    owned, rented = found.rows
    assert (owned.price.kind, rented.price.kind) == ("owned", "market")
    assert owned.days == rented.days
    (each,) = found.owned
    assert each.rent.usd_per_hour == 2.95
    # 43,000 / (4 x 8,766 x 0.8) = $1.533, and about 1.25 kW x $0.08.
    assert owned.price.usd_per_hour == pytest.approx(1.533 + 0.11, abs=0.02)
    assert 0.40 < each.utilization < 0.46


def test_energy_and_carbon_follow_the_region():
    here, there = plan(gpus="64", region="france"), plan(gpus="64", region="us")
    assert there.answer.tonnes.value / here.answer.tonnes.value == pytest.approx(0.35 / 0.041)
    assert here.answer.mwh == there.answer.mwh


def test_goodput_is_off_where_it_is_said():
    on, off = plan(gpus="64"), plan(gpus="64", goodput="off")
    assert off.answer.goodput is None
    ratio = off.answer.days.value / on.answer.days.value
    assert ratio == pytest.approx(on.answer.goodput.value)


def test_a_budget_of_tokens_is_chosen():
    found = planning(Question(model="llama-2-7b", on="dgx-h100", gpus="64"))
    assert found.answer.tokens == 134768312320.0
    assert any(text.startswith("--tokens") for text in found.defaults)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"deadline": "21"}, "--deadline 21: has no unit"),
        ({"budget": "cheap"}, "--budget cheap: not an amount of dollars"),
        ({"region": "atlantis"}, "--region atlantis: unknown region"),
        ({"on": "dgx-h100,dgx-h100"}, "a model or cluster is given twice"),
        ({"own": "price=3"}, "--own: unknown setting price=3"),
        ({"own": "utilization=2"}, "--own utilization=2: must be positive and at most 1"),
        ({"own": "on", "on": "dgx-b200", "region": "us"}, "no purchase price of b200"),
        ({"own": "on"}, "no price of electricity is known for region world"),
        ({"model": "nothing"}, "unknown model `nothing`"),
        ({"strategy": "fsdp64-mb2,tp8"}, "unknown part 'mb2,tp8'"),
        ({"gpus": "8", "batch": "7", "strategy": "tp3"}, "tp 3"),
    ],
)  # fmt: skip
def test_wrong_words_are_explained(words, message):
    with pytest.raises(InputError, match=message):
        plan(**({"gpus": "64"} | words))
