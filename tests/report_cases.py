"""Estimates that together have every term, and curves, for the tests of all views."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from scalewise import Workload, estimate, load_cluster, load_model, parse_strategy
from scalewise.explore.scale import scale
from scalewise.explore.search import search
from scalewise.explore.sizes import Rule
from scalewise.explore.space import Limits

WEAK = Rule(kind="weak", batch=2, seq_len=4096)

CASES = {
    "fsdp": ("llama-2-7b", "dgx-h100", "fsdp2048-mb2", 4096, 4096),
    "hsdp": ("llama-2-7b", "dgx-h100", "hsdp4x16-mb2-acsel", 4096, 256),
    "ddp": ("llama-2-7b", "dgx-h100", "ddp64-mb1-acfull", 4096, 64),
    "zero1 pipeline": ("gpt3-175b", "dgx-a100", "zero1x16-tp8-pp8-mb1", 2048, 512),
    "interleaved": ("gpt3-175b", "dgx-a100", "zero1x4x4-tp8-pp8-v2-mb1-acfull", 2048, 512),
    "ring context": ("llama-3-8b", "dgx-h100", "fsdp8-cp4-tp2-mb1", 32768, 8),
    "gathered context": ("llama-3-8b", "dgx-h100", "fsdp8-cp8ag-mb1-fp8", 65536, 8),
    "zero2 without sequence parallelism": (
        "llama-3-70b", "dgx-h100", "zero2x16-tp8-nosp-mb1", 8192, 64,
    ),
    "zero bubble": ("llama-3-70b", "dgx-h100", "fsdp4-tp4-pp8-zbh1-mb1", 8192, 64),
    "tpu": ("llama-2-7b", "gcp-tpu-v5p", "fsdp64-mb2-pf0", 4096, 128),
    "no overlap": ("llama-2-7b", "dgx-h100", "fsdp64-mb2-nodpoverlap-noreshard", 4096, 256),
    "old chip": ("gpt2", "v100", "ddp8-mb4-fp16", 1024, 64),
    "eight bits": (
        "llama-3-8b", "dgx-h100", "hsdp2x32-mb1-fp8block-fp8attn-gatherfp8", 8192, 64,
    ),
    "updated in eight bits": (
        "llama-3-70b", "dgx-h100", "zero1x8-tp4-pp2-mb1-fp8-gatherfp8", 8192, 64,
    ),
    "experts in eight bits": (
        "qwen3-30b-a3b", "dgx-h100", "fsdp64-ep8-mb1-fp8block-fp8attn-gatherfp8", 4096, 64,
    ),
    "rows of eight bits": ("llama-3-8b", "dgx-h100", "fsdp16-tp2-mb1-acfull-fp8row", 8192, 64),
    "gpipe": ("llama-2-13b", "dgx-h100", "zero1x2-pp4-gpipe-mb1", 4096, 16),
}  # fmt: skip


def priced(name):
    """Estimate one of the cases."""
    model, cluster, spelled, seq_len, batch = CASES[name]
    strategy = parse_strategy(spelled)
    work = Workload(seq_len=seq_len, global_batch=batch)
    sized = load_cluster(cluster, strategy.accelerators)
    # Named, so that literal numbers do not depend on what is usual for a strategy.
    stack = "maxtext-tpu" if "tpu" in cluster else "megatron"
    return estimate(load_model(model), sized, work, strategy, stack=stack)


@cache
def one_group():
    """One model on one cluster, with a knee, crossovers, a gap and a strategy that never fits."""
    return scale(load_model("llama-2-7b"), load_cluster("dgx-h100"), WEAK,
                 ["fsdp", "hsdp64", "tp2", "tp8-pp16", "ddp"], [64, 1024, 8192],
                 stack="megatron")  # fmt: skip


@cache
def many_groups():
    """Two models, two clusters, two sequence lengths, two strategies."""
    return scale(
        [load_model("llama-2-7b"), load_model("llama-2-13b")],
        [load_cluster("dgx-h100"), load_cluster("dgx-v100")],
        [WEAK, msgspec.structs.replace(WEAK, seq_len=8192)],
        ["fsdp", "best-tp2-pp1-mb1"],
        [16, 64],
        stack="megatron",
    )


def only(curves, **fields):
    """Keep the curves with these fields."""
    kept = tuple(c for c in curves.curves if all(getattr(c, k) == v for k, v in fields.items()))
    return msgspec.structs.replace(curves, curves=kept)


def searched(model="llama-2-7b", cluster="dgx-h100", limits=None, **asked):
    """Search strategies of 16 accelerators."""
    work = Workload(seq_len=2048, global_batch=32)
    limits = limits or Limits(tp=(1, 2), pp=(1, 2), cp=(1,), micro_batch=(1, 2))
    stack = "maxtext-tpu" if "tpu" in cluster else "megatron"
    return search(
        load_model(model), load_cluster(cluster, 16), work, limits=limits, stack=stack, **asked
    )


@cache
def small_search():
    """A search with ties, a front and a map."""
    return searched(pareto=("time", "memory"), best_by_tp_pp=True, top=8)


@cache
def small_search_of_experts():
    """A small search for a model with experts, with the best strategy by TP and PP."""
    return search(
        load_model("qwen3-30b-a3b"), load_cluster("dgx-h100", 16),
        Workload(seq_len=4096, global_batch=64),
        limits=Limits(tp=(1, 2), pp=(1, 2), ep=(4, 8), etp=(1,), recompute=("full",)),
        stack="megatron", best_by_tp_pp=True,
    )  # fmt: skip


@cache
def nothing_fits():
    """A search that finds nothing."""
    return searched("llama-3.1-405b", limits=Limits(tp=(1,), pp=(1,)))


def is_offline(page):
    """Whether a page fetches nothing; scripts are blanked first, because they speak of tags."""
    tags = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    return not re.search(r"<(script|link|img)[^>]+(src|href)=(?!.data:)", tags)


def without_scripts(page):
    """The page without its scripts."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
