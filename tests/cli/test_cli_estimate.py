import json
import math
import os
import subprocess
import sys

import pytest

from scalewise.ask.question import question_fields
from scalewise.cli.estimate import estimate

BASE = ("estimate", "llama-2-7b", "--on", "dgx-h100")
SHARDED = (*BASE, "--gpus", "2048", "--strategy", "fsdp2048-mb2")
TOO_LARGE = ("estimate", "llama-3-70b", "--on", "dgx-h100", "--gpus", "8")

OWN = {"--plan", "--mfu-convention", "--explain", "--waterfall", "--json", "-o", "--output"}
"""Flags besides those of every question."""

KEYS = {
    "version", "question", "inputs", "changes", "notes", "fit", "suggestions", "model", "cluster",
    "workload", "strategy", "stack", "trained_parameters", "num_microbatches", "step_seconds",
    "terms", "comm_seconds", "exposed",
    "tokens_per_second", "tuned", "tokens_per_second_per_accelerator", "low", "high", "convention",
    "tflops", "mfu", "hfu", "peak_flops", "memory", "memory_bytes", "memory_low", "memory_high",
    "host_memory_bytes", "host_memory_capacity",
    "memory_capacity", "infeasible", "watts_per_accelerator", "facility_watts_per_accelerator",
    "joules_per_token", "tokens_per_joule", "usd_per_hour", "usd_per_million_tokens",
    "provenance", "defaults", "warnings", "feasible", "memory_headroom", "exposed_fraction",
    "contention_share", "communication_share",
    "waterfall", "useful_fraction", "days", "days_interval", "run_usd", "run_joules", "goodput",
    "statistical_efficiency",
}  # fmt: skip


def test_the_flag_set_is_pinned():
    # A new question should be a `--set`, a file or Python; a new flag is a decision.
    found = {text for each in estimate.params[1:] for text in each.opts}
    asked = {field.flag for field in question_fields().values()} - {"MODEL"}
    assert found == asked | OWN


def test_the_answer_comes_first(run):
    result = run(*SHARDED)
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "llama-2-7b (6.74B) | 2,048x h100-sxm-80gb (dgx-h100) | fsdp2048-mb2 | bf16 | stack pytorch"
    )
    names = [line.split()[0] for line in lines[1:8]]
    assert names == ["throughput", "step", "MFU", "communication", "peak", "power", "cost"]
    assert "tok/s/GPU" in lines[1]
    assert "16.8M tokens: 4,096 x 4,096, grad accum 1" in lines[2]
    assert "(causal)" in lines[3]
    assert "of 989 TFLOP/s per GPU" in lines[3]
    assert "fits in 79.6 GiB" in lines[5]
    assert len(lines) <= 25


