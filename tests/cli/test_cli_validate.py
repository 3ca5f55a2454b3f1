"""`scalewise validate`: the shipped table, a file of one's own, and every way to get it wrong."""

import json
import re
from pathlib import Path

import pytest

from measure_jobs import record
from scalewise.records.files import append

HEADER = (
    "id,source,accelerator,accelerators,layers,hidden,heads,ffn_hidden,gated_mlp,vocab,seq_len,"
    "global_batch,micro_batch,dp_shard,sharding,recompute,framework,"
    "tokens_per_second_per_accelerator,experts,experts_per_token"
)
SHAPE = "32,4096,32,11008,true,32000,4096,64"


@pytest.fixture
def mine(tmp_path):
    """Three rows: one of unknown software, one of experts, one with a typing error."""
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([
        HEADER,
        f"a,us,h100-sxm-80gb,8,{SHAPE},1,8,zero3,full,in-house,9000,,",
        f"b,us,h100-sxm-80gb,8,{SHAPE},1,8,zero3,full,in-house,9000,8,2",
        f"c,them,h100-sxm-80gb,eight,{SHAPE},1,8,zero3,full,in-house,9000,,",
        "",
    ]))  # fmt: skip
    return path


def test_the_shipped_table(run):
    result = run("validate")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "Predicted against measured tok/s/GPU: 2,109 complete dense runs of 23 sources\n"
    )
    lines = {line.strip().split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    for name in ("shipped constants", "source left out", "40% MFU", "nearest published run"):
        assert name in lines
    for name in ("megatron, compiled", "pytorch, eager", "xla, gpu", "neuron"):
        assert name in lines
    assert lines["llm-foundry"][1] == "300"
    assert "Predicted: 2,109 of 2,109 complete dense runs. Not supported: " in result.stdout
    assert "runs of nanotron, 1.5 to " in result.stdout
    for label in ("80% intervals: ", "Weak scaling: ", "Peak memory: ", "Regret up to 256 GPUs: "):
        assert label in result.stdout
    assert "Largest errors, shipped constants" in result.stdout
    assert result.stderr == ""


def test_markdown_is_what_the_readme_and_the_docs_show(run):
    """`python docs/make_accuracy.py` writes both again."""
    root = Path(__file__).resolve().parents[2]
    paragraph, _, tables = run("validate", "--markdown").stdout.partition("\n\n")
    assert paragraph.startswith("**Accuracy.** On ")
    assert paragraph in (root / "README.md").read_text(encoding="utf-8")
    assert tables.startswith("| prediction | runs | median | p90 | mean of sources |")
    page = (root / "docs" / "accuracy.md").read_text(encoding="utf-8")
    dense, _, experts = tables.partition("| accelerator |")
    assert dense.strip() in page
    assert f"<!-- experts -->\n\n| accelerator |{experts.rstrip()}\n\n<!-- end -->" in page


def test_runs_of_experts_have_a_part_of_their_own(run):
    result = run("validate", "--source", "dgxc-v25.05.05", "--source", "primus")
    assert result.stdout.startswith(
        "Predicted against measured tok/s/GPU: 0 complete dense runs of 0 sources\n"
    )
    assert "Mixtures of experts: 2 complete runs\n" in result.stdout
    lines = {line.strip().split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    assert lines["GPU"][1] == "2"
    assert "Predicted: 2 of 2 complete runs\n" in result.stdout
    assert "Source left out: GPU median 8." in result.stdout
    answer = json.loads(run("validate", "--source", "dgxc-v25.05.05", "--json").stdout)
    assert answer["sources"] == {}
    assert answer["experts"]["groups"]["GPU"]["count"] == 2
    assert answer["experts"]["sources"]["dgxc-v25.05.05"]["left_out_error"] < 0.11


def test_one_source(run):
    result = run("validate", "--source", "mt-nlg", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert {row["source"] for row in answer["rows"]} == {"mt-nlg"}
    assert len(answer["rows"]) == 3
    assert list(answer["sources"]) == ["mt-nlg"]


def test_two_sources(run):
    result = run("validate", "--source", "mt-nlg", "--source", "megatron-lm-sc21", "--json")
    assert list(json.loads(result.stdout)["sources"]) == ["megatron-lm-sc21", "mt-nlg"]


def test_unknown_source(run):
    result = run("validate", "--source", "nanotrn")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "error: --source nanotrn: unknown source" in result.stderr
    assert "hint: did you mean `nanotron`" in result.stderr


def test_a_file_of_ones_own(run, mine):
    result = run("validate", str(mine), "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert {"rows", "overall", "sources"} <= set(answer)
    a, b, c = answer["rows"]
    assert set(a) >= {
        "id", "status", "measured_tokens_per_second", "predicted_tokens_per_second", "low",
        "high", "error", "memory_gb_predicted", "reason",
    }  # fmt: skip
    assert (a["id"], a["status"], a["stack"]) == ("a", "ok", "pytorch")
    assert a["measured_tokens_per_second"] == 9000.0
    assert a["error"] == pytest.approx(a["predicted_tokens_per_second"] / 9000.0 - 1.0)
    assert a["low"] < a["predicted_tokens_per_second"] < a["high"]
    # It has experts: judged, but not among the dense rows.
    assert (b["status"], b["dense"], b["experts"]) == ("ok", False, True)
    assert answer["experts"]["groups"]["GPU"]["count"] == 1
    assert c["reason"] == "line 4: accelerators = 'eight' is not a number"
    assert answer["overall"]["count"] == 1
    assert answer["sources"]["us"]["count"] == 1


def test_a_file_in_words(run, mine):
    result = run("validate", str(mine))
    assert result.exit_code == 0
    assert "generic" not in result.stderr
    assert any(line.split()[:2] == ["us", "1"] for line in result.stdout.splitlines())
    assert "Predicted: 1 of 2 complete dense runs, not 1 (line 4: accelerators = 'eight'" in (
        result.stdout
    )


def test_a_header_alone(run, tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text(HEADER + "\n")
    result = run("validate", str(path), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["overall"]["median_error"] is None
    assert run("validate", str(path)).exit_code == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: no such file or directory"),
        (b"\xff\xfe\x00binary", "cannot be read: it is not UTF-8 text (byte 0)"),
        (b"id,source\na,b\n", "has no column 'accelerator'"),
    ],
    ids=["missing", "binary", "columns"],
)
def test_files_that_are_no_table(run, tmp_path, content, words):
    path = tmp_path / "runs.csv"
    if content is not None:
        path.write_bytes(content)
    result = run("validate", str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_html(run, mine, tmp_path):
    page = tmp_path / "scatter.html"
    result = run("validate", str(mine), "-o", str(page))
    assert result.exit_code == 0
    text = page.read_text()
    assert "us (1)" in text
    assert "measured throughput" in text
    # The drawing library is inside, so the page works offline.
    assert len(text) > 1_000_000
    tags = re.sub(r"(<script[^>]*>).*?</script>", r"\1", text, flags=re.DOTALL)
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", tags)


def test_json_file(run, mine, tmp_path):
    target = tmp_path / "out.json"
    assert run("validate", str(mine), "-o", str(target)).exit_code == 0
    assert [row["id"] for row in json.loads(target.read_text())["rows"]] == ["a", "b", "c"]


def test_a_place_that_cannot_be_written(run, mine, tmp_path):
    result = run("validate", str(mine), "-o", str(tmp_path / "no" / "such" / "x.json"))
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("error: ")


def test_choices_say_which_term_misled(run, tmp_path):
    path = tmp_path / "x.json"
    result = run("validate", "--source", "nanotron", "--choices", "-o", str(path))
    assert result.exit_code == 0
    assert " sweeps have a regret above 5%." in result.stdout
    assert "Misled by " in result.stdout
    assert "llama-like-1b x128 (nanotron, " in result.stdout
    data = json.loads(path.read_text())
    assert {choice["source"] for choice in data["choices"]} == {"nanotron"}
    assert all(choice["regret"] > 0.05 for choice in data["choices"])


def test_choices_without_a_sweep(run, mine):
    assert run("validate", str(mine), "--choices").stdout.startswith("No sweep of strategies")


def test_choices_are_those_of_the_shipped_constants(run):
    result = run("validate", "--choices", "--left-out")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


def test_steps_played_event_by_event(run):
    """Both engines judge the same rows; they agree within 5 %, but not to the last bit."""
    sources = ("--source", "mt-nlg", "--source", "megatron-lm-sc21", "--json")
    closed, played = (
        json.loads(run("validate", *sources, "--engine", engine).stdout)["rows"]
        for engine in ("analytical", "simulated")
    )
    assert [row["id"] for row in closed] == [row["id"] for row in played]
    key = "predicted_tokens_per_second"
    ratios = [b[key] / a[key] for a, b in zip(closed, played, strict=True)]
    assert all(0.95 < ratio < 1.05 for ratio in ratios)
    assert any(ratio != 1.0 for ratio in ratios)
    for a, b, ratio in zip(closed, played, ratios, strict=True):
        assert b["low"] / a["low"] == pytest.approx(ratio)
        assert b["memory_gb_predicted"] == a["memory_gb_predicted"]


def test_the_engine_is_named_above_the_table(run):
    """Runs of this source are incomplete: they are in the table, but in no headline."""
    result = run("validate", "--source", "mt-nlg", "--engine", "simulated")
    assert result.stdout.startswith("Predicted against measured tok/s/GPU, simulated steps: ")


@pytest.mark.parametrize("other", ["--choices", "--left-out"])
def test_terms_and_refits_are_those_of_the_closed_forms(run, other):
    result = run("validate", "--engine", "simulated", other)
    assert result.exit_code == 2
    assert "--engine simulated: --choices and --left-out need" in result.stderr


def test_a_folder_of_records_is_read_as_runs(run, tmp_path):
    append(tmp_path / "train.jsonl", record())
    result = run("validate", str(tmp_path), "--json")
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)["rows"]
    # 8 sequences of 32 tokens on 2 devices in 0.2 s, the median after a step of warm-up.
    assert row["measured_tokens_per_second"] == pytest.approx(8 * 32 / 0.2 / 2)
    assert row["source"] == "measured"
    assert row["predicted_tokens_per_second"] > 0
    refused = run("validate", str(tmp_path), "--left-out")
    assert refused.exit_code == 2
    assert "it needs a CSV with several sources" in refused.stderr
