"""One layer with its sharded communication overlapped."""

import pytest

from scalewise.step.compose import compose
from scalewise.step.data_parallel import layer_traffic
from scalewise.step.kernels import layer_kernels
from scalewise.step.terms import comm_time, step_terms
from toys import case_of, one, terms_of, toy_cluster


def test_overlapped_all_gathers_slow_compute():
    # Fast network: all but the first all-gather and the last reduction overlap, and cost half of
    # their time as contention (2 micro-batches of four layers).
    cluster = toy_cluster(8, scale_out_bandwidth=1e12, scale_up_bandwidth=1e12)
    case = case_of("fsdp8", cluster=cluster)
    traffic, terms = layer_traffic(case), terms_of(case)
    gather, reduce = one(traffic.all_gather), one(traffic.reduce)
    root_all_gather, root_reduce = one(traffic.root_all_gather), one(traffic.root_reduce)
    assert terms["dp_all_gather"] == pytest.approx(2 * (gather + root_all_gather), rel=1e-9)
    assert terms["dp_grad_reduce"] == pytest.approx(2 * (reduce + root_reduce), rel=1e-9)
    beside = one(traffic.all_gather) + one(traffic.backward)
    assert terms["contention"] == pytest.approx(2 * 3 * 0.5 * beside, rel=1e-9)


def test_slow_all_gathers_set_the_pace():
    # A network of 1 MB/s: three of four layers take exactly as long as their communication, of
    # which compute, slowed by half, overlaps its own part (2 micro-batches).
    case = case_of("fsdp8", cluster=toy_cluster(8, scale_out_bandwidth=1e6))
    traffic, terms, kernels = layer_traffic(case), terms_of(case), layer_kernels(case)
    compute = 2 * 3 * one(kernels.forward + kernels.backward)
    ends = one(traffic.all_gather + traffic.reduce + traffic.root_all_gather + traffic.root_reduce)
    total = 2 * 3 * one(traffic.all_gather + traffic.backward) + 2 * ends
    exposed = terms["dp_all_gather"] + terms["dp_grad_reduce"]
    assert exposed + terms["contention"] + compute == pytest.approx(total, rel=1e-12)
    assert terms["contention"] == pytest.approx(0.5 * compute, rel=1e-6)


@pytest.mark.parametrize("spelling", ["fsdp8-nodpoverlap", "hsdp2x4-nodpoverlap"])
def test_without_overlap_everything_is_exposed(spelling):
    case = case_of(spelling)
    step = compose(case)
    (terms, _), moved = step_terms(case, step), comm_time(case, step)
    exposed = one(terms.dp_all_gather) + one(terms.dp_grad_reduce)
    assert exposed == pytest.approx(one(moved.data_parallel), rel=1e-9)
    assert one(terms.contention) == pytest.approx(0.0, abs=1e-12)


def test_without_prefetch_all_gathers_are_exposed_and_reductions_overlap():
    case = case_of("fsdp8-pf0")
    step = compose(case)
    terms, _ = step_terms(case, step)
    traffic, stage = step.traffic, step.stage
    n, layers = one(case.split.num_microbatches), one(stage.layers)
    gathers = layers * one(traffic.all_gather) + (layers - 1) * one(traffic.backward_all_gather)
    gathers = n * (gathers + one(traffic.root_all_gather))
    assert one(terms.dp_all_gather) == pytest.approx(gathers, rel=1e-9)
    tail = n * one(traffic.reduce + traffic.root_reduce)
    assert one(terms.dp_grad_reduce) < tail + n * (layers - 1) * one(traffic.reduce)
    assert one(terms.contention) > 0.0
