"""Offload: copies, updates on CPUs, what stays on the device, and what hosts hold."""

import msgspec
import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.fixes import fixes
from scalewise.model import load_model
from scalewise.report.suggestions import suggestions
from scalewise.simulation.simulate import timeline
from scalewise.stack import load_stack
from scalewise.step.estimate import estimate
from scalewise.strategies import Strategies
from scalewise.strategy import parse_strategy
from scalewise.units import GIB
from scalewise.workload import Workload

PARAMS = 6_738_415_616
"""Of Llama 2 7B."""
LINK = 0.88 * 63e9
"""Sustained rate of PCIe 5.0 x16, bytes/s."""
UPDATE = 0.46 * 614.4e9
"""Rate of updates on a DGX H100, bytes/s."""


def ask(spelled, *, model="llama-2-7b", on="dgx-h100", batch=None, stack="pytorch", **changes):
    """Estimate one strategy; a batch of one micro-batch per rank unless stated."""
    strategy = parse_strategy(spelled)
    cluster = load_cluster(on, accelerators=strategy.accelerators).with_(
        **{k: v for k, v in changes.items() if k != "workload"}
    )
    batch = batch or strategy.micro_batch * strategy.data_parallel
    workload = Workload(seq_len=4096, global_batch=batch, **changes.get("workload", {}))
    return estimate(load_model(model), cluster, workload, strategy, stack=stack)


def test_the_cpus_of_a_host_update_the_parameters_of_all_its_ranks():
    e = ask("fsdp8-mb2-acfull-offopt")
    assert e.terms["optimizer"] == pytest.approx(30 * PARAMS / UPDATE, rel=1e-4)
    # Every rank of a DDP job updates all of them.
    assert ask("ddp8-mb1-acfull-offopt").terms["optimizer"] == pytest.approx(
        8 * 30 * PARAMS / UPDATE, rel=1e-4
    )
    # Two hosts share the work.
    half = ask("fsdp16-mb2-acfull-offopt").terms["optimizer"]
    assert half == pytest.approx(15 * PARAMS / UPDATE, rel=1e-4)


def test_threads_of_a_rank_bound_its_update():
    slow = msgspec.structs.replace(load_stack("pytorch"), cpu_update_rate=1e9)
    e = ask("fsdp8-mb2-acfull-offopt", stack=slow)
    assert e.terms["optimizer"] == pytest.approx(30 * PARAMS / 8e9, rel=1e-4)


def test_only_the_last_copies_of_gradients_and_parameters_are_exposed():
    # Backward of a layer takes longer than its copy; the update longer than copying parameters.
    e = ask("fsdp8-mb2-acfull-offopt")
    layer, ends = 202_383_360 / 8, 2 * 32000 * 4096 / 8
    last = 4.0 * (layer + ends) / LINK
    tile = 2.0 * 128 * 2**20 / LINK
    assert e.terms["offload"] == pytest.approx(last + tile, rel=1e-3)


def test_parameters_are_copied_before_each_all_gather():
    one = ask("fsdp8-mb2-acfull-offopt-offparam-pf0")
    # Without prefetch nothing overlaps: 32 layers forward, 31 again backward, and the ends.
    layer, ends = 202_383_360 / 8, 2 * 32000 * 4096 / 8
    copies = 4.0 * ((31 + 31 + 1) * layer + ends) / LINK
    assert one.terms["offload"] == pytest.approx(copies + 4.0 * (layer + ends) / LINK, rel=1e-3)
    # Micro-batches repeat both.
    four = ask("fsdp8-mb2-acfull-offopt-offparam-pf0", batch=64)
    assert four.terms["offload"] == pytest.approx(4 * one.terms["offload"], rel=1e-6)
    assert ask("fsdp8-mb2-acfull-offopt-offparam").terms["offload"] < 0.1 * one.terms["offload"]


def test_activations_expose_what_outlasts_the_layer():
    e = ask("fsdp8-mb1-offact")
    block = e.origin.step.block
    kept = 772.0 * 2**20
    forward = kept / LINK - float(block.forward[0])
    backward = kept / LINK - float(block.backward[0])
    assert forward > 0.0
    assert e.terms["offload"] == pytest.approx(31 * (forward + max(backward, 0.0)), rel=1e-3)
    # Inputs of blocks alone are copied beside the layers.
    assert ask("fsdp8-mb1-acfull-offact").terms["offload"] == 0.0


