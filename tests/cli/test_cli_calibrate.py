"""`scalewise calibrate`: files that load, and predict as the shipped ones do."""

import csv
import json
import os
import subprocess
import sys
import tomllib

import numpy as np
import pytest

from scalewise.evidence.runs import SHIPPED


def shipped_rows():
    with SHIPPED.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def table(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def predicted(path, **env):
    """Tokens/s by row in a process of its own: a catalog is chosen when one starts."""
    result = subprocess.run(
        [sys.executable, "-m", "scalewise", "validate", str(path), "--json"],
        env={**os.environ, **env},
        capture_output=True,
        check=True,
        text=True,
    )
    rows = json.loads(result.stdout)["rows"]
    return np.array([row["predicted_tokens_per_second"] for row in rows]), rows


def test_a_quick_calibration_gives_what_is_shipped(run, tmp_path):
    folder = tmp_path / "catalog"
    result = run("calibrate", "--quick", "-o", str(folder))
    assert result.exit_code == 0, result.stderr
    assert "constants fitted to 1832 runs: median error" in result.stdout
    assert "fitting constants to 2109 runs ..." in result.stderr
    assert f"SCALEWISE_CATALOG={folder}" in result.stderr
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert {"stacks/megatron.toml", "stacks/pytorch.toml", "calibrations/hopper.toml",
            "fabrics/infiniband.toml"} <= set(files)  # fmt: skip
    assert not [name for name in files if name.endswith(".tmp")]
    assert f"wrote {sum(name.endswith('.toml') for name in files)} files" in result.stdout
    stack = tomllib.loads((folder / "stacks" / "llm-foundry.toml").read_text())
    assert stack["fitted_on"].startswith("300 published runs of llm-foundry; median error ")
    assert "15 constants of experts fitted to 138 runs: median error 4." in result.stdout
    experts = tomllib.loads((folder / "experts" / "megatron.toml").read_text())
    assert experts["fitted_on"].startswith("138 published runs of dgxc-v24.11.1, ")

    good = [
        row for row in shipped_rows()
        if row["quality"] in ("ok", "vendor-expected") and not row["experts"]
        and row["attention"] not in ("mla", "hybrid-mamba")
    ]  # fmt: skip
    sample = table(tmp_path / "sample.csv", good[::12])
    before, _ = predicted(sample)
    after, rows = predicted(sample, SCALEWISE_CATALOG=str(folder))
    assert {row["status"] for row in rows} == {"ok"}
    assert np.median(np.abs(after / before - 1.0)) < 0.02


@pytest.fixture
def foundry():
    return [row for row in shipped_rows() if row["source"] == "llm-foundry"]


def test_rows_of_ones_own(run, tmp_path, foundry):
    first = table(tmp_path / "one.csv", foundry[:60:3])
    second = table(tmp_path / "two.csv", foundry[1:60:3])
    folder = tmp_path / "catalog"
    result = run(
        "calibrate", "--quick", "--from", str(first), "--from", str(second), "-o", str(folder)
    )
    assert result.exit_code == 0, result.stderr
    assert "constants fitted to 40 runs: median error" in result.stdout
    assert (folder / "stacks" / "llm-foundry.toml").is_file()


def test_what_ones_own_rows_do_not_show_stays(run, tmp_path, foundry):
    mine = table(tmp_path / "mine.csv", foundry[:60:3])
    others = [row for row in shipped_rows() if row["source"] == "dgxc-v25.04"][::6]
    sample = table(tmp_path / "sample.csv", others)
    folder = tmp_path / "catalog"
    run("calibrate", "--quick", "--from", str(mine), "-o", str(folder))
    # Chips and fabrics may move with the new rows; another stack's own constants may not.
    (folder / "sample").mkdir()
    for kind in ("calibrations", "fabrics"):
        (folder / kind).rename(folder / "sample" / kind)
    before, _ = predicted(sample)
    after, _ = predicted(sample, SCALEWISE_CATALOG=str(folder))
    assert after == pytest.approx(before, rel=1e-3)


def test_too_few_rows(run, tmp_path, foundry):
    result = run(
        "calibrate", "--quick", "--from", str(table(tmp_path / "few.csv", foundry[:4])), "-o",
        str(tmp_path / "catalog"),
    )  # fmt: skip
    assert result.exit_code == 2
    assert "error: 4 measured rows are too few to calibrate on" in result.stderr
    assert not (tmp_path / "catalog").exists()


def test_a_file_that_is_not_there(run, tmp_path):
    result = run("calibrate", "--from", str(tmp_path / "no.csv"), "-o", str(tmp_path / "catalog"))
    assert result.exit_code == 2
    assert "no.csv cannot be read: no such file or directory" in result.stderr


def test_microbenchmarks_are_fitted_and_shown(run):
    result = run("calibrate", "--microbenchmarks", "--json")
    constants = {(c["owner"], c["name"]): c for c in json.loads(result.stdout)}
    # Rings reach about 80 % of an H100's NVLink (367 of 450 GB/s measured).
    assert constants["hopper", "link_efficiency"]["value"] == pytest.approx(0.80, abs=0.03)
    assert constants["hopper", "attention.cudnn.forward"]["identified"]
    text = run("calibrate", "--microbenchmarks").stdout
    assert "median error" in text
    assert "link_efficiency" in text


@pytest.fixture
def grok():
    """Rows of Grok-1 of two releases."""
    return [
        row
        for row in shipped_rows()
        if row["source"] in ("dgxc-v25.05", "dgxc-v25.05.02") and row["model"].startswith("grok")
        and row["quality"] == "vendor-expected"
    ]  # fmt: skip


def test_experts_alone(run, tmp_path, grok):
    folder, path = tmp_path / "catalog", str(table(tmp_path / "grok.csv", grok))
    result = run("calibrate", "--experts", "--from", path, "-o", str(folder))
    assert result.exit_code == 0, result.stderr
    assert "15 constants of experts fitted to 6 runs: median error " in result.stdout
    assert "refitting experts without dgxc-v25.05.02 ..." in result.stderr
    files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert files == ["experts/megatron.toml", "ranges.toml", "runs/left_out.csv"]
    constants = tomllib.loads((folder / "experts" / "megatron.toml").read_text())
    assert constants["fitted_on"].startswith("6 published runs of dgxc-v25.05, dgxc-v25.05.02; ")
    # No run has them: priors.
    assert {"deepep", "hybridep", "biased_activation"} <= set(constants["undetermined"])
    ours = tomllib.loads((folder / "ranges.toml").read_text())
    shipped = tomllib.loads((SHIPPED.parents[1] / "ranges.toml").read_text())
    for each in (ours, shipped):
        del each["experts"], each["recipe"]
    assert ours == shipped
    with (folder / "runs" / "left_out.csv").open(newline="") as stream:
        stored = {row["id"]: row for row in csv.DictReader(stream)}
    assert {row["id"] for row in grok} <= set(stored)
    assert "mpt-70b-h10080gbx512-s2048-mb8-ga1" in stored


def test_experts_as_json(run, tmp_path, grok):
    path = str(table(tmp_path / "grok.csv", grok))
    result = run("calibrate", "--experts", "--json", "--from", path, "-o", str(tmp_path / "out"))
    answer = json.loads(result.stdout)
    assert answer["runs"] == 6
    assert [each["name"] for each in answer["constants"]][:2] == ["nccl", "deepep"]
    assert len(answer["files"]) == 3


def test_too_few_runs_of_experts(run, tmp_path, grok):
    path = str(table(tmp_path / "grok.csv", grok[:4]))
    result = run("calibrate", "--experts", "--from", path, "-o", str(tmp_path / "catalog"))
    assert result.exit_code == 2
    assert "error: 4 complete runs of experts are too few to calibrate on" in result.stderr
    assert not (tmp_path / "catalog").exists()
