"""An omission is a refusal: it would look like speed."""

import pytest

from captures import capture, fsdp, without
from scalewise.program.complete import missing
from scalewise.program.events import Group
from scalewise.program.recognize import recognize


def holes(of):
    return missing([of], recognize([of]))


def test_a_whole_capture_has_no_holes():
    assert holes(fsdp()) == []


def test_a_dimension_on_which_nothing_communicates():
    groups = {"g": Group(name="g", dimension="dp", ranks=tuple(range(0, 16, 2)))}
    silent = capture(fsdp().events, groups=groups, world=16, meshes=[(("dp", "cp"), (8, 2))])
    found = missing([silent], recognize([fsdp()]))
    assert found[0] == "the mesh has 2 ranks along `cp`, but nothing communicates there"


@pytest.mark.parametrize(("kept", "whole"), [(250.0, "2,000"), (50.0, "400")])
def test_gathers_must_be_those_of_the_parameters(kept, whole):
    found = holes(fsdp(local_parameters=kept))
    assert found == [f"FSDP gathers 1,000 parameters in forward where it shards {whole}"]


def test_products_must_have_six_flops_per_parameter_and_token():
    # 960 parameters that are multiplied, 32 tokens: 184,320 FLOPs.
    assert holes(fsdp()) == []
    found = missing([without(fsdp(), "mm")], recognize([fsdp()]))
    assert found == ["GEMMs have 0 FLOPs, fewer than the 1.84e+05 of 6 per parameter and token"]
