"""Jobs small enough to train on two cores in milliseconds, and one launch for many of them.

    losses = run_together([job("fsdp2"), job("tp2")], folder)

PyTorch takes seconds to start, so everything with the same number of ranks runs in one launch.
"""

from __future__ import annotations

from scalewise.measure.check import check_job
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.model import Model, Moe
from scalewise.records.environment import Environment
from scalewise.records.files import Record, read_records
from scalewise.records.job import TrainJob, inputs_of
from scalewise.strategy import parse_strategy

SMALL = Model(name="small", layers=4, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256)
MOE = Model(
    name="moe", layers=4, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256,
    moe=Moe(experts=8, experts_per_token=2, ffn=32, shared_experts=1, layers=3),
)  # fmt: skip
TIED = Model(name="tied", layers=4, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256, tied=True)


def model_file(folder):
    """Write a model of no size; its path, for a command line."""
    file = folder / "mine.toml"
    file.write_text("layers = 2\nhidden = 64\nheads = 4\nkv_heads = 2\nffn = 128\nvocab = 256\n")
    return str(file)


def moe_file(folder):
    """Write a model with experts in the second of its two layers; its path."""
    file = folder / "moe.toml"
    file.write_text(
        "layers = 2\nhidden = 64\nheads = 4\nkv_heads = 2\nffn = 128\nvocab = 256\n"
        "[moe]\nexperts = 4\nexperts_per_token = 2\nffn = 64\nlayers = 1\n"
    )
    return str(file)


def job(strategy, *, model=SMALL, **changes):
    """Four steps of eight sequences of 32 tokens; SGD, because AdamW forgives a wrong scale."""
    fields = {
        "model": model,
        "strategy": parse_strategy(strategy),
        "seq_len": 32,
        "global_batch": 8,
        "precision": "fp32",
        "steps": 4,
        "warmup": 1,
        "optimizer": "sgd",
        "learning_rate": 2.0,
    }
    return TrainJob(**(fields | changes))


def run_together(jobs, folder):
    """Train jobs with the same number of ranks in one launch; the record of each."""
    import warm  # and with it PyTorch

    for each in jobs:
        check_job(each, "cpu")
    file = folder / "train.jsonl"
    planned = [PlannedJob(job=each, id=f"job{i}") for i, each in enumerate(jobs)]
    spec = LaunchSpec(planned=planned, records=str(file), device="cpu", threads=1)
    warm.launch(spec)
    found = {record.id: record for record in read_records(file).records}
    return [found[each.id] for each in planned]


def record(strategy="fsdp2-mb4", *, launch=1, seconds=(9.0, 0.2, 0.1, 0.4), **changes):
    """A record as a launch would leave it, with round numbers."""
    results = {
        "step_seconds": list(seconds),
        "losses": [5.5, 5.4, 5.3, 5.2],
        "build_seconds": 1.0,
        "parameters_per_rank": 90_400,
        "peak_memory_bytes": 2.0e9,
        "memory_basis": "allocator",
        "energy_joules": None,
        "energy_seconds": None,
        "energy_source": None,
        "traces": [],
        "trace": None,
    } | changes.pop("results", {})
    where = {
        "device": "cuda",
        "device_name": "NVIDIA H100 80GB HBM3",
        "accelerator": "h100-sxm-80gb",
        "backend": "nccl",
        "ranks": 2,
        "ranks_per_node": 2,
        "host": "here",
        "platform": "Linux",
        "cpu": "CPU",
        "cores": 2,
        "python": "3.11",
        "scalewise": "0.1.0",
        "versions": {"torch": "2.13.0"},
    } | changes.pop("environment", {})
    fields = {
        "kind": "train",
        "id": f"{strategy}-{launch}",
        "started": "2026-11-16T06:40:00+00:00",
        "launch": launch,
        "environment": Environment(**where),
        "inputs": inputs_of(job(strategy, precision="bf16")),
        "results": results,
    }
    return Record(**(fields | changes))
