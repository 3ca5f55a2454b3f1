"""A training script as people write it, captured on pretend ranks and priced."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from scalewise.cli.main import cli
from scalewise.errors import InputError
from scalewise.program.capture.versions import check_version

SCRIPT = str(Path(__file__).parents[1] / "data" / "program" / "train.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    file = tmp_path_factory.mktemp("program") / "mine.toml"
    file.write_text("layers = 2\nhidden = 64\nheads = 4\nkv_heads = 4\nffn = 128\nvocab = 256\n")
    return str(file)


def run(*words, code=0):
    result = CliRunner(env={"COLUMNS": "100"}).invoke(cli, list(words))
    assert result.exit_code == code, result.output
    return result


def program(*words, model=None, code=0, gpus="16"):
    more = ("--model", model) if model else ()
    return run("program", "--gpus", gpus, "--on", "dgx-h100", *more, *words, code=code)


@pytest.mark.parametrize(
    ("mode", "strategy"),
    [
        (("fsdp",), "fsdp16-mb2"),
        (("fsdp", "--accumulate", "3"), "fsdp16-mb2"),
        (("hsdp",), "hsdp4x4-mb2"),
        (("ddp",), "ddp16-mb2"),
        (("tp",), "fsdp8-tp2-nosp-mb2"),
        (("cp",), "fsdp8-cp2-mb2"),
    ],
    ids=" ".join,
)
def test_strategies_are_recognized(mode, strategy, model):
    found = json.loads(program("--json", "--", SCRIPT, "--mode", *mode, model=model).stdout)
    assert found["strategy"] == strategy
    assert (found["seq_len"], found["world"]) == (32, 16)
    times = 3 if "--accumulate" in mode else 1
    assert found["global_batch"] == (8 if mode[0] in ("tp", "cp") else 16) * 2 * times
    lines = {line["name"]: line for line in found["lines"]}
    if mode[0] != "tp":  # there, query and key are not the model's halves alone: the head is whole
        flops = lines["FLOPs of a rank"]
        assert flops["program"] == pytest.approx(flops["model"], rel=0.02)
    assert found["step_seconds"] > 0.0


def test_a_capture_is_kept_and_priced_elsewhere(model, tmp_path):
    file = str(tmp_path / "capture.json")
    first = program("-o", file, "--json", "--", SCRIPT, model=model).stdout
    again = run("program", "--gpus", "16", "--on", "dgx-h100", "--model", model, "--from", file,
                "--json").stdout  # fmt: skip
    assert json.loads(again) == json.loads(first)
    shown = run("program", "--gpus", "16", "--on", "dgx-a100", "--model", model, "--from", file)
    assert "The program takes" in shown.stdout
    assert "reduce_scatter  backward" in shown.stdout


def test_what_is_not_whole_is_refused(model):
    result = program("--", SCRIPT, "--mode", "silent", model=model, code=1)
    assert "2 ranks along `cp`, but nothing communicates there" in result.stderr


def test_an_error_of_the_program_names_its_line(model):
    result = program("--", SCRIPT, "--mode", "fail", model=model, code=1)
    assert "train.py:" in result.stderr
    assert "RuntimeError" in result.stderr


def test_one_step_is_not_enough(model):
    result = program("--", SCRIPT, "--steps", "1", model=model, code=2)
    assert "took 1 optimizer step; two are needed" in result.stderr


def test_a_program_that_takes_too_long_is_ended(model):
    result = program("--timeout", "10ms", "--", SCRIPT, model=model, code=1)
    assert "the program took longer than 10.0 ms for two steps" in result.stderr


def test_models_are_recognized_or_asked_for():
    result = program("--", SCRIPT, code=2)
    assert "no known model has 115,0" in result.stderr
    assert "name it: --model" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the script is missing"),
        (("--", "absent.py"), "absent.py: there is no such script"),
        (("--from", "absent.json"), "absent.json cannot be read"),
        (("--from", "x.json", "--", SCRIPT), "--from and a script exclude each other"),
    ],
)
def test_wrong_usage(words, message):
    assert message in program(*words, code=2).stderr


def test_more_ranks_than_a_table_holds():
    assert "at most 65,536 ranks" in program("--", SCRIPT, code=2, gpus="131072").stderr


def test_a_file_that_is_no_capture(tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"a": 1}')
    assert "is no capture of a program" in program("--from", str(file), code=2).stderr
    file.write_text("[]")
    assert "holds no capture" in program("--from", str(file), code=2).stderr


def test_other_versions_of_pytorch_are_refused():
    check_version("2.13.1+cu130")
    with pytest.raises(InputError, match=r"PyTorch 2\.12\.0 cannot be captured: checked are 2\.13"):
        check_version("2.12.0")
