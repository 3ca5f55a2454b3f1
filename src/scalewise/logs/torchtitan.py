"""Step lines of torchtitan.

    step: 14  loss:  3.24405  ...  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%

`tps` counts tokens/s per GPU: those of a data-parallel rank over the GPUs that share it. It is the
mean since the last line (`metrics.log_freq`), waiting for data and checkpoints included. `mfu` is
N/A with float8. Older versions print `wps`, and no gradient norm.
"""

from __future__ import annotations

import math
import re

from scalewise.logs.line import NUMBER, StepLine

_TRAINER = re.compile(
    rb"Trainer is initialized with local batch size (?P<micro>\d+), "
    rb"global batch size (?P<batch>\d+), gradient.accumulation.steps:? \d+, "
    rb"sequence length (?P<seq>\d+),"
)
_MESH = re.compile(rb"Building device mesh with parallelism: (?P<mesh>(?:\w+=\d+(?:, )?)+)")
_MODEL = re.compile(rb"Model (?P<model>[\w.-]+ [\w.-]+) size: [\d,]+ total parameters")
_CHIP = re.compile(rb"CUDA capacity: (?P<on>[\w -]+?) with [\d.]+GiB memory")
_RECOMPUTE = re.compile(
    rb"Applied (?P<kind>full|(?:op )?selective|FullAC|SelectiveAC) activation checkpointing", re.I
)
_WORDS = {b"full": "-acfull", b"fullac": "-acfull"}
"""Words of a strategy by kind of recompute; the selective one chooses by operator."""

_BEFORE = (
    rb"step:\s*(?P<step>\d+)(?:/\d+ = [\d.]+%)?\s+loss:\s*(?P<loss>-?[\d.]+|-?nan|-?inf)"
    rb"\s+(?:[\w/]+:\s*[\w.+-]+\s+)*?memory:\s*(?P<gib>[\d.]+)GiB\([\d.]+%\)\s+"
)
_AFTER = rb"ps:\s*(?P<tps>" + NUMBER + rb")(?:\s+tflops:\s*[\d.,]+)?\s+mfu:\s*(?:[\d.]+%|N/A)"


def stated(head: bytes) -> dict[str, tuple[str, int]]:
    """Return what is printed before the first step: words of a question, each with its place.

    Args:
        head: Text before the first step, without colors.
    """
    found: dict[str, tuple[str, int]] = {}
    for pattern in (_MODEL, _CHIP, _TRAINER):
        if match := pattern.search(head):
            for name, value in match.groupdict().items():
                if name != "micro":
                    found[name] = value.decode(), match.start()
    mesh, trainer = _MESH.search(head), _TRAINER.search(head)
    if mesh is not None:
        pairs = (each.split(b"=") for each in mesh["mesh"].rstrip(b", ").split(b", "))
        degrees = {name.decode(): int(value) for name, value in pairs}
        names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
        found["gpus"] = str(math.prod(degrees.get(name, 1) for name in names)), mesh.start()
        words = _strategy(degrees, trainer, _RECOMPUTE.search(head))
        found["strategy"] = words + "-compiled" * (b"with torch.compile" in head), mesh.start()
    return found


def _strategy(
    degrees: dict[str, int], trainer: re.Match[bytes] | None, recompute: re.Match[bytes] | None
) -> str:
    """A strategy as words: its degrees, micro-batch and recompute."""
    copies, shards = degrees.get("dp_replicate", 1), degrees.get("dp_shard", 1)
    # Sharding includes the context-parallel ranks; a strategy names them apart.
    text = f"hsdp{copies}x{shards}" if copies > 1 < shards else f"fsdp{shards}"
    if shards == 1:
        text = f"ddp{copies}"
    for name in ("tp", "cp", "pp", "ep"):
        if degrees.get(name, 1) > 1:
            text += f"-{name}{degrees[name]}"
    if trainer is not None and degrees.get("pp", 1) == 1:
        text += f"-mb{int(trainer['micro'])}"
    if recompute is not None:
        text += _WORDS.get(recompute["kind"].lower(), "-acop")
    return text


LINES = tuple(
    StepLine(
        framework="torchtitan",
        dense=True,
        mark=letter + b"ps: ",
        once=(b"step:", b"memory:"),
        pattern=re.compile(_BEFORE + letter + _AFTER),
        states=stated,
        memory="reserved",
        window=True,
    )
    for letter in (b"t", b"w")
)
