import csv
import json

import pytest

from scalewise.report.over_files import COLUMNS

BASE = ("scale", "llama-2-7b", "--on", "dgx-h100", "--gpus", "64", "--stack", "megatron")
FSDP = (*BASE, "--strategy", "fsdp-mb1")
NETWORK = (*FSDP, "--over", "network=100..400Gbit/s")
MAP = (*FSDP, "--over", "seq=2048,4096", "--over", "tp=1,2")


def test_question_answer_table_and_sentences(run):
    result = run(*NETWORK)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert " ".join(lines[:2]).replace("   ", " ") == (
        "llama-2-7b (6.74B) | 64x dgx-h100 | fsdp-mb1 | over network per node 100-400 Gbit/s | "
        "batch 1,024 x 4,096 | bf16 | stack megatron"
    ).replace("   ", " ")
    assert lines[2].startswith("Best at 400 Gbit/s: fsdp64-mb1, 3,570 tok/s/GPU [")
    assert lines[4].split()[:5] == ["Gbit/s", "strategy", "tok/s/GPU", "[low-high]", "per"]
    assert [line.split()[0] for line in lines[5:8]] == ["100", "200", "400"]
    assert "+95.6" in lines[7]
    assert "\nCause: 3.87x (exposed reduce-scatter, network bandwidth)" in result.stdout
    assert "\nper doubling: change of tok/s of all GPUs at twice the network" in result.stdout
    assert len(lines) <= 30


def test_long_curves_and_many_strategies_stay_short(run):
    result = run(*BASE, "--strategy", "fsdp-mb1", "--over", "pue=1..3+0.05")
    assert len(result.stdout.splitlines()) <= 30
    assert "more values: --table)" in result.stdout
    assert len(run(*FSDP, "--over", "pue=1..3+0.05", "--table").stdout.splitlines()) > 41
    several = run(*BASE, "--strategy", "fsdp,hsdp8,hsdp16,tp2,tp4", "--over", "network=50..800GbE")
    assert len(several.stdout.splitlines()) <= 30
    assert "\n  tok/s/GPU by Gbit/s\n" in several.stdout
    assert "\nCrossovers: " in several.stdout


@pytest.mark.parametrize("width", ["80", "100", "160"])
def test_no_width_cuts_a_number_in_two(run, width):
    result = run(*NETWORK, "--tokens", "15T", COLUMNS=width)
    assert "\u2026" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= int(width)


def test_two_quantities_print_a_map(run):
    result = run(*MAP)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    at = lines.index("  tok/s/GPU, TP degree down, sequence length across")
    assert lines[at + 1].split() == ["tp", "\\", "seq", "2,048", "4,096"]
    assert [line.split()[0] for line in lines[at + 2 : at + 4]] == ["1", "2"]
    assert "Best at sequence length 4,096, TP degree 1: " in result.stdout


def test_points_are_those_of_estimate(run):
    data = json.loads(run(*NETWORK, "--json").stdout)
    for cell, rate in zip(data["series"][0]["cells"], (100, 200, 400), strict=True):
        e = json.loads(
            run(
                "estimate", *FSDP[1:], "--network", f"{rate}Gbit/s", "--json",
            ).stdout
        )  # fmt: skip
        assert cell["point"]["step_seconds"] == e["step_seconds"]
        assert cell["point"]["usd_per_million_tokens"] == e["usd_per_million_tokens"]
    assert data["axes"][0] == {
        "name": "network",
        "label": "network per node",
        "unit": "Gbit/s",
        "texts": ["100Gbit/s", "200Gbit/s", "400Gbit/s"],
        "numbers": [100.0, 200.0, 400.0],
    }
    assert data["metric"] == "tokens_per_second_per_accelerator"
    assert {"version", "knees", "knee_share", "crossovers", "defaults", "changes"} <= set(data)


def test_csv_has_every_value_with_its_quantity(run):
    rows = list(csv.DictReader(run(*MAP, "--csv").stdout.splitlines()))
    assert tuple(rows[0]) == tuple(COLUMNS)
    assert [(row["value"], row["value_2"]) for row in rows] == [
        ("2048", "1"), ("4096", "1"), ("2048", "2"), ("4096", "2"),
    ]  # fmt: skip
    assert float(rows[1]["elasticity"]) > 0.0
    assert rows[0]["elasticity"] == ""


