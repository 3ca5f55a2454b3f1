import csv
import io
import json
import sys

import pytest

from scalewise.ask.question import question_fields
from scalewise.cli.plan import ORDERS, plan
from scalewise.explore import plan as explored
from scalewise.report.plan_files import COLUMNS
from scalewise.report.queue_files import COLUMNS as QUEUE_COLUMNS

BASE = ("plan", "llama-2-7b", "--on", "dgx-h100", "--gpus", "64,128", "--tokens", "1T")
OWN = {"--plan", "--queue", "--by", "--meet", "--json", "--csv", "-o", "--output"}
QUEUE = """
start = 2027-01-04
on = "dgx-h100"
gpus = 128
[[run]]
name = "a"
model = "llama-2-7b"
tokens = "20B"
"""


def test_the_flag_set_is_pinned():
    found = {text for each in plan.params[1:] for text in (*each.opts, *each.secondary_opts)}
    asked = {field.flag for field in question_fields("plan").values()} - {"MODEL"}
    assert found == asked | OWN
    assert tuple(explored.ORDERS) == tuple(
        sorted(ORDERS, key=list(explored.ORDERS).index)
    )  # fmt: skip


def test_question_answer_table_and_what_follows(run):
    result = run(*BASE, "--deadline", "20d", "--budget", "200k")
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "llama-2-7b | dgx-h100 | 64-128 GPUs | 1.00T tokens | deadline 20 days, budget $200k"
    )
    assert lines[1].startswith("Lowest cost within 20 days and $200k: ")
    parts = ["\n  plan ", "\n  > ", "\nGoodput: ", 
             "\nNext: -o plan.toml, then scalewise export plan.toml --to megatron\n",
             "\nEmissions: 445 g/kWh, world 2024", "\nDefaults: "]  # fmt: skip
    places = [result.stdout.index(part) for part in parts]
    assert places == sorted(places)
    assert "(market 2026-05)" in result.stdout


def test_nothing_within_the_limits_is_exit_code_1(run):
    result = run(*BASE, "--deadline", "1d")
    assert result.exit_code == 1
    assert "No size up to 128 stays within 1 day " in result.stdout
    assert "x the deadline" in result.stdout


def test_owning_and_break_even_are_sentences(run):
    own = "purchase=43000,kwh=0.08"
    result = run("plan", "llama-2-7b", "--on", "dgx-h100,gb200-nvl72", "--gpus", "64",
                 "--tokens", "1T", "--own", own, "--by", "cost")  # fmt: skip
    text = " ".join(result.stdout.split())
    assert "Own or rent: dgx-h100: $1." in text
    assert "owning costs less above" in text
    assert "years 4 (assumed)" in text
    assert "64x gb200-nvl72 (price unknown) costs less than 64x dgx-h100 (market 2026-05)" in text
    assert "-h [$" in text


def test_json_and_csv_hold_every_row(run):
    found = json.loads(run(*BASE, "--json").stdout)
    assert found["answers"][0]["answer"]["accelerators"] == 128
    assert {"days", "days_low", "days_high", "usd", "mwh", "tonnes"} <= found["rows"][0].keys()
    rows = list(csv.DictReader(io.StringIO(run(*BASE, "--csv").stdout)))
    assert list(rows[0]) == list(COLUMNS)
    assert [row["accelerators"] for row in rows] == ["128", "64"]
    assert rows[0]["price_kind"] == "market"


@pytest.mark.parametrize("ending", [".html", ".svg", ".csv", ".json"])
def test_files(run, tmp_path, ending):
    path = tmp_path / f"plan{ending}"
    result = run(*BASE, "--deadline", "20d", "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    content = path.read_text(encoding="utf-8")
    assert ("dgx-h100" in content) or ending == ".svg"
    assert len(content) > 500


def test_a_plan_file_gives_the_same_answer_to_other_commands(run, tmp_path):
    path = str(tmp_path / "plan.toml")
    first = run(*BASE, "--deadline", "20d", "-o", path)
    assert first.exit_code == 0
    assert "Lowest cost within 20 days" in first.stdout
    again = json.loads(run("plan", "--plan", path, "--json").stdout)
    answer = again["answers"][0]["answer"]
    one = json.loads(run("estimate", "--plan", path, "--json").stdout)
    assert one["days"] == answer["days"]
    assert again["deadline_days"] == 20.0
    # Another size needs another strategy.
    other = json.loads(run("plan", "--plan", path, "--gpus", "256", "--json").stdout)
    assert other["rows"][0]["accelerators"] == 256
    assert other["rows"][0]["strategy"] != answer["strategy"]
    several = run("plan", "llama-2-7b,llama-2-13b", "--on", "dgx-h100", "--gpus", "64", "-o", path)
    assert (several.exit_code, "a plan file holds one model" in several.stderr) == (2, True)
    none = run(*BASE, "--deadline", "1d", "-o", path)
    assert (none.exit_code, "there is no plan to write" in none.stderr) == (2, True)


def test_a_queue(run, tmp_path):
    path = tmp_path / "queue.toml"
    path.write_text(QUEUE)
    result = run("plan", "--queue", str(path))
    assert result.exit_code == 0
    assert result.stdout.startswith("1 run on 128x dgx-h100 end on 2027-01-")
    assert "Other sizes: 64 GPUs: " in result.stdout
    assert "Other sizes: 256 GPUs: " in result.stdout
    rows = list(csv.DictReader(io.StringIO(run("plan", "--queue", str(path), "--csv").stdout)))
    assert list(rows[0]) == list(QUEUE_COLUMNS)
    assert json.loads(run("plan", "--queue", str(path), "--json").stdout)["start"] == "2027-01-04"
    larger = run("plan", "--queue", str(path), "--gpus", "256", "--price", "2")
    assert "256x dgx-h100" in larger.stdout
    svg = tmp_path / "queue.svg"
    assert run("plan", "--queue", str(path), "-o", str(svg)).exit_code == 0
    assert svg.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan",), "MODEL is missing"),
        ((*BASE, "--json", "--csv"), "--json and --csv exclude each other"),
        ((*BASE, "-o", "x.pdf"), "-o x.pdf: unsupported file type .pdf"),
        (("plan", "llama-2-7b", "--queue", "x.toml"), "model belongs to the runs of --queue"),
        (("plan", "--queue", "none.toml"), "none.toml"),
    ],
)  # fmt: skip
def test_wrong_usage(run, words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_without_plotly_a_page_is_refused_before_anything_is_computed(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "plotly", None)
    result = run(*BASE, "-o", str(tmp_path / "plan.html"))
    assert result.exit_code == 1
    assert "plotly" in result.stderr
