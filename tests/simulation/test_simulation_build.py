"""Dependencies by hand: steps of few blocks whose times can be written down."""

from dataclasses import replace

import pytest

from scalewise.simulation.build import build, split
from scalewise.simulation.coarse import coarse_actions
from scalewise.simulation.engine import simulation
from timeline_cases import block, durations, seconds, stage


def test_compute_alone():
    assert seconds(durations()) == 3 * 2.0 + 3 * 4.0


def test_first_all_gather_and_last_reduction_have_nothing_to_overlap():
    # 1 + 3 x 2 + 3 x 4 + 1: all others run beside a neighbor's compute.
    assert seconds(durations(sharding=3, gather=1.0, reduce=1.0)) == 20.0


def test_every_micro_batch_pays_them_again():
    assert seconds(durations(sharding=3, gather=1.0, reduce=1.0, num_microbatches=2)) == 40.0


def test_what_no_layer_holds_is_gathered_first_and_reduced_last():
    ends = stage(root_gather=0.5, root_reduce=0.25)
    assert seconds(durations(ends, sharding=3, gather=1.0, reduce=1.0)) == 20.75


def test_a_step_bound_by_gathers_waits_for_each():
    # Forward: gathers end at 3, 6, 9, the last block at 11. Backward: the last block is kept,
    # 11-15 with a gather beside; the others find theirs ready: 15-19-23.
    assert seconds(durations(sharding=3, gather=3.0)) == 23.0


def test_without_prefetch_every_gather_is_on_the_path():
    # 3 gathers forward and 2 backward (the last block is kept).
    assert seconds(durations(sharding=3, gather=1.0, prefetch=0)) == 18.0 + 5.0


def test_without_overlap_reductions_are_on_the_path_too():
    assert seconds(durations(sharding=3, gather=1.0, reduce=1.0, overlap=False)) == 18.0 + 5.0 + 3.0


def test_without_prefetch_reductions_still_overlap():
    # 5 gathers on the path, two reductions beside the next block, the last one bare.
    bare = durations(sharding=3, gather=1.0, reduce=1.0, prefetch=0)
    assert seconds(bare) == 18.0 + 5.0 + 1.0


def test_pipelines_that_gather_once_wait_for_the_first_micro_batch_alone():
    # One stage: 1 + 3 x 18 + 1, where every micro-batch would pay both.
    once = durations(
        sharding=3, gather=1.0, reduce=1.0, num_microbatches=3, gather_each=False, reduce_each=False
    )
    assert seconds(once) == 3 * 18.0 + 2.0
    # Two stages of 1F1B: both gather when the first micro-batch arrives, and reduce at the end.
    both = replace(once, stages=(stage(2), stage(2)), num_microbatches=4)
    assert seconds(both) == 4 * 12.0 + 12.0 + 2.0 + 1.0


def test_replicas_reduce_on_links_of_their_own():
    # Backward ends at 10, 14, 18; the last scatter at 19, the last all-reduce at 21.
    apart = durations(sharding=3, reduce=1.0, across=2.0)
    assert seconds(apart) == 18.0 + 1.0 + 2.0
    # All-reduces of 6 s end at 17, 23, 29: longer than backward, and nothing waits between.
    assert seconds(replace(apart, across=6.0)) == 29.0
    assert seconds(replace(apart, overlap=False)) == 18.0 + 3 * 3.0


def test_kept_parameters_are_not_gathered_again():
    slow = durations(sharding=3, gather=1.0, prefetch=0, reshard_after_forward=False)
    assert seconds(slow) == 18.0 + 3.0


def test_contention_slows_blocks_with_communication_beside():
    # Gathers run beside blocks 0 and 1 of forward, and beside two of backward: 4 x 0.5 x 1 s.
    assert seconds(durations(sharding=3, gather=1.0, contention=0.5)) == 1.0 + 18.0 + 2.0


def test_backward_waits_for_gradient_buffers():
    # Backward ends at 10, 14, 18; reductions of 8 s would end at 18, 26, 34. The third block
    # needs the buffer of the first: it runs from 18, and its reduction is the last: 26-34.
    assert seconds(durations(sharding=2, reduce=8.0)) == 34.0


def test_reduction_once_per_step_is_in_the_last_micro_batch():
    each = durations(sharding=2, reduce=1.0, num_microbatches=3)
    assert seconds(replace(each, reduce_each=False)) == 3 * 18.0 + 1.0
    assert seconds(each) == 3 * 18.0 + 1.0  # overlapped with the next forward


