"""Gradient buckets: literal numbers of what travels once per step."""

import numpy as np
import pytest

from scalewise.physics.collectives import all_gather_seconds, all_reduce_seconds
from scalewise.step.gradient_buckets import once_per_step
from scalewise.step.groups import gradient_group, replica_group, shard_group
from toys import case_of, one, toy_stack


def gather(case, size, group=shard_group):
    return one(all_gather_seconds(np.array([float(size)]), group(case.split), case.links))


def reduce(case, size, group):
    return one(all_reduce_seconds(np.array([float(size)]), group(case.split), case.links))


def test_buckets_of_a_data_parallel_step():
    # 100 million gradients of 4 bytes: 16 buckets of 25 MB, each an all-reduce over 8 ranks.
    case, params = case_of("ddp8"), np.array([100e6])
    seconds = 16 * reduce(case, 25e6, gradient_group)
    traffic = once_per_step(case, params, np.array([1e9]), np.array([0.0]))
    assert one(traffic.seconds) == pytest.approx(seconds, rel=1e-12)
    # Half of it may overlap, if there is a backward to overlap with.
    assert one(traffic.reduce_fraction) == 0.5
    assert one(traffic.exposed) == pytest.approx(seconds / 2, rel=1e-12)
    short = once_per_step(case, params, np.array([seconds / 8]), np.array([1e9]))
    assert one(short.exposed) == pytest.approx(seconds * 7 / 8, rel=1e-12)
    never = once_per_step(case_of("ddp8-nodpoverlap"), params, np.array([1e9]), params)
    assert one(never.exposed) == one(never.seconds) == pytest.approx(seconds, rel=1e-12)


def test_buckets_may_grow_with_ranks():
    case = case_of("ddp8", stack=toy_stack(bucket_bytes_per_rank=12.5e6))
    traffic = once_per_step(case, np.array([100e6]), np.array([0.0]), np.array([0.0]))
    assert one(traffic.seconds) == pytest.approx(4 * reduce(case, 100e6, gradient_group), rel=1e-12)


def test_zero1_scatters_reduces_and_gathers():
    case = case_of("zero1x2x4", stack=toy_stack(shard_overlap=0.25, update_gather_overlap=0.5))
    # 400 MB of gradients and 200 MB of weights, in buckets of 25 MB.
    reduces = 16 * (gather(case, 25e6) + reduce(case, 25e6 / 4, replica_group))
    gathers = 8 * gather(case, 25e6)
    long = np.array([1e9])
    traffic = once_per_step(case, np.array([100e6]), long, long)
    assert one(traffic.reduce) == pytest.approx(reduces, rel=1e-12)
    assert one(traffic.gather) == pytest.approx(gathers, rel=1e-12)
    assert one(traffic.exposed) == pytest.approx(0.75 * reduces + 0.5 * gathers, rel=1e-12)
    # Each has its own compute to overlap with: backward for gradients, forward for parameters.
    short = once_per_step(case, np.array([100e6]), np.array([reduces / 8]), np.array([0.0]))
    assert one(short.exposed) == pytest.approx(reduces * 7 / 8 + gathers, rel=1e-12)


def test_updated_parameters_in_eight_bits():
    case = case_of("zero1x8-fp8-gatherfp8")
    long = np.array([1e9])
    # 100 million parameters, 20 million of them in embedding and head: 80 MB + 40 MB.
    traffic = once_per_step(case, np.array([100e6]), long, long, roots=np.array([20e6]))
    assert one(traffic.gather) == pytest.approx(4.8 * gather(case, 25e6), rel=1e-12)
    alone = once_per_step(case_of("zero1x8-fp8"), np.array([100e6]), long, long)
    assert one(alone.gather) == pytest.approx(8 * gather(case, 25e6), rel=1e-12)
    assert one(alone.reduce) == one(traffic.reduce)


def test_fully_sharded_owes_nothing_at_the_end():
    traffic = once_per_step(case_of("fsdp8"), *[np.array([100e6])] * 3)
    assert [one(traffic.seconds), one(traffic.exposed)] == [0.0, 0.0]