@pytest.mark.parametrize(
    ("name", "library", "start"),
    [("x.parquet", "polars", b"PAR1"), ("x.svg", "matplotlib", b"<?xml"),
     ("x.png", "matplotlib", b"\x89PNG"), ("x.html", "plotly", b"<!doctype html>"),
     ("x.json", "json", b"{"), ("x.csv", "csv", b"over,value,")],
)  # fmt: skip
@pytest.mark.parametrize("asked", [NETWORK, MAP])
def test_files_by_ending(run, tmp_path, asked, name, library, start):
    pytest.importorskip(library)
    result = run(*asked, "-o", str(tmp_path / name))
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_knee_is_a_choice(run):
    wide = (*FSDP, "--over", "network=100..3200Gbit/s")
    assert "\nKnee: at 3,200 Gbit/s (+8.5% per doubling, +97.7% before)" in run(*wide).stdout
    assert "\nKnee: at 800 Gbit/s (+74.9% per doubling, " in run(*wide, "--knee", "0.8").stdout
    assert json.loads(run(*wide, "--knee", "0.05", "--json").stdout)["knees"] == []


def test_what_the_quantity_does_not_change_is_said(run):
    result = run(*FSDP, "--over", "price=1..4")
    assert "Throughput is the same at all values: " in result.stdout
    assert "Best at 1 $/h: fsdp64-mb1, " in result.stdout


def test_values_that_cannot_run_have_a_reason_and_exit_code_1_if_all(run):
    result = run(*BASE, "--strategy", "fsdp", "--over", "mb=1,8")
    assert result.exit_code == 0
    assert "\nCannot run: at micro-batch size 8: memory: needs " in result.stdout
    result = run(*BASE, "--strategy", "fsdp", "--over", "mb=8,16")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[2] == "No strategy can run at any of these values"
    assert result.stderr == "no strategy can run at any of these values\n"


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (("--over", "sequence=1"), "--over sequence: unknown quantity", "`seq`"),
        (("--over", "power-cap=1..2TB"), "`1TB` is not a value in watts", "write it as 700W"),
        (("--over", "seq=1..100+1"), "more than 64 values", "larger step"),
        (("--over", "a=1", "--over", "b=1", "--over", "c=1"), "given 3 times", "for example"),
        (("--over", "seq=4k", "--weak"), "--weak/--strong belongs to --gpus ranges", "gpus=8"),
        (("--over", "seq=4k", "--deadline", "3d"), "--deadline belongs to --gpus ranges", "gpus"),
        (("--over", "on=dgx-h100,dgx-x1"), "--over on=dgx-x1: ", ""),
    ],
)
def test_wrong_usage_is_one_sentence_and_a_hint(run, options, message, hint):
    result = run(*FSDP, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert hint in result.stderr
    assert result.stderr.count("\n") <= 2


def test_a_store_resumes(run, tmp_path):
    stored = ("--store", str(tmp_path / "s.db"))
    first, second = run(*NETWORK, *stored, "--json"), run(*NETWORK, *stored, "--json")
    assert first.stdout == second.stdout


def test_deadline_names_the_smallest_size(run):
    asked = ("scale", "llama-2-7b", "--on", "dgx-h100", "--gpus", "8..512", "--tokens", "2T",
             "--strategy", "fsdp-mb1", "--stack", "megatron", "--batch", "1024")  # fmt: skip
    result = run(*asked, "--deadline", "30d")
    text = " ".join(result.stdout.split())
    assert "128 GPUs train 2.00T tokens within 30 days: fsdp128-mb1, " in text
    assert "64 are not enough." in text
    data = json.loads(run(*asked, "--deadline", "30d", "--json").stdout)
    assert data["deadline_days"] == 30.0
    assert data["needed"][0]["accelerators"] == 128
    assert 15.0 < data["needed"][0]["days"] < 30.0
    late = " ".join(run(*asked, "--deadline", "1h").stdout.split())
    assert "No size up to 512 GPUs takes 0.0417 days or less: 512 take " in late
    finer = run(*asked, "--gpus", "64..128+32", "--batch", "768", "--deadline", "30d", "--json")
    assert json.loads(finer.stdout)["sizes"] == [64, 96, 128]
    assert json.loads(finer.stdout)["needed"][0]["accelerators"] == 96


def test_smallest_size_is_said_where_memory_decides(run):
    result = run("scale", "llama-2-13b", "--on", "dgx-h100", "--gpus", "2..16")
    assert result.stdout.splitlines()[1].startswith(
        "Smallest size that fits with 90% chance: 4 GPU"
    )
    assert "Smallest size" not in run(*BASE, "--strategy", "fsdp").stdout


@pytest.mark.parametrize(
    ("deadline", "message"),
    [("30", "--deadline 30: has no unit"), ("3x", "is not a value in seconds"), ("0d", "positive")],
)
def test_deadlines_that_are_none(run, deadline, message):
    result = run(*BASE, "--tokens", "1T", "--deadline", deadline)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "needs a token budget" in run(*BASE, "--deadline", "3d").stderr
