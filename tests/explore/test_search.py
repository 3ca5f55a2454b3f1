"""The search against a plain loop, and what it says of what it leaves out."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.search import (
    NEAR_TIE,
    nondominated,
    objective_of,
    search,
    why_slower,
)
from scalewise.explore.space import Limits, divisors, meshes, pieces
from scalewise.model import load_model
from scalewise.step.estimate import estimate
from scalewise.step.feasibility import REASONS
from scalewise.strategies import Strategies
from scalewise.workload import Workload
from toys import toy_model

LLAMA = load_model("llama-2-7b")
H100 = load_cluster("dgx-h100", 16)
WORK = Workload(sequence=2048, global_batch=32)
SMALL = Limits(micro_batch=(1, 2), recompute=("none",), cp=(1, 2))
FEW = Limits(tp=(1, 2), pp=(1, 2), cp=(1,), micro_batch=(1, 2), recompute=("none", "full"))


def all_strategies(limits=FEW, cluster=H100, workload=WORK, model=LLAMA):
    return [s for piece in pieces(model, cluster, workload, limits) for s in piece]


def test_divisors():
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(1) == [1]


def test_the_space_holds_every_strategy_once_and_nothing_impossible():
    strategies = all_strategies()
    assert len({str(s) for s in strategies}) == len(strategies)
    for s in strategies:
        assert s.accelerators == 16
        assert s.micro_steps(WORK) * s.micro_batch * s.data_parallel == 32
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
    assert small == whole
    assert max(len(p) for p in pieces(LLAMA, H100, WORK, FEW, size=7)) < 14


def test_tensor_parallelism_stays_inside_its_domain_unless_allowed():
    inside = {mesh[0] for mesh in meshes(LLAMA, H100, WORK, Limits())}
    anywhere = {mesh[0] for mesh in meshes(LLAMA, H100, WORK, Limits(tp_within_domain=False))}
    assert max(inside) == 8
    assert max(anywhere) == 16


def test_the_best_of_a_plain_loop_is_the_searchs_best():
    results = [estimate(LLAMA, H100, WORK, s) for s in all_strategies()]
    fits = [e for e in results if e.feasible and e.memory_bytes <= e.memory_capacity]
    best = min(fits, key=lambda e: e.step_seconds)
    found = search(LLAMA, H100, WORK, limits=FEW, top=3)
    assert found.examined == len(results)
    assert found.feasible == len(fits)
    assert found.examined == found.feasible + sum(found.infeasible.values())
    assert found.best.strategy == best.strategy
    assert found.best.step_seconds == best.step_seconds
    third = sorted(e.step_seconds for e in fits)[:3]
    assert [e.step_seconds for e in found.strategies] == third


@settings(max_examples=6)
@given(
    st.sampled_from([2, 4, 6]),
    st.sampled_from([8, 24, 48]),
    st.sampled_from(["time", "energy", "cost", "memory"]),
)
def test_any_small_space(count, batch, by):
    cluster, work = load_cluster("dgx-h100", count), Workload(sequence=512, global_batch=batch)
    model = toy_model()
    results = [
        estimate(model, cluster, work, s)
        for s in all_strategies(SMALL, cluster, work, model)
        if work.global_batch % (s.micro_batch * s.data_parallel) == 0
    ]
    fits = [e for e in results if e.feasible and e.memory_bytes <= e.memory_capacity]
    found = search(
        model,
        cluster,
        work,
        limits=SMALL,
        by=by,
    )
    assert objective_of(found.best, by) == min(objective_of(e, by) for e in fits)


def test_what_is_returned_is_what_estimate_says():
    found = search(LLAMA, H100, WORK, limits=FEW)
    for e in found.strategies:
        again = estimate(LLAMA, H100, WORK, e.strategy)
        assert again.step_seconds == e.step_seconds
        assert again.memory == e.memory


def test_nothing_fits():
    found = search(load_model("llama-3.1-405b"), H100, WORK, limits=Limits(tp=(1,), pp=(1,)))
    assert found.best is None
    assert found.why() is None
    assert found.infeasible == {REASONS[-1]: found.examined}
    assert found.nearest.memory_bytes > found.nearest.memory_capacity


def test_ties_and_reasons():
    found = search(LLAMA, H100, WORK, limits=FEW, top=50)
    near = [
        e for e in found.strategies if e.step_seconds <= (1 + NEAR_TIE) * found.best.step_seconds
    ]
    assert found.ties == len(near) >= 1
    assert "% slower than" in found.why()
    slow, fast = found.strategies[-1], found.best
    assert why_slower(slow, fast).startswith(f"{slow.strategy} is ")


def test_a_stopped_search_keeps_the_best_so_far():
    def stop(examined):
        raise KeyboardInterrupt

    found = search(LLAMA, H100, WORK, limits=FEW, progress=stop)
    assert found.interrupted
    assert found.best is not None


def test_pareto_front():
    values = np.array([[1.0, 2.0, 3.0, 2.0, 1.0], [3.0, 2.0, 1.0, 3.0, 3.0]])
    # (2, 3) is beaten by (2, 2); of two equal points one is enough.
    assert nondominated(values).tolist() == [0, 1, 2]
    found = search(LLAMA, H100, WORK, limits=FEW, pareto=("time", "memory"))
    points = [(e.step_seconds, e.memory_bytes) for e in found.pareto]
    for (t, m), (u, n) in itertools.permutations(points, 2):
        assert not (t <= u and m <= n)
    assert min(t for t, _ in points) == found.best.step_seconds


def test_wrong_words_are_sentences():
    with pytest.raises(InputError, match="objective 'speed'"):
        search(LLAMA, H100, WORK, by="speed")
    with pytest.raises(InputError, match="sharding"):
        Limits(sharding=("zero9",))
    with pytest.raises(InputError, match="tp"):
        Limits(tp=(0,))
    tpu = load_cluster("gcp-tpu-v5e", 16)
    with pytest.raises(InputError, match="power"):
        search(LLAMA, tpu, WORK, by="energy", limits=FEW)


def test_rows_of_a_piece_are_strategies():
    piece = next(iter(pieces(LLAMA, H100, WORK, FEW)))
    assert isinstance(piece, Strategies)
    assert piece[0].tp == 1
