"""`scalewise sensitivity`: one sentence first, every format, and what cannot run."""

import csv
import io
import json

import pytest

LINE = ("sensitivity", "llama-2-7b", "--on", "dgx-h100", "--gpus", "16")


def test_leads_with_one_sentence(run):
    result = run(*LINE)
    assert result.exit_code == 0
    head, answer = result.stdout.splitlines()[:2]
    assert head.endswith("fsdp16-mb1, bf16")
    assert answer.startswith("The next thing to buy: ")
    assert "Chosen for you" in result.stdout
    assert "--reoptimise" in result.stdout


def test_json(run):
    data = json.loads(run(*LINE, "--json").stdout)
    assert data["strategy"] == "fsdp16-mb1"
    assert data["lead"].startswith("The next thing to buy: ")
    assert len(data["rows"]) == 15
    assert data["factor"] == 2.0
    peak = next(row for row in data["rows"] if row["name"] == "peak FLOP/s")
    assert peak["upgrade"] == "2 x: 1.98 PFLOP/s"
    assert 0.0 < peak["gain"] < 1.0


def test_csv(run):
    rows = list(csv.DictReader(io.StringIO(run(*LINE, "--csv").stdout)))
    assert len(rows) == 15
    assert {row["today"] for row in rows} == {"fsdp16-mb1"}


def test_best(run):
    data = json.loads(run(*LINE, "--batch", "16", "--strategy", "best", "--json").stdout)
    assert data["reoptimised"] is True
    assert data["given"] is None
    assert not any(each.endswith("(--strategy)") for each in data["chosen"])
    same = json.loads(run(*LINE, "--batch", "16", "--reoptimise", "--json").stdout)
    assert same["strategy"] == data["strategy"] == data["best"]["strategy"]
    assert same["given"] == "fsdp16-mb1"


@pytest.mark.parametrize("ending", ["html", "svg", "png", "csv", "json", "parquet"])
def test_files(run, tmp_path, ending):
    for library in {"parquet": ["polars"], "svg": ["matplotlib"], "png": ["matplotlib"]}.get(
        ending, []
    ):
        pytest.importorskip(library)
    path = tmp_path / f"x.{ending}"
    result = run(*LINE, "-o", str(path))
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert f"wrote {path}" in result.stderr
    assert path.stat().st_size > 500


def test_what_does_not_fit_is_an_answer(run):
    result = run("sensitivity", "llama-2-70b", "--on", "dgx-h100", "--gpus", "16",
                 "--strategy", "fsdp16-mb2")  # fmt: skip
    assert result.exit_code == 1
    assert "Nothing to speed up yet: fsdp16-mb2 does not fit." in result.stdout
    assert "What would make it fit" in result.stdout


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--factor", "1"), "1"),
        (("-o", "x.pdf"), "has no known ending"),
        (("--json", "--csv"), "exclude each other"),
        (("--strategy", "bset"), "bset"),
    ],
)
def test_wrong_usage(run, extra, message):
    result = run(*LINE, *extra)
    assert result.exit_code == 2
    assert message in result.stderr