def test_the_fraction_that_may_not_overlap_follows_the_last_backward():
    ddp = durations(stage(reduce=3.0), share=0.5)
    assert seconds(ddp) == 18.0 + 1.5
    assert seconds(replace(ddp, share=0.0)) == 18.0 + 3.0


def test_a_reduction_longer_than_backward_is_exposed():
    # Ready after 10, 14 s: 2/3 of 60 s may overlap, the first 20 s run 10-30, the next until 50.
    assert seconds(durations(stage(reduce=60.0), share=2.0 / 3.0)) == pytest.approx(70.0)


def test_updated_parameters_arrive_layer_by_layer():
    # ZeRO-1: half of 12 s may overlap; that of block 1 (half of it) takes 2 s, of block 2, 4 s.
    late = durations(stage(gather=12.0), sharding=1, gather_share=0.5)
    assert seconds(late) == 18.0 + 2.0  # block 2 begins at 6 instead of 4
    assert seconds(durations(stage(gather=3.0), sharding=1, gather_share=0.5)) == 18.0


@pytest.mark.parametrize(
    ("schedule", "bubble"),
    [
        ("gpipe", 3 * 6.0),
        ("1f1b", 3 * 6.0),
        ("zbh1", 3 * 2.0),  # (stages - 1) (F + I - W)
        ("zbv", 3 * 1.0),  # half of (stages - 1) F
    ],
)
def test_bubbles_of_equal_passes(schedule, bubble):
    some = durations(*[stage(2, params=0.0)] * 4, schedule=schedule, num_microbatches=12)
    some = replace(
        some, forward_block=block(1.0), backward_block=block(2.0), inputs=1.0, weights=1.0
    )
    assert seconds(some) == 12 * 6.0 + bubble


def test_interleaving_divides_the_bubble_by_the_chunks():
    some = durations(*[stage(4)] * 4, chunks=2, num_microbatches=8)
    assert seconds(some) == 8 * 24.0 + 3 * 24.0 / 2
    assert seconds(replace(some, chunks=4)) == 8 * 24.0 + 3 * 24.0 / 4


def test_few_micro_batches_cannot_fill_interleaved_stages():
    # One micro-batch walks through 4 x 2 chunks: interleaving brings nothing.
    assert seconds(durations(*[stage(4)] * 4, chunks=2, num_microbatches=1)) == 4 * 24.0


def test_the_slowest_stage_sets_the_pace():
    some = durations(stage(1), stage(3), stage(1), num_microbatches=50)
    assert seconds(some) == pytest.approx(50 * 18.0 + 12.0, rel=0.01)


def test_the_head_is_on_the_last_stage():
    some = durations(stage(1), stage(1), num_microbatches=1, head_forward=10.0, head_backward=20.0)
    assert seconds(some) == 12.0 + 30.0


def test_blocking_sends_hold_up_both_stages():
    free = durations(stage(1), stage(1), num_microbatches=10)
    sends = seconds(replace(free, message=0.1)) - seconds(free)
    # Down and up for each of 10: a message leaves when its receiver is ready, too.
    assert sends == pytest.approx(2.0)


def test_interleaved_sends_overlap():
    some = durations(*[stage(4)] * 4, chunks=2, num_microbatches=16, blocking=False)
    sends = seconds(replace(some, message=0.1)) - seconds(some)
    assert 0.0 < sends < 0.1 * 16


def test_chunks_are_as_equal_as_can_be():
    assert split(7, 3) == [3, 2, 2]
    assert split(7, 3, first=True) == [2, 2, 3]
    assert split(1, 2) == [1, 0]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zbh1", "zbv"])
@pytest.mark.parametrize("sharding", [0, 2, 3])
@pytest.mark.parametrize("stages", [1, 4])
def test_whole_passes_take_as_long_as_their_blocks(schedule, sharding, stages):
    moved = {"gather": 0.5, "reduce": 1.0} if sharding == 3 else {"gather": 0.0, "reduce": 1.0}
    some = durations(
        *[stage(4, root_gather=moved["gather"])] * stages, schedule=schedule, sharding=sharding,
        num_microbatches=40, contention=0.3, **moved,
    )  # fmt: skip
    if stages == 1:
        some = replace(some, schedule="1f1b")
    step = build(some, coarse=coarse_actions(some))
    coarse = simulation(step.graph, contention=0.3, ranks=stages).seconds
    assert coarse == pytest.approx(seconds(some), rel=0.03)
    if schedule in ("gpipe", "1f1b") and sharding != 2:
        assert coarse == pytest.approx(seconds(some), rel=0.005)
