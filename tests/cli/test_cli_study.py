import json
import subprocess
import sys

import pytest

ONE = """
title = "One"
[[experiment]]
id = "weak"
title = "Weak scaling"
models = ["llama-2-7b"]
clusters = ["dgx-h100"]
sizes = [8, 64]
[[experiment.figures]]
y = ["mfu"]
"""

CLAIM = """
[[experiment.claims]]
statement = "MFU is 40 % on one node"
source = "us"
measure = "value"
metric = "mfu"
second = {accelerators = 8}
at_least = 0.3
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(ONE + CLAIM)
    return path


def test_run_writes_a_report_and_prints_verdicts(run, study, tmp_path):
    out = tmp_path / "report"
    result = run("study", "run", str(study), "-o", str(out))
    assert result.exit_code == 0
    assert "MFU is 40 % on one node" in result.stdout
    assert "Verdicts: 1 holds." in result.stdout
    assert f"wrote {out / 'index.html'} and 6 more files" in result.stderr
    assert (out / "points.db").exists()
    assert "scalewise study run" in (out / "index.html").read_text()


def test_json_has_the_verdicts(run, study, tmp_path):
    result = run("study", "run", str(study), "-o", str(tmp_path / "r"), "--json")
    (record,) = json.loads(result.stdout)
    assert record["verdict"] == "holds"
    assert record["published"] == "at least 30.0%"


def test_without_claims_it_says_what_it_shows(run, tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(ONE)
    result = run("study", "run", str(path), "-o", str(tmp_path / "r"), "--quick")
    assert "From 8 to 64 GPUs, MFU changes from" in result.stdout


def test_another_store_and_overlays(run, study, tmp_path):
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "id,accelerator,accelerators,layers,hidden,heads,ffn_hidden,seq_len,global_batch,mfu_pct,"
        "tokens_per_second_per_accelerator\n"
        "mine,h100-sxm-80gb,16,32,4096,32,11008,4096,32,39.5,9000\n"
    )
    store, out = tmp_path / "kept.db", tmp_path / "r"
    result = run("study", "run", str(study), "-o", str(out), "--store", str(store),
                 "--overlay", str(runs))  # fmt: skip
    assert result.exit_code == 0
    assert store.exists()
    assert not (out / "points.db").exists()
    assert "measured, unnamed" in (out / "index.html").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "nothing"], "there is no study `nothing`"),
        (["run", "nothing.toml"], "there is no file nothing.toml"),
        (["run", "what-to-buy", "--overlay", "no.csv"], "no.csv cannot be read: no such file"),
        (["run", "what-to-buy", "--jobs", "many"], "--jobs many must be a whole number or all"),
        (["show", "nothing"], "there is no study `nothing`"),
        (["new", "study.txt"], "FILE study.txt: unsupported file type .txt"),
    ],
)
def test_wrong_usage_is_2(run, args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("study", *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_without_points_is_1(run, tmp_path):
    path = tmp_path / "none.toml"
    path.write_text(ONE.replace("[8, 64]", '[12]\nstrategies = ["fsdp-tp8"]'))
    result = run("study", "run", str(path), "-o", str(tmp_path / "r"))
    assert result.exit_code == 1
    assert "experiment weak: no point fits" in result.stderr
    assert "Infeasible points" in (tmp_path / "r" / "index.html").read_text()


def test_a_figure_of_nothing_is_said(run, tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(ONE + 'where = {strategy = "fspd"}\n')
    result = run("study", "run", str(path), "-o", str(tmp_path / "r"))
    assert result.exit_code == 0
    assert "experiment weak, figure 1: no point to draw" in result.stderr


def test_a_script_for_slurm_is_printed_and_nothing_computed(run, study, tmp_path):
    result = run("study", "run", str(study), "-o", str(tmp_path / "r"), "--slurm-script")
    assert "#SBATCH" in result.stdout
    assert not (tmp_path / "r" / "index.html").exists()


def test_new_writes_a_file_that_runs(run, tmp_path):
    path = tmp_path / "mine.toml"
    assert run("study", "new", str(path)).exit_code == 0
    again = run("study", "new", str(path))
    assert again.exit_code == 2
    assert "exists" in again.stderr
    assert run("study", "new", str(path), "--force").exit_code == 0
    result = run("study", "run", str(path), "-o", str(tmp_path / "r"), "--quick")
    assert result.exit_code == 0


def test_list_and_show(run):
    listed = run("study", "list").stdout
    for name in ("hardware-scaling-trends", "compare-clusters", "what-to-buy"):
        assert name in listed
    shown = run("study", "show", "hardware-scaling-trends").stdout
    assert "weak-scaling" in shown
    assert "arXiv 2411.13055" in shown
    text = run("study", "show", "what-to-buy", "--toml").stdout
    assert text.startswith("# What should the next cluster have more of?")


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom scalewise.cli.main import main\n"
        "sys.argv = ['scalewise', 'study', 'run', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numpy', 'rich', 'plotly', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
