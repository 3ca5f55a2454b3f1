"""Strategies from communication, by hand."""

import pytest

from captures import capture, collective, fsdp, kernel
from scalewise.errors import InputError
from scalewise.program.events import Group
from scalewise.program.recognize import precision_of, recognize, roles_of


def spelled(*captures):
    return str(recognize(captures).strategy)


def test_fsdp_is_known_by_its_ranges():
    found = recognize([fsdp()])
    assert str(found.strategy) == "fsdp8-mb2"
    assert (found.seq_len, found.global_batch, found.precision) == (16, 16, "bf16")
    assert found.roles == {"g": "shard"}


def test_fsdp_that_gathers_once_does_not_reshard():
    first = fsdp()
    once = capture([e for e in first.events if e.phase == "forward" or e.name != "all_gather"])
    assert spelled(once) == "fsdp8-mb2-noreshard"


def test_replicas_of_shards():
    groups = {
        "s": Group(name="s", dimension="shard", ranks=(0, 1)),
        "r": Group(name="r", dimension="replicate", ranks=(0, 2, 4, 6)),
    }
    label = "FSDP::post_backward_reduce (layers.0)"
    events = [
        collective(1, "all_gather", "s", 2000.0, label="FSDP::all_gather (layers.0)"),
        kernel(2, flops=70e3),
        collective(3, "reduce_scatter", "s", 4000.0, label=label, phase="backward"),
        collective(4, "all_reduce", "r", 2000.0, label=label, phase="backward"),
    ]
    assert spelled(capture(events, groups=groups)) == "hsdp4x2-mb2-noreshard"


def test_gradients_that_a_wrapper_reduces_are_those_of_replicas():
    events = [kernel(1, flops=70e3), collective(2, "all_reduce", "g", 4000.0, phase="backward")]
    assert spelled(capture(events)) == "ddp8-mb2"


TENSOR = {
    "t": Group(name="t", dimension="tp", ranks=(0, 1)),
    "d": Group(name="d", dimension="dp", ranks=(0, 2, 4, 6)),
}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("all_reduce", "all_reduce"), "ddp4-tp2-nosp-mb2"),
        (("all_gather", "reduce_scatter"), "ddp4-tp2-mb2"),
    ],
)
def test_tensor_parallelism_with_and_without_sequence_parallelism(names, expected):
    events = [
        collective(1, names[0], "t", 100.0, module="layers.0", functional=True),
        kernel(2, flops=70e3),
        collective(3, names[1], "t", 100.0, phase="backward", functional=True),
        collective(4, names[1], "t", 100.0, module="layers.0", functional=True),
        collective(5, "all_reduce", "d", 4000.0, phase="backward"),
    ]
    found = capture(events, groups=TENSOR)
    assert roles_of(found) == {"t": "tensor", "d": "replicate"}
    assert spelled(found) == expected


@pytest.mark.parametrize(
    ("names", "name", "expected"),
    [
        (("dp", "cp"), "all_to_all", "fsdp1-cp8-mb2"),
        (("dp", "cp"), "all_gather", "fsdp1-cp8-mb2"),
        (("dp", "ep"), "all_to_all", "fsdp8-ep8-mb2"),
        (("dp", "cp"), None, "fsdp8-mb2"),
    ],
)
def test_a_dimension_that_shares_the_group_of_shards_is_known_by_its_exchange(
    names, name, expected
):
    exchange = [collective(9, name, "g", 64.0, functional=True, module="layers.0")] if name else []
    found = capture([*fsdp().events, *exchange], meshes=[(names, (1, 8))])
    assert spelled(found) == expected


def passes(order):
    """Events of a pipeline rank: its passes in order, then a send."""
    events = [kernel(i, flops=1e3, label=f"PP:{each}") for i, each in enumerate(order, 1)]
    return [*events, collective(99, "send", "p", 10.0, peer=1)]


PIPELINE = {"p": Group(name="p", dimension="pp", ranks=(0, 1))}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (["0F0", "0F1", "0F2", "0B0", "0F3", "0B1", "0B2", "0B3"], "ddp1-pp2-mb2"),
        (["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2", "0B3"], "ddp1-pp2-gpipe-mb2"),
        (["0F0", "2F0", "0F1", "0B0", "2B0"], "ddp1-pp2-v2-mb2"),
        (["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"], "ddp1-pp2-zbh1-mb2"),
        (["0F0", "3F0", "3I0", "3W0", "0I0", "0W0"], "ddp1-pp2-zbv-mb2"),
    ],
)
def test_schedules_are_known_by_the_order_of_passes(order, expected):
    assert spelled(capture(passes(order), world=2, groups=PIPELINE, pipelined=True)) == expected


def test_groups_that_make_no_mesh_are_refused():
    groups = {"g": Group(name="g", dimension="dp", ranks=(0, 1, 2))}
    with pytest.raises(InputError, match="do not make 8 ranks"):
        recognize([fsdp(groups=groups)])


def test_a_program_without_tokens_is_refused():
    with pytest.raises(InputError, match=r"no torch\.nn\.Embedding was called"):
        recognize([fsdp(inputs=())])


def test_precision_is_that_of_most_flops():
    events = [kernel(1, flops=10.0, dtype="float32"), kernel(2, flops=20.0, dtype="bfloat16")]
    assert precision_of([capture(events)]) == "bf16"
    with pytest.raises(InputError, match="has no GEMMs"):
        precision_of([capture([kernel(1)])])
