"""Every reader and every door, as functions that may answer or refuse and nothing else.

    DOORS["estimate"].check({"model": "llama-2-7b", "gpus": "64"})     # "answered"
    DOORS["page"].check(("/api/estimate", b"{"))                       # "refused"

A door answers with finite numbers or refuses with an `InputError`. Anything else is a finding: an
exception, a RuntimeWarning, NaN or infinity, a negative time, or an answer beyond physics.
"""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from fuzz_inputs import (
    STRATEGIES,
    configs,
    damaged,
    files,
    first_lines,
    questions,
    words,
)
from hypothesis import strategies as st

import scalewise as sw
from scalewise import catalog
from scalewise.errors import InputError, ScalewiseError

SEEDS = Path(__file__).parent / "seeds"

ANSWERED, REFUSED = "answered", "refused"


class FindingError(AssertionError):
    """An answer that is none."""


@dataclass(frozen=True, kw_only=True)
class Door:
    """One way in."""

    inputs: Callable[[], Any]
    """Makes the Hypothesis strategy of its inputs."""
    run: Callable[[Any], Any]
    """Answers, or raises an InputError."""

    def check(self, given: Any) -> str:
        """Return whether an input was answered or refused.

        Raises:
            Exception: Whatever it should not have raised.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                answer = self.run(given)
            except InputError as error:
                return _refused(error)
        if answer is REFUSED:
            return REFUSED
        check_numbers(answer)
        return ANSWERED


def _refused(error: ScalewiseError) -> str:
    sentence = str(error)
    if not sentence or len(sentence) > 3000 or "Traceback" in sentence:
        raise FindingError(f"no sentence: {sentence[:200]!r}")
    return REFUSED


def check_numbers(answer: Any, where: str = "answer") -> None:
    """Refuse NaN and infinity anywhere in plain data."""
    if isinstance(answer, float):
        if not math.isfinite(answer):
            raise FindingError(f"{where} = {answer}")
    elif isinstance(answer, dict):
        for key, value in answer.items():
            check_numbers(value, f"{where}.{key}")
    elif isinstance(answer, list | tuple):
        for place, value in enumerate(answer):
            check_numbers(value, f"{where}[{place}]")


def _physical(e: Any, *, forced: bool = False) -> dict[str, float | None]:
    """The numbers of an estimate; MFU above 100% is a finding."""
    if not e.step_seconds > 0.0 and e.feasible:
        raise FindingError(f"step time {e.step_seconds}")
    if e.feasible and not forced and e.convention == "causal" and e.hfu > 1.0:
        raise FindingError(f"HFU {e.hfu:.1%}: {e.strategy} on {e.cluster.name}")
    named = ("step_seconds", "mfu", "hfu", "memory_bytes", "tokens_per_second", "low", "high",
             "joules_per_token", "usd_per_million_tokens", "watts_per_accelerator")  # fmt: skip
    return {name: getattr(e, name) for name in named} | e.terms | e.memory


# Python, command line, page.


def _estimate(question: dict[str, Any]) -> Any:
    return _physical(sw.estimate(**question), forced=question.get("force", False))


def _other_verb(given: tuple[str, dict[str, Any]]) -> Any:
    verb, question = given
    if verb == "timeline":
        return {"seconds": sw.timeline(**question).step_seconds}
    if verb == "sensitivity":
        return sw.sensitivity(**question).to_dict()
    question = {key: value for key, value in question.items() if key not in ("by", "strategy")}
    if verb == "search":
        found = sw.search(**question, top=2)
        return {} if found.best is None else _physical(found.best)
    return sw.scale(**question, strategies=["fsdp"]).to_dict()


def _flags(question: dict[str, Any]) -> list[str]:
    args = [str(question["model"]), "--on", str(question["on"])]
    for name, value in question.items():
        for each in value if isinstance(value, list) else [value]:
            if name not in ("model", "on"):
                args += ["--" + {"sets": "set"}.get(name, name.replace("_", "-")), str(each)]
    return args


@st.composite
def _command_lines(draw):
    command = draw(st.sampled_from(("estimate", "estimate", "scale", "sensitivity", "models")))
    if command == "models":
        return [command, draw(st.one_of(st.sampled_from(("llama-2-7b", "grok")), words()))]
    question = draw(questions())
    if command == "scale":
        question.pop("strategy", None)
        question["gpus"] = draw(st.sampled_from(("8,16", "8..64", "64", "8..1e9", "..")))
    args = [command, *_flags(question), draw(st.sampled_from(("--json", "--json", "--csv")))]
    if command != "scale" and args[-1] == "--csv":
        args[-1] = "--explain"
    if draw(st.integers(0, 9)) == 0:
        args.insert(draw(st.integers(0, len(args))), draw(words()))
    return args


def _command(args: list[str]) -> Any:
    from click.testing import CliRunner

    from scalewise.cli.main import cli

    result = CliRunner().invoke(cli, args)
    failed = result.exception
    if failed is not None and not isinstance(failed, SystemExit):
        raise failed
    if result.exit_code == 2:
        if not result.stderr.startswith(("error: ", "Usage: ", "Error: ")):
            raise FindingError(f"exit 2 without a sentence: {result.stderr[:200]!r}")
        return REFUSED
    if result.exit_code not in (0, 1):
        raise FindingError(f"exit code {result.exit_code}")
    if any(word in result.stdout.lower().split() for word in ("nan", "inf", "-inf")):
        raise FindingError("nan or inf in the output")
    priced = "--json" in args and args[0] == "estimate"
    if priced and json.loads(result.stdout)["step_seconds"] is None:
        raise FindingError("no step time")
    return {}


@st.composite
def _requests(draw):
    from scalewise.ui import api

    quick = [each.path for each in api.ENDPOINTS if each.request is not None]
    path = draw(st.sampled_from((*quick, "/api/estimate", "/api/estimate", "/api/nothing")))
    question = draw(questions())
    if path in ("/api/scale", "/api/over"):
        body: Any = {"question": question, "templates": [draw(st.sampled_from(STRATEGIES))]}
        if path == "/api/over":
            body["over"] = [draw(st.sampled_from(("network=100..400Gbit/s", "seq=1k..4k", "x=1")))]
        else:
            body["sizes"] = draw(st.sampled_from(("8,16", "64", "8..1e9")))
    elif path == "/api/search":
        body = {"question": question | {"gpus": "8"}, "top": draw(st.integers(0, 3))}
    elif path == "/api/study":
        body = {"name": draw(st.one_of(st.just("nothing"), words()))}
    else:
        body = question
    raw = json.dumps(body).encode()
    return path, draw(damaged((raw,))) if draw(st.integers(0, 9)) == 0 else raw


def _ask(given: tuple[str, bytes]) -> Any:
    from scalewise.ui import api

    answer = api.ask(*given)
    if given[0] == "/api/trace":
        return {}
    plain = msgspec.json.decode(answer)
    if given[0] == "/api/estimate" and plain["estimate"]["step_seconds"] is None:
        raise FindingError("no step time")
    return {}


# Texts.


def _strategy(text: str) -> Any:
    strategy = sw.parse_strategy(text)
    if sw.parse_strategy(str(strategy)) != strategy:
        raise FindingError(f"{text} is written as {strategy}")
    many = sw.estimate(_model(), _cluster(), _work(), [strategy])
    return {"seconds": float(many.step_seconds[0]), "memory": float(many.memory_bytes[0])}


@cache
def _model() -> Any:
    return sw.load_model("llama-2-7b")


@cache
def _cluster() -> Any:
    return sw.load_cluster("dgx-h100", 64)


@cache
def _work() -> Any:
    return sw.Workload(seq_len=4096, global_batch=1024)


@st.composite
def _spellings(draw):
    token = st.sampled_from(
        ("fsdp64", "fsdp8", "ddp8", "zero1x8", "hsdp8x8", "tp2", "tp8", "pp2", "pp4", "v2", "mb1",
         "mb4", "cp2", "ep4", "acfull", "ac1of4", "acsel", "offopt", "offact", "zbh1", "zbv",
         "hpz8", "qwz", "qgz", "ga4", "nosp", "tilemlp8", "fp8", "fp8attn", "fsdp99999999999999",
         "tp0", "mb-1", "pp1e9", "first1", "last2", "bucket25", "mics4x2")
    )  # fmt: skip
    text = "-".join(draw(st.lists(token, min_size=1, max_size=4)))
    return text if draw(st.integers(0, 4)) else text + draw(words())


def _template(given: tuple[str, int, int]) -> Any:
    from scalewise.explore.templates import choices, parse_template

    text, size, batch = given
    return {"count": len(choices(parse_template(text), size, batch))}


def _quantity(given: tuple[str, str]) -> Any:
    from scalewise.units import parse

    return {"value": float(parse(*given))}


@st.composite
def _quantities(draw):
    from scalewise.units import KINDS

    kind = draw(st.sampled_from(tuple(KINDS)))
    number = draw(st.one_of(st.floats().map(repr), st.integers().map(str), words()))
    unit = draw(st.sampled_from(("", "GB", "TB/s", "Gbit/s", "us", "ms", "W", "kW", "TFLOP/s", "T",
                                 "k", "GiB", "GB/s", "$/h", "GHz", "s", "B", "x")))  # fmt: skip
    return number + unit, kind


def _plan(text: bytes) -> Any:
    from scalewise.ask.resolve import resolve
    from scalewise.ask.state import from_toml

    question = from_toml(_decoded(text))
    return _physical(resolve(question).estimate(), forced=question.force)


@st.composite
def _plans(draw):
    lines = [
        f"{key} = {json.dumps(value) if value == value else 'nan'}"
        for key, value in draw(questions()).items()
    ]
    text = "\n".join(lines).encode()
    return draw(damaged((text,))) if draw(st.booleans()) else text


def _study(text: bytes) -> Any:
    from scalewise.study.files import read_study
    from scalewise.study.plan import plan

    return {"points": sum(len(plan(each)) for each in read_study(_decoded(text)).experiments)}


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", errors="replace")


# Files.


def _config(config: dict[str, Any]) -> Any:
    from scalewise.hf import model_from_hf

    return _priced(model_from_hf(config), _cluster())


def _priced(model: Any, cluster: Any, stack: Any = None) -> Any:
    """Estimate whatever a file gave on 64 GPUs."""
    strategy = sw.parse_strategy("fsdp64-mb2")
    if cluster.accelerators != 64:
        cluster = cluster.with_(accelerators=64)
    many = sw.estimate(model, cluster, _work(), [strategy], stack=stack)
    return {
        "seconds": float(many.step_seconds[0]),
        "memory": float(many.memory_bytes[0]),
        "parameters": float(model.parameters),
    }


def _on_disk(read: Callable[[Path], Any], name: str) -> Callable[[bytes], Any]:
    """A reader of files as one of bytes."""

    def run(content: bytes) -> Any:
        path = _folder() / name
        path.write_bytes(content)
        # Loaded files are kept by version, which a soak has a million of.
        catalog._LOADED.clear()
        catalog._read_version.cache_clear()
        return read(path)

    return run


@cache
def _folder() -> Path:
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))


def _read_model(path: Path) -> Any:
    return _priced(sw.load_model(str(path)), _cluster())


def _read_cluster(path: Path) -> Any:
    return _priced(_model(), catalog.load_cluster(str(path)))


def _read_accelerator(path: Path) -> Any:
    chip = catalog.load_accelerator(str(path))
    return _priced(_model(), msgspec.structs.replace(_cluster(), accelerator=chip))


def _read_fabric(path: Path) -> Any:
    return _priced(_model(), _cluster().with_(fabric=catalog.load_fabric(str(path))))


def _read_stack(path: Path) -> Any:
    from scalewise.stack import load_stack

    return _priced(_model(), _cluster(), load_stack(str(path)))


def _read_calibration(path: Path) -> Any:
    from scalewise.chip import Calibration

    return msgspec.to_builtins(catalog.load("calibrations", str(path), Calibration))


def _read_optimizer(path: Path) -> Any:
    work = msgspec.structs.replace(_work(), optimizer=str(path))
    many = sw.estimate(_model(), _cluster(), work, [sw.parse_strategy("fsdp64-mb2")])
    return {"seconds": float(many.step_seconds[0])}


def _read_runs(path: Path) -> Any:
    from scalewise.evidence.runs import read_runs

    return {"rows": len(read_runs(path))}


def _read_collectives(path: Path) -> Any:
    from scalewise.evidence.collectives import read_collectives

    return {"rows": len(read_collectives(path)[0])}


def _read_log(path: Path) -> Any:
    from scalewise.records.nccl_tests import read_nccl_tests

    return [list(row.values()) for row in read_nccl_tests(path)]


def _read_records(path: Path) -> Any:
    from scalewise.records.files import read_records

    found = read_records(path)
    return {"records": len(found.records)} if found.records else REFUSED


def _read_trace(path: Path) -> Any:
    from scalewise.trace.read import read_trace

    return msgspec.to_builtins(read_trace(path, partial=True))


def _read_lengths(path: Path) -> Any:
    from scalewise.lengths import read_lengths

    found = read_lengths(str(path))
    return {"mean": found.mean}


def _damaged(pattern: str) -> Callable[[], Any]:
    return lambda: damaged(files(pattern))


_TOML = "src/scalewise/catalog"

DOORS: dict[str, Door] = {
    "estimate": Door(inputs=questions, run=_estimate),
    "verbs": Door(
        inputs=lambda: st.tuples(
            st.sampled_from(("timeline", "sensitivity", "search", "scale")), questions()
        ),
        run=_other_verb,
    ),
    "commands": Door(inputs=_command_lines, run=_command),
    "page": Door(inputs=_requests, run=_ask),
    "strategies": Door(inputs=_spellings, run=_strategy),
    "templates": Door(
        inputs=lambda: st.tuples(
            st.one_of(st.sampled_from(STRATEGIES), _spellings()),
            st.sampled_from((1, 8, 64, 96, 2048, 2**22)),
            st.sampled_from((1, 64, 1024, 3 * 2**20)),
        ),
        run=_template,
    ),
    "units": Door(inputs=_quantities, run=_quantity),
    "plans": Door(inputs=_plans, run=_plan),
    "studies": Door(inputs=_damaged("src/scalewise/study/shipped/*.toml"), run=_study),
    "configs": Door(inputs=configs, run=_config),
    "models": Door(inputs=_damaged(f"{_TOML}/models/*.toml"), run=_on_disk(_read_model, "m.toml")),
    "clusters": Door(
        inputs=_damaged(f"{_TOML}/clusters/*.toml"), run=_on_disk(_read_cluster, "c.toml")
    ),
    "accelerators": Door(
        inputs=_damaged(f"{_TOML}/accelerators/*.toml"), run=_on_disk(_read_accelerator, "a.toml")
    ),
    "fabrics": Door(
        inputs=_damaged(f"{_TOML}/fabrics/*.toml"), run=_on_disk(_read_fabric, "f.toml")
    ),
    "stacks": Door(inputs=_damaged(f"{_TOML}/stacks/*.toml"), run=_on_disk(_read_stack, "s.toml")),
    "calibrations": Door(
        inputs=_damaged(f"{_TOML}/calibrations/*.toml"), run=_on_disk(_read_calibration, "k.toml")
    ),
    "optimizers": Door(
        inputs=_damaged(f"{_TOML}/optimizers/*.toml"), run=_on_disk(_read_optimizer, "o.toml")
    ),
    "runs": Door(
        inputs=lambda: damaged(first_lines("src/scalewise/catalog/runs/runs.csv")),
        run=_on_disk(_read_runs, "runs.csv"),
    ),
    "collectives": Door(
        inputs=lambda: damaged(first_lines("src/scalewise/catalog/runs/collectives.csv")),
        run=_on_disk(_read_collectives, "collectives.csv"),
    ),
    "nccl": Door(inputs=_damaged("fuzz/seeds/nccl.txt"), run=_on_disk(_read_log, "log.txt")),
    "records": Door(
        inputs=_damaged("fuzz/seeds/train.jsonl"), run=_on_disk(_read_records, "train.jsonl")
    ),
    "traces": Door(inputs=_damaged("fuzz/seeds/trace.json"), run=_on_disk(_read_trace, "t.json")),
    "lengths": Door(
        inputs=lambda: damaged((b"tokens\n100\n2000\n300\n", b"12\n600\n4096\n")),
        run=_on_disk(_read_lengths, "lengths.csv"),
    ),
}
"""Every way in by name."""