def test_sections_follow_in_order(run):
    out = run(*SHARDED, "--set", "cluster.pue=1.3").stdout
    parts = [
        "cluster.pue = 1.3 (was 1.15)", "80% prediction interval", "Suggestion:", "Step time",
        "Defaults:", "--seq 4096 (usual for pre-training)",
    ]  # fmt: skip
    places = [out.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize("columns", ["80", "100", "120"])
@pytest.mark.parametrize("view", [(), ("--waterfall",), ("--explain",)])
def test_text_fits_the_width_and_has_no_trailing_blanks(run, columns, view):
    result = run(*SHARDED, *view, COLUMNS=columns)
    assert result.exit_code == 0
    for line in result.stdout.splitlines():
        assert len(line) <= int(columns)
        assert line == line.rstrip()


def test_piped_text_has_no_colours(run):
    assert "\x1b" not in run(*SHARDED).stdout


def test_config_json_with_tensor_parallelism_is_explained(run, config):
    flags = ("--on", "dgx-a100", "--gpus", "64", "--strategy", "fsdp16-tp4", "--seq", "4096")
    result = run("estimate", str(config), *flags, "--batch", "512", "--explain")
    assert result.exit_code == 0
    assert "(6.74B)" in result.stdout
    assert "exposed TP" in result.stdout
    directory = run("estimate", str(config.parent), *flags, "--batch", "512", "--explain")
    assert directory.stdout.splitlines()[2:] == result.stdout.splitlines()[2:]


def test_json_has_everything_and_adds_up(run):
    result = run(*SHARDED, "--json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert set(data) == KEYS
    assert data["version"] == "0.1.0"
    assert data["strategy"] == "fsdp2048-mb2"
    assert math.isclose(sum(data["terms"].values()), data["step_seconds"], rel_tol=1e-12)
    assert math.isclose(sum(data["memory"].values()), data["memory_bytes"], rel_tol=1e-12)
    fall = data["waterfall"]
    assert math.isclose(
        sum(v for k, v in fall.items() if k != "achieved"), fall["achieved"], rel_tol=1e-9
    )
    assert data["tokens_per_second"] == pytest.approx(
        2048 * data["tokens_per_second_per_accelerator"]
    )
    assert set(data["inputs"]) == {
        "model", "cluster", "workload", "strategy", "stack", "convention",
    }  # fmt: skip
    assert data["inputs"]["model"]["layers"] == 32
    assert data["inputs"]["cluster"]["accelerators"] == 2048
    assert data["inputs"]["strategy"]["dp_shard"] == 2048
    assert "--seq 4096 (usual for pre-training)" in data["defaults"]
    assert data["question"]["gpus"] == 2048


def test_json_inputs_repeat_the_estimate(run):
    import msgspec

    from scalewise import Cluster, Model, Stack, Strategy, Workload
    from scalewise import estimate as price

    data = json.loads(run(*SHARDED, "--set", "fabric.efficiency=0.5", "--json").stdout)
    nouns = {"model": Model, "cluster": Cluster, "workload": Workload, "strategy": Strategy}
    given = [msgspec.convert(data["inputs"][name], type_) for name, type_ in nouns.items()]
    again = price(*given, stack=msgspec.convert(data["inputs"]["stack"], Stack))
    assert again.step_seconds == data["step_seconds"]


def test_what_does_not_fit_exits_1_with_reason_and_numbers(run):
    result = run(*TOO_LARGE)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].startswith("LIKELY OUT OF MEMORY: ")
    assert "tok/s/GPU" in result.stdout
    assert "Peak memory (worst rank)" in result.stdout


def test_what_does_not_fit_is_still_json(run):
    result = run(*TOO_LARGE, "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["feasible"] is False
    assert data["infeasible"].startswith("memory: needs ")
    assert result.stderr.startswith("does not fit: memory: needs ")


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ("fsdp8-ep3", "error: ep = 3 does not divide the 8 experts of mixtral-8x7b"),
        ("fsdp8-ep8-etp2", "error: ep x etp = 16 does not divide the 8 ranks of a pipeline stage"),
        ("fsdp4-tp2-nosp-ep8", "error: nosp: experts with tp = 2 need sequence parallelism"),
        ("fsdp4-tp2-etp3", "error: etp = 3 does not divide the 14,336 columns of an expert"),
    ],
)
def test_experts_that_cannot_be_split_are_errors(run, strategy, says):
    asked = ("estimate", "mixtral-8x7b", "--on", "dgx-h100", "--gpus", "8")
    result = run(*asked, "--strategy", strategy)
    assert result.exit_code == 2
    assert result.stderr.startswith(says)


def test_routing_is_balanced_unless_said_otherwise(run):
    asked = ("estimate", "mixtral-8x7b", "--on", "dgx-h100", "--strategy", "fsdp64-ep8-mb1")

    def answer(*more):
        return json.loads(run(*asked, *more, "--json").stdout)

    balanced, real = answer(), answer("--imbalance", "1.47")
    assert any("--imbalance 1 (balanced routing" in each for each in balanced["defaults"])
    assert not any("--imbalance" in each for each in real["defaults"])
    assert real["step_seconds"] > 1.2 * balanced["step_seconds"]
    padded = answer("--capacity", "1.47")
    assert padded["terms"]["experts"] == real["terms"]["experts"]
    assert run(*asked, "--imbalance", "0.5").exit_code == 2


