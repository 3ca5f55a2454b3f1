"""Estimates that together have every term, for the tests of all views."""

from __future__ import annotations

from scalewise import Workload, estimate, load_cluster, load_model, parse_strategy

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
    "gpipe": ("llama-2-13b", "dgx-h100", "zero1x2-pp4-gpipe-mb1", 4096, 16),
}  # fmt: skip


def priced(name):
    """Estimate one of the cases."""
    model, cluster, spelled, sequence, batch = CASES[name]
    strategy = parse_strategy(spelled)
    work = Workload(sequence=sequence, global_batch=batch)
    return estimate(load_model(model), load_cluster(cluster, strategy.accelerators), work, strategy)
