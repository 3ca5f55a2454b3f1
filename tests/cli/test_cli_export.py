import json
import os
import stat

import pytest

from scalewise.ask.question import Question, question_fields
from scalewise.ask.state import read_plan, to_toml
from scalewise.cli.export import TARGETS, export
from scalewise.frameworks import export as frameworks_export
from scalewise.frameworks import read

OWN = {"--plan", "--to", "--json", "-o", "--output"}
"""Flags besides those of every question."""
WORDS = ("llama-3-8b", "--on", "dgx-h100", "--gpus", "64", "--seq", "4096", "--batch", "128")
PLAN = ("export", *WORDS, "--strategy", "zero1x32-tp2-mb1-acfull", "--stack", "megatron-lm")


def test_the_flag_set_is_pinned():
    found = {text for each in export.params[1:] for text in each.opts}
    asked = {field.flag for field in question_fields().values()} - {"MODEL"}
    assert found == asked | OWN


def test_targets_are_those_of_the_exporter():
    assert tuple(frameworks_export.TARGETS) == TARGETS


def test_files_are_printed_behind_the_plan(run):
    result = run(*PLAN, "--to", "megatron")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "llama-3-8b | 64x h100-sxm-80gb | zero1x32-tp2-mb1-acfull | for megatron-core 0.19.2"
    )
    assert "==> launch.sbatch <==" in lines
    assert "    --tensor-model-parallel-size 2" in lines
    assert not any(line.startswith(("refused", "not said")) for line in lines)


def test_files_are_written_into_a_folder(run, tmp_path):
    result = run(*PLAN[:-2], "--to", "deepspeed", "-o", str(tmp_path / "run"))
    assert result.exit_code == 1
    assert "refused: sequence_parallel = True: AutoTP does not split the sequence" in result.stdout
    assert not (tmp_path / "run").exists()
    words = ("export", *WORDS, "--strategy", "fsdp64-mb1-acfull", "--stack", "deepspeed")
    result = run(*words, "--to", "deepspeed", "-o", str(tmp_path / "run"))
    assert result.exit_code == 0
    assert f"wrote {tmp_path}/run/ds_config.json" in result.stderr
    config = json.loads((tmp_path / "run" / "ds_config.json").read_text())
    assert config["zero_optimization"]["stage"] == 3
    assert config["train_batch_size"] == 128
    assert "not said: model = llama-3-8b: the program builds it" in result.stdout


def test_json_has_files_and_reasons(run):
    found = json.loads(run(*PLAN, "--to", "torchtitan", "--json").stdout)
    assert found["target"] == "torchtitan"
    assert found["files"] == {}
    assert {gap["field"] for gap in found["refused"]} == {"sharding"}


def test_a_plan_file_stands_for_the_model(run, tmp_path):
    question = Question(model="llama-3-8b", on="dgx-h100", gpus=64, strategy="zero1x32-tp2-mb1")
    path = tmp_path / "plan.toml"
    path.write_text(to_toml(question))
    first = run("export", str(path), "--to", "megatron")
    second = run("export", "--plan", str(path), "--to", "megatron")
    assert first.exit_code == 0
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--to", "nemo"), "invalid value for '--to'"),
        ((), "missing option '--to'"),
        (("--to", "megatron", "--strategy", "tp3"), ""),
    ],
)
def test_errors_are_usage_errors(run, words, error):
    result = run("export", *WORDS, *words)
    assert result.exit_code == 2
    assert error in result.stderr


def test_scripts_are_plain_files(run, tmp_path):
    run(*PLAN, "--to", "megatron", "-o", str(tmp_path))
    mode = (tmp_path / "launch.sbatch").stat().st_mode
    assert stat.S_ISREG(mode)
    assert os.access(tmp_path / "launch.sbatch", os.R_OK)


@pytest.mark.parametrize(
    ("words", "target", "name"),
    [
        (("llama-3-70b", "--on", "dgx-h100", "--gpus", "256"), "megatron", "launch.sbatch"),
        (("llama-3-8b", "--on", "dgx-h100", "--gpus", "64", "--strategy", "fsdp-mb1-acfull",
          "--stack", "torchtitan", "--loss", "chunked"), "torchtitan", "launch.sbatch"),
    ],
)  # fmt: skip
def test_a_plan_is_written_exported_and_read_back(run, tmp_path, words, target, name):
    path = tmp_path / "plan.toml"
    planned = run("plan", *words, "--tokens", "1T", "-o", str(path))
    assert planned.exit_code == 0
    follows = f"Next: scalewise export {path} --to {target}"
    assert follows in " ".join(planned.stdout.split())
    done = run("export", str(path), "--to", target, "-o", str(tmp_path / "run"))
    assert done.exit_code == 0, done.stdout
    file = tmp_path / "run" / name
    asked, found = read_plan(path), read(file.read_text(), name)
    assert found.words["model"] == asked.model
    assert found.words["strategy"].startswith(asked.strategy)
    assert int(found.words["gpus"]) == asked.gpus
    assert int(found.words["batch"]) == asked.batch
    assert int(found.words["seq"]) == asked.seq