def test_states_on_nvme_are_read_and_written_once():
    fast = ask("fsdp8-mb2-acfull-offopt-offnvme", nvme_read_bandwidth=40e9,
               nvme_write_bandwidth=20e9)  # fmt: skip
    plain = ask("fsdp8-mb2-acfull-offopt")
    more = PARAMS * (16 / 40e9 + 12 / 20e9)
    assert float(fast.origin.step.offload.nvme[0]) == pytest.approx(more, rel=1e-4)
    # Gradients are written at 2.5 GB/s per rank: no longer faster than a layer's backward.
    assert more < fast.terms["offload"] - plain.terms["offload"] < 1.1 * more
    assert any("NVMe" in each for each in ask("fsdp8-mb2-offopt-offnvme").warnings)
    assert not any("NVMe" in each for each in fast.warnings)


def test_state_leaves_the_device():
    plain, opt = ask("fsdp8-mb2-acfull"), ask("fsdp8-mb2-acfull-offopt")
    param = ask("fsdp8-mb2-acfull-offopt-offparam")
    assert plain.memory["optimizer"] == pytest.approx(PARAMS * 8 / 8)
    assert opt.memory["optimizer"] == param.memory["optimizer"] == 0.0
    # 16-bit shards stay, of offloaded parameters those of two layers.
    assert opt.memory["parameters"] == pytest.approx(PARAMS * 2 / 8, rel=1e-4)
    assert param.memory["parameters"] == pytest.approx(2 * 4 * 202_383_360 / 8)
    # A bucket of gradients waits for its copy.
    assert opt.memory["gradients"] == pytest.approx(5e8 * 4)
    for part in ("activations", "logits", "workspace", "all_gather_buffers"):
        assert plain.memory[part] == opt.memory[part] == param.memory[part]


def test_unsharded_weights_stay_on_the_device():
    plain, opt = ask("zero1x8-mb1-acfull"), ask("zero1x8-mb1-acfull-offopt")
    assert opt.memory["parameters"] == plain.memory["parameters"]
    assert opt.memory["gradients"] == plain.memory["gradients"]
    assert opt.memory["optimizer"] == 0.0


def test_two_layers_of_activations_stay():
    plain, away = ask("fsdp8-mb1"), ask("fsdp8-mb1-offact")
    assert away.memory["activations"] == pytest.approx(plain.memory["activations"] * 2 / 32)


def test_hosts_hold_what_leaves():
    # 12 bytes of state and 4 of gradient per parameter.
    assert ask("fsdp8-mb2-acfull-offopt").host_memory_bytes == pytest.approx(16 * PARAMS, rel=1e-4)
    assert ask("fsdp16-mb2-acfull-offopt").host_memory_bytes == pytest.approx(8 * PARAMS, rel=1e-4)
    away = ask("fsdp8-mb1-offact")
    assert away.host_memory_bytes == pytest.approx(8 * 30 * 772 * 2**20, rel=1e-3)
    # DeepSpeed has a 16-bit copy of offloaded parameters besides.
    copies = ask("fsdp8-mb2-acfull-offopt-offparam", stack="megatron-deepspeed")
    assert copies.host_memory_bytes == pytest.approx(18 * PARAMS, rel=1e-4)
    assert ask("fsdp8-mb1").host_memory_bytes == 0.0
    # A sub-group of 10^9 parameters of each rank, of 70.6 x 10^9 / 8.
    large = ask("fsdp8-mb1-acfull-offopt-offnvme", model="llama-3-70b")
    assert large.host_memory_bytes == pytest.approx(8 * 1e9 * 16)


def test_too_small_hosts_are_a_reason():
    e = ask("fsdp8-mb1-acfull-offopt", model="llama-3-70b", host_memory_bytes="1TB")
    assert e.infeasible == "host memory: needs 1,051 of 931 GiB per host"
    assert ask("fsdp8-mb1-acfull-offopt", model="llama-3-70b").feasible
    assert e.host_memory_capacity == 1e12
    # Unknown memory is not checked.
    assert ask("fsdp8-mb1-acfull-offopt", model="llama-3-70b", host_memory_bytes=None).feasible


