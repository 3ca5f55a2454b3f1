import gzip
import json

import pytest

ASK = ("timeline", "llama-2-7b", "--on", "dgx-h100", "--gpus", "8", "--strategy", "fsdp8-mb1")


def test_terminal_view_compares_both_ways(run):
    result = run(*ASK)
    assert result.exit_code == 0
    first = result.stdout.splitlines()[0]
    assert first == (
        "llama-2-7b (6.74B) | 8x h100-sxm-80gb (dgx-h100) | fsdp8-mb1 | bf16 | stack pytorch"
    )
    assert "Schedule over" in result.stdout
    assert "\n  compute " in result.stdout


def test_json(run):
    result = run(*ASK, "--json")
    answer = json.loads(result.stdout)
    assert answer["strategy"] == "fsdp8-mb1"
    assert answer["step_seconds"] == pytest.approx(answer["estimate"]["step_seconds"], rel=0.01)
    assert set(answer["exposed_seconds"]) == set(answer["estimate"]["exposed_seconds"])
    assert answer["peak_memory_bytes"] == pytest.approx(
        answer["estimate"]["memory_bytes"], rel=1e-3
    )
    assert answer["difference"] == pytest.approx(
        answer["step_seconds"] / answer["estimate"]["step_seconds"] - 1.0
    )


def test_trace_file(run, tmp_path):
    path = tmp_path / "step.json.gz"
    result = run(*ASK, "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "open it at https://ui.perfetto.dev" in result.stderr
    assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


@pytest.mark.parametrize(("name", "start"), [("s.html", "<!doctype html>"), ("s.svg", "<?xml")])
def test_drawings(run, tmp_path, name, start):
    path = tmp_path / name
    assert run(*ASK, "-o", str(path)).exit_code == 0
    assert path.read_text(encoding="utf-8").startswith(start)


def test_open_serves_the_trace(run, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(
        "scalewise.simulation.serve.serve", lambda file, say: served.append((file, say("hello")))
    )
    path = tmp_path / "step.json.gz"
    result = run(*ASK, "-o", str(path), "--open")
    assert result.exit_code == 0
    assert served == [(path, None)]
    assert "hello" in result.stderr


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("-o", "step.txt"), "error: -o step.txt: unsupported file type .txt"),
        (("--open",), "error: --open needs a trace to serve"),
        (("-o", "x.svg", "--open"), "error: --open needs a trace, and -o x.svg is a figure"),
        (("--jitter", "7"), "error: invalid value for '--jitter'"),
        (("--ranks", "some"), "error: invalid value for '--ranks'"),
    ],
)
def test_wrong_usage_is_a_sentence(run, args, sentence):
    result = run(*ASK, *args)
    assert result.exit_code == 2
    assert result.stderr.startswith(sentence)


def test_what_does_not_fit_is_played_and_said(run):
    result = run("timeline", "llama-2-70b", "--on", "dgx-h100", "--strategy", "ddp8-mb1")
    assert result.exit_code == 1
    assert "\nLIKELY OUT OF MEMORY: " in result.stdout
    assert "Schedule over" in result.stdout


def test_jitter_is_repeatable(run):
    lines = [json.loads(run(*ASK, "--jitter", "0.05", "--seed", s, "--json").stdout) for s in "112"]
    assert lines[0]["step_seconds"] == lines[1]["step_seconds"] != lines[2]["step_seconds"]
