"""Megatron-LM's own counts of FLOPs and memory against ours, over models and layouts.

An independent judge: `num_floating_point_operations`, `compute_weight_and_optimizer_memory` and
`compute_activation_memory` of megatron-core 0.19.2. docs/launch-a-plan.md has the differences.
"""

import os

import pytest

from scalewise.ask.question import Question
from scalewise.ask.resolve import resolve
from scalewise.frameworks.export import export
from test_frameworks_real import PACKAGES, ask, job
from waiting import NEEDS

pytestmark = pytest.mark.skipif(not PACKAGES, reason=f"{NEEDS} FRAMEWORK_PACKAGES")

DENSE = ("llama-2-7b", "llama-3-8b", "llama-3-70b", "gpt3-13b", "qwen2.5-7b", "mistral-7b")
LAYOUTS = ("zero1x64-tp1-mb1-acattn", "zero1x32-tp2-mb1-acattn", "zero1x8-tp4-pp2-mb2-acattn",
           "zero1x2-tp8-pp4-mb1-acattn")  # fmt: skip
EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite")


def grid(models, layouts):
    found = []
    for model in models:
        for layout in layouts:
            words = {"model": model, "on": "dgx-h100", "seq": 2048, "stack": "megatron-lm"}
            asked = resolve(Question(strategy=layout, batch=128, precision="bf16", **words))
            out = export(asked, "megatron")
            assert out.refused == (), [str(gap) for gap in out.refused]
            found.append((asked, out))
    return found


def judged(models, layouts):
    plans = grid(models, layouts)
    answers = ask("megatron", [job(*each) | {"judge": True} for each in plans])
    rows = []
    for (asked, _), answer in zip(plans, answers, strict=True):
        assert "ok" in answer, answer["error"]
        theirs = answer["ok"]["judge"]
        e, workload = asked.estimate(), asked.workload
        tokens = workload.seq_len * workload.global_batch
        rows.append({
            "model": asked.model.name, "layout": str(asked.strategy),
            "flops": asked.model.training_flops(workload.seq_len, "megatron") * tokens
            / theirs["flops"] - 1,
            "causal": asked.model.training_flops(workload.seq_len, "causal") * tokens
            / theirs["flops"] - 1,
            "states": sum(e.memory[part] for part in STATES if part in e.memory)
            / theirs["weights"] - 1,
            "activations": e.memory["activations"] / theirs["activations"] - 1
            if "activations" in e.memory else 0.0,
            "memory": e.memory, "theirs": theirs,
        })  # fmt: skip
        if os.environ.get("JUDGE"):
            print(rows[-1])
    return rows


STATES = ("parameters", "gradients", "optimizer")
