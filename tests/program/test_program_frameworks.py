"""Captures of training frameworks that nobody here wrote.

sh scripts/framework_packages /tmp/frameworks
FRAMEWORK_PACKAGES=/tmp/frameworks pytest -n 0 -m frameworks tests/program
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from framework_workers import PACKAGES
from gloo_calls import difference, run_on_gloo
from scalewise.program.events import read_captures
from waiting import NEEDS

pytestmark = pytest.mark.skipif(not PACKAGES, reason=f"{NEEDS} FRAMEWORK_PACKAGES")

SOURCE = Path(__file__).parents[2] / "src"
DEBUG = ("-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_debugmodel")
PARTIAL = ("--parallelism.spmd_backend", "partial_dtensor")


def capture(folder, *words, gpus=64):
    """A capture of torchtitan, and what was said; in the environment of frameworks."""
    environment = os.environ | {"PYTHONPATH": f"{SOURCE}:{PACKAGES}/torchtitan-0.3"}
    command = [
        f"{PACKAGES}/bin/python", "-c", "from scalewise.cli.main import cli; cli()", "program",
        "--gpus", str(gpus), "--on", "dgx-h100", "-o", "capture.json", "--", *DEBUG, *words,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    file = folder / "capture.json"
    (found,) = json.loads(file.read_bytes()) if file.is_file() else (None,)
    return found, done.stderr


def test_torchtitan_under_fsdp(tmp_path):
    found, _ = capture(tmp_path, *PARTIAL)
    counts = {}
    for event in found["events"]:
        if event["kind"] == "collective":
            counts[event["name"]] = counts.get(event["name"], 0) + 1
    # Six layers, embedding, norm with head, and the head of the chunked loss.
    assert counts == {"all_gather": 17, "reduce_scatter": 9, "all_reduce": 5}
    assert found["parameters"] == 6_163_712
    assert found["versions"]["torchtitan"].startswith("0.3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "its default backend spmd_types"),
        ((*PARTIAL, "--parallelism.context_parallel_degree", "2"), "context parallelism"),
        (
            (*PARTIAL, "--parallelism.pipeline_parallel_degree", "2",
             "--training.disable_cuda_graphs"),
            "pipelines (--parallelism.pipeline_parallel_degree)",
        ),
    ],
)  # fmt: skip
def test_what_torchtitan_cannot_show_is_refused_by_name(words, message, tmp_path):
    found, said = capture(tmp_path, *words)
    assert found is None
    assert message in said


SMALL = ("--training.local_batch_size", "2", "--training.seq_len", "64")
FULL = ("--parallelism.spmd_backend", "full_dtensor")
TENSOR = ("--parallelism.tensor_parallel_degree", "2")
HYBRID = ("--parallelism.data_parallel_replicate_degree", "2",
          "--parallelism.data_parallel_shard_degree", "2")  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "words", "calls"),
    [
        (2, PARTIAL, 31), (2, FULL, 32), (2, (*PARTIAL, *TENSOR), 102),
        (4, PARTIAL, 31), (4, (*PARTIAL, *HYBRID), 40), (4, (*PARTIAL, *TENSOR), 133),
    ],
    ids=["fsdp", "full_dtensor", "tp", "fsdp on 4", "hsdp on 4", "fsdp x tp on 4"],
)  # fmt: skip
def test_a_capture_of_torchtitan_has_the_collectives_of_a_real_run(ranks, words, calls, tmp_path):
    run_on_gloo(
        (*DEBUG, *SMALL, *words), tmp_path, ranks=ranks, adapter="torchtitan",
        python=f"{PACKAGES}/bin/python", path=(f"{PACKAGES}/torchtitan-0.3",),
    )  # fmt: skip
    capture(tmp_path, *SMALL, *words, gpus=ranks)
    (found,) = read_captures(tmp_path / "capture.json")
    assert len(found.collectives()) == calls
    assert difference(found, tmp_path / "rank0.json.gz") is None