def test_convention_changes_mfu_alone(run):
    causal = json.loads(run(*SHARDED, "--json").stdout)
    simple = json.loads(run(*SHARDED, "--mfu-convention", "6n", "--json").stdout)
    assert simple["step_seconds"] == causal["step_seconds"]
    # 6 x 6,738,415,616 against 3 x 14.29e9, at the same throughput.
    assert simple["mfu"] / causal["mfu"] == pytest.approx(40430493696 / 42863689728, rel=1e-9)


def test_a_token_budget_gives_days_and_dollars(run):
    result = run(*SHARDED, "--tokens", "15T")
    lines = {line[2:14].strip(): line for line in result.stdout.splitlines()}
    assert "15.0T tokens, $" in lines["whole run"]
    assert " 97.8% [95.6-98.6] " in lines["goodput"]
    assert "checkpoint every 13.5 min, failure every 17.9 h" in lines["goodput"]
    data = json.loads(run(*SHARDED, "--tokens", "15T", "--json").stdout)
    steps = 15e12 / data["tokens_per_second"] / 86400
    assert data["days"] == pytest.approx(steps / data["goodput"]["fraction"])
    assert data["run_usd"] == pytest.approx(data["days"] * 24 * data["usd_per_hour"])
    never = json.loads(run(*SHARDED, "--tokens", "15T", "--goodput", "off", "--json").stdout)
    assert never["days"] == pytest.approx(steps)
    assert never["goodput"] is None


def test_goodput_without_a_budget_is_a_line_of_its_own(run):
    lines = run(*SHARDED, "--goodput", "spares=1,async").stdout.splitlines()
    assert not any("whole run" in line for line in lines)
    assert any("asynchronous checkpoint every" in line for line in lines)
    assert run(*SHARDED, "--goodput", "spars=1").stderr == (
        "error: --goodput: unknown setting spars\n"
        "hint: did you mean `spares` or `repair` or `stragglers`?\n"
    )


def test_a_critical_batch_is_shown_when_asked_for(run):
    flags = (*SHARDED, "--critical-batch", "16Mtok")
    lines = run(*flags).stdout.splitlines()
    assert any("statistical efficiency 49% at 16.8M" in line for line in lines)
    refused = run(*SHARDED, "--critical-batch", "laws")
    assert refused.exit_code == 2
    assert "--critical-batch laws: needs a token budget" in refused.stderr


def test_switches_have_an_effect(run):
    def seconds(*flags):
        return json.loads(run(*SHARDED, "--json", *flags).stdout)["step_seconds"]

    usual = seconds()
    assert seconds("--protocol", "ll") > usual
    assert seconds("--algorithm", "hierarchical") < usual
    assert seconds("--power-cap", "400W") > usual
    assert seconds("--set", "cluster.scale_out_bandwidth=100Gbit/s") > usual
    assert seconds("--precision", "fp8") < usual


