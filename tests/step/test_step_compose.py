"""A step from its parts: they add up to its terms."""

import numpy as np
import pytest
from hypothesis import given

from draws import points
from scalewise.step.compose import compose
from scalewise.step.gradient_buckets import once_per_step
from scalewise.step.kernels import layer_kernels
from scalewise.step.terms import comm_time, step_terms
from toys import EDGE_PARAMS, LAYER_PARAMS, case_of, one, seconds, toy_cluster, toy_model

PARAMS = 4 * LAYER_PARAMS + 2 * EDGE_PARAMS


def test_the_last_reduction_overlaps_the_last_backward():
    case = case_of("ddp8")
    kernels = layer_kernels(case)
    # Gradients are there when backward is: forward overlaps none of them.
    window = 4 * one(kernels.backward)
    traffic = once_per_step(case, np.array([float(PARAMS)]), np.array([window]), np.array([0.0]))
    step = compose(case)
    (terms, _), moved = step_terms(case, step), comm_time(case, step)
    assert one(terms.dp_grad_reduce) == pytest.approx(one(traffic.exposed), rel=1e-9)
    assert one(moved.data_parallel) == pytest.approx(one(traffic.seconds), rel=1e-12)
    assert one(terms.dp_all_gather) == 0.0


def test_compute_overlaps_one_communication_at_a_time():
    # So slow a network that the reduction outlasts backward: nothing is left for the all-gather
    # of the parameters to overlap with, and more compute cannot help.
    model, cluster = toy_model(layers=16), toy_cluster(8, scale_out_bandwidth=1e8)
    plain = seconds("zero2x8", model=model, cluster=cluster)
    assert plain <= seconds("zero2x8-acfull", model=model, cluster=cluster)


@given(points())
def test_stage_pipeline_and_the_end_of_a_step_add_up_to_its_terms(point):
    many = point.estimate()
    case, step, terms = many.case, many.step, many.terms
    passes = case.split.num_microbatches * step.stage.seconds
    pipeline = step.pipeline.bubble + step.sends.waiting + step.sends.exposed
    end = step.once.exposed + terms.optimizer + terms.overhead + terms.straggler
    assert np.allclose(passes + pipeline + end, many.step_seconds, rtol=1e-9, atol=0.0)
