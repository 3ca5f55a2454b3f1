"""Doors of questions: Python, every command, the page, and texts of one line."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
from fuzz_door import FindingError, Priced, physical
from fuzz_inputs import (
    MEASURED,
    NEAR,
    OVER,
    STRATEGIES,
    TARGETS,
    damaged,
    number,
    question,
    strategy,
    text,
    toml,
    word,
)

import scalewise as sw
from scalewise.ask.question import question_from
from scalewise.errors import InputError


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
    """Ask for an estimate in Python."""
    return physical(sw.estimate(**asked), forced=asked.get("force", False))


def draw_verb(draw):
    """One of the other verbs and a question."""
    verb = draw.choice(("timeline", "sensitivity", "search", "scale", "over", "plan"))
    return [verb, question(draw, small=True)]


def ask_verb(given: list[Any]) -> Any:
    """Ask another verb in Python."""
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


# Page.


def draw_request(draw):
    """An endpoint of the page and the body of a request."""
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
    """Answer as the server does."""
    from scalewise.ui import api

    answer = api.ask(*given)
    if given[0] == "/api/trace":
        return Priced(length=len(answer))
    plain = msgspec.json.decode(answer)
    if given[0] == "/api/estimate" and plain["estimate"]["step_seconds"] is None:
        raise FindingError("no step time")
    return Priced(length=len(answer))


def draw_address(draw):
    """The state of the page in its address."""
    from urllib.parse import urlencode

    asked = question(draw)
    pairs = [(key, str(v)) for key, value in asked.items()
             for v in (value if isinstance(value, list) else [value])]  # fmt: skip
    return urlencode(pairs, errors="replace") + draw.choice(
        ("", "", "&n=8", "&=", "&" + text(draw))
    )


def read_address(query: str) -> Any:
    """Read an address; what is written is read as the same."""
    from scalewise.ask.state import from_query, to_query

    asked = from_query(query)
    if from_query(to_query(asked)) != asked:
        raise FindingError(f"{asked} is written as {to_query(asked)}")
    return {"address": to_query(asked)}


# Texts.


def read_strategy(spelled: str) -> Any:
    """Read a strategy and price it; what is written is read as the same."""
    parsed = sw.parse_strategy(spelled)
    if sw.parse_strategy(str(parsed)) != parsed:
        raise FindingError(f"{spelled} is written as {parsed}")
    many = sw.estimate(a_model(), a_cluster(), work(), [parsed])
    return Priced(seconds=float(many.step_seconds[0]), memory=float(many.memory_bytes[0]))


def draw_template(draw):
    """A strategy without sizes, a size and a batch."""
    return [strategy(draw), draw.choice((1, 8, 64, 96, 2048, 2**22)),
            draw.choice((1, 64, 1024, 3 * 2**20))]  # fmt: skip


def read_template(given: list[Any]) -> Any:
    """Give a template its sizes."""
    from scalewise.explore.templates import choices, parse_template

    spelled, size, batch = given
    return {"count": len(choices(parse_template(spelled), size, batch))}


UNITS = ("", "GB", "TB/s", "Gbit/s", "us", "ms", "W", "kW", "TFLOP/s", "T", "k", "GiB", "GB/s",
         "$/h", "GHz", "s", "B", "x")  # fmt: skip


def draw_quantity(draw):
    """A number with a unit, and a kind of quantity."""
    from scalewise.units import KINDS

    value = number(draw) if draw.random() < 0.8 else word(draw)
    return [value + draw.choice(UNITS), draw.choice(tuple(KINDS))]


def read_quantity(given: list[str]) -> Any:
    """Read a number with its unit."""
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
            (b"torchrun --nproc-per-node $((2*4)) t.py --a=1", b"N=4; srun -n $N python x --b 2"),
        ),
    }  # fmt: skip


def draw_line(draw):
    """The name of a reader of one line, and a line."""
    name = draw.choice(tuple(_lines()))
    line = (
        damaged(draw, _lines()[name][1])
        if draw.random() < 0.9
        else word(draw).encode("utf-8", "replace")
    )
    return [name, line.decode("utf-8", "replace")]


def read_line(given: list[str]) -> Any:
    """Read a text of one line."""
    name, line = given
    answer = _lines()[name][0](line)
    return {name: msgspec.to_builtins(answer, enc_hook=repr)}


def draw_plan(draw):
    """A plan file."""
    content = toml(question(draw))
    return damaged(draw, (content,)) if draw.random() < 0.5 else content


def read_plan(content: bytes) -> Any:
    """Read a plan and price it; what is written is read as the same."""
    from scalewise.ask.resolve import resolve
    from scalewise.ask.state import from_toml, to_toml

    asked = from_toml(content.decode("utf-8", "replace"))
    if from_toml(to_toml(asked)) != asked:
        raise FindingError(f"{asked} is written as {to_toml(asked)}")
    return physical(resolve(asked).estimate(), forced=asked.force)


def draw_export(draw):
    """A question and a framework."""
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
    """A question and measured numbers."""
    asked = question(draw)
    asked.pop("by", None)
    said = [draw.choice(MEASURED) if draw.random() < 0.7 else f"{draw.choice(NEAR)} tok/s"
            for _ in range(draw.choice((1, 1, 2)))]  # fmt: skip
    return [asked, said]


def diagnose(given: list[Any]) -> Any:
    """Diagnose measured numbers."""
    from scalewise.diagnosis.answer import diagnose as answer
    from scalewise.diagnosis.measured import parse_measured
    from scalewise.report.diagnose_figure import diagnose_dict

    asked, said = given
    return Priced(diagnose_dict(answer(question_from(asked), parse_measured(said))))
