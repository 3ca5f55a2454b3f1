"""One layer on one rank: the slower of device and host."""

import pytest

from scalewise.physics.compute import smooth_max
from scalewise.step.kernels import layer_kernels
from toys import case_of, one, terms_of, toy_cluster, toy_stack


def test_a_slow_host_is_waited_for():
    # 30 ms per layer, a third of it forward, against a device that needs far less.
    stack = toy_stack(host_layer_seconds=0.03)
    case = case_of("ddp1", cluster=toy_cluster(1), stack=stack)
    kernels = layer_kernels(case)
    forward, backward = one(kernels.forward), one(kernels.backward)
    wait = smooth_max(forward, 0.01) - forward + smooth_max(backward, 0.02) - backward
    assert terms_of(case)["host"] == pytest.approx(64 * wait, rel=1e-9)
    # Full recompute launches forward again.
    case = case_of("ddp1-acfull", cluster=toy_cluster(1), stack=stack)
    backward = one(kernels.backward) + one(layer_kernels(case).recompute)
    wait = smooth_max(forward, 0.01) - forward + smooth_max(backward, 0.03) - backward
    assert terms_of(case)["host"] == pytest.approx(64 * wait, rel=1e-9)
