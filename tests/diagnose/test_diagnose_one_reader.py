"""One reader of runs: logs, folders of a run and tables, for every command that takes runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from logs.log_files import DATA
from scalewise.diagnosis.described import BESIDE, beside, run_files
from scalewise.diagnosis.own import read_own
from scalewise.diagnosis.sources import from_sources
from scalewise.diagnosis.table import is_own, read_user_runs
from scalewise.errors import InputError

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "vocab_size": 32000,
}  # fmt: skip
ZERO_3 = {
    "zero_optimization": {"stage": 3}, "bf16": {"enabled": True},
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "train_batch_size": 128,
}  # fmt: skip
WORDS = {"on": "dgx-a100", "gpus": "16", "seq": "4096"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run of the Trainer with DeepSpeed."""
    shutil.copy(DATA / "transformers.log", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "ds_config.json").write_text(json.dumps(ZERO_3))
    return tmp_path


def test_a_log_is_a_run_as_a_row_of_a_table_is() -> None:
    (run,) = read_user_runs(str(DATA / "torchtitan.log"))
    plan = run.plan()
    assert (plan.model.name, plan.cluster.accelerators, str(plan.strategy)) == (
        "llama-3-8b", 32, "fsdp32-mb1-acop",
    )  # fmt: skip
    assert run.tokens_per_second == pytest.approx(6207.0)


def test_the_configuration_beside_a_log_describes_its_run(folder: Path) -> None:
    found = from_sources([str(folder / "transformers.log")], WORDS)
    e = found.asked.estimate()
    assert (e.model.layers, e.model.hidden) == (32, 4096)
    assert str(e.strategy) == "fsdp16-mb2"
    assert e.workload.global_batch == 128
    assert "ds_config.json beside the log is used" in found.notes
    assert run_files(str(folder)) == [str(folder / "transformers.log")]
    same = from_sources([str(folder)], WORDS)
    assert same.runs[0].rate == found.runs[0].rate
    assert is_own(str(folder))


def test_of_several_configurations_of_one_kind_none_is_used(folder: Path) -> None:
    (folder / "ds_config_zero2.json").write_text(json.dumps(ZERO_3))
    assert [path.name for path in beside(str(folder / "transformers.log"))] == ["config.json"]
    (folder / "config.json").write_text("{}")
    assert beside(str(folder / "transformers.log")) == ()
    assert BESIDE[0] == "config.json"


def test_of_several_logs_in_a_folder_one_is_named(folder: Path) -> None:
    shutil.copy(DATA / "nanogpt.log", folder)
    with pytest.raises(InputError, match="holds 2 logs"):
        run_files(str(folder))


def test_a_log_is_remembered_with_its_flags() -> None:
    (run,) = read_own(DATA / "torchtitan.log", {"on": "oci-h100"})
    assert run.label == "llama-3-8b fsdp32-mb1-acop on 32x oci-h100, 32 x 8,192"
    assert run.rate == pytest.approx(6207.0)


def test_a_run_that_columns_cannot_keep_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be remembered"):
        read_own(DATA / "torchtitan.log", {"on": "oci-h100", "network": "10GbE-tcp"})
