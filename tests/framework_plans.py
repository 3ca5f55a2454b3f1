"""Random plans for the exporters: the same ones every time, resolved and able to run."""

import random
from functools import cache

from scalewise.ask.question import Question
from scalewise.ask.resolve import resolve
from scalewise.errors import InputError

MODELS = {
    "megatron": ("llama-3-8b", "llama-3-70b", "gpt3-13b", "qwen3-8b", "mixtral-8x7b",
                 "deepseek-v2-lite", "qwen3-30b-a3b", "qwen2.5-7b", "mistral-7b"),
    "torchtitan": ("llama-3-8b", "llama-3-70b", "llama-3.1-405b", "qwen3-14b", "qwen3-30b-a3b",
                   "gpt-oss-20b", "deepseek-v2-lite"),
    "deepspeed": ("llama-2-7b", "llama-3-8b", "llama-3-70b", "mistral-7b"),
    "accelerate": ("llama-2-7b", "llama-3-8b", "llama-3-70b", "mistral-7b"),
    "maxtext": ("llama-2-7b", "llama-3-8b", "llama-3-70b", "mixtral-8x7b", "gemma-2-9b"),
    "megatron-bridge": ("llama-3-8b", "llama-3-70b", "qwen3-8b", "qwen3-30b-a3b", "gpt-oss-20b"),
}  # fmt: skip
TOKENS = {
    "megatron": ("acfull", "acattn", "ac1of2", "acnorm", "acmlp", "noreshard", "reducebf16",
                 "nodpoverlap", "noppoverlap", "offopt", "bucket64"),
    "torchtitan": ("acfull", "acop", "compiled", "compiled", "noreshard", "offopt-offparam",
                   "notpoverlap"),
    "deepspeed": ("acfull", "hpz8", "qwz", "qgz", "offopt", "offopt-offparam", "bucket64",
                  "reducefp32", "nodpoverlap"),
    "accelerate": ("acfull", "acfull", "compiled", "noreshard", "offopt-offparam", "reducebf16"),
    "maxtext": ("reducebf16", "offopt"),
    "megatron-bridge": ("acfull", "acattn", "acnorm", "reducebf16", "nodpoverlap", "offopt"),
}  # fmt: skip
"""Tokens that a framework can say."""
FOREIGN = ("tilemlp2", "pf2", "qgz", "acop", "ac1of2", "fp8attn", "offact", "gatherfp8", "hpz8")
"""Tokens that many cannot."""
PRECISIONS = {
    "megatron": ("bf16", "fp16", "fp8", "mxfp8", "fp8block", "fp32", "nvfp4"),
    "torchtitan": ("bf16", "bf16", "fp32", "fp8"), "deepspeed": ("bf16", "fp16", "fp32"),
    "accelerate": ("bf16", "fp16", "fp8", "fp32"), "maxtext": ("bf16", "fp8", "fp32"),
    "megatron-bridge": ("bf16", "fp8", "mxfp8", "fp8block"),
}  # fmt: skip


def plan(target, pick):
    """One random plan, or None where the numbers do not go together."""
    gpus = pick.choice((8, 16, 64, 256, 512, 2048))
    tp, pp, cp = pick.choice((1, 1, 2, 4, 8)), pick.choice((1, 1, 1, 2, 4)), pick.choice((1, 1, 2))
    if target in ("deepspeed", "accelerate") and pick.random() < 0.9:
        pp, cp = 1, 1
    if target == "maxtext" and pick.random() < 0.8:
        pp = 1
    ranks = gpus // (tp * pp * cp)
    if ranks < 1:
        return None
    replicas = pick.choice([each for each in (1, 1, 2, 4) if ranks % each == 0])
    shards = ranks // replicas
    data = {
        "megatron": (f"zero1x{replicas}x{shards}", f"ddp{ranks}", f"fsdp{ranks}",
                     f"zero1x{ranks}"),
        "torchtitan": (f"hsdp{replicas}x{shards}", f"fsdp{ranks}", f"fsdp{ranks}", f"ddp{ranks}"),
        "deepspeed": (f"zero1x{ranks}", f"zero2x{ranks}", f"fsdp{ranks}"),
        "accelerate": (f"hsdp{replicas}x{shards}", f"fsdp{ranks}", f"ddp{ranks}"),
        "maxtext": (f"hsdp{replicas}x{shards}", f"fsdp{ranks}"),
    }  # fmt: skip
    data["megatron-bridge"] = data["megatron"]
    parts = [pick.choice(data[target])]
    micro = pick.choice((1, 1, 2, 4))
    steps = pick.choice((1, 2, 4, 8)) * (pp if pick.random() < 0.7 else 1)
    model = pick.choice(MODELS[target])
    parts += [
        f"tp{tp}",
        f"cp{cp}" + ("ag" if target in ("torchtitan", "accelerate") else pick.choice(("", "ag"))),
        f"pp{pp}",
    ]
    if pp > 1 and pick.random() < 0.5:
        parts.append(pick.choice(("v2", "v2", "v4", "gpipe", "zbv", "zbh1", "first6-last6")))
    experts = any(word in model for word in ("8x7b", "lite", "a3b", "oss"))
    if experts:
        parts.append(f"ep{pick.choice((1, 2, 4, 8))}")
        if pick.random() < 0.2:
            parts.append("etp2")
    parts.append(f"mb{micro}")
    parts += pick.sample(TOKENS[target], pick.choice((0, 1, 1, 2)))
    if target in ("deepspeed", "accelerate") and tp > 1 and pick.random() < 0.9:
        parts += ["nosp", "notpoverlap"]
    elif tp > 1 and pick.random() < 0.3:
        parts += pick.choice((["notpoverlap"], ["nosp", "notpoverlap"], ["nosp"]))
    if target == "maxtext":
        parts.append(pick.choice(("acfull", "acsel", "acfull", "acattn")))
    if pick.random() < 0.15:
        parts.append(pick.choice(FOREIGN))
    words = {
        "model": model,
        "on": pick.choice(("dgx-h100", "dgx-h100", "dgx-a100", "dgx-b200")),
        "gpus": gpus,
        "strategy": "-".join(parts),
        "seq": pick.choice((2048, 4096, 8192)),
        "batch": ranks * micro * steps,
        "precision": pick.choice(PRECISIONS[target]),
        "stack": {"megatron": "megatron-lm"}.get(target, target),
        "tokens": pick.choice((None, None, "2T")),
        "optimizer": pick.choice((None,) * 9 + ("adamw-bf16", "muon", "adamw-8bit")),
        "loss": pick.choice((None,) * 6 + ("fused", "chunked")),
    }
    try:
        asked = resolve(Question(**{k: v for k, v in words.items() if v is not None}))
        asked.estimate()
    except InputError:
        return None
    return asked


@cache
def plans(target, count):
    """`count` random plans of a target."""
    pick, found = random.Random(f"scalewise {target}"), []
    while len(found) < count:
        asked = plan(target, pick)
        if asked is not None:
            found.append(asked)
    return found
