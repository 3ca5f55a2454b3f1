"""Tensor parallelism: how many collectives a layer waits for."""

import numpy as np
import pytest

from scalewise.physics.collectives import all_gather_seconds, all_reduce_seconds
from scalewise.step.groups import tensor_group
from scalewise.step.tensor_parallel import exposed_fraction, layer_seconds
from toys import case_of, one, toy_stack

BUFFER = np.array([2.0 * 1000 * 1024])


@pytest.mark.parametrize(
    ("spelling", "kept", "forward", "backward"),
    [
        ("fsdp4-tp2", False, 4, 6),  # inputs are all-gathered again for wgrad
        ("fsdp4-tp2", True, 4, 4),
        ("fsdp4-tp2-acsel", False, 4, 6),
        ("fsdp4-tp2-acfull", False, 4, 10),  # full recompute repeats forward
        ("fsdp4-tp2-ac1of4", False, 4, 7),  # of every fourth block
        ("fsdp4-tp2-acop", False, 4, 6),
    ],
)
def test_gathers_and_scatters(spelling, kept, forward, backward):
    case = case_of(spelling, stack=toy_stack(keeps_sp_all_gather=kept))
    each = one(all_gather_seconds(BUFFER, tensor_group(case.split), case.links))
    times = [one(part) / each for part in layer_seconds(case)]
    assert times == pytest.approx([forward, backward], rel=1e-12)


@pytest.mark.parametrize(
    ("spelling", "forward", "backward"), [("fsdp4-tp2-nosp", 2, 2), ("fsdp4-tp2-nosp-acfull", 2, 4)]
)
def test_all_reduces_without_sequence_parallelism(spelling, forward, backward):
    case = case_of(spelling)
    each = one(all_reduce_seconds(BUFFER, tensor_group(case.split), case.links))
    times = [one(part) / each for part in layer_seconds(case)]
    assert times == pytest.approx([forward, backward], rel=1e-12)


def test_alone_nothing_is_communicated():
    assert [one(part) for part in layer_seconds(case_of("fsdp8-acfull"))] == [0.0, 0.0]


def test_exposed_fraction():
    case = case_of("fsdp4-tp2", "fsdp4-tp2-notpoverlap")
    fractions = np.asarray(exposed_fraction(case.split, case.habits))
    assert fractions.tolist() == [0.75, 1.0]
