"""Doors of files: every reader, on real files with some changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from fuzz_asks import a_cluster, a_model, work
from fuzz_door import Door, FindingError, Priced, Refusal, folder, physical, put
from fuzz_inputs import (
    SEEDS,
    config,
    damaged,
    files,
    first_lines,
    named,
    named_damaged,
    shortened_logs,
)

import scalewise as sw
from scalewise import catalog

_TOML = "src/scalewise/catalog"


def on_disk(read: Callable[[Path], Any], name: str) -> Callable[[bytes], Any]:
    """A reader of files as one of bytes."""

    def run(content: bytes) -> Any:
        return read(put(name, content))

    return run


def named_on_disk(read: Callable[[Path], Any]) -> Callable[[list[Any]], Any]:
    """A reader of files as one of names and bytes."""
    return lambda given: on_disk(read, given[0])(given[1])


def _priced(model: Any, cluster: Any, stack: Any = None) -> Any:
    """Estimate whatever a file gave on 64 GPUs."""
    strategy = sw.parse_strategy("fsdp64-mb2")
    if cluster.accelerators != 64:
        cluster = cluster.with_(accelerators=64)
    many = sw.estimate(model, cluster, work(), [strategy], stack=stack)
    return Priced(
        seconds=float(many.step_seconds[0]), memory=float(many.memory_bytes[0]),
        parameters=float(model.parameters),
    )  # fmt: skip


def _config(given: dict[str, Any]) -> Any:
    from scalewise.hf import model_from_hf

    return _priced(model_from_hf(given), a_cluster())


def _model(path: Path) -> Any:
    return _priced(sw.load_model(str(path)), a_cluster())


def _cluster(path: Path) -> Any:
    return _priced(a_model(), catalog.load_cluster(str(path)))


def _accelerator(path: Path) -> Any:
    chip = catalog.load_accelerator(str(path))
    return _priced(a_model(), msgspec.structs.replace(a_cluster(), accelerator=chip))


def _fabric(path: Path) -> Any:
    return _priced(a_model(), a_cluster().with_(fabric=catalog.load_fabric(str(path))))


def _stack(path: Path) -> Any:
    from scalewise.stack import load_stack

    return _priced(a_model(), a_cluster(), load_stack(str(path)))


def _calibration(path: Path) -> Any:
    from scalewise.chip import Calibration

    return msgspec.to_builtins(catalog.load("calibrations", str(path), Calibration))


def _optimizer(path: Path) -> Any:
    changed = msgspec.structs.replace(work(), optimizer=str(path))
    many = sw.estimate(a_model(), a_cluster(), changed, [sw.parse_strategy("fsdp64-mb2")])
    return Priced(seconds=float(many.step_seconds[0]), memory=float(many.memory_bytes[0]))


def _goodput(path: Path) -> Any:
    from scalewise.reliability import parse_reliability

    return msgspec.to_builtins(parse_reliability(str(path)))


def _own_catalog(name: str, read: Callable[[], Any]) -> Callable[[bytes], Any]:
    """A reader of a file of the user's catalog."""

    def run(content: bytes) -> Any:
        own = folder() / "catalog"
        own.mkdir(exist_ok=True)
        (own / name).write_bytes(content)
        os.environ["SCALEWISE_CATALOG"] = str(own)
        try:
            return read()
        finally:
            del os.environ["SCALEWISE_CATALOG"]

    return run


def _regions() -> Any:
    from scalewise.catalog import regions

    regions._regions.cache_clear()
    return {name: msgspec.to_builtins(regions.load_region(name)) for name in regions.region_names()}


def _ranges() -> Any:
    from scalewise import ranges

    ranges._effects_of.cache_clear()
    return msgspec.to_builtins(ranges.load_effects())


def _runs(path: Path) -> Any:
    from scalewise.evidence.runs import read_runs

    return {"rows": len(read_runs(path))}


def _collectives(path: Path) -> Any:
    from scalewise.evidence.collectives import read_collectives

    return {"rows": len(read_collectives(path)[0])}


def _kernels(path: Path) -> Any:
    from scalewise.evidence.kernels import read_kernels

    return {"rows": len(read_kernels(path)[0])}


def _nccl(path: Path) -> Any:
    from scalewise.records.nccl_tests import read_nccl_tests

    return [list(row.values()) for row in read_nccl_tests(path)]


def _records(path: Path) -> Any:
    from scalewise.records.files import read_records

    found = read_records(path)
    return {"records": len(found.records)} if found.records else Refusal("no record")


