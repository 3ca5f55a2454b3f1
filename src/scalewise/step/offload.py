"""Offload: states and activations in host memory or on NVMe, and updates on the CPUs.

Copies to the host and back run beside compute, one stream each way. A layer exposes what outlasts
its compute: activations forward; parameters before their all-gather; activations and parameters
back, and reduced gradients out, backward. Nothing overlaps the copies of the first layer of a pass,
of the last gradients, and of the last updated parameters (Ren et al., ZeRO-Offload, arXiv
2101.06840; Rajbhandari et al., ZeRO-Infinity, arXiv 2104.07857). Delayed updates are off.

All times are seconds per rank and step unless stated otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.numeric import Mask, Num, mask, maximum, minimum, some, where
from scalewise.physics import offload as physics
from scalewise.physics.memory import REDUCED
from scalewise.step import tuning
from scalewise.step.case import Case

if TYPE_CHECKING:
    from scalewise.step.block import Block
    from scalewise.step.data_parallel import LayerTraffic
    from scalewise.step.stage import Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class Offload:
    """Exposed copies of one rank per step, and the copies they come from; seconds."""

    activations: Num
    """Copy of the activations of one layer and micro-batch, one way."""
    parameters: Num
    """Copy of the parameters of one layer to the device, before each all-gather."""
    gradients: Num
    """Copy of the reduced gradients of one layer to the host."""
    forward: Num
    """Exposed per layer and micro-batch in forward, where parameters are copied."""
    forward_more: Num
    """The same in forward passes without copies of parameters."""
    backward: Num
    """The same in backward, without gradients."""
    reduced: Num
    """Exposed copies of gradients of all layers but the last to be reduced, per pass."""
    first: Num
    """Copy of the first parameters of a pass: its first layer, and what no layer holds."""
    last: Num
    """Copy of the last gradients of a pass: its last layer, and what no layer holds."""
    updated: Num
    """Exposed copy of updated parameters."""
    nvme: Num
    """Optimizer state read from and written to NVMe."""
    seconds: Num
    """All that is exposed."""


def opt(case: Case) -> Mask:
    """Whether optimizer state is offloaded."""
    return case.split.offloads("opt")


def nothing(case: Case) -> Offload:
    """Return the copies of steps without offload."""
    none = case.zeros
    return Offload(
        activations=none, parameters=none, gradients=none, forward=none, forward_more=none,
        backward=none, reduced=none, first=none, last=none, updated=none, nvme=none,
        seconds=none,
    )  # fmt: skip


def cpu_update_seconds(case: Case, local: Num) -> Num:
    """Return the update of the parameters of all ranks of a host on its CPUs, seconds.

        30 r P g / R

    with r the bytes of the optimizer over those of AdamW, and g ranks that share a host.

    Args:
        case: The step.
        local: P: parameters whose state a rank holds.
    """
    moved = physics.UPDATE_BYTES * case.update.traffic * local * case.host.host_ranks
    return moved / case.host.host_update


def state_bytes(case: Case) -> Num:
    """Return the state per parameter that leaves the device: weights it updates, and moments."""
    return _stored(case) + case.update.host_moments


def _stored(case: Case) -> Num:
    """Bytes per parameter of the weights that are updated: the master copy, if there is one."""
    update = case.update
    result: Num = where(update.master_bytes > 0.0, update.master_bytes, update.weight_bytes)
    return result


def layer_local(case: Case, sparse: Num) -> Num:
    """Return the parameters of one layer whose state a rank holds."""
    split = case.split
    dense = where(split.shards_optimizer, split.shards, 1.0)
    local: Num = case.params_of_layer(sparse) / split.tp / dense
    if case.has_experts:
        shards = where(split.shards_optimizer, split.expert_shards, 1.0)
        local = local + sparse * case.expert_params_of_layer / shards
    return local


def layer_trained(case: Case, sparse: Num) -> Num:
    """Return those of them that are trained."""
    if not case.has_frozen:
        return layer_local(case, sparse)
    split = case.split
    own = tuning.trained_layer(case, case.params_of_layer(sparse) / split.tp)
    return own / where(split.shards_optimizer, split.shards, 1.0)


def rounds(case: Case) -> Num:
    """Return how often a step copies reduced gradients: once, or after every micro-batch."""
    split = case.split
    each = split.shards_gradients & case.habits.reduces_each(split)
    result: Num = where(each, split.num_microbatches, 1.0)
    return result


def fetches(case: Case) -> Num:
    """Return the forward passes of a step that copy parameters: all, or the first alone."""
    return case.split.num_microbatches * case.habits.gathers(case.split)


def prefetches(case: Case) -> Mask:
    """Whether parameters are copied beside the compute of the layer before."""
    return mask(case.split.overlap_dp & (case.split.prefetch > 0.0))


def fetch_rate(case: Case) -> Num:
    """Return the bytes/s of copies of parameters to the device: the link's, or of NVMe less."""
    host = case.host
    from_nvme = minimum(host.host_link, host.nvme_read / host.host_ranks)
    result: Num = where(case.split.offloads("nvme"), from_nvme, host.host_link)
    return result


