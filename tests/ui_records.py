"""Records for the tests of the page: one run that can be predicted, and one that cannot.

write_records(folder)
"""

from __future__ import annotations

from measure_jobs import job, record
from scalewise.model import load_model
from scalewise.records.files import append
from scalewise.records.job import inputs_of


def write_records(folder):
    """Llama 2 7B on eight H100, 10,240 tokens/s each; and a small model on a CPU."""
    large = job(
        "fsdp8-mb2", model=load_model("llama-2-7b"), seq_len=4096, global_batch=64,
        precision="bf16",
    )  # fmt: skip
    append(
        folder / "train.jsonl",
        record(
            "fsdp8-mb2",
            seconds=(9.0, 3.2, 3.2, 3.2),
            inputs=inputs_of(large),
            environment={"ranks": 8, "ranks_per_node": 8},
        ),
    )
    cpu = {"device": "cpu", "device_name": "CPU", "accelerator": None, "backend": "gloo"}
    append(folder / "train.jsonl", record("ddp2-mb4", environment=cpu))