@pytest.mark.parametrize(
    ("spelled", "optimizer", "message"),
    [
        ("zero2x8-mb1-offopt-offparam", "adamw", "offparam needs fully sharded"),
        ("fsdp8-mb1-offopt", "muon", "offopt does not support the optimizer muon"),
    ],
)
def test_what_cannot_be_offloaded_is_refused(spelled, optimizer, message):
    workload = {"optimizer": optimizer}
    with pytest.raises(InputError, match=message):
        ask(spelled, workload=workload)
    # Of many it is a reason.
    many = estimate(
        load_model("llama-2-7b"), load_cluster("dgx-h100"),
        Workload(seq_len=4096, global_batch=8, **workload), [parse_strategy(spelled)],
        stack="pytorch",
    )  # fmt: skip
    assert many[0].infeasible.startswith("offload: parameters leave")


def test_without_offload_nothing_of_a_host_matters():
    plain = ask("fsdp8-mb1")
    other = ask("fsdp8-mb1", host_memory_bytes=1e9, host_link_bandwidth=1e9, host_cores=1)
    assert other.step_seconds == plain.step_seconds
    assert other.feasible
    assert other.warnings == plain.warnings


def test_columns_and_one_agree():
    words = ["", "opt", "opt+param", "act", "opt+param+act+nvme"]
    columns = Strategies.columns(dp_shard=8, micro_batch=1, offload=words)
    many = estimate(
        load_model("llama-2-7b"), load_cluster("dgx-h100"),
        Workload(seq_len=4096, global_batch=8), columns, stack="pytorch",
    )  # fmt: skip
    for row, strategy in enumerate(columns):
        spelled = str(strategy)
        assert many[row].step_seconds == ask(spelled).step_seconds
        assert many[row].host_memory_bytes == ask(spelled).host_memory_bytes


def test_moments_of_paged_optimizers_are_in_host_memory_too():
    paged = ask("fsdp8-mb1-offopt", workload={"optimizer": "paged-adamw-8bit"})
    kept = ask("fsdp8-mb1-offopt", workload={"optimizer": "adamw-8bit"})
    assert paged.host_memory_bytes == kept.host_memory_bytes


def test_suggestions_and_fixes_offload_what_does_not_fit():
    e = ask("fsdp8-mb4-acfull", model="llama-3-70b", batch=64)
    assert e.infeasible.startswith("memory")
    assert "offopt" in suggestions(e)[0]
    assert "in host memory" in suggestions(e)[0]
    assert any("offopt" in line for line in fixes(e, None))
    # What fits is not offloaded; what is offloaded for nothing may stay.
    assert not any("-off" in line for line in suggestions(ask("fsdp8-mb1", batch=64)))


@pytest.mark.parametrize("spelled", ["fsdp8-mb1-offopt-offparam-offact", "fsdp4-pp2-mb1-offopt"])
def test_the_simulation_adds_the_same_copies(spelled):
    strategy = parse_strategy(spelled)
    of = load_model("llama-2-7b"), load_cluster("dgx-h100"), Workload(seq_len=4096, global_batch=16)
    line = timeline(*of, strategy, stack="pytorch")
    plain = timeline(*of, strategy.with_(offload=""), stack="pytorch")
    assert abs(line.difference - plain.difference) < 0.02
    assert line.simulation.closing.offload == pytest.approx(line.estimate.terms["offload"])
    assert any("copies of offload are not drawn" in note for note in line.notes)
    peak = max(sample.value for rank in line.ranks for sample in line.memory(rank))
    assert peak == pytest.approx(line.estimate.memory_bytes, rel=0.02)
    names = [event.name for event in line.events(0)]
    assert "wait for copies of offload" in names


def test_a_slower_link_exposes_more():
    fast, slow = ask("fsdp8-mb1-offact"), ask("fsdp8-mb1-offact", host_link_bandwidth="16GB/s")
    assert slow.terms["offload"] > 3.0 * fast.terms["offload"]
    shared = ask("fsdp8-mb1-offact", host_link_accelerators=2)
    assert shared.terms["offload"] > fast.terms["offload"]


def test_hosts_are_data_of_the_cluster():
    stack = load_stack("pytorch")
    assert "offload" not in msgspec.structs.asdict(stack)
    assert ask("fsdp72-mb1-acfull-offopt", on="gb200-nvl72").host_memory_bytes == pytest.approx(
        16 * PARAMS * 4 / 72, rel=1e-4
    )
    assert ask("fsdp8-mb1").memory_capacity == pytest.approx(81559 * GIB / 1024)
