# ruff: noqa: E402 - what needs PyTorch is imported once it is known to be there
"""Adapters and optimizers: what is trained and kept is what an estimate counts, byte by byte.

`test_measure_losses` trains the same jobs over several ranks.
"""

import msgspec
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `measure`")

import torch.distributed as dist

from measure_jobs import MOE, SMALL, job, record
from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.evidence.compare import predict
from scalewise.evidence.measured import run_rows, runs_of
from scalewise.measure.check import check_job
from scalewise.measure.parallel import build
from scalewise.measure.train import train
from scalewise.model import load_model
from scalewise.records.job import check_optimizer, inputs_of, job_of
from scalewise.records.metrics import summarize
from scalewise.step.estimate import estimate
from scalewise.study.jobs import launch_key, state_bytes

CPU = torch.device("cpu")
H100 = load_cluster("h100-sxm-80gb")
LORA = {"tuning": "lora8", "optimizer": "adamw", "precision": "bf16"}


@pytest.fixture(scope="module", autouse=True)
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def predicted(case):
    cluster = H100.with_(accelerators=case.ranks)
    return estimate(case.model, cluster, case.workload(), case.strategy)


LAST_NORM = SMALL.hidden
"""Parameters of the norm before the head, which estimates of memory leave out."""

NORMS = 2 * SMALL.layers * SMALL.hidden
"""Parameters of the norms of layers, which estimates count among the matrices."""


@pytest.mark.parametrize(
    ("optimizer", "kept", "beyond"),
    [
        ("adamw", 1_446_400, 8 * LAST_NORM),
        ("sgd", 0, 0),
        ("momentum", 723_200, 4 * LAST_NORM),
        ("muon", 856_576, 8 * LAST_NORM + 4 * NORMS),
    ],
)
def test_state_is_that_of_the_estimate(optimizer, kept, beyond):
    case = job("ddp1-mb8", optimizer=optimizer, steps=1, warmup=0, learning_rate=0.01)
    result = train(case, CPU)
    assert result.optimizer_bytes_per_rank == kept
    assert kept - beyond == predicted(case).memory["optimizer"]
    assert result.trained_parameters_per_rank == SMALL.parameters == 180_800


def test_adafactor_keeps_sums_of_rows_and_columns():
    """The catalog's 0.01 bytes are those of matrices with a thousand rows."""
    result = train(job("ddp1-mb8", optimizer="adafactor", steps=1, warmup=0), CPU)
    matrices = {"wq": (64, 64), "wk": (32, 64), "wv": (32, 64), "wo": (64, 64),
                "w1": (128, 64), "w3": (128, 64), "w2": (64, 128)}  # fmt: skip
    layer = sum(sum(shape) for shape in matrices.values()) + 2 * 64
    edges = 2 * (256 + 64) + 64
    assert result.optimizer_bytes_per_rank == 4 * (4 * layer + edges) == 21_248


@pytest.mark.parametrize(
    ("tuning", "model", "trained"),
    [("lora8", SMALL, 32_768), ("lora8-qv", SMALL, 7_168), ("lora4-attn", MOE, 7_168)],
)
def test_adapters_are_trained_and_the_rest_is_frozen(tuning, model, trained):
    case = job("ddp1-mb8", **(LORA | {"tuning": tuning, "model": model, "steps": 1, "warmup": 0}))
    result, e = train(case, CPU), predicted(case)
    assert result.trained_parameters_per_rank == trained
    # In mixed precision the 32-bit adapters are the master copy: 4 bytes beside 8 of moments.
    assert result.optimizer_bytes_per_rank == 8 * trained
    assert e.memory["optimizer"] == 12 * trained
    assert result.parameters_per_rank == model.parameters + trained


