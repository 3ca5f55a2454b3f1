import json
import subprocess
import sys

import pytest
from rich.console import Console

from measure_jobs import model_file, record
from scalewise.cli import measure_train
from scalewise.cli.measure import KINDS
from scalewise.errors import InputError
from scalewise.measure import launch
from scalewise.records.files import append, read_records
from scalewise.records.metrics import summarize
from scalewise.report.measure_table import print_summaries

COMMON = {
    "--on", "--device", "--threads", "--timeout", "-o", "--output", "--json", "--slurm", "--nodes",
    "--ranks-per-node", "--partition", "--time", "--slurm-script",
}  # fmt: skip


@pytest.fixture
def model(tmp_path):
    return model_file(tmp_path)


@pytest.fixture
def here(monkeypatch):
    """Pretend that PyTorch is installed, with or without GPUs, and note what would be launched."""
    specs = []

    def pretend(device="cpu", count=2):
        monkeypatch.setattr(launch, "choose_device", lambda asked: (asked or device, count))
        monkeypatch.setattr("scalewise.measure.machine.idle_warnings", lambda: ("a fly flew by",))

        def run(self, spec):
            specs.append(spec)
            (planned,) = spec.planned
            append(spec.records, record(
                id=planned.id, launch=planned.launch, warnings=planned.warnings,
                inputs=launch_inputs(planned.job), environment={"ranks": planned.job.ranks},
                results={"step_seconds": [0.1 * planned.launch] * planned.job.steps},
            ))  # fmt: skip

        monkeypatch.setattr(launch.LocalLauncher, "run", run)
        return specs

    return pretend


def launch_inputs(job):
    from scalewise.records.job import inputs_of

    return inputs_of(job)


def test_help_lists_what_can_be_measured(run):
    result = run("measure", "--help")
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    for name, entry in KINDS.items():
        assert f" {name} {entry.help}" in said
    assert "pip install 'scalewise[measure]'" in result.stdout


def test_short_help_of_each_kind_is_the_listed_one():
    from importlib import import_module

    for name, entry in KINDS.items():
        command = getattr(import_module(entry.module), entry.attribute)
        assert (command.name, command.short_help) == (name, entry.help)


def test_flags_of_train_are_the_promised_ones(run):
    names = {name for option in measure_train.train.params for name in option.opts}
    assert names == {
        "model", "--strategy", "--sweep", "--steps", "--warmup", "--repeats", "--seq", "--batch",
        "--precision", "--routing", "--optimizer", "--tuning", "--compile", "--trace", "--text",
        *COMMON,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("collectives", {"--ops", "--sizes", "--group-sizes", "--placement"}),
        ("kernels", {"--model", "--strategy", "--seq", "--precision"}),
    ],
)
def test_flags_of_sweeps_are_the_promised_ones(kind, own):
    from importlib import import_module

    command = getattr(import_module(KINDS[kind].module), kind)
    names = {name for option in command.params for name in option.opts}
    assert names == {*own, "--ranks", "--iters", *COMMON}


def test_unknown_kinds_get_a_hint(run):
    result = run("measure", "trainn", "tiny")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: unknown measurement trainn\nhint: did you mean `train`?" in result.stderr


def test_without_pytorch_the_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = run("measure", "train", "tiny")
    assert result.exit_code == 1
    assert "library torch is not installed" in result.stderr
    assert "hint: pip install 'scalewise[measure]'" in result.stderr


