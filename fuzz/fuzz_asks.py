"""Doors of questions: Python, every command, the page, and texts of one line."""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from fuzz_door import FindingError, Priced, Refusal, physical
from fuzz_inputs import (
    NEAR,
    SEEDS,
    STRATEGIES,
    damaged,
    first_lines,
    named,
    named_damaged,
    number,
    question,
    shortened_logs,
    strategy,
    text,
    toml,
    word,
)

import scalewise as sw
from scalewise.ask.question import question_from
from scalewise.errors import InputError


@cache
def folder() -> Path:
    """A folder in memory that ends with the process."""
    memory = Path("/dev/shm")
    made = tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if memory.is_dir() else None)
    _made.append(made)
    return Path(made.name)


_made: list[Any] = []


@cache
def a_model() -> Any:
    """A model to price other things with."""
    return sw.load_model("llama-2-7b")


@cache
def a_cluster() -> Any:
    """A cluster of 64 GPUs."""
    return sw.load_cluster("dgx-h100", 64)


@cache
def work() -> Any:
    """What a step trains."""
    return sw.Workload(seq_len=4096, global_batch=1024)


# Python.


def ask_estimate(asked: dict[str, Any]) -> Any:
    return physical(sw.estimate(**asked), forced=asked.get("force", False))


def draw_verb(draw):
    verb = draw.choice(("timeline", "sensitivity", "search", "scale", "over", "plan"))
    return [verb, question(draw, small=True)]


def ask_verb(given: list[Any]) -> Any:
    verb, asked = given
    if verb == "timeline":
        return Priced(seconds=sw.timeline(**asked).step_seconds)
    if verb == "sensitivity":
        return Priced(sw.sensitivity(**asked).to_dict())
    if verb in ("over", "plan"):
        from scalewise.ask.over import over
        from scalewise.ask.planning import planning
        from scalewise.report.over_files import over_dict

        if verb == "over":
            return Priced(over_dict(over(question_from(asked), ["network=100..400Gbit/s"])))
        return Priced(planning(question_from(asked)).to_dict())
    asked = {key: value for key, value in asked.items() if key not in ("by", "strategy")}
    if verb == "search":
        found = sw.search(**asked, top=2)
        return {} if found.best is None else physical(found.best)
    return Priced(sw.scale(**asked, strategies=["fsdp"]).to_dict())


# Commands.

FILES = "~nosuch", "/dev/zero", "/nosuch/file.toml", "/dev/shm", "~", ".", "nosuch.json", "\udcff"
MEASURED = ("1786 tok/s", "57152 tok/s total", "41% MFU", "0.86 s/step", "864 ms", "407 TFLOP/s",
            "8=7000,32=1786", "2 it/s")  # fmt: skip
TARGETS = ("megatron", "torchtitan", "torchtitan-0.2", "deepspeed", "accelerate", "maxtext",
           "megatron-bridge")  # fmt: skip
