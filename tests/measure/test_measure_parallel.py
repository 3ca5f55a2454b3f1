# ruff: noqa: E402 - what needs PyTorch is imported once it is known to be there
"""What can be seen in a process group of one, without starting other processes."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `measure`")

import torch.distributed as dist
from torch.distributed.tensor import Shard

from measure_jobs import MOE, SMALL, job
from scalewise.measure.data_parallel import kind_of, sharded_dim
from scalewise.measure.machine import environment
from scalewise.measure.parallel import build
from scalewise.measure.pipeline import stages_of
from scalewise.measure.train import step_lengths, train
from scalewise.measure.worker import job_warnings

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    threads = torch.get_num_threads()
    # Threads that wait for each other are slow where others use the cores too.
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    dist.destroy_process_group()


def test_compiled_blocks_train_alike(monkeypatch):
    """With the tracing compiler alone: generating code takes minutes, and is PyTorch's business."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    case = job("ddp1-mb8", compile=True)
    blocks = build(case, CPU).modules[0].layers.values()
    assert all(block._compiled_call_impl is not None for block in blocks)
    compiled, eager = train(case, CPU), train(job("ddp1-mb8"), CPU)
    assert compiled.losses == pytest.approx(eager.losses, rel=5e-6)


def test_a_result_has_every_sample():
    result = train(job("ddp1-mb8", steps=5, warmup=2), CPU)
    assert len(result.step_seconds) == len(result.losses) == 5
    assert min(result.step_seconds) > 0.0
    assert result.parameters_per_rank == SMALL.parameters
    assert result.memory_basis == "rss"
    assert result.traces == []
    assert result.trace is None


def test_tokens_can_come_from_a_file(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"It was the best of times, it was the worst of times. " * 50)
    learnt = train(job("ddp1-mb8", text=str(file), steps=30, optimizer="adamw",
                       learning_rate=0.01), CPU)  # fmt: skip
    assert learnt.losses[-1] < 3.5 < 5.4 < learnt.losses[0]


def test_steps_add_up_to_the_run():
    ends = [1.0, 1.5, 3.5]
    assert step_lengths(ends) == [1.0, 0.5, 2.0]
    assert sum(step_lengths(ends)) == ends[-1]


@pytest.mark.parametrize(
    ("strategy", "precision", "kind"),
    [
        ("ddp1-mb8", "fp32", "none"),
        ("ddp1-mb8", "bf16", "none"),
        ("tp2-mb8", "fp32", "none"),
        ("tp2-mb8", "bf16", "fully_shard"),
        ("pp2-mb2", "bf16", "fully_shard"),
        ("ddp2-mb4", "bf16", "ddp"),
        ("zero1x2-mb4", "fp32", "ddp"),
        ("ddp2-tp2-mb4", "fp32", "replicate"),
        ("ddp2-pp2-mb2", "fp32", "replicate"),
        ("fsdp2-mb4", "fp32", "fully_shard"),
        ("hsdp2x2-mb2", "fp32", "fully_shard"),
        ("fsdp1-cp2-mb8", "bf16", "fully_shard"),
    ],
)
def test_each_strategy_has_its_wrapper(strategy, precision, kind):
    assert kind_of(job(strategy, precision=precision)) == kind


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        ("ddp2-mb4", "ddp"),
        ("ddp2-ep2-mb4", "replicate"),
        ("fsdp2-ep2-mb4", "fully_shard"),
        ("tp2-mb8", "fully_shard"),
        ("ddp1-tp2-mb8", "replicate"),
        ("tp2-ep2-mb8", "none"),
    ],
)
def test_experts_need_a_wrapper_wherever_ranks_have_copies_of_them(strategy, kind):
    assert kind_of(job(strategy, model=MOE)) == kind


def test_few_experts_are_sharded_by_their_width():
    """Two experts over four ranks would be padded to four."""
    assert sharded_dim(torch.nn.Parameter(torch.empty(2, 32, 64)), 4) == Shard(1)
    assert sharded_dim(torch.nn.Parameter(torch.empty(8, 32, 64)), 4) is None
    assert sharded_dim(torch.nn.Parameter(torch.empty(2, 30, 64)), 4) is None
    assert sharded_dim(torch.nn.Parameter(torch.empty(2, 32)), 4) is None


def test_stages_of_a_rank():
    assert stages_of(1, pp=4, chunks=1, schedule="1f1b") == [1]
    assert stages_of(1, pp=4, chunks=2, schedule="interleaved") == [1, 5]
    assert stages_of(1, pp=4, chunks=2, schedule="zbv") == [1, 6]
    everywhere = [s for r in range(4) for s in stages_of(r, pp=4, chunks=2, schedule="zbv")]
    assert sorted(everywhere) == list(range(8))


def test_full_recompute_keeps_less_until_backward():
    kept = {}
    for name in ("ddp1-mb8", "ddp1-mb8-acsel", "ddp1-mb8-ac1of2", "ddp1-mb8-acfull"):
        module = build(job(name), CPU).modules[0]
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, saved=saved: saved.append(t.numel()) or t, lambda t: t
        ):
            module(torch.zeros(8, 32, dtype=torch.long))
        kept[name] = sum(saved)
    assert kept["ddp1-mb8-acfull"] < 0.6 * kept["ddp1-mb8"]
    assert kept["ddp1-mb8-acsel"] < kept["ddp1-mb8"]
    assert kept["ddp1-mb8-acfull"] < kept["ddp1-mb8-ac1of2"] < kept["ddp1-mb8"]


def test_doubtful_circumstances_are_put_on_record():
    where = environment(
        device="cpu", device_name="", accelerator=None, backend="gloo", ranks=1000,
        ranks_per_node=1000, threads=1, versions={},
    )  # fmt: skip
    said = job_warnings(job("ddp1-mb8", precision="bf16"), where)
    assert said[0].startswith("1000 ranks share ")
    assert said[1] == "CPUs without units for bf16 compute it more slowly than fp32"
