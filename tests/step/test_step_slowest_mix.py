"""Dense first layers that make the first stage of a pipeline the slowest one."""

import msgspec
import pytest

from scalewise import Workload, load_cluster, load_model, parse_strategy
from scalewise.simulation.simulate import timeline
from scalewise.step.estimate import estimate

SPELLED = "zero1x16-pp16-tp2-ep16-mb1"


def deepseek(ffn):
    """DeepSeek-V3 (three dense layers of 61) with dense MLPs of some width."""
    return msgspec.structs.replace(load_model("deepseek-v3"), ffn=ffn)


def asked(ffn, spelled=SPELLED, *, of=estimate):
    return of(
        deepseek(ffn), load_cluster("dgx-h100", 512), Workload(seq_len=4096, global_batch=1024),
        parse_strategy(spelled),
    )  # fmt: skip


def test_dense_layers_as_long_as_experts_leave_a_middle_stage_the_slowest():
    e = asked(18432)
    assert not e.origin.case.first_slowest[0]
    assert (e.origin.step.stage.layers, e.origin.case.slowest_sparse) == (4.0, 1.0)


def test_wide_dense_layers_make_the_first_stage_the_slowest():
    e = asked(160_000)
    assert e.origin.case.first_slowest[0]
    # Three layers, all of them dense: no experts on the slowest stage.
    assert (e.origin.step.stage.layers, e.origin.case.slowest_sparse) == (3.0, 0.0)
    assert e.terms["experts"] == e.terms["expert_parallel"] == e.terms["head"] == 0.0
    assert e.step_seconds > 1.4 * asked(18432).step_seconds


@pytest.mark.parametrize("spelled", [SPELLED, "fsdp32-pp16-ep32-mb1"])
def test_the_simulation_prices_each_stage_with_its_own_layers(spelled):
    step = asked(160_000, spelled, of=timeline)
    assert step.step_seconds == pytest.approx(step.estimate.step_seconds, rel=0.01)
    durations = step.simulation.durations
    assert durations.on(0).forward > 1.3 * durations.on(1).forward


def test_zb_v_has_both_ends_on_one_stage():
    assert not asked(160_000, SPELLED + "-zbv").origin.case.first_slowest[0]


def test_stages_of_one_mix_are_not_compared():
    assert not asked(160_000, "zero1x256-tp2-ep16-mb1").origin.case.first_slowest[0]
