import pytest

from scalewise.simulation.layer import Kernel, Piece, backward_block, forward_block
from scalewise.simulation.layer import _block as lay
from scalewise.step.layer import layer_times
from toys import case_of, one, sparse_case_of, toy_cluster, toy_experts, toy_stack, toy_workload

STRATEGIES = (
    "fsdp8", "fsdp2-tp4", "fsdp2-tp4-nosp", "fsdp2-tp4-acfull", "fsdp2-tp4-nosp-acfull",
    "fsdp2-tp4-acsel", "fsdp2-cp4", "fsdp2-cp4-acfull", "fsdp2-cp4ag", "fsdp2-cp4ag-acsel",
    "fsdp1-tp2-cp4", "fsdp2-tp4-notpoverlap", "fsdp2-tp4-ac1of4", "fsdp2-tp4-nosp-ac1of2",
    "fsdp2-tp4-acop", "fsdp2-cp4-ac1of4", "fsdp2-cp4-acop", "fsdp2-cp4ag-ac1of2", "fsdp8-acattn",
)  # fmt: skip


@pytest.mark.parametrize("spelled", STRATEGIES)
@pytest.mark.parametrize("host", [0.0, 1e-3])
def test_a_layer_takes_as_long_as_in_the_estimate(spelled, host):
    case = case_of(
        spelled,
        stack=toy_stack(host_layer_seconds=host, tp_overlap=0.25, keeps_sp_all_gather=False),
    )
    own = layer_times(case)
    forward, backward = forward_block(case, own), backward_block(case, own)
    assert forward.seconds == pytest.approx(one(own.forward), rel=1e-12)
    assert backward.seconds == pytest.approx(one(own.backward), rel=1e-12)
    assert forward.tensor == pytest.approx(one(own.tp_exposed_forward))
    assert backward.tensor == pytest.approx(one(own.tp_exposed_backward))
    assert forward.context == pytest.approx(one(own.cp_exposed_forward))
    assert backward.context == pytest.approx(one(own.cp_exposed_backward))
    assert forward.busy == pytest.approx(one(own.kernels.forward))
    assert backward.busy == pytest.approx(one(own.kernels.backward))


SPARSE = (
    "fsdp8", "fsdp8-ep4", "fsdp8-ep8", "fsdp8-ep4-etp2", "fsdp2-tp4-ep8", "fsdp2-cp4-ep4",
    "fsdp8-ep8-acfull", "fsdp8-ep8-ac1of4", "fsdp8-ep4-acact-acmlp-acnorm", "fsdp8-ep8-noepoverlap",
    "fsdp4-pp2-zbh1-ep4", "fsdp2-tp4-ep8-acop", "fsdp8-ep8-mb2",
)  # fmt: skip


@pytest.mark.parametrize("spelled", SPARSE)
@pytest.mark.parametrize("overlap", [0.0, 0.7, 1.0])
def test_a_layer_with_experts_takes_as_long_as_in_the_estimate(spelled, overlap):
    model = toy_experts({"layers": 3, "shared_experts": 1})
    case = sparse_case_of(spelled, model=model, constants={"ep_overlap": overlap})
    own = layer_times(case)
    forward, backward = forward_block(case, own), backward_block(case, own)
    assert forward.seconds == pytest.approx(one(own.forward), rel=1e-12)
    assert backward.seconds == pytest.approx(one(own.backward), rel=1e-12)
    assert forward.expert == pytest.approx(one(own.ep_exposed_forward))
    assert backward.expert == pytest.approx(one(own.ep_exposed_backward))
    assert forward.busy == pytest.approx(one(own.kernels.forward))
    assert backward.busy == pytest.approx(one(own.kernels.backward))


@pytest.mark.parametrize("overlap", [0.0, 0.7])
def test_dispatch_and_combine_have_a_stream_of_their_own(overlap):
    case = sparse_case_of("fsdp8-ep8", constants={"ep_overlap": overlap})
    own = layer_times(case)
    for block, which in (
        (forward_block(case, own), ""), (backward_block(case, own), " backward"),
    ):  # fmt: skip
        mine = [piece for piece in block.pieces if piece.stream == "expert"]
        assert {piece.name for piece in mine} == {f"dispatch{which}", f"combine{which}"}
        moved = own.ep_backward if which else own.ep_forward
        assert sum(piece.seconds for piece in mine) == pytest.approx(one(moved))
        free = 0.0
        for piece in sorted(mine, key=lambda piece: piece.start):
            assert piece.start >= free - 1e-15
            free = piece.start + piece.seconds


def test_communication_cannot_overlap_kernels_that_are_not_there():
    case = case_of(
        "tp8",
        cluster=toy_cluster(scale_out_bandwidth=1e8),
        workload=toy_workload(seq_len=100),
        stack=toy_stack(tp_overlap=1.0),
    )
    own = layer_times(case)
    block = forward_block(case, own)
    assert one(own.forward) == pytest.approx(one(own.tp_forward))  # the closed form agrees
    assert block.seconds == pytest.approx(one(own.tp_forward))
    assert block.tensor == pytest.approx(one(own.tp_forward - own.kernels.forward))


@pytest.mark.parametrize("spelled", STRATEGIES)
def test_nothing_overlaps_on_a_stream(spelled):
    case = case_of(spelled, stack=toy_stack(host_layer_seconds=1e-4))
    for block in (forward_block(case, layer_times(case)), backward_block(case, layer_times(case))):
        for stream in ("compute", "tensor", "context", "host"):
            free = 0.0
            mine = [piece for piece in block.pieces if piece.stream == stream]
            for piece in sorted(mine, key=lambda piece: piece.start):
                assert piece.start >= free - 1e-15
                free = piece.start + piece.seconds
            assert free <= block.seconds * (1.0 + 1e-12)


def test_a_share_of_a_collective_stays_on_the_path():
    block = lay(
        [Kernel("a", 4.0), Kernel("all-gather", 2.0, "tensor"), Kernel("b", 4.0)], 0.25, 0.0
    )
    assert block.seconds == 8.5
    assert block.pieces == (
        Piece("compute", "a", 0.0, 4.0),
        Piece("tensor", "all-gather", 4.0, 0.5),
        Piece("compute", "b", 4.5, 4.0),
        Piece("tensor", "all-gather", 0.0, 1.5),
    )


def test_ring_hops_run_beside_attention():
    fast = lay([Kernel("attention", 4.0, "ring", 0.5, 3)], 1.0, 0.0)
    assert (fast.seconds, fast.context) == (4.0, 0.0)
    slow = lay([Kernel("attention", 4.0, "ring", 1.5, 3)], 1.0, 0.0)
    assert (slow.seconds, slow.context) == (5.5, 1.5)
    long = lay([Kernel("attention", 40.0, "ring", 1.5, 39)], 1.0, 0.0)
    assert (long.seconds, long.context) == (40.0 + 39 * 0.5, 39 * 0.5)


def test_launches_round_the_corner():
    block = lay([Kernel("a", 1.0)], 1.0, 1.0)
    assert block.seconds == pytest.approx(1.1224745)
    assert [p.name for p in block.pieces] == ["a", "wait for launch", "launch"]
