"""The space of strategies: complete, within its limits, and the same in any shape."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import clusters, models, stacks
from scalewise.catalog import load_cluster
from scalewise.explore.space import Limits, count, divisors, pieces
from scalewise.model import load_model
from scalewise.step.estimate import estimate
from scalewise.strategies import WORDS, Strategies
from scalewise.workload import Workload

LLAMA = load_model("llama-2-7b")
H100 = load_cluster("dgx-h100", 16)
WORK = Workload(seq_len=2048, global_batch=32)
ALL = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")
FEW = Limits(
    tp=(1, 2),
    pp=(1, 2),
    cp=(1,),
    micro_batch=(1, 2),
    recompute=("none", "full"),
    schedule=ALL,
)


def all_strategies(limits=FEW, cluster=H100, workload=WORK, model=LLAMA):
    return [s for piece in pieces(model, cluster, workload, limits) for s in piece]


@st.composite
def spaces(draw):
    """Draw what `pieces` takes: a model, a cluster, a workload, limits."""
    cluster = draw(clusters())
    workload = Workload(
        seq_len=draw(st.sampled_from((60, 512, 4096, 131072))),
        global_batch=draw(st.sampled_from((6, 64, 768, 2048))),
    )
    word = st.sampled_from
    limits = Limits(
        micro_batch=draw(word((None, (1,), (1, 2, 4)))),
        recompute=draw(word((None, ("none",), ("selective", "full")))),
        sharding=draw(word((None, ("zero1", "ddp"), ("zero3",)))),
        schedule=draw(word((None, ("1f1b", "interleaved"), ("zbh1", "zbv", "gpipe"), ()))),
        overlap=draw(word(((True,), (True, False)))),
        tp_within_domain=draw(st.booleans()),
    )
    return draw(models()), cluster, workload, limits


def test_divisors():
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(1) == [1]
    assert divisors(49) == [1, 7, 49]


def test_the_space_holds_every_strategy_once_and_nothing_impossible():
    strategies = all_strategies()
    assert len({str(s) for s in strategies}) == len(strategies)
    for s in strategies:
        assert s.accelerators == 16
        assert s.microbatches_of(WORK) * s.micro_batch * s.data_parallel == 32
    # All kinds of data parallelism, with every way to split 16 ranks into replicas and shards.
    flat = {(s.sharding, s.dp_replicate, s.dp_shard) for s in strategies if s.tp == s.pp == 1}
    assert flat == {
        ("ddp", 16, 1), ("zero1", 1, 16), ("zero2", 1, 16),
        ("zero3", 8, 2), ("zero3", 4, 4), ("zero3", 2, 8), ("zero3", 1, 16),
    }  # fmt: skip
    assert {s.schedule for s in strategies if s.pp == 2} == {
        "gpipe", "1f1b", "zbh1", "zbv", "interleaved",
    }  # fmt: skip


def test_pieces_do_not_change_the_space():
    whole = [str(s) for s in all_strategies()]
    small = [str(s) for piece in pieces(LLAMA, H100, WORK, FEW, size=7) for s in piece]
    assert sorted(small) == sorted(whole)
    assert max(len(p) for p in pieces(LLAMA, H100, WORK, FEW, size=7)) <= 7


def test_tensor_parallelism_stays_inside_its_domain_unless_allowed():
    def widest(**limits):
        return max(p.tp.max() for p in pieces(LLAMA, H100, WORK, Limits(**limits)))

    assert widest() == 8
    assert widest(tp_within_domain=False) == 16


def test_a_space_counted_by_hand():
    # Two accelerators, four sequences, one layer per stage: tp2, cp2, pp2 or data parallelism.
    model = load_model("llama-2-7b")
    limits = Limits(recompute=("none",), overlap=(True,), schedule=("1f1b",))
    work = Workload(seq_len=2048, global_batch=4)
    cluster = load_cluster("dgx-h100", 2)
    # dp2: ddp, zero1, zero2, and zero3 kept or freed, prefetched or not = 7, times mb 1, 2.
    # One rank: mb 1, 2, 4, times tp2 with or without sp, cp2 ring or all-gather, or pp2.
    assert count(model, cluster, work, limits) == 7 * 2 + 3 * (2 + 2) + 3 * 1


@settings(max_examples=40, deadline=None)
@given(spaces(), st.sampled_from((1, 7, 100, 4096)))
def test_count_is_the_number_of_rows_and_no_piece_is_too_large(space, size):
    largest, total = 0, 0
    if count(*space) > 200 * size:
        size = 131072
    for piece in pieces(*space, size=size):
        assert len(piece) == math.prod(piece.shape)
        largest, total = max(largest, len(piece)), total + len(piece)
    assert total == count(*space)
    assert largest <= size


@settings(max_examples=60, deadline=None)
@given(spaces(), st.data())
def test_a_product_is_its_rows_bit_by_bit(space, data):
    model, cluster, workload, limits = space
    found = list(pieces(model, cluster, workload, limits, size=3000))
    if not found:
        return
    piece = found[data.draw(st.integers(0, len(found) - 1), label="piece")]
    stack = data.draw(stacks(cluster.accelerator.kind), label="stack")
    rows = Strategies.of_codes(piece.codes(np.arange(len(piece))))
    shaped = estimate(model, cluster, workload, piece, stack=stack)
    flat = estimate(model, cluster, workload, rows, stack=stack)

    def same(one, other):
        assert (one is None) == (other is None)
        if one is not None:
            spread = np.broadcast_to(one, piece.shape).ravel()
            np.testing.assert_array_equal(spread, np.broadcast_to(other, len(rows)))

    for name in (
        "step_seconds", "memory_bytes", "infeasible_code", "watts_per_accelerator",
        "joules_per_token", "usd_per_million_tokens", "tokens_per_second_per_accelerator",
        "mfu", "hfu",
    ):  # fmt: skip
        same(getattr(shaped, name), getattr(flat, name))
    for name, seconds in shaped.terms.parts().items():
        same(seconds, flat.terms.parts()[name])
    for name, size in shaped.memory.parts().items():
        same(size, flat.memory.parts()[name])
    # And one strategy by itself, as a user asks for it.
    row = data.draw(st.integers(0, len(rows) - 1), label="row")
    alone = estimate(model, cluster, workload, [rows[row]], stack=stack)
    assert alone.step_seconds[0] == flat.step_seconds[row]
    assert alone.memory_bytes[0] == flat.memory_bytes[row]
    assert alone.infeasible_code[0] == flat.infeasible_code[row]


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        ("tp", (2, 8)),
        ("pp", (1, 4)),
        ("cp", (2,)),
        ("micro_batch", (2,)),
        ("virtual_stages", (1, 4)),
        ("sharding", ("zero1", "zero3")),
        ("recompute", ("selective",)),
        ("schedule", ("gpipe", "zbv")),
    ],
)
def test_limits_are_kept(field, allowed):
    found = set()
    for piece in pieces(LLAMA, H100, WORK, Limits(**{field: allowed})):
        values = getattr(piece, field).ravel()
        if field == "schedule":
            # A single stage has no schedule and is spelled 1f1b.
            values = values[np.broadcast_to(piece.pp.ravel() > 1, values.shape)]
        if field == "sharding":
            ranks = (piece.dp_replicate * piece.dp_shard).ravel()
            values, ranks = np.broadcast_arrays(values, ranks)
            values = values[ranks > 1]
        found |= set(values)
    words = WORDS.get(field)
    assert found == {words.index(word) if words else word for word in allowed}


def test_overlap_switched_on_only_or_off_only():
    for on in (True, False):
        limits = Limits(overlap=(on,), cp=(1,), micro_batch=(1,), recompute=("none",))
        strategies = all_strategies(limits)
        assert {s.overlap_tp for s in strategies if s.tp > 1} == {on}
        assert {s.overlap_dp for s in strategies if s.data_parallel > 1} == {on}
        assert {s.overlap_pp for s in strategies if s.virtual_stages > 1} == {on}


@pytest.mark.parametrize(
    ("overlap", "wanted"), [((True, False), {True}), ((False,), {False}), ((False, True), {False})]
)
def test_software_without_tp_overlap_is_tried_one_way(overlap, wanted):
    limits = Limits(overlap=overlap, no_effect=("overlap_tp",), cp=(1,), micro_batch=(1,))
    assert {s.overlap_tp for s in all_strategies(limits) if s.tp > 1} == wanted


def test_chunks_are_equal_or_leave_room_for_embedding_and_head():
    # 32 layers in 2 stages: chunks of 1, 2, 4 and 8 layers; 34 = 2 x 17 allows none more.
    limits = Limits(pp=(2,), schedule=("interleaved",), tp=(1,), cp=(1,))
    found = {int(v) for p in pieces(LLAMA, H100, WORK, limits) for v in p.virtual_stages.ravel()}
    assert found == {2, 4, 8}
