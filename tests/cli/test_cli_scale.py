import csv
import json
import sys

import pytest

from scalewise.ask.question import question_fields
from scalewise.cli.scale import scale
from scalewise.report.scale_files import COLUMNS

BASE = ("scale", "llama-2-7b", "--on", "dgx-h100", "--gpus", "64..256")
SHARDED = (*BASE, "--weak", "--strategy", "fsdp", "--stack", "megatron")
THREE = (*BASE, "--weak", "--strategy", "fsdp,hsdp64,tp2", "--stack", "megatron")

OWN = {
    "--plan", "--weak", "--strong", "--batch-per-gpu", "--exhaustive", "--knee", "--table",
    "--over", "--deadline", "--json", "--csv", "-o", "--output", "--jobs", "--store", "--slurm",
    "--partition", "--nodes", "--time", "--slurm-script",
}  # fmt: skip
"""Flags besides those of every question."""


def test_the_flag_set_is_pinned():
    found = {text for each in scale.params[1:] for text in (*each.opts, *each.secondary_opts)}
    asked = {field.flag for field in question_fields().values()} - {"MODEL"}
    assert found == asked | OWN


def test_question_answer_tables_and_sentences(run):
    result = run(*THREE)
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "llama-2-7b (6.74B) | dgx-h100, 64-256 GPUs | weak, 2 x 4,096 per GPU | bf16 | "
        "stack megatron"
    )
    assert lines[1].startswith("Best at 256 GPUs: hsdp64, ")
    assert " No knee up to 256." in " ".join(line.strip() for line in lines[1:3])
    parts = ["\n  at 256 ", "\n  tok/s/GPU ", "\nCrossovers: hsdp64 > fsdp from 128 GPUs",
             "\nDefaults: ", "\nefficiency: "]  # fmt: skip
    places = [result.stdout.index(part) for part in parts]
    assert places == sorted(places)
    assert len(lines) <= 30
    assert "\n  strategy " in run(*THREE, "--table").stdout


@pytest.mark.parametrize("width", ["80", "100", "160"])
def test_no_width_cuts_a_number_in_two(run, width):
    result = run(*THREE, "--gpus", "8..2048", "--tokens", "15T", COLUMNS=width)
    assert "\u2026" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= int(width)
    assert "tok/s/GPU" in result.stdout


def test_knee_is_a_choice(run):
    result = run(*SHARDED, "--knee", "1", "--json")
    data = json.loads(result.stdout)
    assert data["knee_share"] == 1.0
    assert data["knees"][0]["accelerators"] == 128
    assert json.loads(run(*SHARDED, "--knee", "0.01", "--json").stdout)["knees"] == []
    assert "\nKnee: fsdp at 128 (marginal " in run(*SHARDED, "--knee", "1").stdout
    assert run(*BASE, "--knee", "0").exit_code == 2


