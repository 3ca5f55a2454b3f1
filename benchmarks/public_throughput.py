"""Healthy public runs with nothing said about software, against predictions.

    python benchmarks/public_throughput.py              # no software named
    python benchmarks/public_throughput.py --named      # with the software of each thread

Numbers are tokens/s per GPU of public threads whose cause of slowness, if they had one, was not a
fault of the machine. Each is asked as a reader of the thread would ask, without a stack: the answer
then covers what people get with the family and what tuned software of it reaches. Facts that a
thread does not state are marked as assumed. No constant is fitted to these runs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from diagnose_public import BLOG, MEGATRON, QWEN_7B, QWEN_32B, QWEN_72B, TITAN
from scalewise.ask.question import question_from
from scalewise.ask.resolve import resolve
from scalewise.step.sequences import useful_flops

MEGATRON_FLOPS = 296.5e12
"""FLOP/s per GPU, as Megatron-LM counts them: without recompute."""

DAYS = 8.0 + 17.0 / 24.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured number."""

    name: str
    measured: float
    """Tokens/s per GPU; of Megatron-LM's thread FLOP/s."""
    words: dict[str, Any] = field(default_factory=dict)


def _blog(words: dict[str, Any], gpus: int, measured: float) -> Run:
    """A run of the blog: the batch grows with the GPUs, its micro-batch is assumed."""
    each = words["batch"] // words["gpus"]
    asked = words | {"gpus": gpus, "batch": each * gpus}
    return Run(name=f"{BLOG}, {words['model']}, {gpus} GPUs", measured=measured, words=asked)


RUNS = (
    *(_blog(QWEN_7B, n, rate) for n, rate in ((8, 8159), (16, 8189), (32, 8194), (64, 7859))),
    *(_blog(QWEN_72B, n, rate) for n, rate in ((16, 571), (32, 550), (64, 472))),
    Run(name="https://github.com/NVIDIA/Megatron-LM/issues/1031", measured=MEGATRON_FLOPS,
        words=MEGATRON | {"strategy": "zero1x2-tp8-pp8-mb1-acfull"}),
    Run(name=f"{TITAN}/pull/1690, FSDP 8 compiled", measured=1874,
        words=QWEN_32B | {"gpus": 8, "strategy": "fsdp8-mb2-acfull-compiled", "batch": 16}),
    Run(name=f"{TITAN}/pull/1690, FSDP 4 x TP 8", measured=876,
        words=QWEN_32B | {"gpus": 32, "strategy": "fsdp4-tp8-mb16-acfull", "batch": 64}),
    Run(name=f"{TITAN}/pull/1690, FSDP 8 x TP 8", measured=873,
        words=QWEN_32B | {"gpus": 64, "strategy": "fsdp8-tp8-mb16-acfull", "batch": 128}),
    # 4 T tokens in 8 days and 17 hours. Sharding, micro-batch and batch are assumed.
    Run(name="https://github.com/allenai/OLMo/issues/861", measured=4e12 / (DAYS * 86400.0 * 128),
        words={"model": "olmo-1b", "on": "dgx-h100", "gpus": 128, "strategy": "fsdp128-mb4",
               "seq": 4096, "batch": 512, "sets": ("model.vocab=100352",),
               "stack": "olmo-core"}),
)  # fmt: skip


def main() -> None:
    """Ask, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--named", action="store_true", help="name the software of each thread")
    named = parser.parse_args().named
    ratios, inside = [], 0
    for run in RUNS:
        words = dict(run.words) if named else {k: v for k, v in run.words.items() if k != "stack"}
        e = resolve(question_from(words)).estimate()
        measured = run.measured
        if measured == MEGATRON_FLOPS:
            measured /= useful_flops(e.model, e.workload, "megatron")
        ratios.append(e.tokens_per_second_per_accelerator / measured)
        inside += e.low <= measured <= e.high
        print(
            f"{ratios[-1]:5.2f}  {e.tokens_per_second_per_accelerator:8,.0f} "
            f"[{e.low:,.0f}-{e.high:,.0f}] of {measured:,.0f}  {e.stack.name}  {run.name}"
        )
    print(
        f"{len(ratios)} numbers: median ratio {median(ratios):.2f}, {inside} "
        f"({inside / len(ratios):.0%}) in the 80% interval"
    )


if __name__ == "__main__":
    main()
