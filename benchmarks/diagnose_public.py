"""Diagnosis of public threads: what is said of a measured number, and what the thread found.

    python benchmarks/diagnose_public.py
    python benchmarks/diagnose_public.py oumi       # threads whose name has a word

No constant was fitted on these runs. Facts that a thread does not state are marked as assumed.
Printed: verdict, odds of the first causes with their values, groups, and the named measurement.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

import scalewise as sw
from scalewise.report.diagnose_table import odds


@dataclass(frozen=True, kw_only=True)
class Thread:
    """One public case."""

    name: str
    truth: str
    """What was found to be the cause, or is known of the run."""
    measured: str
    words: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


TITAN = "https://github.com/pytorch/torchtitan"
BLOG = "https://jingchaozhang.github.io/IB-vs-Ethernet-Fine-Tuning-at-Scale"

LLAMA_8B = {
    "model": "llama-3-8b", "on": "oci-h100", "gpus": 32, "strategy": "fsdp32-mb1-acop",
    "seq": 8192, "batch": 32,
}  # fmt: skip
LLAMA_70B = {
    "model": "llama-3-70b", "on": "aws-p5en", "gpus": 32, "strategy": "fsdp32-mb1-acfull",
    "seq": 8192, "batch": 32,
}  # fmt: skip
# Micro-batches of the blog are assumed: 2 and 1.
QWEN_7B = {
    "model": "qwen2.5-7b", "on": "azure-nd-h100-v5", "gpus": 16, "strategy": "fsdp-mb2-acfull",
    "seq": 2048, "batch": 32, "stack": "accelerate",
}  # fmt: skip
QWEN_72B = {
    "model": "qwen2.5-72b", "on": "azure-nd-h100-v5", "gpus": 64, "strategy": "fsdp-mb1-acfull",
    "seq": 2048, "batch": 64, "stack": "accelerate",
}  # fmt: skip
MEGATRON = {
    "model": "llama-2-70b", "on": "dgx-h100", "gpus": 128, "seq": 4096, "batch": 512,
    "stack": "megatron",
}  # fmt: skip
QWEN_32B = {
    "model": "qwen3-32b", "on": "h100-sxm-96gb-500w", "seq": 4096, "stack": "torchtitan",
}  # fmt: skip

# HuggingFaceFW/ablation-model-fineweb-v1: the table of oumi's configs/examples/
# fineweb_ablation_pretraining/README.md. Samples have 2,048 tokens (pull request 225). FSDP has
# micro-batches of 16 (pull request 207) and gradient checkpointing (removed in 236); 16 of them per
# step are assumed. GCP's A100 machines have 50 Gbit/s per 4 GPUs.
OUMI = "https://github.com/oumi-ai/oumi"
LLAMA_2B = sw.Model(
    name="llama2b-fineweb", layers=24, hidden=2048, ffn=8192, heads=32, vocab=50272, tied=True
)
GCP = {
    "model": LLAMA_2B, "on": "gcp-a2-high", "node": 4, "gpus": 16, "seq": 2048, "batch": 4096,
    "stack": "accelerate",
}  # fmt: skip
# Two NICs of Slingshot 11 per node are assumed, and no recompute.
POLARIS = {
    "model": LLAMA_2B, "on": "a100-sxm-40gb", "node": 4, "network": "2x200G-roce", "gpus": 8,
    "strategy": "ddp8-mb2", "seq": 2048, "stack": "transformers",
}  # fmt: skip

THREADS = (
    Thread(name=f"{TITAN}/issues/708, 32 GPUs", truth="network between nodes (TCP)",
           measured="1786 tok/s", words=LLAMA_8B),
    Thread(name=f"{TITAN}/issues/708, with one node (4 x 1,786, as stated)",
           truth="network between nodes (TCP)", measured="8=7144,32=1786", words=LLAMA_8B),
    Thread(name=f"{TITAN}/issues/676", truth="network between nodes (EFA not used)",
           measured="200 tok/s", words=LLAMA_70B),
    Thread(name=f"{BLOG}, 7B on Ethernet", truth="TCP, nccl-tests 3.19 GB/s per node",
           measured="16=311", words=QWEN_7B),
    Thread(name=f"{BLOG}, 7B on Ethernet, 16 to 64", truth="TCP, nccl-tests 3.19 GB/s per node",
           measured="16=311,32=295,64=292", words=QWEN_7B | {"gpus": 64, "batch": 128}),
    Thread(name=f"{BLOG}, 7B on Ethernet with nccl-tests", truth="TCP",
           measured="16=311", words=QWEN_7B, extra={"nccl": "3.19GB/s"}),
    Thread(name=f"{BLOG}, 7B on InfiniBand", truth="healthy",
           measured="8=8159,16=8189,32=8194,64=7859", words=QWEN_7B | {"gpus": 64, "batch": 128}),
    Thread(name=f"{BLOG}, 72B on Ethernet", truth="TCP, nccl-tests 3.19 GB/s per node",
           measured="16=12.7,32=12.6,64=12.3", words=QWEN_72B),
    Thread(name=f"{BLOG}, 72B on InfiniBand", truth="healthy",
           measured="16=571,32=550,64=472", words=QWEN_72B),
    Thread(name="https://jingchaozhang.github.io/Dense-vs-MoE-Communication-Patterns-on-Azure-H100"
                ", 7B on 16 GPUs",
           truth="two throttled nodes", measured="53995 tok/s total", words=QWEN_7B),
    Thread(name="https://github.com/NVIDIA/Megatron-LM/issues/1031",
           truth="full recompute, layout (no fault)", measured="296.5 TFLOP/s",
           words=MEGATRON | {"strategy": "zero1x2-tp8-pp8-mb1-acfull"},
           extra={"convention": "megatron"}),
    Thread(name="https://github.com/NVIDIA/Megatron-LM/issues/1031, recompute not stated",
           truth="full recompute, layout (no fault)", measured="296.5 TFLOP/s",
           words=MEGATRON | {"strategy": "zero1x2-tp8-pp8-mb1"},
           extra={"convention": "megatron"}),
    Thread(name=f"{TITAN}/pull/1690, FSDP 8 compiled", truth="healthy", measured="1874 tok/s",
           words=QWEN_32B | {"gpus": 8, "strategy": "fsdp8-mb2-acfull", "batch": 16,
                              "stack": "pytorch-compiled"}),
    Thread(name=f"{TITAN}/pull/1690, FSDP 4 x TP 8", truth="eager tensor parallelism (not listed)",
           measured="876 tok/s",
           words=QWEN_32B | {"gpus": 32, "strategy": "fsdp4-tp8-mb16-acfull", "batch": 64}),
    Thread(name=f"{OUMI}/pull/213, FSDP on 4 nodes", truth="network between nodes (HSDP +34%)",
           measured="7085 tok/s", words=GCP | {"strategy": "fsdp16-mb16-acfull"}),
    Thread(name=f"{OUMI}/pull/213, FSDP and HSDP on 4 nodes",
           truth="network between nodes (HSDP +34%)",
           measured="fsdp16-mb16-acfull=7085,hsdp4x4-mb16-acfull=9524",
           words=GCP | {"strategy": "fsdp16-mb16-acfull"}),
    Thread(name=f"{OUMI}/pull/213, HSDP on 1, 2 and 4 nodes", truth="healthy, as far as is known",
           measured="4=11110,8=10445,16=9524", words=GCP | {"strategy": "hsdp4x4-mb16-acfull"}),
    Thread(name=f"{OUMI}/pull/205, 4 accumulation steps on 2 nodes",
           truth="gradients reduced too often over the network", measured="4787 tok/s",
           words=POLARIS | {"batch": 64}),
    Thread(name=f"{OUMI}/pull/205, 128 accumulation steps on 2 nodes", truth="healthy",
           measured="11187 tok/s", words=POLARIS | {"batch": 2048}),
)  # fmt: skip


def main() -> None:
    """Print what is said of every thread."""
    start = time.process_time()
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    for each in THREADS:
        if only not in each.name:
            continue
        found = sw.diagnose(**each.words, measured=each.measured, **each.extra)
        run = found.runs[0]
        print(f"{each.name}\n  truth: {each.truth}")
        print(
            f"  {found.verdict}: {run.measured:,.0f} measured, {run.expected:,.0f} expected "
            f"[{run.low:,.0f}-{run.high:,.0f}], healthy {odds(found.healthy)}, "
            f"not on the list {odds(found.other)}"
        )
        for cause in found.causes[:4]:
            print(f"    {odds(cause.odds):>4s} {cause.label} {cause.text}")
        if found.groups:
            print(f"  group: {found.groups[0].label} {odds(found.groups[0].odds)}")
        if found.following:
            first = found.following[0]
            print(f"  next: {first.label} ({first.bits:.1f} bits)")
    print(f"{time.process_time() - start:.1f} s of CPU, {len(THREADS)} threads")


if __name__ == "__main__":
    main()