@pytest.mark.parametrize(
    ("name", "view", "found"),
    [
        ("x.json", (), '"step_seconds"'),
        ("x.txt", (), "Step time"),
        ("x.txt", ("--explain",), "Source"),
        ("x.html", (), "<!doctype html>"),
        ("x.html", ("--waterfall",), "plotly"),
    ],
)
def test_files_are_written_and_stdout_stays_empty(run, tmp_path, name, view, found):
    path = tmp_path / name
    result = run(*SHARDED, *view, "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"wrote {path}\n"
    assert found in path.read_text(encoding="utf-8")


def test_waterfall_page_needs_plotly(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    result = run(*SHARDED, "--waterfall", "-o", str(tmp_path / "x.html"))
    assert result.exit_code == 1
    assert result.stderr == (
        "error: library plotly is not installed\nhint: pip install 'scalewise[plot]'\n"
    )


def test_a_file_that_cannot_be_written_is_one_sentence(run, tmp_path):
    path = tmp_path / "missing" / "x.json"
    result = run(*SHARDED, "-o", str(path))
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {path} cannot be written: no such file or directory\n"
        "hint: name another file with -o\n"
    )


WRONG = [
    ("estimate", "lama-2-7b", "--on", "dgx-h100"),
    ("estimate", "", "--on", "dgx-h100"),
    ("estimate", "llama-2-7b", "--on", ""),
    ("estimate", "llama-2-7b", "--on", "dgx-h1000"),
    ("estimate", "llama-2-7b"),
    ("estimate", "/nowhere/config.json", "--on", "dgx-h100"),
    ("estimate", "llama-2-7b", "--on", "/nowhere.toml"),
    *(
        (*BASE, flag, value)
        for flag, values in {
            "--gpus": ["", "0", "-8", "1.5", "abc", "1e400", "9" * 400, "80GB", "nan"],
            "--strategy": ["", "tp3", "tp64", "fsdp8-fsdp4", "hsdp3", "v2", "cp3", "mb0",
                           "pp64", "fsdp99999999999", "-", "fsdp7-tp2-xx"],
            "--seq": ["", "0", "-1", "abc", "1e12", "4096.5"],
            "--batch": ["", "0", "-1", "1.5", "1e12"],
            "--precision": ["", "int8", "nvfp4"],
            "--stack": ["", "megatorn", "/nowhere.toml"],
            "--tokens": ["", "0", "-1", "15TB", "1e40"],
            "--power-cap": ["", "0", "-1W", "1GW", "500GB", "2kW"],
            "--algorithm": ["", "butterfly"],
            "--protocol": ["udp"],
            "--mfu-convention": ["best"],
            "-o": ["", "x", "x.pdf"],
            "--set": ["", "x", "x=1", "cluster.pue=abc", "cluster.accelerators=0",
                      "model.layers=0", "accelerator.peak_flops.bf16=0", "fabric.efficiency=2",
                      "stack.interval=1", "cluster.scale_up_domain=0"],
        }.items()
        for value in values
    ),
]  # fmt: skip


@pytest.mark.parametrize("args", WRONG, ids=lambda args: " ".join(args[2:])[:40])
def test_wrong_usage_is_a_sentence_and_code_2(run, args):
    result = run(*args)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", b'{"hidden_size": 4096,'),
        ("config.json", b"\xff\xfe\x00"),
        ("config.json", b"[]"),
        ("config.json", b"{}"),
        ("model.toml", b"x = ["),
        ("model.toml", b"\xff\xfe\x00"),
        ("model.toml", b"layers = 'many'"),
    ],
)
def test_corrupt_files_are_a_sentence_and_code_2(run, tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text)
    result = run("estimate", str(path), "--on", "dgx-h100")
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert str(path) in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
def test_colours_on_a_terminal_only_and_never_with_no_color():
    import pty

    def terminal(**env):
        parent, child = pty.openpty()
        plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR")}
        settings = {**plain, "TERM": "xterm", "COLUMNS": "100", **env}
        done = subprocess.run(
            [sys.executable, "-m", "scalewise", "stacks"],
            stdout=child, stderr=child, env=settings, check=True,
        )  # fmt: skip
        assert done.returncode == 0
        os.close(child)
        text = b""
        try:
            while chunk := os.read(parent, 65536):
                text += chunk
        except OSError:
            pass
        return text

    assert b"36m" in terminal()
    assert b"36m" not in terminal(NO_COLOR="1")


def test_names_of_files_do_not_drive_the_terminal(run, tmp_path, monkeypatch):
    path = tmp_path / "model.toml"
    shape = "layers = 2\nhidden = 64\nheads = 8\nffn = 128\nvocab = 99\n"
    path.write_text('name = "x\\u001b]0;title\\u0007y"\n' + shape)
    for forced in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", forced)
        result = run("estimate", str(path), "--on", "dgx-h100", "--gpus", "8")
        assert "\x1b]" not in result.stdout
        assert "\x07" not in result.stdout  # rich leaves it out of every text
        assert r"x\x1b]0;title" in result.stdout
    result = run("models", str(tmp_path / "\x1b]0;title\x07"))
    assert (result.exit_code, "\x1b" in result.stderr) == (2, False)