def _trace(path: Path) -> Any:
    from scalewise.trace.read import read_trace

    return msgspec.to_builtins(read_trace(path, partial=True))


def _lengths(path: Path) -> Any:
    from scalewise.lengths import read_lengths

    return {"mean": read_lengths(str(path)).mean}


def _source(path: Path) -> Any:
    from scalewise.logs.source import read_source

    return {"log": repr(read_source(str(path)))[:2000]}


def _log_rates(given: list[Any]) -> Any:
    """A log with what it says of its run: what `diagnose` and `remember` read."""
    from scalewise.diagnosis.table import read_user_runs

    path = put(*given)
    words = {"model": "llama-2-7b", "on": "dgx-h100", "gpus": 8, "strategy": "fsdp8-mb1"}
    found = read_user_runs(str(path), words)
    return {"rates": [each.tokens_per_second for each in found]}


def _configuration(given: list[Any]) -> Any:
    from scalewise.frameworks import read

    found = read(given[1].decode("utf-8", "replace"), given[0])
    return {"words": msgspec.to_builtins(found.words, enc_hook=repr)}


def _yaml(content: bytes) -> Any:
    """Our reader of YAML; what it reads it also writes."""
    from scalewise.frameworks.yaml import parse_yaml, write_yaml

    value = parse_yaml(content.decode("utf-8", "replace"), "y")
    written = write_yaml(value)
    if repr(parse_yaml(written, "y")) != repr(value):
        raise FindingError(f"{value} is written as {written}")
    return {"value": repr(value)}


def _queue(content: bytes) -> Any:
    from datetime import date

    from scalewise.ask.queueing import queueing

    text = content.decode("utf-8", "replace")
    found = queueing(text, folder() / "none", {}, today=date(2027, 1, 4))
    return Priced(found.to_dict())


def _capture(path: Path) -> Any:
    from scalewise.ask.question import Question
    from scalewise.errors import ScalewiseError
    from scalewise.program.compare import compare
    from scalewise.program.events import read_captures
    from scalewise.report.program_table import program_dict

    try:
        found = compare(read_captures(path), Question(on="h100"), model=str(SEEDS / "tiny.json"))
    except ScalewiseError as error:
        if error.exit_code == 2:
            raise
        return Refusal(str(error)[:40])
    physical(found.estimate)
    return Priced(program_dict(found))


@cache
def _tools() -> tuple[tuple[str, bytes], ...]:
    return named("fuzz/seeds/tools/*")


def _draw_machine(draw):
    """Outputs of some tools of one machine, one of them damaged."""
    kept = draw.sample(_tools(), draw.randrange(1, len(_tools()) + 1))
    at = draw.randrange(len(kept))
    return [[name, damaged(draw, (content,)) if place == at else content]
            for place, (name, content) in enumerate(kept)]  # fmt: skip


def _machine(given: list[list[Any]]) -> Any:
    from scalewise.inventory.describe import cluster_toml, describe
    from scalewise.inventory.sources import from_files

    paths = [str(put(name, content)) for name, content in given]
    written = cluster_toml(describe(from_files(paths), "dgx-h100"), base="dgx-h100")
    # A file that no question could use is refused by the command, in a sentence.
    return on_disk(_cluster, "mine.toml")(written.encode())


def _own_runs(path: Path) -> Any:
    from scalewise.diagnosis.own import read_own
    from scalewise.evidence.own_runs import fit_own

    fit = fit_own("mine", read_own(path))
    return Priced(speed=fit.speed, errors=list(fit.errors), left=list(fit.left))


def _overlay(path: Path) -> Any:
    from scalewise.study.overlays import read_overlays

    return {"runs": len(read_overlays([str(path)]))}


def _journal(path: Path) -> Any:
    from scalewise.measure.idle import disturbance, read_journal

    notes = read_journal(path)
    # A damaged journal is none: it holds no measurement.
    return {"disturbance": disturbance(["ddp2-1"], notes)}


def _study(content: bytes) -> Any:
    from scalewise.study.files import read_study
    from scalewise.study.plan import plan

    text = content.decode("utf-8", "replace")
    return {"points": sum(len(plan(each)) for each in read_study(text).experiments)}


def _study_records(path: Path) -> Any:
    """Records of `study measure` beside a study."""
    from scalewise.study.measured import measured_rows

    found = measured_rows(_measurable(), path)
    return {"rows": len(found.rows), "missing": found.missing}


@cache
def _measurable() -> Any:
    from scalewise.study.files import read_study

    return read_study((SEEDS / "study.toml").read_text())


