"""Wrappers of FSDP and DTensor where the host is the device, by hand."""

import msgspec
import pytest

from scalewise.numeric import scalar
from scalewise.simulation.simulate import step_seconds
from scalewise.step import wrappers
from toys import LAYER_PARAMS, case_of, one, terms_of, toy_stack

TIMED = toy_stack(
    fsdp_host_seconds=3e-3, fsdp_copy_bytes=40.0, fsdp_step_seconds=5e-3, tp_host_seconds=6e-3,
    tp_step_seconds=7e-3,
)  # fmt: skip


def host_of(spelling):
    case = case_of(spelling, stack=TIMED)
    return [one(each) for each in (*wrappers.layer_seconds(case), wrappers.step_seconds(case))]


def test_each_technique_has_its_own_time():
    # A third of it is forward. 40 bytes per parameter at the bandwidth of the toy.
    memory = one(case_of("fsdp8").rates.memory)
    copies = 40.0 * LAYER_PARAMS / memory
    assert host_of("fsdp8") == pytest.approx([(3e-3 + copies) / 3, 2 * (3e-3 + copies) / 3, 5e-3])
    assert host_of("tp8") == pytest.approx([2e-3, 4e-3, 7e-3])
    both = 9e-3 + copies / 2
    assert host_of("fsdp4-tp2") == pytest.approx([both / 3, 2 * both / 3, 12e-3])
    assert host_of("ddp8") == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("spelling", ["tp8", "tp4-pp2-ga4", "tp4-pp2-ga4-zbh1"])
def test_a_step_is_longer_by_it(spelling):
    plain, wrapped = case_of(spelling), case_of(spelling, stack=TIMED)
    layers = 4 * one(wrapped.split.num_microbatches) / one(wrapped.split.pp)
    more = terms_of(wrapped)["host"] - terms_of(plain)["host"]
    assert more == pytest.approx(layers * 6e-3)
    more = terms_of(wrapped)["overhead"] - terms_of(plain)["overhead"]
    assert more == pytest.approx(7e-3)


@pytest.mark.parametrize("spelling", ["fsdp8", "tp8", "tp4-pp2-ga4", "ddp2-tp4"])
@pytest.mark.parametrize("again", [False, True])
def test_the_simulation_has_the_same_time(spelling, again):
    stack = msgspec.structs.replace(TIMED, gathers_ends_again=again)
    case = case_of(spelling, stack=stack)
    assert step_seconds(case) == pytest.approx(sum(terms_of(case).values()), rel=0.02)


@pytest.mark.parametrize("spelling", ["fsdp8", "tp8", "fsdp4-tp2", "ddp8"])
def test_the_derivation_says_the_same(spelling):
    case = case_of(spelling, stack=TIMED)
    assert wrappers.derive_layer(case).value == pytest.approx(
        sum(scalar(each) for each in wrappers.layer_seconds(case))
    )
