import gzip
import json

import pytest

ASK = ("timeline", "llama-2-7b", "--on", "dgx-h100", "--gpus", "8", "--strategy", "fsdp8-mb1")


def test_terminal_view_compares_both_ways(run):
    result = run(*ASK)
    assert result.exit_code == 0
    first = result.stdout.splitlines()[0]
    assert first == (
        "llama-2-7b (6.74B parameters) on 8 x h100-sxm-80gb (dgx-h100), fsdp8-mb1, bf16"
    )
    assert "by closed forms (" in result.stdout
    assert "Schedule over" in result.stdout
    assert "\n  compute " in result.stdout


def test_json(run):
    result = run(*ASK, "--json")
    told = json.loads(result.stdout)
    assert told["strategy"] == "fsdp8-mb1"
    assert told["step_seconds"] == pytest.approx(told["estimate"]["step_seconds"], rel=0.01)
    assert set(told["exposed_seconds"]) == set(told["estimate"]["exposed_seconds"])
    assert told["peak_memory_bytes"] == pytest.approx(told["estimate"]["memory_bytes"], rel=1e-3)
    assert told["difference"] == pytest.approx(
        told["step_seconds"] / told["estimate"]["step_seconds"] - 1.0
    )


def test_trace_file(run, tmp_path):
    path = tmp_path / "step.json.gz"
    result = run(*ASK, "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "open it at https://ui.perfetto.dev" in result.stderr
    assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


@pytest.mark.parametrize(("name", "start"), [("s.html", "<!doctype html>"), ("s.svg", "<svg ")])
def test_drawings(run, tmp_path, name, start):
    path = tmp_path / name
    assert run(*ASK, "-o", str(path)).exit_code == 0
    assert path.read_text(encoding="utf-8").startswith(start)


def test_open_serves_the_trace(run, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(
        "scalewise.timeline.serve.serve", lambda file, say: served.append((file, say("hello")))
    )
    path = tmp_path / "step.json.gz"
    result = run(*ASK, "-o", str(path), "--open")
    assert result.exit_code == 0
    assert served == [(path, None)]
    assert "hello" in result.stderr


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("-o", "step.txt"), "error: -o 'step.txt' has no known ending"),
        (("--open",), "error: --open needs a trace to serve"),
        (("-o", "x.svg", "--open"), "error: --open serves traces to Perfetto, and 'x.svg' is none"),
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
    assert "Does not fit. memory:" in result.stdout
    assert "step by events" in result.stdout


def test_jitter_is_repeatable(run):
    told = [json.loads(run(*ASK, "--jitter", "0.05", "--seed", s, "--json").stdout) for s in "112"]
    assert told[0]["step_seconds"] == told[1]["step_seconds"] != told[2]["step_seconds"]
