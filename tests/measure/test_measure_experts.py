# ruff: noqa: E402 - what needs PyTorch is imported once it is known to be there
"""Experts on one rank and on several: the same losses and gradients, and the expected traffic.

Sums of fp32 numbers in another order differ by some 1e-7 of the largest entry; the largest
difference seen is 8e-7. A gradient that is summed over too many or too few ranks is off by half of
its size at least.
"""

import json

import msgspec
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="needs the extra `measure`")

from expert_ranks import Case, on_ranks
from measure_jobs import MOE, SMALL, moe_file
from scalewise.cli.main import cli
from scalewise.measure.decoder import (
    Decoder,
    MoeMlp,
    experts_in_turn,
    grouped_linear,
    has_experts,
    loss_of,
    materialize,
)
from scalewise.model import Moe, load_model
from scalewise.records.files import read_records

TOLERANCE = 5e-6

FEW = msgspec.structs.replace(MOE, name="few", moe=Moe(experts=2, experts_per_token=1, ffn=32))

TWO = [
    Case("ddp2-mb4"),
    Case("ddp2-ep2-mb4"),
    Case("ddp2-ep2-mb4", "topk"),
    Case("fsdp2-ep2-mb2"),
    Case("fsdp2-ep2-mb4-acfull", "topk"),
    Case("tp2-mb8"),
    Case("ddp1-tp2-mb8"),
    Case("tp2-ep2-mb8", "topk"),
    Case("fsdp2-mb4", "topk", etp=2),
    Case("ddp2-mb4", etp=2),
]
FOUR = [
    Case("ddp4-ep2-mb2"),
    Case("ddp4-ep4-mb2", "topk"),
    Case("fsdp4-ep2-mb2", "topk"),
    Case("fsdp4-ep4-mb2"),
    Case("hsdp2x2-ep2-mb2"),
    Case("ddp2-tp2-ep4-mb4", "topk"),
    Case("fsdp2-tp2-ep2-mb4"),
    Case("fsdp2-pp2-ep2-mb2", "topk"),
    Case("ddp2-pp2-ep2-zbv-mb1"),
    Case("fsdp4-ep2-mb2", "topk", etp=2),
    # Fewer experts than ranks that shard them.
    Case("fsdp4-mb2", model=FEW),
    Case("fsdp4-ep2-mb2", "topk", model=FEW),
]


@pytest.fixture(scope="module")
def two():
    return dict(zip(TWO, on_ranks(2, TWO), strict=True))


@pytest.fixture(scope="module")
def four():
    return dict(zip(FOUR, on_ranks(4, FOUR), strict=True))


def built(model):
    with torch.device("meta"):
        decoder = Decoder(model, seq_len=32)
    materialize(decoder, "", device=torch.device("cpu"), seed=0)
    return decoder


def parameters(model):
    return {name for name, _ in built(model).named_parameters()}


def named(case):
    degree = f"-etp{case.etp}" if case.etp > 1 else ""
    return f"{case.model.name}-{case.strategy}{degree}-{case.routing}"


@pytest.mark.parametrize("case", TWO, ids=named)
def test_two_ranks(two, case):
    assert two[case].error < TOLERANCE
    assert two[case].names == parameters(case.model)


@pytest.mark.parametrize("case", FOUR, ids=named)
def test_four_ranks(four, case):
    assert four[case].error < TOLERANCE
    assert four[case].names == parameters(case.model)


def test_each_layer_sends_rows_four_times(two, four):
    """Dispatch, combine, and both again in backward; 2 rows of 64 x 4 bytes for each token."""
    layers, row_bytes = 3, 2 * 64 * 4
    assert two[TWO[1]].all_to_all == 4 * layers * [4 * 32 * row_bytes]
    assert four[FOUR[0]].all_to_all == 4 * layers * [2 * 32 * row_bytes]
    # Two micro-batches of half the size.
    assert two[TWO[3]].all_to_all == 2 * 4 * layers * [2 * 32 * row_bytes]
    # Sequence parallelism halves the tokens of a rank, and 8 are twice as many as 4.
    assert four[FOUR[6]].all_to_all == 4 * layers * [2 * 32 * row_bytes]
    # Without ep there is nothing to send.
    assert two[TWO[0]].all_to_all == []


def test_routed_layers_send_counts_first(two):
    """One int64 for each of 8 experts; what arrives is what goes back."""
    layers, sent = 3, 4 * 32 * 2 * 64 * 4
    calls = two[TWO[2]].all_to_all
    assert len(calls) == 5 * layers
    assert calls[0 : 3 * layers : 3] == layers * [8 * 8]
    assert calls[1 : 3 * layers : 3] == layers * [sent]
    # Rank 0 receives more or fewer rows than it sends, and returns as many.
    received = calls[2 : 3 * layers : 3]
    assert all(size != sent and size % 256 == 0 for size in received)
    # Backward goes through the layers from the last: gradients arrive by the way of the rows.
    assert calls[3 * layers :: 2] == layers * [sent]
    assert calls[3 * layers + 1 :: 2] == received[::-1]


def test_recompute_sends_rows_again(two):
    """Forward, forward again, backward; counts twice."""
    assert len(two[TWO[4]].all_to_all) == 3 * (2 * 3 + 2)


