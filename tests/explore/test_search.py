"""The search against a plain loop, and what it says of what it leaves out."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.objectives import effort, objective_of, why_slower
from scalewise.explore.ranking import nondominated
from scalewise.explore.search import search
from scalewise.explore.space import Limits, count, pieces
from scalewise.model import Moe, load_model
from scalewise.ranges import TIE_CHANCE
from scalewise.software import choose_stack
from scalewise.step.estimate import CHOSEN_FIT, estimate
from scalewise.step.feasibility import REASONS
from scalewise.strategies import Strategies
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload
from toys import toy_model

LLAMA = load_model("llama-2-7b")
H100 = load_cluster("dgx-h100", 16)
WORK = Workload(seq_len=2048, global_batch=32)
ALL = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")
SMALL = Limits(micro_batch=(1, 2), recompute=("none",), cp=(1, 2), schedule=ALL)
FEW = Limits(
    tp=(1, 2),
    pp=(1, 2),
    cp=(1,),
    micro_batch=(1, 2),
    recompute=("none", "full"),
    schedule=ALL,
)


def all_strategies(limits=FEW, cluster=H100, workload=WORK, model=LLAMA, stack=None):
    """Every strategy of the space, one of those that are equal in the software."""
    found = [s for piece in pieces(model, cluster, workload, limits) for s in piece]
    return [s for s in found if not is_twin(s, stack, cluster)]


def is_twin(strategy, stack, cluster):
    sharded = strategy.sharding == "zero3"
    software = choose_stack(stack, cluster, fully_sharded=sharded).stack
    fraction = {"ddp": software.dp_overlap, "zero1": software.shard_overlap}
    kept = not strategy.reshard_after_forward and strategy.pp > 1
    return (
        (not strategy.overlap_tp and software.tp_overlap == 0.0)
        or (not strategy.overlap_dp and fraction.get(strategy.sharding) == 0.0)
        or (kept and software.pipeline_gathers_once)
    )


@pytest.mark.parametrize(
    ("stack", "spelling", "twin"),
    [
        ("megatron-deepspeed", "ddp2-tp8-mb1", "ddp2-tp8-mb1-nodpoverlap"),
        ("nanotron", "zero1x2-tp8-mb1", "zero1x2-tp8-mb1-nodpoverlap"),
        ("pytorch", "fsdp2-tp4-pp2-mb1", "fsdp2-tp4-pp2-mb1-noreshard"),
    ],
)
def test_of_two_spellings_of_one_strategy_the_search_tries_the_shorter(stack, spelling, twin):
    one, two = (
        estimate(LLAMA, H100, WORK, parse_strategy(each), stack=stack) for each in (spelling, twin)
    )
    assert (one.step_seconds, one.memory_bytes) == (two.step_seconds, two.memory_bytes)
    limits = Limits(tp=(one.strategy.tp,), cp=(1,), micro_batch=(1,), recompute=("none",))
    found = search(LLAMA, H100, WORK, limits=limits, stack=stack, top=1000)
    tried = {str(e.strategy) for e in found.strategies}
    assert spelling in tried
    assert twin not in tried


def test_the_best_of_a_plain_loop_is_the_searchs_best():
    results = [estimate(LLAMA, H100, WORK, s, fit=CHOSEN_FIT) for s in all_strategies()]
    fits = [e for e in results if e.feasible]
    best = min(fits, key=lambda e: e.step_seconds)
    found = search(LLAMA, H100, WORK, limits=FEW, top=3)
    assert found.evaluated == len(results)
    assert found.feasible == len(fits)
    assert found.evaluated == found.feasible + sum(found.infeasible.values())
    assert found.best.strategy == best.strategy
    assert found.best.step_seconds == best.step_seconds
    third = sorted(e.step_seconds for e in fits)[:3]
    assert [e.step_seconds for e in found.strategies] == third


def test_experts_are_split_in_every_way():
    model = toy_model(moe=Moe(experts=8, experts_per_token=2, ffn=512))
    cluster = load_cluster("dgx-h100", 8)
    few = {"cp": (1,), "micro_batch": (1,), "recompute": ("none",), "schedule": ("1f1b",)}
    limits = Limits(pp=(1, 2), etp=(1, 2, 4), **few)
    strategies = all_strategies(limits, cluster, WORK, model)
    assert {(s.ep, s.etp) for s in strategies if s.pp == 1} == {
        (1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2), (1, 4), (2, 4),
    }  # fmt: skip
    # Without limits an expert is whole, or split as the dense layers are.
    usual = all_strategies(Limits(pp=(1,), **few), cluster, WORK, model)
    assert {(s.tp, s.etp) for s in usual} == {
        (1, 1), (2, 1), (2, 2), (4, 1), (4, 4), (8, 1), (8, 8),
    }  # fmt: skip
    assert all(s.sequence_parallel for s in strategies if s.tp > 1)
    results = []
    for s in strategies:
        e = estimate(model, cluster, WORK, [s], fit=CHOSEN_FIT)[0]
        results += [e] if e.feasible else []
    best = min(results, key=lambda e: e.step_seconds)
    found = search(model, cluster, WORK, limits=limits, top=1)
    assert (found.evaluated, found.feasible) == (len(strategies), len(results))
    assert found.best.step_seconds == best.step_seconds


@settings(max_examples=6)
@given(
    st.sampled_from([2, 4, 6]),
    st.sampled_from([8, 24, 48]),
    st.sampled_from(["time", "energy", "cost", "memory"]),
)
def test_any_small_space(size, batch, by):
    cluster, work = load_cluster("dgx-h100", size), Workload(seq_len=512, global_batch=batch)
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
    assert found.why() == []
    assert found.simplest is None
    assert found.best_by_tp_pp == {}
    assert found.infeasible == {REASONS[-1]: found.evaluated}
    assert found.nearest.memory_bytes > found.nearest.memory_capacity


@pytest.mark.parametrize(("by", "words"), [("time", "% slower"), ("memory", "% more memory")])
def test_ties_and_reasons(by, words):
    found = search(LLAMA, H100, WORK, limits=FEW, top=200, by=by)
    near = [e for e in found.strategies if found.chance(e) >= TIE_CHANCE]
    assert found.ties == len(near) >= (1 if by == "time" else 2)
    assert found.loser == next(e for e in found.strategies if found.chance(e) < TIE_CHANCE)
    assert found.chance(found.best) == pytest.approx(0.5)
    efforts = [effort(e.strategy) for e in near]
    assert found.simplest == near[efforts.index(min(efforts))]
    lines = found.why()
    assert lines[0].startswith(f"{found.strategies[1].strategy}: ")
    assert lines[-1].startswith(f"{found.loser.strategy}: ")
    assert words in lines[-1]
    # Where the runner-up is no tie it is the loser itself, and said once.
    assert len(lines) == (1 if found.loser == found.strategies[1] else 2)


def test_why_names_the_terms_that_cost_most():
    slow = estimate(LLAMA, H100, WORK, parse_strategy("fsdp16-mb2-nodpoverlap"))
    fast = estimate(LLAMA, H100, WORK, parse_strategy("fsdp16-mb2"))
    lines = why_slower(slow, fast)
    assert lines.startswith(f"{slow.strategy}: ")
    assert "% slower; " in lines
    assert "exposed all-gather +" in lines
    assert why_slower(fast, fast) == "fsdp16-mb2: equal"


def test_a_stopped_search_keeps_the_best_so_far():
    def stop(evaluated, size):
        assert size == count(LLAMA, H100, WORK, FEW)
        raise KeyboardInterrupt

    for jobs in (1, 2):
        found = search(
            LLAMA, H100, WORK, limits=FEW, stack="megatron", progress=stop, jobs=jobs,
            best_by_tp_pp=True,
        )  # fmt: skip
        assert found.interrupted
        # The first piece has the fewest data-parallel ranks, and nothing of the others was counted.
        assert found.evaluated == len(next(pieces(LLAMA, H100, WORK, FEW)))
        assert {e.strategy.data_parallel for e in found.best_by_tp_pp.values()} == {4}


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
    with pytest.raises(InputError, match="unknown objective speed"):
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
    assert piece[0].data_parallel == 4


def test_several_threads_find_what_one_finds():
    asked = {"limits": FEW, "pareto": ("time", "memory"), "best_by_tp_pp": True, "top": 30}
    one, three = (search(LLAMA, H100, WORK, jobs=jobs, **asked) for jobs in (1, 3))
    assert one == three


def test_equals_stay_in_the_order_of_the_space():
    # Memory does not depend on whether pipeline sends overlap, for one: there are equals.
    order = [str(s) for s in all_strategies()]
    found = search(LLAMA, H100, WORK, limits=FEW, by="memory", top=40)
    values = [e.memory_bytes for e in found.strategies]
    assert len(set(values)) < len(values)
    places = [(e.memory_bytes, order.index(str(e.strategy))) for e in found.strategies]
    assert places == sorted(places)


def test_the_order_does_not_depend_on_the_size_of_pieces(monkeypatch):
    whole = search(LLAMA, H100, WORK, limits=FEW, by="memory", top=5, best_by_tp_pp=True)

    def in_crumbs(*inputs):
        return pieces(*inputs, size=100)

    monkeypatch.setattr("scalewise.explore.search.pieces", in_crumbs)
    crumbs = search(LLAMA, H100, WORK, limits=FEW, by="memory", top=5, best_by_tp_pp=True)
    assert [e.memory_bytes for e in crumbs.strategies] == [e.memory_bytes for e in whole.strategies]
    assert crumbs.evaluated == whole.evaluated
    assert crumbs.infeasible == whole.infeasible
    assert {mesh: e.memory_bytes for mesh, e in crumbs.best_by_tp_pp.items()} == {
        mesh: e.memory_bytes for mesh, e in whole.best_by_tp_pp.items()
    }


@pytest.mark.parametrize("by", ["time", "memory"])
def test_the_best_of_every_mesh(by):
    found = search(LLAMA, H100, WORK, limits=FEW, by=by, stack="megatron", best_by_tp_pp=True)
    many = estimate(
        LLAMA, H100, WORK, all_strategies(stack="megatron"), stack="megatron", fit=CHOSEN_FIT
    )
    fits = many.feasible
    values = many.step_seconds if by == "time" else many.memory_bytes
    s = many.strategies
    wanted = {
        (tp, pp): values[fits & (s.tp == tp) & (s.pp == pp)].min()
        for tp, pp in itertools.product((1, 2), repeat=2)
    }
    assert {mesh: objective_of(e, by) for mesh, e in found.best_by_tp_pp.items()} == wanted
    assert list(found.best_by_tp_pp) == sorted(wanted)
    assert all((e.strategy.tp, e.strategy.pp) == mesh for mesh, e in found.best_by_tp_pp.items())
    assert found.best_by_tp_pp[found.best.strategy.tp, found.best.strategy.pp] == found.best
    assert search(LLAMA, H100, WORK, limits=FEW, by=by).best_by_tp_pp == {}


def test_the_front_is_that_of_a_plain_loop():
    front = ("time", "memory", "energy")
    found = search(LLAMA, H100, WORK, limits=FEW, pareto=front, stack="megatron")
    many = estimate(
        LLAMA, H100, WORK, all_strategies(stack="megatron"), stack="megatron", fit=CHOSEN_FIT
    )
    fits = many.feasible
    values = np.array([many.step_seconds, many.memory_bytes, many.joules_per_token])[:, fits]
    wanted = {tuple(values[:, place]) for place in nondominated(values)}
    lines = [(e.step_seconds, e.memory_bytes, e.joules_per_token) for e in found.pareto]
    assert set(lines) == wanted
    assert len(lines) == len(wanted) > 3


@pytest.mark.parametrize(
    ("stack", "schedules"),
    [
        ("llm-foundry", {"1f1b"}),
        ("megatron", {"1f1b", "interleaved"}),
        ("megatron-2021", {"gpipe", "1f1b", "interleaved"}),
        ("nanotron", {"gpipe", "1f1b"}),
    ],
)
def test_only_schedules_that_the_software_has(stack, schedules, monkeypatch):
    seen = []

    def watched(*inputs):
        for piece in pieces(*inputs):
            seen.append((set(piece.schedule.ravel()), piece.pp.max()))
            yield piece

    monkeypatch.setattr("scalewise.explore.search.pieces", watched)
    found = search(LLAMA, H100, WORK, limits=Limits(micro_batch=(1,), cp=(1,)), stack=stack)
    assert found.best.stack.name == stack
    assert {ALL[int(code)] for codes, _ in seen for code in codes} == schedules
    # Without schedules there are no pipelines, and 1f1b is only how a single stage is spelled.
    assert max(pp for _, pp in seen) == (1 if stack == "llm-foundry" else 16)


def test_the_user_may_ask_for_other_schedules():
    found = search(LLAMA, H100, WORK, limits=Limits(pp=(4,), schedule=("zbh1",), cp=(1,)))
    assert {e.strategy.schedule for e in found.strategies} == {"zbh1"}


def test_the_batch_is_never_changed():
    odd = Workload(seq_len=2048, global_batch=24)
    found = search(LLAMA, H100, odd, limits=Limits(cp=(1,), recompute=("none",)))
    # 16 ranks do not divide 24 sequences: said, not mended.
    assert found.infeasible[REASONS[2]] > 0
    for e in found.strategies:
        assert e.workload == odd
        assert e.num_microbatches * e.strategy.micro_batch * e.strategy.data_parallel == 24


@pytest.mark.parametrize("by", ["time", "energy"])
def test_overlap_never_costs_more_than_it_hides(by):
    cluster = load_cluster("dgx-a100", 64)
    both = search(LLAMA, cluster, Workload(seq_len=4096, global_batch=128), by=by, top=1)
    limits = Limits(overlap=(True,))
    on = search(
        LLAMA, cluster, Workload(seq_len=4096, global_batch=128), by=by, top=1, limits=limits
    )
    assert on.evaluated < both.evaluated / 2
    assert objective_of(on.best, by) == objective_of(both.best, by)


def test_without_a_stack_every_family_has_its_own():
    found = search(LLAMA, H100, WORK, limits=FEW, top=5000)
    for e in found.strategies:
        assert e.stack.name == ("pytorch" if e.strategy.sharding == "zero3" else "megatron-lm")
    # Meshes without data parallelism belong to one family only.
    assert found.evaluated == len(all_strategies())
    spelled = [str(e.strategy) for e in found.strategies]
    assert len(set(spelled)) == len(spelled) == found.feasible


@pytest.mark.parametrize("stack", [None, "megatron"])
def test_the_safest_near_the_best_is_that_of_a_plain_loop(stack):
    found = search(LLAMA, H100, WORK, limits=FEW, stack=stack, top=1000, fit=0.5)
    near = [e for e in found.strategies if e.step_seconds <= 1.02 * found.best.step_seconds]
    assert len(near) > 2
    assert found.safest.fit == pytest.approx(max(e.fit for e in near), abs=1e-12)
    assert found.safest.step_seconds <= 1.02 * found.best.step_seconds
    assert search(LLAMA, H100, WORK, limits=FEW, by="memory").safest is None


def test_a_greater_chance_to_fit_allows_fewer():
    chances = (0.1, 0.5, 0.99)
    fits = [search(LLAMA, H100, WORK, limits=FEW, fit=chance).feasible for chance in chances]
    assert fits[0] > fits[1] > fits[2] > 0


@pytest.mark.parametrize(("stack", "twins"), [("megatron", True), ("megatron-lm", False)])
def test_tp_overlap_is_switched_off_only_where_software_has_it(stack, twins):
    limits = Limits(tp=(2,), pp=(1,), cp=(1,), micro_batch=(1,), sharding=("zero1",))
    found = search(LLAMA, H100, WORK, limits=limits, stack=stack, top=100, fit=0.01)
    assert any("notpoverlap" in str(e.strategy) for e in found.strategies) is twins
