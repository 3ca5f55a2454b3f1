"""`scalewise measure` as somebody uses it who means no good: a sentence, a hint, an exit code."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from measure_jobs import record
from scalewise.errors import ScalewiseError
from scalewise.measure import launch
from scalewise.records.files import append, check_writable, read_records


@pytest.fixture
def cpus(monkeypatch):
    """Pretend that PyTorch is installed, and that nothing may be launched."""

    def never(self, spec):
        pytest.fail("something was launched")

    monkeypatch.setattr(launch, "choose_device", lambda asked: (asked or "cpu", 2))
    monkeypatch.setattr("scalewise.measure.machine.idle_warnings", lambda: ())
    monkeypatch.setattr(launch.LocalLauncher, "run", never)


@pytest.mark.parametrize(
    ("args", "said", "hint"),
    [
        (["--strategy", "fsdq2"], "fsdq2", "fsdp2"),
        (["--strategy", "ddp100000"], "strategy ddp100000-mb1 needs 100000 processes of about",
         "take fewer: it has 2 cores; or --slurm"),
        (["--steps", "0"], "steps = 0 must be at least 1", "leave it out"),
        (["--steps", "-3"], "steps = -3 must be at least 1", "leave it out"),
        (["--steps", "5", "--warmup", "9"], "warmup = 9 leaves none of 5 steps", "raise --steps"),
        (["--batch", "0"], "global_batch = 0 must be at least 1", "leave it out"),
        (["--seq", "0"], "seq_len = 0 must be at least 1", "leave it out"),
        (["--seq", "many"], "many", None),
        (["--threads", "0"], "--threads 0 must be at least 1", "--threads 1"),
        (["--device", "cuda", "--threads", "2"], "--threads 2 needs --device cpu", "--device cpu"),
        (["--timeout", "0"], "--timeout 0 must be positive", "--timeout 30min"),
        (["--timeout", "soon"], "soon", None),
        (["--repeats", "0"], "--repeats 0 must be at least 1", "--repeats 1"),
        (["--optimizer", "lion"], "optimizer lion cannot be measured", "use adamw, sgd, mom"),
        (["--tuning", "qlora8"], "tuning qlora8 cannot be measured in ddp1-mb1", "use lora8"),
        (["--tuning", "lora8", "--sweep", "tuning=full"], "exclude each other", "leave --tuning"),
        (["--nodes", "2"], "--nodes 2 needs --slurm", "add --slurm"),
        (["--partition", "p"], "--partition p needs --slurm", "add --slurm"),
        (["--time", "1h"], "--time 1h needs --slurm", "add --slurm"),
        (["--slurm", "--nodes", "0"], "--nodes 0 must be at least 1", "--nodes 1"),
        (["--slurm"], "--slurm needs --strategy or --ranks-per-node", "--ranks-per-node 8"),
        (["--slurm-script", "--strategy", "fsdp6", "--nodes", "4"],
         "--nodes 4: 6 ranks are not a multiple of the nodes", "--ranks-per-node 2"),
        (["--slurm-script", "--strategy", "fsdp8", "--ranks-per-node", "4"],
         "needs 8 ranks, but 1 nodes of 4 ranks are asked for", "raise --nodes"),
        (["--slurm-script", "--strategy", "fsdp8", "--time", "0"], "--time 0 must be positive",
         "--time 30min"),
    ],
)  # fmt: skip
def test_train_refuses(run, cpus, tmp_path, args, said, hint):
    result = run("measure", "train", "tiny", "-o", str(tmp_path / "r"), *args)
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    if hint is not None:
        assert lines[1].startswith("hint: ")
        assert hint in lines[1]
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["collectives", "--ranks", "0"], "--ranks 0 must be at least 1"),
        (["collectives", "--ranks", "1"], "--ranks 1: collectives need at least 2 ranks"),
        (["collectives", "--ranks", "two"], "two"),
        (["collectives", "--iters", "0"], "iters = 0 and warmup = 3 make no sample"),
        (["collectives", "--sizes", "big"], "big"),
        (["collectives", "--group-sizes", "3"], "groups of 3 do not fill 2 ranks"),
        (["collectives", "--slurm", "--nodes", "2"], "--slurm needs --ranks or --ranks-per-node"),
        (["kernels", "--ranks", "9", "--device", "cuda"], "--ranks 9 needs 9 GPUs, but there are"),
        (["kernels", "--ranks", "1000000"], "--ranks 1000000 needs 1000000 processes of about"),
        (["kernels", "--iters", "0"], "iters = 0 and warmup = "),
        (["kernels", "--model", "tinny"], "tinny"),
        (["kernels", "--precision", "fp8"], "precision 'fp8' cannot be measured here"),
    ],
)
def test_sweeps_refuse(run, cpus, tmp_path, args, said):
    result = run("measure", *args, "-o", str(tmp_path / "r"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert said in result.stderr.splitlines()[0]


def test_one_step_is_measured_without_warmup(run, cpus, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(launch.LocalLauncher, "run", lambda self, spec: seen.append(spec))
    run("measure", "train", "tiny", "--steps", "1", "--threads", "2", "-o", str(tmp_path))
    (spec,) = seen
    assert (spec.planned[0].job.steps, spec.planned[0].job.warmup, spec.threads) == (1, 0, 2)


@pytest.mark.parametrize("kind", ["train", "collectives", "kernels"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(run, cpus, tmp_path, kind):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.jsonl").mkdir()
    model = ["tiny"] if kind == "train" else []
    for place, why in (
        (tmp_path / "file" / "records", "Not a directory"),
        (tmp_path / "folder.jsonl", "Is a directory"),
        (Path("/proc/records"), "No such file or directory"),
    ):
        result = run("measure", kind, *model, "-o", str(place))
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: records cannot be written to {place}")
        assert f": {why}\nhint: name another folder or .jsonl file with -o\n" in result.stderr


def test_looking_whether_it_can_be_written_leaves_nothing(tmp_path):
    check_writable(tmp_path / "new" / "train.jsonl")
    assert list((tmp_path / "new").iterdir()) == []
    append(tmp_path / "train.jsonl", record(id="a"))
    check_writable(tmp_path / "train.jsonl")
    assert [r.id for r in read_records(tmp_path / "train.jsonl").records] == ["a"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is full")
def test_a_full_disk_is_one_sentence(tmp_path):
    (tmp_path / "train.jsonl").symlink_to("/dev/full")
    with pytest.raises(ScalewiseError, match=r"cannot be added to \S+: No space left on device"):
        append(tmp_path / "train.jsonl", record())


def test_corrupt_lines_are_named_and_the_rest_is_kept(run, tmp_path):
    file = tmp_path / "train.jsonl"
    append(file, record("ddp2-mb4", id="a"))
    written = json.loads(file.read_text())
    good = written | {"schema": 1}
    wrong = [
        b'{"schema": 1, "kind": "tr\xff\xfein"}',
        b"\x00\x01\x02",
        b'{"schema": 1}',
        json.dumps(good | {"id": "x", "results": {}}).encode(),
        json.dumps(good | {"id": "y", "inputs": good["inputs"] | {"strategy": "no"}}).encode(),
        json.dumps(
            good | {"id": "z", "results": good["results"] | {"step_seconds": [1.0]}}
        ).encode(),
        json.dumps(written | {"id": "w"}).encode(),
    ]
    with file.open("ab") as stream:
        stream.write(b"\n".join(wrong) + b"\n")
    append(file, record("fsdp2-mb4", id="b"))
    found = read_records(file)
    assert [r.id for r in found.records] == ["a", "b"]
    assert [note.partition(" was skipped")[0] for note in found.notes] == [
        f"{file} line {number}" for number in range(2, 9)
    ]
    assert "step_seconds" in found.notes[3]
    assert found.notes[5].endswith("it has 1 steps, all of them warm-up (1)")
    assert "its checksum does not match" in found.notes[6]
    result = run("measure", "merge", str(file), "-o", str(tmp_path / "mine.csv"))
    assert result.exit_code == 0
    assert result.stderr.startswith("wrote 2 runs to ")
    assert result.stderr.count("warning: ") == 7


def test_slurm_without_sbatch(run, cpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: sys)
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = ["measure", "train", "tiny", "--strategy", "ddp2", "--device", "cpu", "--slurm"]
    result = run(*asked, "--nodes", "2", "-o", str(tmp_path / "r"))
    assert result.exit_code == 2
    assert "error: Slurm's `sbatch` is not found on this machine\nhint: run it where" in (
        result.stderr
    )
    assert list((tmp_path / "r").iterdir()) == []
    monkeypatch.setitem(sys.modules, "torch", None)
    result = run(*asked, "--nodes", "2", "-o", str(tmp_path / "r"))
    assert result.exit_code == 1
    assert "hint: pip install 'scalewise[measure]'" in result.stderr


def test_the_script_needs_neither_slurm_nor_an_extra(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch", None)
    result = run("measure", "train", "llama-2-7b", "--strategy", "fsdp128-mb2", "--slurm-script",
                 "--nodes", "16", "--partition", "gpu", "-o", str(tmp_path / "r"))  # fmt: skip
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("#!/bin/bash\n")
    assert "#SBATCH --partition=gpu\n#SBATCH --nodes=16\n#SBATCH --ntasks-per-node=8\n" in (
        result.stdout
    )
    assert "--nodes=16 --ntasks=128 --ntasks-per-node=8 --time=30\n" in result.stdout
    result = run("measure", "kernels", "--slurm-script", "--nodes", "2", "--ranks-per-node", "8")
    assert "launch 1 'kernels on 16 ranks' scalewise.measure.sweep_worker" in result.stdout
    assert "#SBATCH --gpus-per-node=8\n" in result.stdout
    assert not (tmp_path / "r").exists()
