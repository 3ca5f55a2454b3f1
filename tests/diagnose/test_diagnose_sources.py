"""Logs, exports, tables and configurations as measured runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from logs.log_files import DATA
from scalewise.diagnosis.answer import diagnose_runs
from scalewise.diagnosis.evidence import Evidence
from scalewise.diagnosis.logs import from_log
from scalewise.diagnosis.measured import parse_measured
from scalewise.diagnosis.sources import Found, from_sources
from scalewise.errors import InputError

ACCELERATE = """distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""


def sources(*names: str, **words: str) -> Found:
    return from_sources([str(DATA / name) for name in names], words)


def test_a_log_of_torchtitan_says_everything() -> None:
    found = sources("torchtitan.log")
    e = found.asked.estimate()
    assert (e.model.name, e.cluster.accelerators) == ("llama-3-8b", 32)
    assert (e.cluster.accelerator.name, str(e.strategy)) == ("h100-sxm-80gb", "fsdp32-mb1-acop")
    assert (e.workload.seq_len, e.workload.global_batch) == (8192, 32)
    (run,) = found.runs
    assert run.rate == pytest.approx(6205, rel=2e-3)
    said = found.logs[0]
    assert (said.used, said.total, said.warm_up, said.memory_kind) == (96, 101, 2, "reserved")
    assert said.stated["batch"] == "32 (line 10)"
    assert [stall.cause for stall in said.stalls] == ["checkpoint"]


def test_arguments_of_megatron_are_read_with_the_log() -> None:
    found = sources("megatron-lm.log", on="dgx-h100")
    e = found.asked.estimate()
    assert (e.cluster.accelerators, e.strategy.tp, e.strategy.pp) == (128, 8, 4)
    assert (e.model.layers, e.model.hidden, e.model.ffn) == (80, 8192, 28672)
    assert e.workload.global_batch == 256
    assert found.runs[0].rate == pytest.approx(256 * 4096 / 128 / 11.21, rel=1e-3)


def test_words_that_are_given_go_first_and_differences_are_noted() -> None:
    found = sources("torchtitan.log", batch="64", strategy="fsdp32-mb2-acop")
    assert found.asked.workload.global_batch == 64
    assert "--batch 64 is given, the files say 32 (line 10)" in found.notes


def test_what_is_missing_is_asked_for() -> None:
    with pytest.raises(InputError) as caught:
        sources("maxtext.log")
    assert "MODEL is missing" in str(caught.value)
    with pytest.raises(InputError) as caught:
        sources("megatron-lm.log")
    assert "--on is missing" in str(caught.value)
    assert "gpus 128" in str(caught.value.hint)


def test_a_configuration_beside_the_log(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(ACCELERATE)
    found = from_sources(
        [str(DATA / "transformers.log"), str(path)],
        {"model": "llama-2-7b", "on": "dgx-a100", "seq": "4096"},
    )
    e = found.asked.estimate()
    assert (e.cluster.accelerators, e.strategy.sharding) == (16, "zero3")
    assert e.workload.global_batch == 128
    assert not [note for note in found.notes if "give" in note]


def test_two_sizes_are_two_logs() -> None:
    words = {"model": "llama-3-8b", "on": "oci-h100", "gpus": "32", "seq": "8192", "batch": "32",
             "strategy": "fsdp32-mb1-acop"}  # fmt: skip
    found = from_sources(
        [str(DATA / "wandb.csv"), f"8={DATA / 'composer.jsonl'}"],
        words,
        parse_measured(["16=4500"]),
    )
    assert [run.estimate.cluster.accelerators for run in found.runs] == [32, 16, 8]
    assert [run.rate for run in found.runs] == pytest.approx([4116, 4500, 7209], rel=1e-3)
    with pytest.raises(InputError, match="two runs without a number of GPUs"):
        from_sources([str(DATA / "wandb.csv"), str(DATA / "composer.jsonl")], words)


def test_the_error_of_the_median_is_noise_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    rng = np.random.default_rng(3)
    rows = [f"{at},{2.0 * (1.0 + 0.3 * rng.standard_normal()):.4f}" for at in range(40)]
    path.write_text("step,step_s\n" + "\n".join(rows) + "\n")
    rough = from_log(str(path)).measurement
    fine = from_log(str(DATA / "maxtext.log")).measurement
    assert (fine.unit, rough.unit) == ("tok/s", "s/step")
    assert fine.noise < 0.001 < 0.03 < rough.noise


def test_waiting_for_data_that_is_measured_is_the_cause() -> None:
    words = {"model": "llama-3-8b", "on": "oci-h100", "gpus": "32", "seq": "8192", "batch": "32",
             "strategy": "fsdp32-mb1-acop"}  # fmt: skip
    found = from_sources([str(DATA / "wandb.csv")], words)
    evidence = found.evidence(Evidence())
    assert evidence.waited == pytest.approx(0.329, abs=0.002)
    known = diagnose_runs(found.runs, found.asked, evidence=evidence, logs=found.logs)
    blind = diagnose_runs(found.runs, found.asked)
    assert known.best is not None
    assert known.best.key == "stall"
    assert known.best.odds > 0.9
    assert next(each.odds for each in blind.causes if each.key == "stall") < 0.5
    assert known.to_dict()["logs"][0]["used"] == 39


def test_a_table_is_several_runs_of_one_question(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "model,on,gpus,strategy,seq,batch,tokens_s\n"
        "llama-3-8b,oci-h100,8,fsdp8-mb1-acop,8192,8,7144\n"
        "llama-3-8b,oci-h100,32,fsdp32-mb1-acop,8192,32,1786\n"
        "llama-2-7b,oci-h100,32,fsdp32-mb1-acop,4096,32,9000\n"
    )
    found = from_sources([str(path)], {})
    assert [run.rate for run in found.runs] == [1786.0, 7144.0]
    assert found.notes[0].startswith("1 of 3 rows left out")
    other = from_sources([str(path)], {"model": "llama-2-7b"})
    assert [run.rate for run in other.runs] == [9000.0]
    with pytest.raises(InputError, match="is a table of runs"):
        from_sources([str(path), str(DATA / "wandb.csv")], {})


def test_rows_with_the_shipped_columns_are_runs_too(tmp_path: Path) -> None:
    from scalewise.evidence.runs import SHIPPED

    lines = SHIPPED.read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "published.csv"
    path.write_text("".join(lines[:4]))
    found = from_sources([str(path)], {})
    assert [run.estimate.cluster.accelerators for run in found.runs] == [512, 256, 128]
    assert [run.rate for run in found.runs] == [1007.0, 1035.0, 1058.0]
    assert found.runs[0].estimate.stack.name == "llm-foundry"


def test_a_configuration_alone_measures_nothing(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(ACCELERATE)
    with pytest.raises(InputError, match="is a configuration: nothing is measured"):
        from_sources([str(path)], {"model": "llama-2-7b", "on": "dgx-a100"})


def test_a_trace_needs_its_question() -> None:
    trace = DATA.parent / "trace" / "gloo-fsdp2-rank0.json.gz"
    with pytest.raises(InputError, match="MODEL is missing"):
        from_sources([str(trace)], {})