def gradient_rate(case: Case) -> Num:
    """Return the bytes/s of copies of gradients to the host: the link's, or of NVMe less."""
    host = case.host
    to_nvme = minimum(host.host_link, host.nvme_write / host.host_ranks)
    result: Num = where(case.split.offloads("nvme"), to_nvme, host.host_link)
    return result


def nvme_seconds(case: Case, local: Num) -> Num:
    """Return reading and writing the state of all ranks of a host, seconds.

        g P ((s + 4) / read + s / write)

    State s and the gradient are read before an update, state is written after it. DeepSpeed
    overlaps neither with the update unless told (pipeline_read, pipeline_write).

    Args:
        case: The step.
        local: P: parameters whose state a rank holds.
    """
    host, state = case.host, state_bytes(case)
    each = (state + REDUCED) / host.nvme_read + state / host.nvme_write
    result: Num = where(case.split.offloads("nvme"), host.host_ranks * local * each, 0.0)
    return result


def step_offload(
    case: Case,
    traffic: LayerTraffic,
    block: Block,
    stage: Stage,
    *,
    once: Num,
    kept: Num,
    roots: Num,
    local: Num,
    update: Num,
) -> Offload:
    """Return the exposed copies of a step.

    Args:
        case: The step.
        traffic: Sharded communication of one layer.
        block: One layer with that communication overlapped.
        stage: The slowest stage.
        once: Exposed reductions once per step, seconds.
        kept: Bytes that one layer keeps for backward, per micro-batch.
        roots: Parameters that no layer holds, before data parallelism shards them.
        local: Parameters whose state the rank holds.
        update: The optimizer step, seconds.
    """
    split, host = case.split, case.host
    own, trained = layer_local(case, split.middle_sparse), layer_trained(case, split.middle_sparse)
    root = roots / where(split.shards_optimizer, split.shards, 1.0)
    trained_root = tuning.trained_only(case, root)
    param = mask(split.offloads("param") & split.fully_sharded)
    fetch = where(param, host.fetched / fetch_rate(case), 0.0)
    sent = where(opt(case), case.habits.reduce_bytes / gradient_rate(case), 0.0)
    activations = where(split.offloads("act"), kept / host.host_link, 0.0)
    parameters, gradients = fetch * own, sent * trained
    # Forward: activations leave, parameters arrive before their all-gather.
    ahead, often = prefetches(case), case.habits.gathers(split)
    free: Num = maximum(block.first_forward - traffic.all_gather / often, 0.0)
    late = where(ahead, parameters - free, parameters)
    forward = maximum(maximum(activations - block.first_forward, late), 0.0)
    forward_more = maximum(activations - block.forward, 0.0)
    # Backward: both arrive, reduced gradients leave.
    again = split.reshard_after_forward & ~case.habits.gathers_once(split)
    refetch = where(again, parameters, 0.0)
    gather = where(refetch > 0.0, traffic.backward_all_gather, 0.0)
    free = maximum(block.backward - gather, 0.0)
    alone = refetch + maximum(activations - block.backward, 0.0)
    backward = where(ahead, maximum(activations + refetch - free, 0.0), alone)
    n, fetching, times = split.num_microbatches, fetches(case), rounds(case)
    # Copies follow their reductions, so that they overlap those that trail.
    trails = where(split.shards_gradients, n / times * stage.tail, once)
    beside = stage.others * (gradients - block.backward - backward) - trails
    reduced = where(split.overlap_dp, maximum(beside, 0.0), stage.others * gradients)
    first = fetch * (own + root) * stage.one
    last = sent * (trained + trained_root) * stage.one
    copy = where(opt(case) & ~param, case.update.weight_bytes * local / host.host_link, 0.0)
    tile = minimum(copy, case.update.weight_bytes * physics.TILE / host.host_link)
    updated = physics.exposed_copy(copy, tile, update)
    nvme = nvme_seconds(case, local)
    layers = fetching * forward + (n - fetching) * forward_more + n * backward
    return Offload(
        activations=activations,
        parameters=parameters,
        gradients=gradients,
        forward=forward,
        forward_more=forward_more,
        backward=backward,
        reduced=reduced,
        first=first,
        last=last,
        updated=updated,
        nvme=nvme,
        seconds=stage.others * layers
        + fetching * first
        + times * (reduced + last)
        + updated
        + nvme,
    )


