"""ZB-V: how near its orders come to what no order can beat."""

import pytest

from scalewise.simulation.zb_v import KINDS, _seconds, zb_v_schedule


def lengths_of(stages, forward, inputs, weights, head=0.0):
    seconds = {"F": forward, "I": inputs, "W": weights}
    found = [{(kind, chunk): seconds[kind] / 2 for kind, chunk in KINDS} for _ in range(stages)]
    found[0]["F", 1] += head / 3
    found[0]["I", 1] += 2 * head / 3
    return found


def seconds_of(stages, num_microbatches, lengths):
    return _seconds(zb_v_schedule(stages, num_microbatches, lengths), lengths)


def test_equal_passes_leave_half_a_pass_per_hop():
    # The published order: 3 passes of 16 micro-batches, and 7 hops of half a pass.
    assert seconds_of(8, 16, lengths_of(8, 1.0, 1.0, 1.0)) == pytest.approx(48.0 + 3.5)


def test_one_micro_batch_goes_down_and_up_twice():
    # 4 stages of F and I, and the weights of the chunk that comes last.
    assert seconds_of(4, 1, lengths_of(4, 1.0, 1.4, 0.6)) == pytest.approx(4 * 2.4 + 0.3)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("rounds", [0.5, 1, 2])
@pytest.mark.parametrize("passes", [(1.0, 1.2, 0.8), (1.0, 1.8, 0.8), (1.0, 1.6, 0.4)])
@pytest.mark.parametrize("head", [0.0, 0.3])
def test_orders_come_near_what_none_can_beat(stages, rounds, passes, head):
    f, i, w = passes
    steps, hops = max(int(rounds * stages), 1), stages - 1
    lengths = lengths_of(stages, f, i, w, head)
    found = seconds_of(stages, steps, lengths)
    whole = f + i + w
    behind = max(f, i, (f + i) / 2 + head)
    bounds = (
        steps * (whole + head),
        stages * (f + i) + head + w / 2 + (steps - 1) * behind,
        steps * whole + hops * max(f / 2, i / 2),
    )
    assert max(bounds) * (1.0 - 1e-9) <= found <= 1.11 * max(bounds)