def test_nothing_of_torch_is_imported_before_it_is_needed():
    code = (
        "import sys\nfrom scalewise.cli import measure_train\n"
        "from scalewise.measure import check, launch, launch_spec, machine, missing_launches\n"
        "from scalewise.measure import power, slurm, slurm_rank, slurm_script, sweeps\n"
        "from scalewise.records import environment, files, job, metrics, nccl_tests, rows\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'pynvml')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--strategy", "cp2"], "cp = 2 cannot be measured on CPUs"),
        (["--strategy", "fsdp2-mb1-fp8"], "precision 'fp8' cannot be measured here"),
        (["--precision", "fp16"], "precision 'fp16' cannot be measured here"),
        (["--sweep", "strateg=ddp2"], "--sweep strateg=ddp2: unknown option strateg"),
        (["--sweep", "strategy="], "--sweep strategy=: no values"),
        (["--sweep", "seq=8,16", "--sweep", "seq=4"], "--sweep seq=4: seq is given twice"),
        (["--sweep", "compile=maybe"], "--sweep compile=maybe: must be true or false"),
        (["--seq", "8", "--sweep", "seq=16"], "--seq 8 and --sweep seq= exclude each other"),
        (["--steps", "2", "--warmup", "2"], "warmup = 2 leaves none of 2 steps to measure"),
        (["--repeats", "0"], "--repeats 0 must be at least 1"),
        (["--on", "h1000"], "h1000"),
        (["--text", "/no/such/file"], "there is no text file /no/such/file"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(run, here, tmp_path, args, said):
    specs = here()
    result = run("measure", "train", "tiny", "-o", str(tmp_path), *args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert specs == []


def test_more_gpus_than_there_are(run, here, tmp_path):
    here("cuda", 4)
    result = run("measure", "train", "tiny", "--strategy", "fsdp8", "-o", str(tmp_path))
    assert result.exit_code == 2
    assert "strategy fsdp8-mb1 needs 8 GPUs, but there are 4 here" in result.stderr


def test_what_is_not_said_is_chosen_for_cpus(run, here, tmp_path):
    (spec,) = _orders(run, here(), tmp_path, "measure", "train", "tiny")
    job = spec.planned[0].job
    assert (str(job.strategy), job.precision, job.seq_len) == ("ddp1-mb1", "fp32", 256)
    assert (job.global_batch, job.steps, job.warmup, job.trace_steps) == (1, 30, 7, 0)
    assert spec.threads is not None


def test_what_is_not_said_is_chosen_for_gpus(run, here, tmp_path):
    (spec,) = _orders(run, here("cuda", 8), tmp_path, "measure", "train", "llama-2-7b", "--trace")
    job = spec.planned[0].job
    assert (str(job.strategy), job.precision, job.seq_len) == ("fsdp8-mb1", "bf16", 4096)
    assert (job.global_batch, job.trace_steps, spec.threads) == (8, 3, None)


def test_a_pipeline_gets_a_batch_that_fills_it(run, here, tmp_path):
    (spec,) = _orders(run, here(), tmp_path, "measure", "train", "tiny", "--strategy", "pp2-mb2")
    assert spec.planned[0].job.global_batch == 16


def _orders(run, specs, tmp_path, *args):
    result = run(*args, "-o", str(tmp_path / "records"))
    assert result.exit_code == 0, result.stderr
    return specs


def test_launches_go_round_the_points_of_a_sweep(run, here, tmp_path):
    specs = here()
    result = run(
        "measure", "train", "tiny", "--sweep", "strategy=ddp2,tp2", "--sweep", "seq=32,64",
        "--repeats", "2", "--steps", "4", "-o", str(tmp_path), "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    asked = [(str(o.planned[0].job.strategy), o.planned[0].job.seq_len, o.planned[0].launch)
             for o in specs]  # fmt: skip
    points = [("ddp2-mb1", 32), ("ddp2-mb1", 64), ("fsdp1-tp2-mb1", 32), ("fsdp1-tp2-mb1", 64)]
    assert asked == [(*point, launch) for launch in (1, 2) for point in points]
    answer = json.loads(result.stdout)
    assert [s["strategy"] for s in answer["summaries"]] == [name for name, _ in points]
    assert answer["summaries"][0]["launch_medians"] == pytest.approx([0.1, 0.2])
    assert answer["summaries"][0]["warnings"] == ["a fly flew by"]
    assert answer["records"] == str(tmp_path / "train.jsonl")
    assert "8 of 8: tiny fsdp1-tp2-mb1, repeat 2" in result.stderr


def test_adapters_and_optimizers_are_swept(run, here, tmp_path):
    specs = here()
    result = run("measure", "train", "tiny", "--sweep", "tuning=full,lora16", "--sweep",
                 "optimizer=adamw,muon", "--json", "-o", str(tmp_path))  # fmt: skip
    assert result.exit_code == 0, result.stderr
    jobs = [spec.planned[0].job for spec in specs]
    points = [("full", "adamw"), ("full", "muon"), ("lora16", "adamw"), ("lora16", "muon")]
    assert sorted((job.tuning, job.optimizer) for job in jobs) == points
    shown = [(s["tuning"], s["optimizer"]) for s in json.loads(result.stdout)["summaries"]]
    assert sorted(shown) == points


def test_a_failed_launch_of_a_sweep_does_not_lose_the_others(run, here, tmp_path, monkeypatch):
    here()
    good = launch.LocalLauncher.run

    def sometimes(self, spec):
        if spec.planned[0].job.strategy.tp > 1:
            raise launch.LaunchError("rank 1 was killed by SIGKILL", hint="buy memory")
        good(self, spec)

    monkeypatch.setattr(launch.LocalLauncher, "run", sometimes)
    result = run("measure", "train", "tiny", "--sweep", "strategy=ddp2,tp2", "-o", str(tmp_path))
    assert result.exit_code == 1
    assert "ddp2-mb1" in result.stdout
    assert "fsdp1-tp2-mb1, repeat 1: rank 1 was killed by SIGKILL (buy memory)" in result.stdout


def test_old_records_are_kept_and_not_shown(run, here, tmp_path):
    here()
    for _ in range(2):
        result = run("measure", "train", "tiny", "-o", str(tmp_path), "--json")
        assert len(json.loads(result.stdout)["summaries"]) == 1
        assert json.loads(result.stdout)["summaries"][0]["launches"] == 1
    assert len(read_records(tmp_path).records) == 2


def test_the_table_says_the_median_and_its_spread():
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    traced = {"trace": {"communication_seconds": 0.05, "exposed_seconds": 0.01}}
    one = summarize([record("ddp2-mb4", results=traced, warnings=["busy: 5%"])])
    two = summarize([record("fsdp2-mb4", seconds=(9, 0.4, 0.4, 0.4), warnings=["busy: 7%"])])
    print_summaries([one, two], ["tp2, repeat 1: it broke"], "records/train.jsonl", console)
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert lines[0].startswith(
        "Fastest of 2: small | 2x h100-sxm-80gb | ddp2-mb4 sgd: 640 tok/s per device, 200 ms"
    )
    assert (
        "strategy batch step ms p5-p95 tok/s/dev tok/s TFLOP/s MFU % HFU % comm. exposed GiB"
        in lines
    )
    assert "ddp2-mb4 8 200 110-380 640 1,280 0.000661 0.0 0.0 50.0 10.0 1.86" in lines
    assert "fsdp2-mb4 8 400 400-400 320 640 0.000330 0.0 0.0 - - 1.86" in lines
    assert any("3 steps in 1 repeat; 1 warm-up steps are not counted" in line for line in lines)
    assert "Warning: busy: 5% (1 more like it)" in lines
    assert "Failed: tp2, repeat 1: it broke" in lines


def test_axes_are_read():
    assert measure_train.axes_of(["seq=1, 2", "strategy=ddp2"]) == {
        "seq": ["1", "2"], "strategy": ["ddp2"],
    }  # fmt: skip
    with pytest.raises(InputError, match="unknown option x"):
        measure_train.axes_of(["x=1"])


def test_two_real_ranks_from_the_command_line(run, model, tmp_path):
    """End to end: torchrun, Gloo, the profiler, the trace reader, the record, the table."""
    pytest.importorskip("torch", reason="needs the extra `measure`")
    result = run(
        "measure", "train", model, "--strategy", "fsdp2", "--steps", "4", "--warmup", "1",
        "--seq", "16", "--threads", "3", "--trace", "-o", str(tmp_path / "records"), "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    (summary,) = json.loads(result.stdout)["summaries"]
    assert (summary["ranks"], summary["steps"], summary["dropped"]) == (2, 3, 1)
    step = summary["step_seconds"]
    assert 0.0 < step["p5"] <= step["median"] <= step["p95"]
    assert summary["tokens_per_second"] == pytest.approx(2 * 16 / step["median"])
    assert summary["mfu"] is None
    assert 0.0 < summary["exposed_seconds"] <= summary["communication_seconds"]
    (found,) = read_records(tmp_path / "records").records
    assert len(found.results["step_seconds"]) == len(found.results["losses"]) == 4
    assert found.environment.backend == "gloo"
    assert found.environment.threads == 3
    assert found.environment.nodes == []
    assert found.environment.versions["torch"].startswith("2.")
    assert [c["name"] for c in found.results["trace"]["collectives"]] != []
    assert len(list((tmp_path / "records" / "traces" / found.id).glob("rank*.json.gz"))) == 2
    assert not list((tmp_path / "records" / "logs").iterdir())


def test_records_are_merged_and_written_as_runs(run, tmp_path):
    append(tmp_path / "a" / "train.jsonl", record("ddp2-mb4"))
    append(tmp_path / "b.jsonl", record("fsdp2-mb4"))
    with (tmp_path / "b.jsonl").open("a") as stream:
        stream.write('{"schema": 1, "ki')
    places = [str(tmp_path / "a"), str(tmp_path / "b.jsonl")]
    result = run("measure", "merge", *places, "-o", str(tmp_path / "all.jsonl"))
    assert result.exit_code == 0
    assert result.stderr.startswith(f"{tmp_path / 'all.jsonl'} has 2 records\nwarning: ")
    assert "it is truncated" in result.stderr
    result = run("measure", "merge", str(tmp_path / "all.jsonl"), "-o", str(tmp_path / "mine.csv"))
    assert result.stderr == f"wrote 2 runs to {tmp_path / 'mine.csv'}\n"
    result = run("validate", str(tmp_path / "mine.csv"), "--json")
    assert result.exit_code == 0
    assert [row["strategy"] for row in json.loads(result.stdout)["rows"]] == [
        "ddp2-mb4", "fsdp2-mb4",
    ]  # fmt: skip


def test_merging_into_something_else_is_refused(run, tmp_path):
    result = run("measure", "merge", str(tmp_path), "-o", "all.json")
    assert result.exit_code == 2
    assert "error: -o all.json: unsupported file type .json" in result.stderr
