"""Products of distinct splits of a layer are those of every layout."""

import numpy as np
import pytest

from scalewise.catalog import load_cluster
from scalewise.chip import load_chip
from scalewise.model import load_model
from scalewise.stack import load_stack
from scalewise.step.distinct import distinct_splits
from scalewise.step.expert_parallel import grouped_gemms, shared_gemms
from scalewise.step.kernels import gemms
from scalewise.step.latent_attention import latent_gemms
from scalewise.step.layout import lay_out
from scalewise.strategies import FIELDS, Strategies, encode
from scalewise.strategy import Strategy
from scalewise.workload import Workload


def layouts(count, **columns):
    """A case of layouts along the first axis and micro-batches along the second."""
    laid = {name: np.full((1, 1), encode(name, getattr(Strategy(), name))) for name in FIELDS}
    laid |= {name: np.resize(values, count)[:, None] for name, values in columns.items()}
    laid["micro_batch"] = np.array([[1.0, 2.0]])
    cluster, stack = load_cluster("dgx-h100", 64), load_stack("megatron")
    chip = load_chip(cluster.accelerator.architecture)
    work = Workload(seq_len=4096, global_batch=64)
    return lay_out(load_model("deepseek-v3"), cluster, work, Strategies(laid), stack, chip)


@pytest.mark.parametrize("compute", [gemms, shared_gemms, grouped_gemms, latent_gemms])
def test_products_are_those_of_every_layout(compute):
    degrees = {"tp": [1.0, 2.0, 4.0], "ep": [8.0, 16.0], "pp": [1.0, 2.0, 4.0, 8.0, 16.0]}
    case = layouts(60, **degrees)
    for fast, slow in zip(compute(case), compute.__wrapped__(case), strict=True):
        np.testing.assert_array_equal(*np.broadcast_arrays(fast, slow))


def test_kinds_are_those_of_a_layer_and_not_of_the_pipeline():
    found = distinct_splits(layouts(60, tp=[1.0, 2.0], cp=[1.0, 2.0, 4.0], pp=[1.0, 2.0, 4.0, 8.0]))
    assert found.count == 6
    assert len(found.case.split.tp) == 6
    assert found.kinds[0] == found.kinds[6] == found.kinds[12] != found.kinds[1]


def test_few_layouts_are_computed_as_they_are():
    assert distinct_splits(layouts(31, tp=[1.0, 2.0])) is None
