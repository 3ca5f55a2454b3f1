"""Inputs that are almost right: real ones with a few wrong words, numbers, lines or bytes.

    questions().example()        # {"model": "llama-2-7b", "gpus": "64", "sets": ["stack.gemm=nan"]}
    damaged(b"...").example()    # the same bytes with some changed

Random bytes are refused at the door. These pass it often enough to reach the code behind: a tenth
and more of them is answered.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]
CATALOG = ROOT / "src" / "scalewise" / "catalog"

WORDS = (
    "", " ", "?", ".", "~", "~nosuch", "-", "--", "nan", "inf", "-inf", "null", "none", "true", "0",
    "-1", "1.5", "1e308", "1e-308", "5e-324", "1e400", "9" * 400, "10**9", "1_000", "0x10", "٣",
    "1e300TB/s", "-3GB", "1GiB/s/s", "4Mtok", "8..", "..8", "8..8192", "8,16", "a=b", "=", "a.b=c",
    "../../etc/passwd", "/dev/zero", "/dev/stdin", "混元", "\x00", "\x1b]0;t\x07", "'; drop", "{}",
    "[1]", "best", "auto", "fsdp", "tp8", "x" * 300,
)  # fmt: skip
"""Words that have broken something somewhere, and their neighbors."""

NUMBERS = (
    0, -1, 1, 2, 3, 7, 2**31, 2**53 + 1, 10**12, 10**400, -(10**18), 0.0, -0.0, 0.5, 1e-300, 1e308,
    float("nan"), float("inf"),
)  # fmt: skip
VALUES = (*NUMBERS, None, True, False, "", "x", "12", [], [1], {}, {"a": 1}, [[[]]])
"""What stands in a JSON or TOML file instead of what belongs there."""

MODELS = ("llama-2-7b", "llama-3-8b", "llama 3 70b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3",
          "tiny", "gpt-oss-20b", "qwen3-8b")  # fmt: skip
CLUSTERS = ("dgx-h100", "dgx-a100", "h100", "aws-p5", "tpu-v5p", "mi300x", "gb200-nvl72", "a100")
STRATEGIES = (
    "fsdp", "best", "fsdp-tp2", "fsdp-tp8-mb1", "hsdp8", "ddp", "zero1-tp2-pp2", "tp8-pp2",
    "fsdp-acfull", "fsdp-ac1of4-offopt", "zero1-pp4-v2", "fsdp-cp2", "fsdp-ep8", "mics4x2",
    "fsdp-hpz8-qwz", "zero2-pp2-zbh1",
)  # fmt: skip
KEYS = (
    "cluster.pue", "cluster.scale_out_bandwidth", "cluster.scale_up_domain", "stack.gemm",
    "stack.tp_overlap", "stack.overhead_seconds", "stack.attention_forward", "cluster.fabric",
    "fabric.efficiency", "fabric.congestion", "accelerator.memory_bandwidth", "model.layers",
    "accelerator.compute_units", "accelerator.memory_bytes", "accelerator.peak_flops.bf16",
    "model.heads", "model.vocab", "strategy.tp", "strategy.micro_batch", "workload.seq_len",
    "model.moe.experts", "stack.memory_interval", "cluster.usd_per_hour",
)  # fmt: skip


def words():
    """A word that cannot be right, or any text."""
    return st.one_of(st.sampled_from(WORDS), st.text(max_size=12))


@st.composite
def _sets(draw):
    key = draw(st.one_of(st.sampled_from(KEYS), st.just("stack.nothing"), words()))
    usual = st.sampled_from(("1", "0.5", "2", "64", "100", "1.01", "3TB/s", "800Gbit/s", "80GiB"))
    value = draw(st.one_of(usual, usual, words(), st.floats(width=64).map(repr)))
    return f"{key}={value}"


@st.composite
def questions(draw, *, sizes=True):
    """A question: its words are right nine times of ten."""
    fields = {
        "model": st.sampled_from(MODELS),
        "on": st.sampled_from(CLUSTERS),
        "gpus": st.sampled_from(("8", "16", "64", "256", "2048", "96", "1")),
    }
    more = {
        "strategy": st.sampled_from(STRATEGIES),
        "seq": st.sampled_from(("512", "4k", "8192", "131072")),
        "batch": st.sampled_from(("64", "1024", "4Mtok", "4096", "1")),
        "precision": st.sampled_from(("bf16", "fp8", "fp16", "nvfp4", "tf32", "mxfp8")),
        "imbalance": st.sampled_from((1.0, 1.5, 1024.0, -1.0)),
        "optimizer": st.sampled_from(("adamw", "muon", "sgd", "adamw-8bit", "shampoo")),
        "weights": st.sampled_from(("mixed", "bf16", "fp32")),
        "tuning": st.sampled_from(("full", "lora16", "qlora64", "lora8-qv", "lora0")),
        "loss": st.sampled_from(("full", "chunked", "fused")),
        "lengths": st.sampled_from(("600", "100..2000", "lognormal:mean=600,sigma=0.8", "1..1e9")),
        "batching": st.sampled_from(("packed", "padded", "bucketed")),
        "stack": st.sampled_from(("megatron", "pytorch", "maxtext-tpu", "nanotron", "torchtitan")),
        "tokens": st.sampled_from(("1T", "15T", 1e12)),
        "price": st.sampled_from(("2.5", "0", 1e300)),
        "pue": st.sampled_from((1.0, 1.3, 10.0)),
        "power_cap": st.sampled_from(("500W", "350", "1W", "1kW")),
        "network": st.sampled_from(("100GbE", "8x400G-ib", "25GbE-tcp", "efa")),
        "node": st.sampled_from(("4", "8", "72", "1")),
        "algorithm": st.sampled_from(("auto", "ring", "tree", "pat", "hierarchical")),
        "protocol": st.sampled_from(("auto", "ll", "ll128", "simple")),
        "fit": st.sampled_from((0.5, 0.9, 1e-9, 1.0)),
        "by": st.sampled_from(("time", "tokens", "cost", "energy", "memory")),
    }
    asked = {name: draw(values) for name, values in fields.items()}
    if not sizes:
        del asked["gpus"]
    for name in draw(st.lists(st.sampled_from(tuple(more)), max_size=4, unique=True)):
        asked[name] = draw(more[name])
    if draw(st.integers(0, 3)) == 0:
        asked["sets"] = draw(st.lists(_sets(), min_size=1, max_size=2))
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from((*asked, *more)))
        asked[name] = draw(words() if name != "sets" else st.lists(words(), max_size=3))
    return asked


@st.composite
def damaged(draw, seeds):
    """One of some files with up to four changes of bytes, lines or numbers."""
    content = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(("flip", "cut", "number", "number", "line", "twice", "insert")))
        if kind == "flip" and content:
            changed = content[place] ^ (1 << draw(st.integers(0, 7)))
            content = content[:place] + bytes([changed]) + content[place + 1 :]
        elif kind == "cut":
            content = content[:place]
        elif kind == "number":
            content = _with_number(content, place, draw(st.sampled_from(NUMBERS)))
        elif kind == "insert":
            content = content[:place] + draw(words()).encode() + content[place:]
        else:
            lines = content.split(b"\n")
            line = place % len(lines)
            lines[line : line + 1] = [] if kind == "line" else [lines[line]] * 2
            content = b"\n".join(lines)
    return content


def _with_number(content, place, number):
    """Replace the first digits behind a place."""
    start = next((at for at in range(place, len(content)) if content[at : at + 1].isdigit()), None)
    if start is None:
        return content
    end = start
    while content[end : end + 1].isdigit():
        end += 1
    return content[:start] + str(number).encode() + content[end:]


@st.composite
def configs(draw):
    """A Hugging Face config with up to three keys changed, missing or added."""
    config = dict(draw(st.sampled_from(hub_configs())))
    for _ in range(draw(st.integers(0, 3))):
        key = draw(st.sampled_from((*config, "layer_types", "sliding_window", "mlp_only_layers")))
        if draw(st.booleans()):
            value = config.get(key)
            near = (1, 2, 3, 8, 64) if isinstance(value, int) else ()
            config[key] = draw(st.sampled_from((*VALUES, *near, *near)))
        elif key in config and key != "model_type":
            del config[key]
    return config


@cache
def hub_configs():
    """The configs that tests have."""
    folder = ROOT / "tests" / "data" / "hf"
    return tuple(json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))


@cache
def files(pattern, most=40):
    """Content of files of the repository, small ones."""
    found = [path.read_bytes() for path in sorted(ROOT.glob(pattern))]
    return tuple(content for content in found if 0 < len(content) < 40_000)[:most]


@cache
def first_lines(path, count=12):
    """The header and some rows of a shipped table."""
    lines = (ROOT / path).read_bytes().split(b"\n")
    return (b"\n".join(lines[:count]), b"\n".join([lines[0], *lines[-count:]]))
