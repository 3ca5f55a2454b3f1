"""Kernels: the shapes that a model uses, and what two real ranks take for them."""

import pytest
from click.testing import CliRunner

from measure_jobs import MOE
from scalewise.cli.main import cli
from scalewise.errors import InputError
from scalewise.measure.kernel_plan import KernelPlan, join_plans, plan_kernels
from scalewise.model import load_model
from scalewise.records.files import read_records
from scalewise.strategy import parse_strategy


def run(*args):
    """Run the command line in this process."""
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli, list(args))


def plan(model="tiny", strategy="mb2", seq_len=256, dtype="fp32"):
    return plan_kernels(load_model(model), parse_strategy(strategy), seq_len=seq_len, dtype=dtype)


def test_products_are_those_of_the_decoder():
    shapes = {(g.m, g.n, g.k): g.role for g in plan().gemms}
    # tiny: hidden 256, 4 heads of 64, 2 key heads, ffn 768, vocab 8192; 2 x 256 tokens.
    assert shapes[512, 256, 256] == "wq forward"
    assert shapes[512, 128, 256] == "wk and wv forward"
    assert shapes[512, 768, 256] == "w1 and w3 forward"
    assert shapes[512, 256, 768] == "w1 and w3 input"
    assert shapes[768, 256, 512] == "w1 and w3 weight"
    assert shapes[8192, 256, 512] == "head weight"
    assert len(shapes) == 12


def test_tensor_parallelism_divides_widths():
    split = plan(strategy="tp2-mb2")
    shapes = {(g.m, g.n, g.k) for g in split.gemms}
    assert (512, 384, 256) in shapes
    assert (512, 4096, 256) in shapes
    assert (512, 768, 256) not in shapes
    assert (split.attention[0].heads, split.attention[0].batch) == (2, 2)
    assert (split.elementwise[0].ffn, split.elementwise[0].query) == (384, 128)
    with pytest.raises(InputError, match="tp = 3 does not divide"):
        plan(strategy="tp3")


def test_experts_are_grouped_products_of_balanced_rows():
    # moe: hidden 64, 8 experts of 32, 2 per token, a shared one of 32, ffn 128; 4 x 32 tokens.
    split = parse_strategy("ep2-mb4")
    planned = plan_kernels(MOE, split, seq_len=32, dtype="fp32").gemms
    roles = {(g.groups, g.m, g.n, g.k): g.role for g in planned}
    # 128 tokens x 2 of 2 ranks, over 8 experts, of which the rank has 4.
    assert roles[4, 64, 32, 64] == "expert w1 and w3 forward"
    assert roles[4, 64, 64, 32] == "expert w1 and w3 input"
    assert roles[4, 32, 64, 64] == "expert w1 and w3 weight"
    assert roles[1, 128, 8, 64] == "router forward"
    assert roles[1, 128, 128, 64] == "w1 and w3 forward"
    both = join_plans([plan(), plan_kernels(MOE, split, seq_len=32, dtype="fp32")])
    assert sum(g.groups > 1 for g in both.gemms) == 3
    with pytest.raises(InputError, match="ep = 3 and etp = 1 do not divide the 8 experts of 32"):
        plan_kernels(MOE, parse_strategy("ep3"), seq_len=32, dtype="fp32")


def test_plans_join_without_repeats():
    both = join_plans([plan(), plan(), plan("tiny-19m")])
    assert len(both.gemms) == len({(g.m, g.n, g.k) for g in both.gemms})
    assert len(both.attention) == 2
    assert both.stream_bytes == [2**28]


def test_precisions_that_are_not_timed_are_refused():
    with pytest.raises(InputError, match="dtype 'fp8' is not timed"):
        KernelPlan(dtype="fp8")


def test_two_ranks_really_compute(tmp_path):
    pytest.importorskip("torch")
    done = run(
        "measure", "kernels", "--device", "cpu", "--ranks", "2", "--seq", "64", "--iters", "3",
        "-o", str(tmp_path), "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    (record,) = read_records(tmp_path, kind="kernel").records
    rows = record.results["rows"]
    kinds = {row["kernel"] for row in rows}
    assert kinds == {"gemm", "sdpa", "block_elementwise", "cross_entropy", "adamw",
                     "hbm_stream_copy", "launch"}  # fmt: skip
    for row in rows:
        assert row["dtype"] == "fp32"
        # The samples of both ranks.
        assert len(row["samples_us"]) == 6
        if row["kernel"] == "gemm":
            work = 2.0 * row["m"] * row["n"] * row["k"]
            assert row["tflops"] == pytest.approx(work / row["time_us"] * 1e6 / 1e12)
    (launch,) = [row for row in rows if row["kernel"] == "launch"]
    (copy,) = [row for row in rows if row["kernel"] == "hbm_stream_copy"]
    assert launch["time_us"] > 0.0
    assert copy["time_us"] > 0.0
    assert record.environment.ranks == 2