def test_json_has_every_point(run):
    result = run(*THREE, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert data["sizes"] == [64, 128, 256]
    assert [curve["label"] for curve in data["curves"]] == ["fsdp", "hsdp64", "tp2"]
    for curve in data["curves"]:
        assert [point["accelerators"] for point in curve["points"]] == [64, 128, 256]
        assert [point["previous"] for point in curve["points"]] == [None, 64, 128]
    assert data["curves"][1]["points"][2]["strategy"] == "hsdp4x64-mb2"
    assert {"version", "rules", "by", "crossovers", "defaults", "warnings"} <= set(data)
    assert data["crossovers"][0]["winner"] == "hsdp64"


def test_csv_has_every_point_and_every_gap(run):
    result = run(*BASE, "--strategy", "fsdp,tp8-pp16", "--csv")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert tuple(rows[0]) == tuple(COLUMNS)
    assert [(row["label"], row["accelerators"]) for row in rows] == [
        (label, size) for label in ("fsdp", "tp8-pp16") for size in ("64", "128", "256")
    ]
    assert rows[3]["tokens_per_second"] == ""
    assert "does not divide 64" in rows[3]["infeasible"]
    gained = float(rows[1]["tokens_per_second"]) - float(rows[0]["tokens_per_second"])
    assert float(rows[1]["marginal_tokens_per_second"]) == pytest.approx(gained / 64)


def test_files_by_ending(run, tmp_path):
    for name in ("x.json", "x.csv"):
        result = run(*BASE, "-o", str(tmp_path / name))
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == f"wrote {tmp_path / name}\n"
    data = json.loads((tmp_path / "x.json").read_text())
    assert data["curves"][0]["model"] == "llama-2-7b"
    assert (tmp_path / "x.csv").read_text() == run(*BASE, "--csv").stdout


@pytest.mark.parametrize(
    ("name", "library", "start"),
    [("x.parquet", "polars", b"PAR1"), ("x.png", "matplotlib", b"\x89PNG"),
     ("x.svg", "matplotlib", b"<?xml")],
)  # fmt: skip
def test_files_of_extras(run, tmp_path, name, library, start):
    pytest.importorskip(library)
    result = run(*BASE, "-o", str(tmp_path / name))
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_missing_extra_is_said_before_anything_is_computed(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("scalewise.explore.scale.scale", None)
    result = run(*BASE, "-o", str(tmp_path / "x.svg"))
    assert result.exit_code == 1
    assert "pip install 'scalewise[plot]'" in result.stderr


def test_a_file_and_stdout_at_once(run, tmp_path):
    result = run(*BASE, "--json", "-o", str(tmp_path / "x.csv"))
    assert json.loads(result.stdout)["sizes"] == [64, 128, 256]
    assert (tmp_path / "x.csv").read_text() == run(*BASE, "--csv").stdout


def test_models_and_sequences_in_one_call(run):
    result = run("scale", "llama-2-7b,llama-2-13b", "--on", "dgx-h100", "--gpus", "64,128",
                 "--seq", "4096,8192", "--weak")  # fmt: skip
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "llama-2-7b (6.74B), llama-2-13b (13.0B) | dgx-h100, 64-128 GPUs | weak, 2 x 4,096 / 8,192 "
    )
    assert "\n  llama-2-13b, seq 8,192 " in result.stdout
    # Where nobody says, models share the sequence that all of them can have.
    data = json.loads(run("scale", "llama-2-7b,gpt2", "--on", "dgx-h100", "--gpus", "8,16",
                          "--json").stdout)  # fmt: skip
    assert [curve["seq_len"] for curve in data["curves"]] == [1024, 1024]
    assert "--seq 1024 (learned positions of gpt2)" in data["defaults"]


def test_best_names_its_strategies(run):
    result = run(*BASE, "--gpus", "8,16", "--strategy", "fsdp,best-pp1", "--by", "energy")
    assert result.exit_code == 0
    assert "\nStrategies: best-pp1: " in result.stdout
    data = json.loads(run(*BASE, "--gpus", "8", "--strategy", "best-pp1-tp1", "--json").stdout)
    assert data["curves"][0]["points"][0]["evaluated"] > 10
    assert data["by"] == "time"
    # What is said of given strategies is not said of searched ones.
    assert not any("micro-batch" in text for text in data["defaults"])


def test_points_are_kept_and_taken_again(run, tmp_path, monkeypatch):
    store = str(tmp_path / "points.db")
    first = run(*THREE, "--json", "--store", store)
    assert first.exit_code == 0
    assert first.stdout == run(*THREE, "--json").stdout

    def never(work, pending, *, jobs):
        raise AssertionError(f"{len(pending)} tasks are computed again")

    monkeypatch.setattr("scalewise.sweep.run.computed", never)
    assert run(*THREE, "--json", "--store", store).stdout == first.stdout
    # A size more is a task more.
    again = run(*THREE, "--strategy", "fsdp", "--gpus", "64..512", "--store", store)
    assert "1 tasks are computed again" in repr(again.exception)


def test_jobs_give_the_same(run):
    assert run(*THREE, "--json", "--jobs", "2").stdout == run(*THREE, "--json").stdout


def test_page_works_offline(run, tmp_path):
    pytest.importorskip("plotly")
    path = tmp_path / "x.html"
    assert run(*THREE, "--tokens", "1T", "-o", str(path)).exit_code == 0
    page = path.read_text()
    assert "<script src=" not in page
    for words in (
        "throughput (tok\\u002fs\\u002fGPU)", "power (W\\u002fGPU)", "tokens per facility joule",
    ):  # fmt: skip
        assert words in page


def test_strong_scaling_on_two_clusters(run):
    result = run("scale", "llama-2-7b", "--on", "dgx-h100,dgx-a100", "--gpus", "16,64",
                 "--strong", "--batch", "1024", "--tokens", "1T")  # fmt: skip
    assert result.exit_code == 0
    assert " | strong, batch 1,024 x 4,096 | " in result.stdout
    # One strategy, so the cluster alone tells the curves apart.
    assert "No knee up to 64." in " ".join(result.stdout.split())
    assert " days" in result.stdout
    # A batch alone means strong scaling.
    alone = run(*BASE, "--batch", "1024", "--json")
    assert json.loads(alone.stdout)["rules"][0]["kind"] == "strong"


def test_gaps_are_explained(run):
    result = run(*BASE, "--gpus", "8,16,64", "--strategy", "tp8-pp8-zero1,ddp")
    assert result.exit_code == 0
    assert "tp8-pp8-zero1 at 8-16: mesh: tp 8 x cp 1 x pp 8 = 64" in result.stdout
    assert "ddp at 8-64: memory: needs" in result.stdout


def test_gaps_that_are_no_neighbours_are_told_apart(run):
    out = run(*BASE, "--gpus", "16,48,64,256", "--batch", "64", "--strategy", "fsdp").stdout
    assert "fsdp at 48: batch: 64 sequences are not a multiple of 48" in out
    assert "fsdp at 256: batch: 64 sequences are not a multiple of 256" in out


def test_nothing_that_runs_is_a_failure(run):
    result = run(*BASE, "--strategy", "ddp")
    assert result.exit_code == 1
    assert "ddp at 64-256: memory: needs" in result.stdout
    assert result.stderr == "no strategy can run at any of these sizes\n"


def test_no_mesh_at_all_is_a_failure_with_reasons(run):
    result = run(*BASE, "--strategy", "tp3")
    assert result.exit_code == 1
    assert "tp3 at 64-256: mesh: tp 3 x cp 1 x pp 1 = 3 does not divide" in result.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--strong", "--batch", "64", "--batch-per-gpu", "2"), "belongs to weak scaling"),
        (("--weak", "--batch", "64"), "belongs to strong scaling"),
        (("--batch-per-gpu", "x"), "invalid value for '--batch-per-gpu'"),
        (("--batch-per-gpu", "-1"), "--batch-per-gpu -1: must be positive"),
        (("--seq", ""), "--seq is empty"),
        (("--json", "--csv"), "--json and --csv exclude each other"),
        (("-o", "x.txt"), "-o x.txt: unsupported file type .txt"),
        (("--gpus", "64..8"), "--gpus 64..8: the range ends below its start"),
        (("--strategy", "fsdp,fsdp"), "strategy fsdp is given twice"),
        (("--strategy", "fsdq"), "unknown part 'fsdq'"),
        (("--on", "dgx-h10"), "unknown cluster or accelerator `dgx-h10`"),
        (("--precision", "int3"), "unknown precision int3"),
        (("--by", "beauty"), "invalid value for '--by'"),
        (("--strategy", "best-hsdp8"), "unsupported limit 'hsdp8'"),
        (("--seq", "4096,4096"), "sequence length 4,096 is given twice"),
        (("--seq", "4096,x"), "--seq: "),
        (("--slurm",), "--slurm needs --store"),
        (("--nodes", "2"), "--nodes 2 needs --slurm"),
        (("--jobs", "-1"), "--jobs -1 must be a whole number or all"),
    ],
)
def test_wrong_usage(run, args, said):
    result = run(*BASE, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
