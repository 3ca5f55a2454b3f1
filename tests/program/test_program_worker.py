"""GPU paths of `scalewise measure`, run by its own worker on pretended GPUs and NCCL groups."""

from collections import Counter

import msgspec
import pytest

from capturing import answers_of, captures_of
from measure_jobs import job
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.program.capture.spec import CaptureSpec

pytest.importorskip("torch", reason="needs the extra `measure`")

JOBS = [
    job("ddp2-mb4", precision="bf16", optimizer="adamw"),
    job("fsdp2-mb4", precision="bf16", optimizer="adamw"),
    job("hsdp2x2-mb2", precision="bf16", optimizer="sgd"),
    job("zero1x2-mb4", precision="bf16", optimizer="adamw"),
    job("tp2-mb8", precision="fp32", optimizer="sgd"),
    job("fsdp2-tp2-mb4-acfull", precision="bf16", optimizer="muon"),
]


def counted(capture):
    """How often each collective is called in each phase, the optimizer's too."""
    return Counter((event.phase, event.name) for event in capture.collectives())


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("worker")
    specs = []
    for number, each in enumerate(JOBS):
        spec = LaunchSpec(
            planned=[PlannedJob(job=each, id=str(number))], device="cuda",
            records=str(folder / "train.jsonl"), accelerator="h100-sxm-80gb",
        )  # fmt: skip
        file = folder / f"{number}.json"
        file.write_bytes(msgspec.json.encode(spec))
        specs.append(
            CaptureSpec(
                adapter="script", world=each.ranks,
                arguments=("-m", "scalewise.measure.worker", str(file)),
            )
        )  # fmt: skip
    return answers_of(specs)


def test_the_worker_trains_on_gpus_as_it_does_on_cpus(answers):
    assert [found.error or found.refused for found in answers if found.capture is None] == []
    for each, found, (plain,) in zip(JOBS, answers, captures_of(JOBS), strict=True):
        assert counted(found.capture) == counted(plain), str(each.strategy)
