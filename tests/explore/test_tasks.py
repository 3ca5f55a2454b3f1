import msgspec
import pytest

from scalewise.catalog import load_cluster
from scalewise.explore.search import search
from scalewise.explore.sizes import Rule
from scalewise.explore.space import Limits
from scalewise.explore.tasks import PointResult, Task, price
from scalewise.explore.templates import parse_template
from scalewise.model import load_model
from scalewise.stack import load_stack
from scalewise.step.estimate import estimate
from scalewise.strategy import parse_strategy

WEAK = Rule(kind="weak", batch=2, seq_len=4096)


def task(template, size=8, cluster="dgx-h100", model="llama-2-7b", rule=WEAK, **fields):
    return Task(
        model=load_model(model),
        cluster=load_cluster(cluster, size),
        rule=rule,
        template=parse_template(template),
        stack=load_stack("megatron"),
        **fields,
    )


@pytest.mark.parametrize("template", ["fsdp", "tp8-pp8", "best-tp2-pp1"])
def test_a_task_stands_alone(template):
    asked = task(template, 16)
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(asked), type=Task)
    assert read == asked
    text = price(asked)
    assert price(read) == text
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(text), type=PointResult) == text


@pytest.mark.parametrize("template", ["hsdp64", "tp2-pp2-acfull", "fsdp-mb1", "ddp"])
def test_a_given_strategy_is_its_estimate(template):
    asked = task(template, 128)
    point = price(asked).point
    strategy, work = parse_strategy(point.strategy), WEAK.at(asked.cluster)
    e = estimate(asked.model, asked.cluster, work, strategy, stack=asked.stack)
    assert point.step_seconds == e.step_seconds
    assert point.memory_bytes == e.memory_bytes
    assert point.infeasible == e.infeasible
    assert point.evaluated is None
    assert sum(point.terms.values()) == pytest.approx(point.step_seconds)


@pytest.mark.parametrize("by", ["time", "cost", "energy"])
def test_best_is_what_the_search_finds(by):
    asked = task("best-pp1-mb2", 8, by=by)
    found = search(
        asked.model, asked.cluster, WEAK.at(asked.cluster),
        limits=Limits(pp=(1,), micro_batch=(2,), overlap=(True,)), by=by, stack="megatron",
    )  # fmt: skip
    point = price(asked).point
    assert point.strategy == str(found.best.strategy)
    assert point.tokens_per_second == found.best.tokens_per_second
    assert point.evaluated == found.evaluated
    assert point.feasible


def test_best_is_at_least_as_fast_as_what_was_given():
    best = price(task("best", 16)).point
    for template in ("fsdp", "tp2", "hsdp8", "zero1-tp2-pp2"):
        assert best.tokens_per_second >= price(task(template, 16)).point.tokens_per_second


@pytest.mark.parametrize(
    ("template", "size", "fields", "said"),
    [
        ("tp8-pp8", 8, {}, "mesh: tp 8 x cp 1 x pp 8 = 64 does not divide 8"),
        ("fsdp", 3, {"rule": Rule(kind="weak", batch=0.5, seq_len=4096)}, "not a whole number"),
        ("fsdp-tp3", 6, {}, "tp = 3 does not divide the 32 attention heads"),
        ("fsdp-ep2", 8, {}, "ep = 2 needs a mixture of experts"),
        ("best-tp16", 8, {}, "mesh: no strategy within the limits divides this size"),
        ("best-pp1", 8, {"model": "gpt3-175b"}, "memory: none of "),
    ],
)
def test_what_cannot_be_says_why(template, size, fields, said):
    answer = price(task(template, size, **fields))
    assert answer.point is None
    assert answer.missing.accelerators == size
    assert said in answer.missing.reason


def test_a_mode_that_the_software_lacks_is_said_and_priced():
    answer = price(task("fsdp-eager", 8))
    assert answer.point.tokens_per_second == price(task("fsdp", 8)).point.tokens_per_second
    assert "the strategy says eager, but stack megatron is compiled" in answer.warnings


def test_an_interrupted_search_is_no_point(monkeypatch):
    def stopped(*args, **kwargs):
        found = search(*args, **kwargs)
        return type(found)(**{f: getattr(found, f) for f in found.__dataclass_fields__}
                           | {"interrupted": True})  # fmt: skip

    monkeypatch.setattr("scalewise.explore.tasks.search", stopped)
    with pytest.raises(KeyboardInterrupt):
        price(task("best-tp8-pp1"))
