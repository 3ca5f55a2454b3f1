"""The door of the command line: every command, with words and files that are almost right."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_door import FindingError, Priced, Refusal, folder, put
from fuzz_inputs import (
    MEASURED,
    OVER,
    SEEDS,
    TARGETS,
    first_lines,
    named,
    named_damaged,
    question,
    shortened_logs,
    word,
)

FILES = "~nosuch", "/dev/zero", "/nosuch/file.toml", "/dev/shm", "~", ".", "nosuch.json", "\udcff"


def _flags(asked: dict[str, Any]) -> list[str]:
    args = [str(asked["model"]), "--on", str(asked["on"])]
    for name, value in asked.items():
        for each in value if isinstance(value, list) else [value]:
            if name not in ("model", "on"):
                args += ["--" + {"sets": "set"}.get(name, name.replace("_", "-")), str(each)]
    return args


def _asking(draw, command):
    asked = question(draw, small=command not in ("estimate", "export", "diagnose"))
    if command == "scale":
        asked.pop("strategy", None)
        asked["gpus"] = draw.choice(("8,16", "8..64", "16", "8..1e9", ".."))
    if command in ("search", "plan"):
        asked.pop("strategy", None)
    args = [command, *_flags(asked)]
    if command == "search":
        args += ["--top", draw.choice(("2", "0", "x"))]
    if command == "scale" and draw.random() < 0.3:
        args += ["--over", draw.choice(OVER)]
    if command == "diagnose":
        args += ["--measured", draw.choice(MEASURED) if draw.random() < 0.8 else word(draw)]
        if draw.random() < 0.2:
            args += ["--profile", draw.choice(("compute=0.62,exposed=0.3,idle=0.08", "a=1"))]
    if command == "export":
        args += ["--to", draw.choice(TARGETS)]
    ways = {"estimate": ("--json", "--explain", ""), "scale": ("--json", "--csv", ""),
            "sensitivity": ("--json", "--csv", ""), "search": ("--json", "--csv", "")}  # fmt: skip
    args.append(draw.choice(ways.get(command, ("--json", "--json", ""))))
    return [arg for arg in args if arg]


@cache
def _file_seeds() -> dict[str, tuple[Any, ...]]:
    tables = named("fuzz/seeds/tables/*")
    logs = tuple(each for each in shortened_logs() if each[0] != "public.txt")
    traces = named("fuzz/seeds/trace.json")
    plans = (("p.toml", b'model = "llama-2-7b"\non = "dgx-h100"\ngpus = 64\n'),)
    catalog = "src/scalewise/catalog"
    shipped = tuple(("r.csv", each) for each in first_lines(f"{catalog}/runs/runs.csv"))
    return {
        "clusters new": named("fuzz/seeds/tools/*"),
        "compare": (*tables, ("train.jsonl", (SEEDS / "train.jsonl").read_bytes())),
        "diagnose": tables + logs + traces + named("tests/data/frameworks/**/*.txt"),
        "estimate": named(f"{catalog}/models/llama-*.toml", "tests/data/hf/*.json")[:12],
        "export": plans,
        "plan": named("fuzz/seeds/queue.toml"),
        "program": (("capture.json", (SEEDS / "capture.json").read_bytes()),),
        "remember": tables + logs,
        "study show": named("src/scalewise/study/shipped/*.toml"),
        "trace": traces,
        "ui": plans,
        "validate": tables + shipped,
    }  # fmt: skip


def _with_file(draw, command):
    name, content = named_damaged(draw, _file_seeds()[command])
    path = "@" if draw.random() < 0.9 else draw.choice(FILES)
    args = {
        "clusters new": ["clusters", "new", "mine", "--from", path, "-o", "@/out", "--replace"],
        "compare": ["compare", path, "--json"],
        "diagnose": ["diagnose", path, "--on", "dgx-h100", "--json"],
        "estimate": ["estimate", path, "--on", "dgx-h100", "--gpus", "8", "--strategy", "fsdp8-mb1",
                     "--json"],
        "export": ["export", path, "--to", draw.choice(TARGETS), "--json"],
        "plan": ["plan", "--queue", path, "--json"],
        "program": ["program", "--on", "h100", "--from", path, "--model", str(SEEDS / "tiny.json"),
                    "--json"],
        "remember": ["remember", "mine", "--from", path, "--on", "dgx-h100", "-o", "@/out",
                     "--anew", "--json"],
        "study show": ["study", "show", path],
        "trace": ["trace", path, "--json"],
        "ui": ["ui", "--no-open", "--host", "256.1.1.1", "--plan", path],
        "validate": ["validate", path, "--json"],
    }[command]  # fmt: skip
    if command == "diagnose" and draw.random() < 0.5:
        args += ["--model", "llama-2-7b", "--gpus", "8"]
    return [args, name, content]


LISTED = ("models", "accelerators", "clusters", "stacks")
ASKING = ("estimate", "estimate", "scale", "sensitivity", "search", "timeline", "plan", "diagnose",
          "export")  # fmt: skip
MEASURING = (
    ["measure", "train", "--model", "tiny", "--strategies", "ddp2", "--slurm-script"],
    ["measure", "collectives", "--ranks", "2", "--slurm-script"],
    ["scale", "tiny", "--on", "h100", "--gpus", "8", "--slurm-script", "--store", "s.db"],
    ["study", "run", "what-to-buy", "--slurm-script"],
)


def draw_command(draw):
    """A command line, or one with the name and content of the file that "@" stands for."""
    kind = draw.random()
    if kind < 0.1:
        chosen = draw.choice(("llama-2-7b", "dgx-h100", "h100-sxm-80gb", "megatron", "grok", "a"))
        args = [draw.choice(LISTED), chosen if draw.random() < 0.5 else word(draw), "--json"]
    elif kind < 0.15:
        args = ["study", draw.choice(("show", "list", "new", "run")), word(draw)]
        if args[1] == "run":
            args.append("--slurm-script")
    elif kind < 0.2:
        args = [
            *draw.choice(MEASURING),
            draw.choice(("--partition", "--time", "--nodes")),
            word(draw),
        ]
    elif kind < 0.6:
        args = _with_file(draw, draw.choice(tuple(_file_seeds())))
        if draw.random() < 0.1:
            args[0].insert(draw.randrange(1, len(args[0]) + 1), word(draw))
        return args
    else:
        args = _asking(draw, draw.choice(ASKING))
    if draw.random() < 0.1:
        args.insert(draw.randrange(len(args) + 1), word(draw))
    return args


def run_command(given: list[Any]) -> Any:
    """Run a command; lists in lists have a file."""
    from click.testing import CliRunner

    from scalewise.cli.main import cli

    args = given
    if given and isinstance(given[0], list):
        args, name, content = given
        path = put(name, content)
        args = [
            arg.replace("@/out", str(folder() / "out")) if arg != "@" else str(path) for arg in args
        ]
    before = Path.cwd()
    os.chdir(folder())
    try:
        result = CliRunner().invoke(cli, args)
    finally:
        os.chdir(before)
    failed = result.exception
    if failed is not None and not isinstance(failed, SystemExit):
        raise failed
    if result.exit_code == 2:
        if not result.stderr.startswith(("error: ", "Usage: ")):
            raise FindingError(f"exit 2 without a sentence: {result.stderr[:200]!r}")
        return Refusal("".join(c for c in result.stderr if c.islower() or c == " ")[:40])
    if result.exit_code not in (0, 1):
        raise FindingError(f"exit code {result.exit_code}")
    if any(word in result.stdout.lower().split() for word in ("nan", "inf", "-inf")):
        raise FindingError("nan or inf in the output")
    if any(c in result.stdout for c in "\x00\x1b\x07\x9b"):
        raise FindingError("a control character in the output")
    answer = {"length": len(result.stdout), "code": result.exit_code}
    if "--json" in args and args[0] in ASKING and "--slurm-script" not in args:
        if result.stdout:
            json.loads(result.stdout, parse_constant=_no_number)
        if args[0] == "estimate" and json.loads(result.stdout)["step_seconds"] is None:
            raise FindingError("no step time")
    return Priced(answer) if args[0] in ASKING else answer


def _no_number(word: str) -> Any:
    raise FindingError(f"{word} in JSON")
