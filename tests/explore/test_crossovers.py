import msgspec
import pytest

from scalewise.catalog import load_cluster
from scalewise.explore.crossovers import between, find, refine
from scalewise.explore.points import Crossover, Curve, Point, join
from scalewise.explore.scale import scale
from scalewise.explore.sizes import Rule
from scalewise.explore.templates import parse_template
from scalewise.model import load_model

WEAK = Rule(kind="weak", batch=2, seq_len=4096)


def point(accelerators, rate):
    """A point of `rate` tokens/s per accelerator; nothing else matters here."""
    return Point(
        accelerators=accelerators, strategy="fsdp8-mb1", global_batch=8, num_microbatches=1,
        step_seconds=1.0, terms={"gemm": 1.0}, tokens_per_second=rate * accelerators,
        tokens_per_second_per_accelerator=rate, low=rate, high=rate, mfu=0.4,
        exposed_fraction=0.0, contention_share=0.0, memory_bytes=1e9,
    )  # fmt: skip


def made(label, rates, cluster="c"):
    return Curve(label=label, model="m", cluster=cluster, seq_len=4096, stack="s",
                 precision="bf16", points=join(point(n, r) for n, r in rates.items()))  # fmt: skip


def crossing(**changes):
    fields = {
        "model": "m", "cluster": "c", "seq_len": 4096, "accelerators": 512, "previous": 256,
        "winner": "tp2", "loser": "fsdp", "gain": 0.1, "rate": 90.0, "last": 1024,
        "last_gain": 0.2,
    }  # fmt: skip
    return Crossover(**(fields | changes))


def test_by_hand():
    one = made("one", {8: 100.0, 16: 100.0, 32: 80.0, 64: 50.0})
    two = made("two", {8: 90.0, 16: 90.0, 32: 88.0, 64: 60.0})
    (found,) = find([one, two])
    # A lead of 20% in steps of one kind is beyond doubt.
    assert 0.95 < found.chance < 1.0
    assert msgspec.structs.replace(found, chance=0.5) == crossing(
        accelerators=32, previous=16, winner="two", loser="one", rate=88.0,
        gain=pytest.approx(0.1), last=64, last_gain=pytest.approx(0.2),
    )  # fmt: skip
    assert find([one]) == []


def test_parting_from_a_tie_is_a_crossover_and_returning_to_it_is_not():
    one = made("one", {8: 100.0, 16: 100.0, 32: 100.0, 64: 100.0})
    two = made("two", {8: 100.0, 16: 110.0, 32: 100.0, 64: 110.0})
    assert [(each.accelerators, each.winner) for each in find([one, two])] == [(16, "two")]


def test_different_questions_do_not_cross():
    one = made("one", {8: 100.0, 16: 50.0})
    for field, value in (("cluster", "d"), ("model", "n"), ("seq_len", 8192)):
        two = msgspec.structs.replace(made("two", {8: 90.0, 16: 90.0}), **{field: value})
        assert find([one, two]) == []


def lines(winner, loser):
    """Prices by formula: rates of the winner and the loser by size."""

    def priced(template, size):
        rate = winner(size) if template.label == "tp2" else loser(size)
        return None if rate is None else point(size, rate)

    return parse_template("tp2"), parse_template("fsdp"), priced


def test_refining_finds_the_size():
    # 100 against 140 - n / 10: level at 400, so that 408 is the first multiple of 8 beyond it.
    tp2, fsdp, priced = lines(lambda n: 100.0, lambda n: 140.0 - n / 10)
    sizes = list(range(264, 512, 8))
    found = refine(crossing(), tp2, fsdp, sizes, priced)
    assert (found.accelerators, found.previous) == (408, 400)
    assert found.gain == pytest.approx(100 / 99.2 - 1)
    assert found.rate == 100.0
    assert (found.last, found.last_gain) == (1024, 0.2)


def test_refining_may_find_nothing_closer():
    tp2, fsdp, priced = lines(lambda n: 90.0, lambda n: 100.0)
    sizes = [320, 384, 448]
    found = refine(crossing(), tp2, fsdp, sizes, priced)
    assert (found.accelerators, found.previous) == (512, 448)
    assert refine(crossing(), tp2, fsdp, [], priced) == crossing()
    # What does not fit ends it.
    tp2, fsdp, priced = lines(lambda n: None, lambda n: 100.0)
    assert refine(crossing(), tp2, fsdp, sizes, priced) == crossing()


def sizes_between(rule, *labels, cluster="dgx-h100", **changes):
    templates = [parse_template(label) for label in labels]
    return between(crossing(**changes), load_cluster(cluster), rule, templates)


def test_sizes_between_fill_domains_and_share_the_batch():
    assert sizes_between(WEAK, "fsdp", "tp2") == list(range(272, 512, 16))
    assert sizes_between(WEAK, "hsdp64", "tp2") == [320, 384, 448]
    assert sizes_between(WEAK, "fsdp", "tp2", accelerators=32, previous=16) == [24]
    assert sizes_between(WEAK, "fsdp", "tp2", accelerators=16, previous=8) == []
    # 1,536 sequences: 384 ranks share them, and 192 of tp2; 320 and 448 do not.
    strong = Rule(kind="strong", batch=1536, seq_len=4096)
    assert sizes_between(strong, "fsdp", "tp2") == [384]
    assert sizes_between(WEAK, "fsdp", "tp2", cluster="gb200-nvl72") == [288, 360, 432, 504]
    assert len(sizes_between(WEAK, "fsdp", "tp2", accelerators=2**21, previous=2**20)) == 15


def test_tensor_parallelism_overtakes_full_sharding_between_doublings():
    curves = scale(
        load_model("llama-2-7b"), load_cluster("dgx-h100"), WEAK, ["fsdp", "tp2"], [128, 2048],
        stack="megatron",
    )  # fmt: skip
    (found,) = curves.crossovers
    assert (found.winner, found.loser) == ("tp2", "fsdp")
    # arXiv 2411.13055: tp 2 to 4 overtakes pure FSDP somewhere between 128 and 2,048 H100s.
    assert 128 < found.accelerators < 2048
    assert found.accelerators - found.previous == 120
    assert 0.0 < found.gain < 0.05 < found.last_gain

    def rate(label, size):
        cluster = load_cluster("dgx-h100")
        model = load_model("llama-2-7b")
        curve = scale(model, cluster, WEAK, [label], [size], stack="megatron").curves[0]
        return curve.points[0].tokens_per_second

    assert rate("tp2", found.accelerators) > rate("fsdp", found.accelerators)
    assert rate("tp2", found.previous) <= rate("fsdp", found.previous)
