"""Variants of sharding in the simulation: the same durations, and steps that agree."""

import pytest

from scalewise import Workload, load_cluster, load_model, parse_strategy
from scalewise.simulation.simulate import timeline
from timeline_cases import durations, line, seconds, stage


@pytest.mark.parametrize(
    "spelled",
    [
        "hsdp2x32-mb1-hpz8", "hsdp2x32-mb1-hpz8-qwz-qgz", "hsdp2x32-mb1-qwz-noreshard",
        "hsdp8x8-mb1-synconce", "mics2x32-mb1", "hsdp2x32-mb1-reduceonce",
        "fsdp64-mb1-reduceeach-qgz", "zero2x64-mb1-reduceonce", "zero2x64-mb1-reduceeach",
        "zero1x64-mb1-reduceeach", "ddp64-mb1-reduceeach", "zero1x64-mb1-bucket25",
        "fsdp16-pp4-mb1-reduceeach", "hsdp2x8-pp4-mb1-synconce", "fsdp16-pp4-zbh1-mb1-hpz8-qgz",
    ],
)  # fmt: skip
@pytest.mark.parametrize("stack", ["pytorch", "megatron"])
def test_simulated_and_analytical_steps_agree(spelled, stack):
    found = timeline(
        load_model("llama-3-8b"),
        load_cluster("dgx-a100", 64),
        Workload(seq_len=2048, global_batch=512),
        parse_strategy(spelled),
        stack=stack,
    )
    assert abs(found.difference) < 0.015


def test_backward_gathers_take_their_own_time():
    # Two layers of 2 s and 4 s; every all-gather bare: 1 s in forward, 0.25 s in backward, where
    # the last layer still has its parameters.
    fully = {"sharding": 3, "overlap": False, "gather": 1.0}
    assert seconds(durations(stage(2), **fully)) == 12.0 + 2.0 + 1.0
    assert seconds(durations(stage(2), **fully, gather_again=0.25)) == 12.0 + 2.0 + 0.25


def test_replicas_that_wait_send_after_the_last_micro_batch():
    fully = {"sharding": 3, "overlap": False, "num_microbatches": 3, "reduce": 1.0}
    # Three micro-batches of one layer: 18 s, and 3 s of reductions; across 0.5 s each.
    assert seconds(durations(stage(1), **fully, across=0.5)) == 18.0 + 3.0 + 1.5
    waits = {"across": 0.5, "sync_once": True}
    assert seconds(durations(stage(1), **fully, **waits)) == 18.0 + 3.0 + 0.5
    # The same queued behind the last reduction, and for what no layer holds.
    queued = {"reduce_last": 1.5, "sync_once": True}
    assert seconds(durations(stage(1), **fully, **queued)) == 18.0 + 3.0 + 0.5
    ends = stage(1, root_reduce=0.75, root_across=0.25)
    assert seconds(durations(ends, **fully, **queued)) == 18.0 + 3.5 + 3 * 0.5 + 0.25


def test_ddp_reduces_after_every_micro_batch_if_told_so():
    one = stage(1, reduce=3.0)
    assert seconds(durations(one, num_microbatches=2)) == 12.0 + 3.0
    assert seconds(durations(one, num_microbatches=2, step_reduce_each=True)) == 12.0 + 6.0
    # Half of it beside a backward of two layers: the first layer's quarter overlaps the second.
    two = stage(2, reduce=8.0)
    shared = {"num_microbatches": 2, "share": 0.5}
    assert seconds(durations(two, **shared)) == 24.0 + 4.0
    assert seconds(durations(two, **shared, step_reduce_each=True)) == 24.0 + 8.0


def test_long_steps_repeat_reductions_of_every_micro_batch():
    spelled = "ddp8-mb1-reduceeach"
    short, long = (line(spelled, batch=8 * n, model="gpt2-124m") for n in (100, 200))
    extra = long.step_seconds - short.step_seconds
    assert extra == pytest.approx(100 / 99 * (short.step_seconds - line(
        spelled, batch=8, model="gpt2-124m").step_seconds), rel=1e-3)  # fmt: skip