def test_one_expert_is_a_dense_mlp():
    dense = built(SMALL)
    alone = Moe(experts=1, experts_per_token=1, ffn=SMALL.ffn)
    routed = built(msgspec.structs.replace(SMALL, moe=alone))
    with torch.no_grad():
        for ours, theirs in zip(routed.layers.values(), dense.layers.values(), strict=True):
            for name in ("w1", "w2", "w3"):
                getattr(ours.mlp.experts, name)[0] = getattr(theirs.mlp, name).weight
    tokens = torch.arange(64).view(2, 32)
    for decoder in (dense, routed):
        loss_of(decoder(tokens), tokens).backward()
    torch.testing.assert_close(routed(tokens), dense(tokens))
    for ours, theirs in zip(routed.layers.values(), dense.layers.values(), strict=True):
        torch.testing.assert_close(ours.mlp.experts.w2.grad[0], theirs.mlp.w2.weight.grad)
        torch.testing.assert_close(ours.attention.wq.weight.grad, theirs.attention.wq.weight.grad)


def test_tokens_get_the_weighted_mean_of_their_experts_and_the_shared_one():
    moe = Moe(experts=4, experts_per_token=2, ffn=16, shared_experts=2, shared_gate=True, bias=True)
    layer = MoeMlp(msgspec.structs.replace(SMALL, moe=moe))
    torch.manual_seed(0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    layer.balanced = False
    x = torch.randn(1, 5, 64)
    out = layer(x)
    e = layer.experts
    for token, said in zip(x[0], out[0], strict=True):
        chosen = layer.router(token).topk(2)
        expected = layer.gate(token).sigmoid() * layer.shared(token)
        for weight, i in zip(chosen.values.softmax(0), chosen.indices.tolist(), strict=True):
            up = torch.nn.functional.silu(e.w1[i] @ token + e.w1_bias[i])
            inner = up * (e.w3[i] @ token + e.w3_bias[i])
            expected = expected + weight * (e.w2[i] @ inner + e.w2_bias[i])
        torch.testing.assert_close(said, expected, rtol=1e-4, atol=1e-4)


def test_equal_and_unequal_groups_agree():
    rows, weight, bias = torch.randn(6, 4), torch.randn(3, 5, 4), torch.randn(3, 5)
    equal = grouped_linear(rows, weight, bias, [2, 2, 2])
    each = [rows[i] @ weight[i // 2].t() + bias[i // 2] for i in range(6)]
    torch.testing.assert_close(equal, torch.stack(each))
    uneven = grouped_linear(rows, weight, bias, [2, 0, 4])
    torch.testing.assert_close(uneven[:2], equal[:2])
    torch.testing.assert_close(uneven[4:], equal[4:])
    assert grouped_linear(rows[:0], weight, None, [0, 0, 0]).shape == (0, 5)


def test_experts_in_turn_get_the_same_rows():
    dealt = experts_in_turn(12, 8, 2, "cpu")
    assert dealt.flatten().bincount().tolist() == [3] * 8
    assert dealt[:5].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [0, 1]]


def test_dense_layers_come_first_or_between():
    assert [has_experts(MOE, i) for i in range(4)] == [False, True, True, True]
    assert not any(has_experts(SMALL, i) for i in range(4))
    maverick = load_model("llama-4-maverick")
    assert [has_experts(maverick, i) for i in range(4)] == [False, True, False, True]
    assert sum(has_experts(maverick, i) for i in range(48)) == 24
    deepseek = load_model("deepseek-v3")
    assert [has_experts(deepseek, i) for i in range(61)].index(True) == 3


def test_command_line(tmp_path):
    run = CliRunner(env={"COLUMNS": "160"}).invoke
    done = run(cli, [
        "measure", "train", moe_file(tmp_path), "--device", "cpu", "--strategy", "ddp2-ep2",
        "--sweep", "routing=balanced,topk", "--steps", "3", "--seq", "32", "--trace",
        "-o", str(tmp_path),
    ])  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "imbalance: rows of the busiest expert-parallel rank over the mean" in done.stdout
    records = read_records(tmp_path, kind="train").records
    assert [r.inputs["routing"] for r in records] == ["balanced", "topk"]
    assert {r.inputs["strategy"] for r in records} == {"ddp2-ep2-mb1"}
    balanced, routed = (r.results for r in records)
    assert balanced["ep_imbalance"] == 1.0 < routed["ep_imbalance"] < 2.0
    seen = {row["name"]: row for row in balanced["trace"]["collectives"]}["all_to_all"]
    # 3 traced steps of one layer; 32 tokens x 2 experts x 64 x 4 bytes.
    assert (seen["calls"], seen["bytes"]) == (3 * 4, 3 * 4 * 16_384)
    merged = run(cli, ["measure", "merge", str(tmp_path), "-o", str(tmp_path / "runs.csv")])
    assert merged.exit_code == 0, merged.stderr
    assert "strategy ddp2-ep2-mb1, topk routing" in (tmp_path / "runs.csv").read_text()


def test_json_has_routing_and_imbalance(tmp_path):
    done = CliRunner().invoke(cli, [
        "measure", "train", moe_file(tmp_path), "--device", "cpu", "--strategy", "ddp1",
        "--steps", "2", "--seq", "16", "--json", "-o", str(tmp_path),
    ])  # fmt: skip
    (summary,) = json.loads(done.stdout)["summaries"]
    assert (summary["routing"], summary["ep_imbalance"]) == ("balanced", None)
