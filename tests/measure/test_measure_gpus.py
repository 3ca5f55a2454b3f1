# ruff: noqa: E402 - what needs PyTorch is imported once it is known to be there
"""Paths of GPUs, as far as they run without one."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `measure`")

import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from measure_jobs import job
from scalewise.errors import InputError
from scalewise.measure import launch, ranks, train
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.machine import environment
from scalewise.measure.optimizers import optimizer_of
from scalewise.measure.worker import job_warnings

SPEC = LaunchSpec(planned=[PlannedJob(job=job("ddp1-mb8"), id="one")], records="", device="cpu")


@pytest.fixture
def group(monkeypatch):
    """A process group that is joined and left in name alone; the calls."""
    calls = []
    monkeypatch.setattr(dist, "init_process_group", lambda *a, **k: calls.append(("init", *a)))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append(("destroy",)))
    monkeypatch.setattr(ranks, "environment_of", lambda *a: None)
    return calls


def test_a_rank_leaves_its_group_when_its_work_is_done(group):
    with ranks.joined(SPEC):
        pass
    assert group == [("init", "gloo"), ("destroy",)]


def test_a_failed_rank_does_not_wait_for_the_others(group):
    with pytest.raises(ZeroDivisionError), ranks.joined(SPEC):
        _ = 1 // 0
    assert group == [("init", "gloo")]


@pytest.mark.parametrize(("error", "code"), [(None, 0), (RuntimeError("NCCL error"), 1)])
def test_a_rank_ends_at_once_with_its_code(monkeypatch, capsys, error, code):
    def main():
        if error is not None:
            raise error

    codes = []
    monkeypatch.setattr(ranks.os, "_exit", codes.append)
    ranks.run_rank(main)
    assert codes == [code]
    assert ("RuntimeError: NCCL error" in capsys.readouterr().err) == bool(code)


def test_fp32_is_not_tf32_whatever_the_container_allows(group):
    torch.set_float32_matmul_precision("high")
    with ranks.joined(SPEC):
        assert torch.get_float32_matmul_precision() == "highest"


def test_a_rank_takes_its_gpu_or_the_only_one_it_sees(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "3")
    spec = LaunchSpec(planned=SPEC.planned, records="", device="cuda")
    for visible, index in ((8, 3), (1, 0)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda visible=visible: visible)
        assert ranks.device_of(spec) == torch.device("cuda", index)
    assert chosen == [torch.device("cuda", 3), torch.device("cuda", 0)]


def test_gpus_need_nccl(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert launch.choose_device(None) == ("cuda", 2)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    with pytest.raises(InputError, match="without NCCL"):
        launch.choose_device("cuda")


def test_dtensors_are_updated_by_kernels_that_exist():
    """Ranks of FSDP with SGD: its fused kernel has no sharding strategy, AdamW's has one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        layer = fully_shard(torch.nn.Linear(8, 8), mesh=dist.init_device_mesh("cpu", (1,)))
        with pytest.raises(NotImplementedError, match="_fused_sgd_"):
            _step(layer, torch.optim.SGD(layer.parameters(), fused=True))
        _step(layer, torch.optim.AdamW(layer.parameters(), fused=True))
        ours = optimizer_of(job("fsdp1", optimizer="sgd"), [layer])
        assert not ours.defaults["fused"]
        _step(layer, ours)
    finally:
        dist.destroy_process_group()


def _step(layer, optimizer):
    layer(torch.ones(2, 8)).sum().backward()
    optimizer.step()


def test_bf16_without_units_is_told(monkeypatch):
    where = environment(
        device="cuda", device_name="Tesla V100-SXM2-32GB", accelerator=None, backend="nccl",
        ranks=8, ranks_per_node=8, threads=None, versions={},
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    said = job_warnings(job("ddp1-mb8", precision="bf16"), where)
    assert said == ["Tesla V100-SXM2-32GB emulates bf16, which is slower than fp32"]
    assert job_warnings(job("ddp1-mb8"), where) == []


def test_counters_are_those_of_the_visible_device(monkeypatch):
    asked = []
    monkeypatch.setattr(train, "device_counter", lambda **where: asked.append(where))
    device = torch.device("cuda", 1)
    known = SimpleNamespace(uuid="1234-abcd")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: known)
    train.gpu_counter(device)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "_get_amdsmi_device_index", lambda device: 5)
    train.gpu_counter(device)
    monkeypatch.setattr(torch.cuda, "_get_amdsmi_device_index", lambda device: 1 // 0)
    assert train.gpu_counter(device) is None
    assert asked == [{"uuid": "1234-abcd"}, {"index": 5}]