def _of(*patterns: str) -> Callable[[Any], Any]:
    return lambda draw: damaged(draw, files(*patterns))


def _named(*patterns: str) -> Callable[[Any], Any]:
    return lambda draw: named_damaged(draw, named(*patterns))


def _table(name: str) -> Callable[[Any], Any]:
    return lambda draw: damaged(draw, first_lines(f"{_TOML}/runs/{name}"))


_FRAMEWORKS = ("tests/data/frameworks/**/*.txt", "tests/data/frameworks/*.log")

FILE_DOORS: dict[str, Door] = {
    "configs": Door(draw=config, run=_config),
    "models": Door(draw=_of(f"{_TOML}/models/*.toml"), run=on_disk(_model, "m.toml")),
    "clusters": Door(draw=_of(f"{_TOML}/clusters/*.toml"), run=on_disk(_cluster, "c.toml")),
    "accelerators": Door(
        draw=_of(f"{_TOML}/accelerators/*.toml"), run=on_disk(_accelerator, "a.toml")
    ),
    "fabrics": Door(draw=_of(f"{_TOML}/fabrics/*.toml"), run=on_disk(_fabric, "f.toml")),
    "stacks": Door(draw=_of(f"{_TOML}/stacks/*.toml"), run=on_disk(_stack, "s.toml")),
    "calibrations": Door(
        draw=_of(f"{_TOML}/calibrations/*.toml"), run=on_disk(_calibration, "k.toml")
    ),
    "optimizers": Door(draw=_of(f"{_TOML}/optimizers/*.toml"), run=on_disk(_optimizer, "o.toml")),
    "reliability": Door(draw=_of(f"{_TOML}/reliability/*.toml"), run=on_disk(_goodput, "r.toml")),
    "regions": Door(draw=_of(f"{_TOML}/regions.toml"), run=_own_catalog("regions.toml", _regions)),
    "ranges": Door(draw=_of(f"{_TOML}/ranges.toml"), run=_own_catalog("ranges.toml", _ranges)),
    "runs": Door(draw=_table("runs.csv"), run=on_disk(_runs, "runs.csv")),
    "collectives": Door(draw=_table("collectives.csv"), run=on_disk(_collectives, "links.csv")),
    "kernels": Door(draw=_table("kernels.csv"), run=on_disk(_kernels, "kernels.csv")),
    "nccl": Door(draw=_of("fuzz/seeds/nccl.txt"), run=on_disk(_nccl, "log.txt")),
    "records": Door(draw=_of("fuzz/seeds/train.jsonl"), run=on_disk(_records, "train.jsonl")),
    "study-records": Door(
        draw=_of("fuzz/seeds/study.jsonl"), run=on_disk(_study_records, "study.jsonl")
    ),
    "journals": Door(draw=_of("fuzz/seeds/journal.json"), run=on_disk(_journal, "journal.json")),
    "traces": Door(draw=_of("fuzz/seeds/trace*.json"), run=on_disk(_trace, "t.json")),
    "lengths": Door(
        draw=lambda draw: damaged(draw, (b"tokens\n100\n2000\n300\n", b"12\n600\n4096\n")),
        run=on_disk(_lengths, "lengths.csv"),
    ),
    "logs": Door(
        draw=lambda draw: named_damaged(draw, shortened_logs()), run=named_on_disk(_source)
    ),
    "run-logs": Door(draw=lambda draw: named_damaged(draw, shortened_logs()), run=_log_rates),
    "frameworks": Door(draw=_named(*_FRAMEWORKS), run=_configuration),
    "yaml": Door(draw=_of("tests/data/frameworks/*/*.y*ml.txt"), run=_yaml),
    "queues": Door(draw=_of("fuzz/seeds/queue.toml"), run=_queue),
    "captures": Door(
        draw=lambda draw: damaged(draw, ((SEEDS / "capture.json").read_bytes(),)),
        run=on_disk(_capture, "capture.json"),
    ),
    "machines": Door(draw=_draw_machine, run=_machine),
    "own-runs": Door(draw=_named("fuzz/seeds/tables/*"), run=named_on_disk(_own_runs)),
    "overlays": Door(
        draw=lambda draw: named_damaged(
            draw, (*named("fuzz/seeds/tables/*"), *(("links.csv", each) for each in _links()))
        ),
        run=named_on_disk(_overlay),
    ),
    "studies": Door(draw=_of("src/scalewise/study/shipped/*.toml"), run=_study),
}
"""Every reader by name."""


def _links() -> tuple[bytes, ...]:
    return first_lines(f"{_TOML}/runs/collectives.csv")
