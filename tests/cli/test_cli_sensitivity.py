"""`scalewise sensitivity`: one sentence first, every format, and what cannot run."""

import csv
import io
import json

import pytest

from scalewise import estimate

LINE = ("sensitivity", "llama-2-7b", "--on", "dgx-h100", "--gpus", "16")


@pytest.fixture(scope="module")
def chosen():
    """The strategy that is usual there."""
    return str(estimate("llama-2-7b", on="dgx-h100", gpus=16).strategy)


def test_leads_with_one_sentence(run, chosen):
    result = run(*LINE)
    assert result.exit_code == 0
    head, answer = result.stdout.splitlines()[:2]
    assert head.endswith(f"| {chosen} | bf16 | stack megatron-lm")
    assert answer.startswith("Best upgrade: ")
    assert "\nDefaults: " in result.stdout
    assert "--reoptimize" in result.stdout


def test_json(run, chosen):
    data = json.loads(run(*LINE, "--json").stdout)
    assert data["strategy"] == chosen
    assert data["lead"].startswith("Best upgrade: ")
    assert len(data["rows"]) == 15
    assert data["factor"] == 2.0
    peak = next(row for row in data["rows"] if row["name"] == "peak FLOP/s")
    assert peak["upgrade"] == "2 x: 1.98 PFLOP/s"
    assert 0.0 < peak["gain"] < 1.0


def test_csv(run, chosen):
    rows = list(csv.DictReader(io.StringIO(run(*LINE, "--csv").stdout)))
    assert len(rows) == 15
    assert {row["today"] for row in rows} == {chosen}


def test_reoptimized(run):
    words = (*LINE, "--batch", "16", "--strategy", "fsdp16-mb1", "--json")
    held, free = json.loads(run(*words).stdout), json.loads(run(*words, "--reoptimize").stdout)
    assert (held["reoptimized"], free["reoptimized"]) == (False, True)
    assert held["strategy"] == free["given"] == "fsdp16-mb1"
    assert free["strategy"] == free["best"]["strategy"] == held["best"]["strategy"]


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
    assert "\nLIKELY OUT OF MEMORY: " in result.stdout
    assert "\nFits with: " in result.stdout


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--factor", "1"), "1"),
        (("-o", "x.pdf"), "-o x.pdf: unsupported file type .pdf"),
        (("--json", "--csv"), "exclude each other"),
        (("--strategy", "bset"), "bset"),
    ],
)
def test_wrong_usage(run, extra, message):
    result = run(*LINE, *extra)
    assert result.exit_code == 2
    assert message in result.stderr
