"""`scalewise search` as a user sees it."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from waiting import PATIENCE

FEW = ("--tp", "1,2", "--pp", "1,2", "--cp", "1", "--micro-batch", "1,2")


def ask(run, *words):
    return run("search", "llama-2-7b", "--on", "dgx-h100", "--gpus", "16", "--batch", "32", *words)


def test_a_table_and_what_became_of_the_rest(run):
    result = ask(run, *FEW)
    assert result.exit_code == 0
    assert re.search(r"^Best: (\S+)   [\d,]+ tok/s/GPU \[[\d,]+-[\d,]+\] ", result.stdout, re.M)
    assert re.search(r"^Evaluated [\d,]+: [\d,]+ fit, [\d,]+ out of memory", result.stdout, re.M)
    assert re.search(r"^Launch: DP (8|16) \(", result.stdout, re.M)
    assert "\nDefaults: --seq 4096 (usual for pre-training)" in result.stdout


def test_json(run):
    result = ask(run, *FEW, "--json", "--top", "3", "--pareto", "time,energy")
    data = json.loads(result.stdout)
    assert data["evaluated"] == data["feasible"] + sum(data["infeasible"].values())
    assert len(data["strategies"]) == 3
    assert data["best"] == data["strategies"][0]
    assert data["best"]["terms"]["gemm"] > 0
    assert data["pareto"]
    assert data["by"] == "time"
    assert data["why"]


def test_nothing_fits_is_an_answer_with_code_1(run, tmp_path):
    words = ("search", "llama-3.1-405b", "--on", "dgx-h100", "--gpus", "8", "--batch", "8")
    result = run(*words, "--pp", "1")
    assert result.exit_code == 1
    assert "No strategy fits" in result.stdout
    assert "Nearest:" in result.stdout
    page = tmp_path / "x.html"
    assert run(*words, "--pp", "1", "-o", str(page)).exit_code == 1
    assert "Nearest:" in page.read_text()


def test_there_is_no_picture_of_nothing(run, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.svg"
    words = ("search", "llama-3.1-405b", "--on", "dgx-h100", "--gpus", "8", "--batch", "8")
    result = run(*words, "--pp", "1", "-o", str(path))
    assert result.exit_code == 1
    assert "nothing to draw" in result.stderr
    assert not path.exists()


def test_wrong_words(run):
    for words in (
        ("--tp", "a"),
        ("--by", "speed"),
        ("--sharding", "zero9"),
        ("--batch", "0"),
        ("--pareto", "time,speed"),
        ("--json", "--csv"),
        ("-o", "x.pdf"),
        ("--top", "0"),
    ):
        result = ask(run, *words)
        assert result.exit_code == 2, words
        assert "Traceback" not in result.stderr
        assert result.stdout == ""


def test_the_batch_is_that_of_an_estimate_unless_given(run):
    words = ("search", "llama-2-7b", "--on", "dgx-h100", "--gpus", "16", *FEW, "--json")
    data = json.loads(run(*words).stdout)
    assert data["best"]["workload"]["global_batch"] == 1024
    assert any("--batch" in text for text in data["defaults"])
    given = json.loads(run(*words, "--batch", "64").stdout)
    assert {e["workload"]["global_batch"] for e in given["strategies"]} == {64}
    assert not any("--batch" in text for text in given["defaults"])


def test_csv_on_stdout(run):
    result = ask(run, *FEW, "--csv", "--top", "4")
    lines = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["rank"] for row in lines] == ["1", "2", "3", "4"]
    seconds = [float(row["step_seconds"]) for row in lines]
    assert seconds == sorted(seconds)
    data = json.loads(ask(run, *FEW, "--json", "--top", "4").stdout)
    assert seconds == [e["step_seconds"] for e in data["strategies"]]


@pytest.mark.parametrize(
    ("ending", "library", "start"),
    [
        (".html", "plotly", b"<!doctype html>"),
        (".svg", "matplotlib", b"<?xml"),
        (".png", "matplotlib", b"\x89PNG"),
        (".csv", "csv", b"rank,tie,front,strategy,"),
        (".json", "json", b"{"),
        (".parquet", "polars", b"PAR1"),
    ],
)
def test_files_by_ending(run, tmp_path, ending, library, start):
    pytest.importorskip(library)
    path = tmp_path / f"x{ending}"
    result = ask(run, *FEW, "--pareto", "time,memory", "-o", str(path))
    assert result.exit_code == 0
    assert f"wrote {path}" in result.stderr
    assert "\nBest: " in result.stdout
    assert path.read_bytes().startswith(start)


def test_the_page_has_the_map_of_meshes_and_what_was_chosen(run, tmp_path):
    path = tmp_path / "x.html"
    ask(run, *FEW, "-o", str(path))
    page = path.read_text()
    assert "Best strategy by tensor parallel degree and pipeline stages" in page
    assert "<li>--seq 4096 (usual for pre-training)</li>" in page


def test_a_missing_library_is_said_before_the_search(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setattr("scalewise.explore.search.search", lambda *a, **k: pytest.fail("searched"))
    result = ask(run, "-o", str(tmp_path / "x.html"))
    assert result.exit_code == 1
    assert "scalewise[plot]" in result.stderr


def test_tensor_parallelism_inside_its_domain_or_anywhere(run):
    def degrees(*words):
        data = json.loads(ask(run, "--pp", "1", "--cp", "1", "--json", *words).stdout)
        return data["evaluated"], {e["strategy"] for e in data["strategies"]}

    inside, _ = degrees()
    assert degrees("--max-tp-within-domain") == degrees()
    anywhere, _ = degrees("--tp-anywhere")
    assert anywhere > inside
    # Only tp16 leaves a domain of 8.
    count, found = degrees("--tp-anywhere", "--tp", "16")
    assert count == anywhere - inside
    assert all("tp16" in name for name in found)
    assert degrees("--max-tp-within-domain", "--tp", "16") == (0, set())


def test_set_changes_an_input(run):
    plain = json.loads(ask(run, *FEW, "--json").stdout)
    slow = json.loads(ask(run, *FEW, "--json", "--set", "cluster.scale_out_bandwidth=5GB/s").stdout)
    assert slow["evaluated"] == plain["evaluated"]
    assert slow["best"]["step_seconds"] > plain["best"]["step_seconds"]
    wrong = ask(run, *FEW, "--set", "cluster.scale_out_bandwith=5GB/s")
    assert wrong.exit_code == 2
    assert "scale_out_bandwidth" in wrong.stderr


def test_progress_is_told_on_stderr_when_it_takes_long(run, monkeypatch):
    monkeypatch.setattr("scalewise.cli.search.PATIENCE", 0.0)
    result = ask(run, *FEW, "--json")
    json.loads(result.stdout)
    lines = result.stderr.splitlines()
    sentences = [
        re.fullmatch(r"([\d,]+) of ([\d,]+) strategies evaluated \(Ctrl-C .*", x) for x in lines
    ]
    assert sentences
    assert all(sentences)
    assert sentences[-1].group(1) == sentences[-1].group(2)
    monkeypatch.undo()
    assert ask(run, *FEW).stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_gives_the_best_so_far():
    words = ("search", "gpt3-175b", "--on", "dgx-a100", "--gpus", "262144", "--batch", "786432")
    words += ("--seq", "2048", "--schedule", "gpipe,1f1b,interleaved,zbh1,zbv", "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "scalewise", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # The first line of progress says that it is under way.
    assert "strategies evaluated" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    # A script can tell the best so far from the best of all.
    assert process.returncode == 130
    assert "Traceback" not in err
    data = json.loads(out)
    assert data["interrupted"]
    assert data["evaluated"] == data["feasible"] + sum(data["infeasible"].values())
    assert data["best"]["step_seconds"] > 0