OVER = ("network=100..400Gbit/s", "seq=1k..4k", "batch=64,128", "stack.gemm=0.5..0.9", "x=1",
        "gpus=8..32", "pue=1,1.2", "strategy=fsdp,ddp")  # fmt: skip


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
    return {
        "clusters new": named("fuzz/seeds/tools/*"),
        "compare": tables + (("train.jsonl", (SEEDS / "train.jsonl").read_bytes()),),
        "diagnose": tables + logs + traces + named("tests/data/frameworks/**/*.txt"),
        "estimate": named(f"{catalog}/models/llama-*.toml", "tests/data/hf/*.json")[:12],
        "export": plans,
        "plan": named("fuzz/seeds/queue.toml"),
        "program": (("capture.json", (SEEDS / "capture.json").read_bytes()),),
        "remember": tables + logs,
        "study show": named("src/scalewise/study/shipped/*.toml"),
        "trace": traces,
        "ui": plans,
        "validate": tables + tuple(("r.csv", each) for each in first_lines(f"{catalog}/runs/runs.csv")),
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


_written = count()


def put(name: str, content: bytes) -> Path:
    """Write a file whose version, the time of its change, no file had before.

    Loaded files are kept by version: they are dropped now and then, since a soak has a million.
    """
    from scalewise import catalog

    path, number = folder() / name, next(_written)
    path.write_bytes(content)
    os.utime(path, ns=(number, number))
    if number % 500 == 0:
        catalog._LOADED.clear()
    return path


# Page.


def draw_request(draw):
    from scalewise.ui import api

    quick = [each.path for each in api.ENDPOINTS if each.request is not None]
    path = draw.choice((*quick, "/api/estimate", "/api/estimate", "/api/nothing"))
    asked = question(draw, small=True)
    if path in ("/api/scale", "/api/over"):
        body: Any = {"question": asked, "templates": [draw.choice(STRATEGIES)]}
        if path == "/api/over":
            body["over"] = [draw.choice(OVER)]
        else:
            body["sizes"] = draw.choice(("8,16", "16", "8..1e9"))
    elif path in ("/api/search", "/api/plan"):
        body = {"question": asked}
        if path == "/api/search":
            body["top"] = draw.randrange(4)
    elif path == "/api/queue":
        run = {"name": draw.choice(("a", word(draw))), "question": asked | {"tokens": "10B"}}
        body = {"question": {"on": "dgx-h100", "gpus": 8}, "runs": [run]}
    elif path == "/api/study":
        body = {"name": draw.choice(("nothing", word(draw)))}
    else:
        body = asked
    raw = json.dumps(body).encode()
    return [path, damaged(draw, (raw,)) if draw.random() < 0.15 else raw]


def answer_request(given: list[Any]) -> Any:
    from scalewise.ui import api

    answer = api.ask(*given)
    if given[0] == "/api/trace":
        return Priced(length=len(answer))
    plain = msgspec.json.decode(answer)
    if given[0] == "/api/estimate" and plain["estimate"]["step_seconds"] is None:
        raise FindingError("no step time")
    return Priced(length=len(answer))


def draw_address(draw):
    from urllib.parse import urlencode

    asked = question(draw)
    pairs = [(key, str(v)) for key, value in asked.items()
             for v in (value if isinstance(value, list) else [value])]  # fmt: skip
    return urlencode(pairs, errors="replace") + draw.choice(
        ("", "", "&n=8", "&=", "&" + text(draw))
    )


def read_address(query: str) -> Any:
    from scalewise.ask.state import from_query, to_query

    asked = from_query(query)
    if from_query(to_query(asked)) != asked:
        raise FindingError(f"{asked} is written as {to_query(asked)}")
    return {"address": to_query(asked)}


# Texts.


def read_strategy(spelled: str) -> Any:
    parsed = sw.parse_strategy(spelled)
    if sw.parse_strategy(str(parsed)) != parsed:
        raise FindingError(f"{spelled} is written as {parsed}")
    many = sw.estimate(a_model(), a_cluster(), work(), [parsed])
    return Priced(seconds=float(many.step_seconds[0]), memory=float(many.memory_bytes[0]))


def draw_template(draw):
    return [strategy(draw), draw.choice((1, 8, 64, 96, 2048, 2**22)),
            draw.choice((1, 64, 1024, 3 * 2**20))]  # fmt: skip


def read_template(given: list[Any]) -> Any:
    from scalewise.explore.templates import choices, parse_template

    spelled, size, batch = given
    return {"count": len(choices(parse_template(spelled), size, batch))}


UNITS = ("", "GB", "TB/s", "Gbit/s", "us", "ms", "W", "kW", "TFLOP/s", "T", "k", "GiB", "GB/s",
         "$/h", "GHz", "s", "B", "x")  # fmt: skip


def draw_quantity(draw):
    from scalewise.units import KINDS

    value = number(draw) if draw.random() < 0.8 else word(draw)
    return [value + draw.choice(UNITS), draw.choice(tuple(KINDS))]


def read_quantity(given: list[str]) -> Any:
    from scalewise.units import parse

    return {"value": float(parse(*given))}


@cache
def _lines() -> dict[str, tuple[Any, tuple[bytes, ...]]]:
    """Readers of one line by name, with lines that they read."""
    from scalewise.ask.axes import parse_over
    from scalewise.ask.network import parse_network
    from scalewise.critical_batch import parse_critical_batch
    from scalewise.diagnosis.evidence import parse_node_rate, parse_profile
    from scalewise.diagnosis.measured import parse_measured
    from scalewise.explore.sizes import parse_sizes
    from scalewise.frameworks.shell import launch_command
    from scalewise.lengths import read_lengths
    from scalewise.reliability import parse_reliability
    from scalewise.tuning import parse_tuning

    return {
        "sizes": (parse_sizes, (b"8..2048", b"64..256+32", b"8,64,512", b"1e3")),
        "over": (parse_over, tuple(each.encode() for each in OVER)),
        "network": (parse_network, (b"100GbE", b"25GbE-tcp", b"8x400G-ib", b"3.2GB/s-tcp", b"efa")),
        "critical": (parse_critical_batch, (b"laws", b"4Mtok", b"0.8Mtok@300B,20%")),
        "measured": (lambda line: parse_measured([line]), tuple(m.encode() for m in MEASURED)),
        "profile": (parse_profile, (b"compute=0.62,exposed=0.30,idle=0.08",)),
        "nccl": (parse_node_rate, (b"3.2GB/s", b"100Gbit/s")),
        "lengths": (read_lengths, (b"600", b"100..2000", b"lognormal:mean=600,sigma=0.8")),
        "goodput": (
            parse_reliability,
            (b"off", b"rate=3.8e-3/node-day,restart=5min,checkpoint=20s,interval=30min,spares=2",
             b"async", b"llama-3-405b,restart=1min"),
        ),
        "tuning": (parse_tuning, (b"lora16-attn", b"qlora64", b"lora8-qv", b"full")),
        "launch": (
            launch_command,
            (b"torchrun --nproc-per-node $((2*4)) train.py --a=1", b"N=4; srun -n $N python x --b 2"),
        ),
    }  # fmt: skip


def draw_line(draw):
    name = draw.choice(tuple(_lines()))
    line = (
        damaged(draw, _lines()[name][1])
        if draw.random() < 0.9
        else word(draw).encode("utf-8", "replace")
    )
    return [name, line.decode("utf-8", "replace")]


def read_line(given: list[str]) -> Any:
    name, line = given
    answer = _lines()[name][0](line)
    return {name: msgspec.to_builtins(answer, enc_hook=repr)}


def draw_plan(draw):
    content = toml(question(draw))
    return damaged(draw, (content,)) if draw.random() < 0.5 else content


def read_plan(content: bytes) -> Any:
    from scalewise.ask.resolve import resolve
    from scalewise.ask.state import from_toml, to_toml

    asked = from_toml(content.decode("utf-8", "replace"))
    if from_toml(to_toml(asked)) != asked:
        raise FindingError(f"{asked} is written as {to_toml(asked)}")
    return physical(resolve(asked).estimate(), forced=asked.force)


def draw_export(draw):
    return [question(draw), draw.choice(TARGETS)]


def write_export(given: list[Any]) -> Any:
    """Write a plan for a framework; what is written can be read."""
    from scalewise.ask.resolve import resolve
    from scalewise.frameworks import read
    from scalewise.frameworks.export import export

    asked, target = given
    out = export(resolve(question_from(asked)), target)
    for name, content in out.files.items():
        if target != "accelerate" or name.endswith(".yaml"):
            try:
                read(content, name)
            except InputError as error:
                if len(out.files) == 1:
                    raise FindingError(f"{name} is written and not read: {error}") from error
    return {"files": len(out.files), "refused": len(out.refused)}


def draw_measured(draw):
    asked = question(draw)
    asked.pop("by", None)
    said = [draw.choice(MEASURED) if draw.random() < 0.7 else f"{draw.choice(NEAR)} tok/s"
            for _ in range(draw.choice((1, 1, 2)))]  # fmt: skip
    return [asked, said]


def diagnose(given: list[Any]) -> Any:
    from scalewise.diagnosis.answer import diagnose as answer
    from scalewise.diagnosis.measured import parse_measured
    from scalewise.report.diagnose_figure import diagnose_dict

    asked, said = given
    return Priced(diagnose_dict(answer(question_from(asked), parse_measured(said))))
