"""Zero-bubble schedules: backward split into dgrad and wgrad, by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from scalewise.step.data_parallel import layer_traffic
from scalewise.step.zero_bubble import WGRAD_LAUNCHES, passes, split_backward
from toys import case_of, one, toy_model


def layer_of(forward, dgrad, wgrad, host=0.0):
    """Passes of a layer that are as long as this, seconds."""
    return SimpleNamespace(
        forward=np.array([forward]),
        device_backward=np.array([dgrad + wgrad]),
        host_backward=np.array([host]),
        wrappers_backward=np.zeros(1),
        kernels=SimpleNamespace(wgrad=np.array([wgrad])),
        wgrad_launches=WGRAD_LAUNCHES,
    )


def test_passes_are_kernels_or_launches():
    dgrad, wgrad = passes(layer_of(1.0, 2.0, 1.0))
    assert (one(dgrad), one(wgrad)) == (pytest.approx(2.0), pytest.approx(1.0))
    # A host of 30 s: a third of its launches are for wgrad.
    dgrad, wgrad = passes(layer_of(1.0, 2.0, 1.0, host=30.0))
    assert (one(dgrad), one(wgrad)) == (pytest.approx(20.0, 0.01), pytest.approx(10.0, 0.01))


def beside(spelling, gather, reduce):
    case = case_of(spelling, model=toy_model(layers=16))
    gathers, reduces = np.array([gather]), np.array([reduce])
    traffic = replace(
        layer_traffic(case), all_gather=gathers, backward_all_gather=gathers, reduce=reduces
    )
    return split_backward(case, layer_of(3.0, 4.0, 2.0), traffic)


def test_all_gathers_overlap_dgrad_and_reductions_wgrad():
    # Contention 0.5: 4 + 0.5 x 1 beside an all-gather; 2 + 0.5 x 2 = 3 s beside a reduction of 5.
    parts = beside("fsdp2-pp4-zbh1", 1.0, 5.0)
    assert one(parts.dgrad) == pytest.approx(4.5)
    assert one(parts.wgrad) == pytest.approx(5.0)
    assert one(parts.exposed) == pytest.approx(2.0)
    assert one(parts.reduce_fraction) == 1.0
    # An all-gather that is too long is exposed too.
    parts = beside("fsdp2-pp4-zbh1", 7.0, 5.0)
    assert one(parts.dgrad) == pytest.approx(7.0)
    assert one(parts.exposed) == pytest.approx(3.0)
    assert one(parts.reduce_fraction) == pytest.approx(2.0 / 3.0)


def test_without_all_gathers_reductions_overlap_all_passes():
    # 5 s behind 3 + 4 + 2 s.
    parts = beside("zero2x2-pp4-zbh1", 0.0, 5.0)
    assert one(parts.exposed) == 0.0
    block = parts.dgrad_alone + parts.wgrad_alone + parts.slowed + parts.exposed
    assert one(block) == pytest.approx(4.0 + 2.0 + 0.5 * 5.0)
