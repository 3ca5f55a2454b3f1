"""Every way to split the work trains like one process: real ranks, the same data, the same losses.

The runs compute the same sums of fp32 numbers in different orders. A sum of some hundred terms is
then off by a few units of 6e-8 of its size, and four steps through four layers multiply that
by little: the largest difference seen is 3e-7 of a loss, so 5e-6 leaves room for other CPUs. What
must not pass is far away: gradients summed instead of averaged over two ranks, or those of one rank
alone, change the losses by 1e-2 (`test_the_comparison_would_notice`).

AdamW divides gradients by their size, so it would hide a wrong scale; most runs take plain SGD.
Where gradients vanish, rounding then decides about a whole step: the largest difference seen is
5e-7, and its runs get twice the berth.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra `measure`")

from measure_jobs import MOE, SMALL, TIED, job, run_together

SGD_TOLERANCE = 5e-6
ADAMW_TOLERANCE = 1e-5
ADAMW = {"optimizer": "adamw", "learning_rate": 0.01}

TWO = {
    "ddp": job("ddp2-mb4"),
    "ddp, accumulation": job("ddp2-mb1"),
    "ddp, one bucket": job("ddp2-mb4-nodpoverlap"),
    "ddp, full recompute": job("ddp2-mb4-acfull"),
    "zero1": job("zero1x2-mb4"),
    "fsdp": job("fsdp2-mb4"),
    "fsdp, accumulation": job("fsdp2-mb1"),
    "fsdp, no reshard": job("fsdp2-mb4-noreshard"),
    "fsdp, no reshard, accumulation": job("fsdp2-mb2-noreshard"),
    "fsdp, prefetch 2": job("fsdp2-mb4-pf2"),
    "fsdp, no overlap": job("fsdp2-mb4-nodpoverlap"),
    "fsdp, selective recompute": job("fsdp2-mb4-acsel"),
    "fsdp, full recompute": job("fsdp2-mb4-acfull"),
    "tp + sp": job("tp2-mb8"),
    "tp + sp, accumulation": job("tp2-mb4"),
    "tp": job("tp2-nosp-mb8"),
    "tp + sp, selective recompute": job("tp2-mb8-acsel"),
    "tp + sp, full recompute": job("tp2-mb8-acfull"),
    "pp, 1f1b": job("pp2-mb2"),
    "pp, gpipe": job("pp2-gpipe-mb2"),
    "pp, interleaved": job("pp2-v2-mb2"),
    "pp, zbh1": job("pp2-zbh1-mb2"),
    "pp, zbv": job("pp2-zbv-mb2"),
    "pp, uneven": job("pp2-first1-mb2"),
    "pp, full recompute": job("pp2-mb2-acfull"),
}
TWO_TIED = {
    "ddp": job("ddp2-mb4", model=TIED),
    "fsdp": job("fsdp2-mb4", model=TIED),
    "tp + sp": job("tp2-mb8", model=TIED),
}
TWO_ADAMW = {
    "ddp": job("ddp2-mb4", **ADAMW),
    "zero1": job("zero1x2-mb4", **ADAMW),
    "fsdp": job("fsdp2-mb4", **ADAMW),
    "tp + sp": job("tp2-mb8", **ADAMW),
    "pp, 1f1b": job("pp2-mb2", **ADAMW),
}
LORA = ADAMW | {"tuning": "lora8"}
MUON = {"optimizer": "muon", "learning_rate": 0.01}
MOMENTUM = {"optimizer": "momentum", "learning_rate": 0.1}
ADAFACTOR = {"optimizer": "adafactor", "learning_rate": 0.01}
EXPERTS = LORA | {"model": MOE, "tuning": "lora8-attn"}
OTHERS = {
    "lora, ddp": job("ddp2-mb4", **LORA),
    "lora, fsdp": job("fsdp2-mb4", **LORA),
    "lora, zero1": job("zero1x2-mb4", **LORA),
    "lora, pp": job("pp2-mb2", **LORA),
    "lora, full recompute": job("fsdp2-mb4-acfull", **LORA),
    "experts, fsdp": job("fsdp2-ep2-mb4", **EXPERTS),
    "experts, ddp": job("ddp2-ep2-mb4", **EXPERTS),
    "muon, ddp": job("ddp2-mb4", **MUON),
    "muon, fsdp": job("fsdp2-mb4", **MUON),
    "muon, tp + sp": job("tp2-mb8", **MUON),
    "muon, pp": job("pp2-mb2", **MUON),
    "momentum, fsdp": job("fsdp2-mb4", **MOMENTUM),
    "adafactor, ddp": job("ddp2-mb4", **ADAFACTOR),
}
"""Adapters and optimizers, by the run of one process that each is compared with."""

FOUR = {
    "hsdp": job("hsdp2x2-mb2"),
    "hsdp, accumulation, no reshard": job("hsdp2x2-mb1-noreshard"),
    "tp x fsdp": job("fsdp2-tp2-mb4"),
    "tp x fsdp, accumulation": job("fsdp2-tp2-mb2"),
    "tp x ddp": job("ddp2-tp2-mb4"),
    "pp x ddp": job("ddp2-pp2-mb2"),
    "pp x ddp, zbv": job("ddp2-pp2-zbv-mb1"),
    "pp x fsdp": job("fsdp2-pp2-mb2"),
    "pp x fsdp, interleaved": job("fsdp2-pp2-v2-mb2"),
    "pp x fsdp, zbv": job("fsdp2-pp2-zbv-mb1-noreshard"),
    "pp x tp": job("tp2-pp2-mb2"),
}
ONE = {
    "plain": job("ddp1-mb8"),
    "num_microbatches": job("ddp1-mb2"),
    "selective recompute": job("ddp1-mb8-acsel"),
    "full recompute": job("ddp1-mb8-acfull"),
    "tied": job("ddp1-mb8", model=TIED),
    "adamw": job("ddp1-mb8", **ADAMW),
    "bf16": job("ddp1-mb8", precision="bf16"),
    "lora": job("ddp1-mb8", **LORA),
    "experts": job("ddp1-mb8", **EXPERTS),
    "muon": job("ddp1-mb8", **MUON),
    "momentum": job("ddp1-mb8", **MOMENTUM),
    "adafactor": job("ddp1-mb8", **ADAFACTOR),
    "gradients twice as large": job("ddp1-mb8", learning_rate=4.0),
    "half of the batch": job("ddp1-mb4", global_batch=4),
    "other seed": job("ddp1-mb8", seed=1),
    "longer": job("ddp1-mb8", steps=40, optimizer="adamw", learning_rate=0.01),
}
BF16 = {
    "ddp": job("ddp2-mb4", precision="bf16"),
    "fsdp": job("fsdp2-mb4", precision="bf16"),
    "tp + sp": job("tp2-mb8", precision="bf16"),
    "pp": job("pp2-mb2", precision="bf16"),
    "pp, zbv": job("pp2-zbv-mb2", precision="bf16"),
}


def _records(cases, folder):
    return dict(zip(cases, run_together(list(cases.values()), folder), strict=True))


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return _records(ONE, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    groups = {"sgd": TWO, "tied": TWO_TIED, "adamw": TWO_ADAMW, "bf16": BF16, "others": OTHERS}
    cases = {(kind, name): job for kind, group in groups.items() for name, job in group.items()}
    return _records(cases, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return _records(FOUR, tmp_path_factory.mktemp("four"))


def losses(record):
    return record.results["losses"]


def distance(a, b):
    """Largest difference between two curves, relative to the losses."""
    assert len(a) == len(b)
    return max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", ["num_microbatches", "selective recompute", "full recompute"])
def test_one_process(one, name):
    assert distance(losses(one[name]), losses(one["plain"])) < SGD_TOLERANCE


@pytest.mark.parametrize("name", list(TWO))
def test_two_ranks(one, two, name):
    assert distance(losses(two["sgd", name]), losses(one["plain"])) < SGD_TOLERANCE


@pytest.mark.parametrize("name", list(TWO_TIED))
def test_two_ranks_tied(one, two, name):
    assert distance(losses(two["tied", name]), losses(one["tied"])) < SGD_TOLERANCE


@pytest.mark.parametrize("name", list(TWO_ADAMW))
def test_two_ranks_adamw(one, two, name):
    assert distance(losses(two["adamw", name]), losses(one["adamw"])) < ADAMW_TOLERANCE


@pytest.mark.parametrize("name", list(OTHERS))
def test_two_ranks_with_adapters_and_other_optimizers(one, two, name):
    alone = one[name.partition(",")[0]]
    # Muon orthogonalizes in bf16, in which other orders of sums round differently.
    tolerance = 1e-4 if name.startswith("muon") else ADAMW_TOLERANCE
    assert distance(losses(two["others", name]), losses(alone)) < tolerance


def test_ranks_keep_the_state_of_what_they_train(two):
    kept = {name: two["others", name].results["optimizer_bytes_per_rank"] for name in OTHERS}
    assert kept == {
        "lora, ddp": 8 * 32_768, "lora, fsdp": 4 * 32_768, "lora, zero1": 4 * 32_768,
        "lora, pp": 4 * 32_768, "lora, full recompute": 4 * 32_768,
        "experts, fsdp": 4 * 14_336, "experts, ddp": 8 * 14_336,
        "muon, ddp": 856_576, "muon, fsdp": 428_288, "muon, tp + sp": 430_592, "muon, pp": 428_544,
        "momentum, fsdp": 2 * SMALL.parameters, "adafactor, ddp": 21_248,
    }  # fmt: skip
    assert two["others", "lora, fsdp"].results["trained_parameters_per_rank"] == 16_384


@pytest.mark.parametrize("name", list(FOUR))
def test_four_ranks(one, four, name):
    assert distance(losses(four[name]), losses(one["plain"])) < SGD_TOLERANCE


@pytest.mark.parametrize("name", list(BF16))
def test_bf16_is_close_to_fp32_and_not_the_same(one, two, name):
    assert 1e-7 < distance(losses(two["bf16", name]), losses(one["plain"])) < 2e-3


@pytest.mark.parametrize(
    "wrong", ["gradients twice as large", "half of the batch", "other seed", "tied"]
)
def test_the_comparison_would_notice(one, wrong):
    assert distance(losses(one[wrong]), losses(one["plain"])) > 200 * SGD_TOLERANCE


def test_training_learns(one):
    """Synthetic text has one of eight successors: ln 256 at first, towards ln 8 in the end."""
    curve = losses(one["longer"])
    assert curve[0] == pytest.approx(5.545, abs=0.05)
    assert curve[-1] < 4.5


def test_ranks_hold_what_the_strategy_leaves_them(two, four):
    def share(record):
        return record.results["parameters_per_rank"] / SMALL.parameters

    assert share(two["sgd", "ddp"]) == 1.0
    assert share(two["sgd", "fsdp"]) == 0.5
    # Norms are replicated under tensor parallelism: 9 of 64 weights.
    assert share(two["sgd", "tp + sp"]) == (SMALL.parameters + 9 * 64) / 2 / SMALL.parameters
    # Two layers, and head (with the last norm) or embedding.
    assert share(two["sgd", "pp, 1f1b"]) == (SMALL.parameters + 64) / 2 / SMALL.parameters
    assert share(four["hsdp"]) == 0.5
    assert share(four["pp x fsdp"]) == (SMALL.parameters + 64) / 4 / SMALL.parameters