def test_backward_computes_no_gradient_of_a_frozen_matrix():
    """Products of a step: forward, the inputs' gradients behind the first adapter, adapters."""
    from torch.utils.flop_counter import FlopCounterMode

    case = job("ddp1-mb8", tuning="lora8", optimizer="adamw")
    trainer, full = build(case, CPU), build(job("ddp1-mb8"), CPU)
    tokens = torch.zeros(8, 32, dtype=torch.long)
    counted = []
    for each in (trainer, full):
        with FlopCounterMode(display=False) as counter:
            each.gradients(tokens, tokens)
        counted.append(counter.get_flop_counts()["Global"][torch.ops.aten.mm] / 256)
    # 6 N; 4 N + 6 A, without dgrads of the first layer's input, which comes from the embedding.
    matrices = 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128) + 64 * 256
    first = 64 * 64 + 2 * 32 * 64
    first_adapters = 3 * 8 * 64
    assert counted[1] == 6 * matrices
    assert counted[0] == 4 * matrices - 2 * first + 6 * 32_768 - 2 * first_adapters
    trained = {n.rpartition(".")[2] for n, p in trainer.modules[0].named_parameters()
               if p.grad is not None}  # fmt: skip
    assert trained == {"lora_a", "lora_b"}


def test_half_precision_is_that_of_the_frozen_model():
    trainer = build(job("ddp1-mb8", **LORA), CPU)
    kinds = {n.rpartition(".")[2]: p.dtype for n, p in trainer.modules[0].named_parameters()}
    assert kinds == {
        "weight": torch.bfloat16, "lora_a": torch.float32, "lora_b": torch.float32,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (job("ddp1-mb8", tuning="qlora8"), "tuning qlora8 cannot be measured in ddp1-mb8: PyTorch"),
        (job("ddp1-mb8", tuning="lora0"), "nothing is trained"),
        (job("tp2-mb8", tuning="lora8"), "adapters are not split over tp = 2"),
        (job("pp2-zbv-mb2", tuning="lora8"), "schedule zbv splits backward by weights"),
        (job("ddp1-mb8", model=MOE, tuning="lora8"), "adapters of routed experts are not supp"),
        (job("fsdp2-mb4", optimizer="adafactor"), "does not update split parameters"),
        (job("ddp1-mb8", model=MOE, optimizer="muon"), "updates no stacked experts"),
        (job("zero1x2-mb4", optimizer="muon"), "one optimizer for all parameters"),
    ],
)
def test_what_pytorch_cannot_run_is_named(case, message):
    with pytest.raises(InputError, match=message):
        check_job(case, "cpu")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lion", "optimizer lion cannot be measured: PyTorch has none of that kind"),
        ("adamw-8bit", "optimizer adamw-8bit cannot be measured"),
        ("adamq", "unknown optimizer adamq"),
    ],
)
def test_optimizers_that_pytorch_lacks_are_named(word, message):
    with pytest.raises(InputError, match=message):
        check_optimizer(word)
    assert check_optimizer("Muon") == "muon"


def test_a_record_keeps_and_predicts_its_job():
    case = job("ddp2-mb4", **LORA)
    full = job("ddp2-mb4", optimizer="adamw", precision="bf16")
    assert job_of(inputs_of(case)) == case
    # Records and launches from before adapters keep their names.
    assert "tuning" not in inputs_of(full)
    assert launch_key(case) != launch_key(full)
    seen, plain = (msgspec.structs.replace(record(), inputs=inputs_of(each))
                   for each in (case, full))  # fmt: skip
    e = predict(case, seen, None, None)
    assert (e.workload.tuning, e.workload.optimizer) == ("lora8", "adamw")
    assert e.memory["optimizer"] == 393_216
    assert (summarize([seen]).label, summarize([plain]).label) == ("ddp2-mb4 lora8", "ddp2-mb4")
    # 4 N + 6 A instead of 6 N.
    flops = summarize([seen]).tflops_per_device / summarize([plain]).tflops_per_device
    matrices = SMALL.matmul_parameters
    assert flops == pytest.approx(
        1.0 - (2 * matrices - 6 * 32_768) / SMALL.training_flops(32, "causal")
    )
    assert run_rows([seen])[0]["notes"] == "strategy ddp2-mb4, tuning lora8"
    assert runs_of([seen])[0].plan().workload.tuning == "lora8"


def test_memory_of_a_job_is_what_it_trains():
    tiny = load_model("tiny")
    full, lora = (
        job("ddp2-mb4", model=tiny, optimizer="adamw", tuning=word) for word in ("full", "lora8")
    )
    assert state_bytes(full) == 2 * 16 * tiny.parameters
    assert state_bytes(lora) == 2 * (4 * tiny.parameters + 12 * 155_648)
