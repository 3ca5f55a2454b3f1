"""Inputs that are almost right: real ones with a few wrong words, numbers, lines or bytes.

    draw = random.Random(7)
    question(draw)                # {"model": "llama-2-7b", "sets": ["stack.gemm=nan"], ...}
    damaged(draw, (b"...",))      # the same bytes with some changed

Random bytes are refused at the door. These pass it often enough to reach the code behind: a tenth
and more of them is answered. Every choice comes from a `random.Random`, which takes microseconds:
Hypothesis, which can drive the same functions, takes longer than most answers.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
CATALOG = ROOT / "src" / "scalewise" / "catalog"
SEEDS = Path(__file__).parent / "seeds"

WORDS = (
    "", " ", "?", ".", "~", "~nosuch", "-", "--", "nan", "inf", "-inf", "null", "none", "true", "0",
    "-1", "1.5", "1e308", "1e-308", "5e-324", "1e400", "9" * 400, "10**9", "1_000", "0x10", "٣",
    "1e300TB/s", "-3GB", "1GiB/s/s", "4Mtok", "8..", "..8", "8..8192", "8,16", "a=b", "=", "a.b=c",
    "../../etc/passwd", "/dev/zero", "/dev/stdin", "混元", "\x00", "\x1b]0;t\x07", "'; drop", "{}",
    "[1]", "best", "auto", "fsdp", "tp8", "x" * 300, "\udcff", "\\ud800", "\u2028", "%s", "{0}",
    "1,2,3,4", "0/0", "1:2:3", "--set", "@", "#", '"', "\\", "2027-02-30", "0001-01-01", "1e9d",
    "²",
)  # fmt: skip
"""Words that have broken something somewhere, and their neighbors."""

NUMBERS = (
    0, -1, 1, 2, 3, 7, 2**31, 2**53 + 1, 10**12, 10**400, -(10**18), 0.0, -0.0, 0.5, 1e-300, 1e308,
    float("nan"), float("inf"),
)  # fmt: skip
NEAR = (0, 1, 2, 3, 4, 8, 10, 16, 64, 100, 1000, 0.1, 0.5, 0.99, 1.5)
VALUES = (*NUMBERS, None, True, False, "", "x", "12", [], [1], {}, {"a": 1}, [[[]]])
"""What stands in a JSON or TOML file instead of what belongs there."""

LETTERS = (
    "abcdefghijklmnopqrstuvwxyz0123456789 -_.,:;=/\\'\"[]{}()<>#$%&*+!?@^`|~\t\n\r\x00\x1béß混🙂"
)

MODELS = ("llama-2-7b", "llama-3-8b", "llama 3 70b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3",
          "tiny", "gpt-oss-20b", "qwen3-8b")  # fmt: skip
CLUSTERS = ("dgx-h100", "dgx-a100", "h100", "aws-p5", "tpu-v5p", "mi300x", "gb200-nvl72", "a100")
STRATEGIES = (
    "fsdp", "fsdp-mb1", "fsdp-tp2", "fsdp-tp8-mb1", "hsdp8", "ddp", "zero1-tp2-pp2", "tp8-pp2",
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
TOKENS = (
    "fsdp64", "fsdp8", "ddp8", "zero1x8", "hsdp8x8", "tp2", "tp8", "pp2", "pp4", "v2", "mb1", "mb4",
    "cp2", "ep4", "acfull", "ac1of4", "acsel", "offopt", "offact", "zbh1", "zbv", "hpz8", "qwz",
    "qgz", "ga4", "nosp", "tilemlp8", "fp8", "fp8attn", "fsdp99999999999999", "tp0", "mb-1",
    "pp1e9", "first1", "last2", "bucket25", "mics4x2",
)  # fmt: skip
"""Parts of the spelling of a strategy."""

MEASURED = ("1786 tok/s", "57152 tok/s total", "41% MFU", "0.86 s/step", "864 ms", "407 TFLOP/s",
            "8=7000,32=1786", "2 it/s")  # fmt: skip
TARGETS = ("megatron", "torchtitan", "torchtitan-0.2", "deepspeed", "accelerate", "maxtext",
           "megatron-bridge")  # fmt: skip
OVER = ("network=100..400Gbit/s", "seq=1k..4k", "batch=64,128", "stack.gemm=0.5..0.9", "x=1",
        "gpus=8..32", "pue=1,1.2", "strategy=fsdp,ddp")  # fmt: skip

_USUAL = {
    "model": MODELS,
    "on": CLUSTERS,
    "gpus": ("8", "16", "64", "64", "64", "256", "2048", "96", "1"),
}
_MORE = {
    "seq": ("512", "4k", "8192", "131072"),
    "batch": ("64", "1024", "4Mtok", "4096", "1"),
    "precision": ("bf16", "fp8", "fp16", "nvfp4", "tf32", "mxfp8"),
    "imbalance": (1.0, 1.5, 1024.0, -1.0),
    "capacity": (1.0, 1.25, 0.0),
    "optimizer": ("adamw", "muon", "sgd", "adamw-8bit", "shampoo"),
    "weights": ("mixed", "bf16", "fp32"),
    "tuning": ("full", "lora16", "qlora64", "lora8-qv", "lora0"),
    "loss": ("full", "chunked", "fused"),
    "lengths": ("600", "100..2000", "lognormal:mean=600,sigma=0.8", "1..1e9"),
    "batching": ("packed", "padded", "bucketed"),
    "stack": ("megatron", "pytorch", "maxtext-tpu", "nanotron", "torchtitan"),
    "tokens": ("1T", "15T", 1e12),
    "goodput": ("off", "rate=3.8e-3/node-day", "restart=5min,checkpoint=20s,async", "spares=2"),
    "critical_batch": ("laws", "4Mtok", "0.8Mtok@300B,20%"),
    "price": ("2.5", "0", 1e300),
    "pue": (1.0, 1.3, 10.0),
    "power_cap": ("500W", "350", "1W", "1kW"),
    "network": ("100GbE", "8x400G-ib", "25GbE-tcp", "efa"),
    "node": ("4", "8", "72", "1"),
    "algorithm": ("auto", "ring", "tree", "pat", "hierarchical"),
    "protocol": ("auto", "ll", "ll128", "simple"),
    "fit": (0.5, 0.9, 1e-9, 1.0),
    "by": ("time", "tokens", "cost", "energy", "memory"),
}
_NAMES = tuple(_MORE)
_SET_VALUES = ("1", "0.5", "2", "64", "100", "1.01", "3TB/s", "800Gbit/s", "80GiB")


def text(draw, most=12):
    """Any short text."""
    return "".join(draw.choices(LETTERS, k=draw.randrange(most + 1)))


def word(draw):
    """A word that cannot be right, or any text."""
    return draw.choice(WORDS) if draw.random() < 0.7 else text(draw)


def number(draw):
    """A number as people write it, or as nobody does."""
    kind = draw.randrange(5)
    if kind == 0:
        return str(draw.choice(NUMBERS))
    if kind == 1:
        return str(draw.choice(NEAR))
    if kind == 2:
        return repr(draw.uniform(-2.0, 10.0))
    return repr(10.0 ** draw.uniform(-30.0, 30.0)) if kind == 3 else str(draw.randrange(1, 5000))


def assignment(draw):
    """A `--set`."""
    chance = draw.random()
    key = draw.choice(KEYS) if chance < 0.8 else "stack.nothing" if chance < 0.85 else word(draw)
    chance = draw.random()
    value = draw.choice(_SET_VALUES) if chance < 0.6 else number(draw)
    return f"{key}={value if chance < 0.9 else word(draw)}"


def strategy(draw):
    """The spelling of a strategy: a template, tokens in any order, or the same with a word."""
    if draw.random() < 0.4:
        return draw.choice(STRATEGIES)
    spelled = "-".join(draw.choices(TOKENS, k=draw.randrange(1, 5)))
    return spelled if draw.random() < 0.9 else spelled + word(draw)


def question(draw, small=False):
    """A question: its words are right nine times of ten.

    Args:
        draw: Where choices come from.
        small: Whether sizes are some GPUs only, for answers that take long.
    """
    asked = {name: draw.choice(values) for name, values in _USUAL.items()}
    if small:
        asked["gpus"] = draw.choice(("8", "8", "16", "1"))
        asked["model"] = draw.choice(("tiny", "llama-2-7b", "gpt3-1.3b", "mixtral-8x7b"))
    if draw.random() < 0.85:
        asked["strategy"] = draw.choice(STRATEGIES) if draw.random() < 0.9 else strategy(draw)
    for name in draw.sample(_NAMES, draw.randrange(4)):
        asked[name] = draw.choice(_MORE[name])
    if draw.random() < 0.25:
        asked["sets"] = [assignment(draw) for _ in range(draw.randrange(1, 3))]
    if draw.random() < 0.2:
        name = draw.choice((*asked, *_NAMES))
        wrong = word(draw)
        asked[name] = wrong if name != "sets" else [wrong, word(draw)]
    return asked


def toml(asked):
    """A question as a plan file; text that TOML cannot hold becomes a question mark."""
    lines = []
    for key, value in asked.items():
        plain = json.dumps(value) if value == value else "nan"
        lines.append(f"{key} = {plain}")
    return "\n".join(lines).encode("utf-8", "replace")


_DIGITS = re.compile(rb"-?\d[\d.]*(?:[eE][+-]?\d+)?")
_TOKEN = re.compile(rb'"[^"\n]{0,60}"|[\w.+-]{1,40}')


def damaged(draw, seeds, most=4):
    """One of some files with up to four changes of bytes, words, values or lines."""
    content = draw.choice(seeds)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3, most))):
        content = draw.choice(_CHANGES)(draw, content, seeds)
    return content


def named_damaged(draw, seeds):
    """(name, content) of one of some named files, the content damaged."""
    name, _ = chosen = draw.choice(seeds)
    return [name, damaged(draw, (chosen[1],))]


def _bytes(text):
    return text.encode("utf-8", "surrogatepass")


def _place(draw, content):
    return draw.randrange(len(content)) if content else 0


def _flip(draw, content, seeds):
    at = _place(draw, content)
    if not content:
        return content
    return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]


def _cut(draw, content, seeds):
    return content[: _place(draw, content)]


def _number(draw, content, seeds):
    found = _DIGITS.search(content, _place(draw, content))
    if found is None:
        return content
    new = str(draw.choice(NUMBERS) if draw.random() < 0.4 else draw.choice(NEAR))
    return content[: found.start()] + new.encode() + content[found.end() :]


def _insert(draw, content, seeds):
    at = _place(draw, content)
    return content[:at] + _bytes(word(draw)) + content[at:]


def _delete(draw, content, seeds):
    at = _place(draw, content)
    return content[:at] + content[at + draw.randrange(1, 40) :]


def _value(draw, content, seeds):
    """Another word of the file, or one that cannot be right, in the place of one."""
    found = _TOKEN.search(content, _place(draw, content))
    if found is None:
        return content
    other = _TOKEN.search(content, _place(draw, content))
    new = other.group() if other and draw.random() < 0.5 else _bytes(word(draw))
    if found.group().startswith(b'"') and not new.startswith(b'"'):
        new = b'"' + new + b'"'
    return content[: found.start()] + new + content[found.end() :]


def _line(draw, content, seeds):
    """A line dropped, doubled, or moved."""
    lines = content.split(b"\n")
    at, kind = draw.randrange(len(lines)), draw.randrange(3)
    line = lines[at]
    lines[at : at + 1] = [line, line] if kind == 0 else []
    if kind == 2:
        lines.insert(draw.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def _splice(draw, content, seeds):
    """The start of this file and the end of another."""
    other = draw.choice(seeds)
    return content[: _place(draw, content)] + other[_place(draw, other) :]


def _ends(draw, content, seeds):
    kind = draw.randrange(3)
    if kind == 0:
        return b"\xef\xbb\xbf" + content
    return content.replace(b"\n", b"\r\n") if kind == 1 else content.rstrip(b"\n")


_CHANGES = (_number, _number, _number, _value, _value, _line, _line, _flip, _insert, _delete, _cut,
            _splice, _ends)  # fmt: skip


def config(draw):
    """A Hugging Face config with up to three keys changed, missing or added."""
    config = dict(draw.choice(hub_configs()))
    for _ in range(draw.randrange(4)):
        key = draw.choice((*config, "layer_types", "sliding_window", "mlp_only_layers"))
        if draw.random() < 0.6:
            near = isinstance(config.get(key), int) and draw.random() < 0.6
            config[key] = draw.choice((1, 2, 3, 8, 64) if near else VALUES)
        elif key in config and key != "model_type":
            del config[key]
    return config


@cache
def hub_configs():
    """The configs that tests have."""
    folder = ROOT / "tests" / "data" / "hf"
    return tuple(json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))


@cache
def files(*patterns, most=40):
    """Content of files of the repository, small ones."""
    return tuple(content for _, content in named(*patterns))[:most]


@cache
def named(*patterns):
    """(name, content) of files of the repository, small ones."""
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    found = [(path.name.removesuffix(".txt"), path.read_bytes()) for path in paths]
    return tuple((name, content) for name, content in found if 0 < len(content) < 40_000)


@cache
def first_lines(path, count=12):
    """The header and some rows of a shipped table."""
    lines = (ROOT / path).read_bytes().split(b"\n")
    return (b"\n".join(lines[:count]), b"\n".join([lines[0], *lines[-count:]]))


@cache
def shortened_logs(most=12_000):
    """(name, start and end) of the logs of all frameworks."""
    folder = ROOT / "tests" / "data" / "logs"
    found = []
    for path in sorted(folder.glob("*")):
        if path.suffix != ".md":
            lines, size = path.read_bytes().splitlines(keepends=True), 0
            kept = []
            for line in lines:
                size += len(line)
                if size > most:
                    break
                kept.append(line)
            found.append((path.name, b"".join(kept)))
    return tuple(found)