def device_states(
    case: Case, sparse: Num, local: Num, states: tuple[Num, Num, Num]
) -> tuple[Num, Num, Num]:
    """Return what stays on the device of weights, gradients and optimizer state, bytes.

    Without its state, sharded weights are 16-bit; offloaded ones are there for the layers that are
    being all-gathered. Reduced gradients wait for their copy.

    Args:
        case: The step.
        sparse: Fraction of layers with experts.
        local: Parameters whose state the rank holds.
        states: The three of them without offload.
    """
    split, parameters = case.split, states[0]
    ahead = (1.0 + split.prefetch) * layer_local(case, sparse)
    whole = case.update.weight_bytes * local
    staged = minimum(case.host.fetched * ahead, whole)
    kept = where(split.offloads("param"), staged, whole)
    wait = minimum(states[1], physics.BUCKET * case.habits.reduce_bytes)
    moves = opt(case)
    return (
        where(moves & split.fully_sharded, minimum(kept, parameters), parameters),
        where(moves & reduces_to_shard(case), wait, states[1]),
        where(moves, 0.0, states[2]),
    )


def reduces_to_shard(case: Case) -> Mask:
    """Whether gradients are kept as a shard: those of ZeRO-2 once they are reduced each time."""
    from scalewise.step.memory import gradient_stage

    return mask(gradient_stage(case) >= 2.0)


def resident_layers(case: Case, kept: Num) -> Num:
    """Return the layers whose activations are on the device at once, of all that are kept."""
    if not some(case.split.offload):
        return kept
    few = minimum(kept, physics.RESIDENT_LAYERS)
    result: Num = where(case.split.offloads("act"), few, kept)
    return result


def host_bytes(case: Case) -> Num:
    """Return the peak of the memory of one host that offload takes, bytes.

        g (P min(s + 4 + c) + K)

    State s, the gradient and a 16-bit copy c of offloaded parameters of the worst rank, activations
    K of all its layers in flight, and g ranks of a host. Of states on NVMe one sub-group is there.
    """
    if not some(case.split.offload):
        return case.zeros
    from scalewise.step.memory import activation_bytes, stage_inputs, stage_sparse
    from scalewise.step.stage import (
        frozen_params_per_rank,
        max_experts_per_rank,
        max_params_per_rank,
    )

    split = case.split
    local: Num = max_params_per_rank(case) / where(split.shards_optimizer, split.shards, 1.0)
    if case.has_experts:
        shards = where(split.shards_optimizer, split.expert_shards, 1.0)
        local = local + max_experts_per_rank(case) / shards
    nvme = split.offloads("nvme")
    inside = where(nvme, minimum(local, physics.SUB_GROUP), local)
    held: Num = where(opt(case), inside * (state_bytes(case) + REDUCED), 0.0)
    second = split.offloads("param") & ~nvme & (case.host.fetched < _stored(case))
    held = held + where(second, case.host.fetched * local, 0.0)
    if case.has_frozen:
        frozen = frozen_params_per_rank(case) / where(split.shards_optimizer, split.shards, 1.0)
        away = split.offloads("param") & ~nvme
        held = held + where(away, case.host.fetched * frozen, 0.0)
    if some(split.offloads("act")):
        layers, flight, _, _ = stage_inputs(case)
        stored, _ = activation_bytes(case, stage_sparse(case))
        moved = maximum(layers * flight - physics.RESIDENT_LAYERS, 0.0) * stored
        held = held + where(split.offloads("act"), moved.max(axis=0), 0.0)
    return case.host.host_ranks * held
