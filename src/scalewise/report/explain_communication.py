"""How do the communication terms of a step come about? Bytes, group, latency, rate, what hides it.

    data_parallel_gather(work(e)).working    # every protocol with its time, and which one wins

Times are asked from `physics.collectives` for each protocol in turn, so that what is shown is what
was used.
"""

from __future__ import annotations

from dataclasses import replace

from scalewise.physics import collectives
from scalewise.physics.collectives import Placement
from scalewise.report.explained import Explained, Letter, plain
from scalewise.report.worked import Worked, number
from scalewise.step import context_parallel as context
from scalewise.step.data_parallel import tail_hides
from scalewise.step.groups import (
    context_group,
    gradient_group,
    replica_group,
    shard_group,
    tensor_group,
)
from scalewise.units import format_bytes, format_rate, format_seconds

SOURCE = "NCCL's tuner (NVIDIA/nccl v2.30.7, src/graph/tuning.cc)"


def links_source(w: Worked) -> str:
    """Where the times of messages come from."""
    fabric = w.e.cluster.fabric
    return f"{SOURCE}; fabric {fabric.name}; link rates: datasheet x {w.chip.link_efficiency:g}"


def _stack(w: Worked, what: str) -> str:
    return f"{links_source(w)}; {what}: stack {w.e.stack.name}"


def _group(place: Placement) -> str:
    ranks, domains = number(place.ranks), number(place.domains)
    where = "one domain" if domains == 1 else f"{plain(domains)} domains"
    return f"{plain(ranks)} ranks, {plain(number(place.per_domain))} per domain, {where}"


def _gather(w: Worked, bytes_: float, place: Placement) -> tuple[str, ...]:
    """Work out one ring by protocol: latency, transfer, and which protocol wins."""
    if number(w.case.algorithm) >= 2.0:
        total = number(collectives.gather_seconds(bytes_, place, w.wires))
        return (f"{w.e.cluster.algorithm} algorithm, as asked: {format_seconds(total)}",)
    hops = collectives.ring_hops_seconds(place, w.wires, 1.0)
    call = number(collectives.call_latency(place, w.wires))
    forced = number(w.case.protocol)
    times = {
        name: number(
            collectives.gather_seconds(bytes_, place, replace(w.wires, protocol=float(index)))
        )
        for index, name in enumerate(collectives.PROTOCOLS)
    }
    used = (
        min(times, key=lambda name: times[name])
        if forced < 0
        else collectives.PROTOCOLS[int(forced)]
    )
    rate = number(collectives.ring_bandwidth(place, w.wires))
    lines = [f"ring over {_group(place)}: {format_rate(rate)}"]
    for index, (name, total) in enumerate(times.items()):
        latency = float(collectives.RING_BASE[index]) + call + number(hops[index])
        won = " <- used" if name == used else ""
        lines.append(
            f"{name.upper()}: latency {format_seconds(latency)} + transfer "
            f"{format_seconds(max(total - latency, 0.0))} = {format_seconds(total)}{won}"
        )
    return tuple(lines)


def _all_reduce(w: Worked, bytes_: float, place: Placement) -> str:
    """Work out one all-reduce: by which algorithm, and how long."""
    total = number(collectives.all_reduce_seconds(bytes_, place, w.wires))
    by = {
        name: number(
            collectives.all_reduce_seconds(bytes_, place, replace(w.wires, algorithm=float(index)))
        )
        for index, name in enumerate(("ring", "tree"))
    }
    used = min(by, key=lambda name: abs(by[name] - total))
    if abs(by[used] - total) > 1e-9 * total:
        used = "in the switch (NVLS)"
    told = ", ".join(f"{name} {format_seconds(time)}" for name, time in by.items())
    return f"all-reduce over {_group(place)}: {told}; used: {used}, {format_seconds(total)}"


def per_step(w: Worked) -> tuple[Letter, Letter]:
    """Say how often a layer is worked on in a step."""
    where = "of the slowest pipeline stage" if w.field("pp") > 1 else "of the model"
    return (
        Letter("a", plain(w.steps), "micro steps"),
        Letter("L", plain(w.layers), f"layers {where}"),
    )


def _edge(w: Worked) -> str:
    """What the slowest stage holds beside its layers."""
    if w.field("pp") == 1 or (w.on_last and w.e.strategy.schedule == "zbv"):
        return "embedding and head"
    if w.on_last:
        return "the head, on the slowest stage"
    return "the embedding, if the slowest stage is the first"


def tensor_parallel(w: Worked) -> Explained:
    """Explain the collectives that tensor parallelism puts on the path."""
    buffer = 2.0 * w.tokens * w.field("hidden")
    place = tensor_group(w.case)
    split = w.field("sequence_parallel") > 0
    lines = _gather(w, buffer, place) if split else (_all_reduce(w, buffer, place),)
    kind = "gathers and scatters" if split else "all-reduces"
    kernels = number(w.layer.backward) + number(w.layer.recompute)
    return Explained(
        key="tensor_parallel",
        title="Exposed tensor-parallel communication",
        formula="T = a L (X(Cf, Kf) + X(Cb, Kb)),  X(C, K) = max((1 - o) C, C - K)",
        letters=(
            *per_step(w),
            Letter("o", plain(1.0 - w.tp_share), "share hidden behind compute"),
            Letter("Cf", format_seconds(w.tp_forward), f"{kind} of a layer, forward"),
            Letter("Cb", format_seconds(w.tp_backward), f"{kind} of a layer, backward"),
            Letter(
                "Kf", format_seconds(number(w.layer.forward)), "kernels to hide behind, forward"
            ),
            Letter("Kb", format_seconds(kernels), "kernels to hide behind, backward"),
            Letter("", format_bytes(buffer), "of activations in each, 2 bytes x m x h"),
        ),
        working=lines,
        result=w.steps * w.layers * (w.tp_exposed_forward + w.tp_exposed_backward),
        source=_stack(w, "o"),
    )


def context_parallel(w: Worked) -> Explained:
    """Explain the keys and values that travel between context-parallel ranks."""
    local = 2.0 * 2.0 * w.tokens * w.field("key_value") / w.field("tp")
    place = context_group(w.case)
    ring = w.field("cp_ring") > 0
    load = number(context.layer_seconds(w.case, w.layer)[0])
    lines: tuple[str, ...]
    if ring:
        crosses = 1.0 if number(place.domains) > 1 else 0.0
        hop = number(collectives.send_seconds(local, w.wires, crosses))
        block = number(w.layer.attention_forward) / w.field("cp")
        lines = (
            f"one send: {format_seconds(hop)}, behind {format_seconds(block)} of attention forward",
        )
    else:
        lines = _gather(w, local * w.field("cp"), place)
    formula = (
        "T = a L (Xf + Xb),  X = (cp - 1) max(send - attention / cp, 0), twice the bytes backward"
        if ring
        else "T = a L (Xf + Xb),  X: all-gather before attention, reduce-scatter after"
    )
    return Explained(
        key="context_parallel",
        title="Exposed context-parallel communication",
        formula=formula,
        letters=(
            *per_step(w),
            Letter("Xf", format_seconds(w.cp_forward), "exposed per layer, forward"),
            Letter("Xb", format_seconds(w.cp_backward), "exposed per layer, backward"),
            Letter("", format_bytes(local), "local keys and values"),
            Letter("", format_seconds(load), "load per layer, hidden or not"),
        ),
        working=lines,
        result=w.steps * w.layers * (w.cp_forward + w.cp_backward),
        source=links_source(w),
    )


def data_parallel_gather(w: Worked) -> Explained:
    """Explain the parameter gathers of FSDP that nothing hides."""
    params = w.field("layer_params") / w.field("tp")
    bytes_ = 2.0 * params
    gather = number(w.traffic.gather)
    backward = w.exposed_backward * (1.0 - w.reduce_share)
    return Explained(
        key="data_parallel_gather",
        title="Exposed parameter gathers",
        formula="T = a ((L - 1) (Xf + Xb) + G + Ge)",
        letters=(
            *per_step(w),
            Letter("Xf", format_seconds(w.exposed_forward), "of a layer's gather, forward"),
            Letter("Xb", format_seconds(backward), "of a layer's gather, backward"),
            Letter("G", format_seconds(gather), "gather of one layer; the first hides nowhere"),
            Letter("Ge", format_seconds(w.root_gather), f"gather of {_edge(w)}"),
            Letter("", format_bytes(bytes_), f"2 bytes x {plain(params)} parameters of a layer"),
        ),
        working=_gather(w, bytes_, shard_group(w.case)),
        result=w.steps * w.others * (w.exposed_forward + backward)
        + w.steps * (gather + w.root_gather),
        source=links_source(w),
    )


def data_parallel_reduce(w: Worked) -> Explained:
    """Explain the gradient reduction that nothing hides: per layer, or once per step."""
    if w.field("sharding") >= 3.0:
        return _sharded_reduce(w)
    once = number(w.reduction.exposed)
    load = number(w.reduction.load)
    gradient = w.field("reduce_bytes") * w.params
    kind = w.e.strategy.sharding
    everyone = gradient_group(w.case)
    # The size of a call is the stack's bucket, or what there is if that is less.
    ranks = number(everyone.ranks)
    bucket = max(w.field("bucket_bytes"), w.field("bucket_bytes_per_rank") * ranks)
    piece = min(gradient, bucket)
    lines: tuple[str, ...]
    if kind == "ddp":
        sent = piece * w.field("all_reduce_factor")
        lines = (f"one call of {format_bytes(piece)}: {_all_reduce(w, sent, everyone)}",)
    else:
        lines = (
            f"one call of {format_bytes(piece)}:",
            *_gather(w, piece * w.field("scatter_factor"), shard_group(w.case)),
        )
    layered = _layered_reduce(w)
    moved = {"ddp": "all-reduce", "zero2": "parameter gather"}.get(
        kind, "reduce-scatter, all-reduce between replicas, parameter gather"
    )
    share = w.field("dp_overlap" if kind == "ddp" else "shard_overlap")
    return Explained(
        key="data_parallel_reduce",
        title="Exposed gradient reduction" + ("" if kind == "ddp" else " and parameter gather"),
        formula="T = C - min(o C, W)" + (" + a ((L - 1) X + S + Se)" if layered else ""),
        letters=(
            *((*per_step(w), *_layered_letters(w)) if layered else ()),
            Letter("C", format_seconds(load), f"{moved}, in calls of one bucket"),
            Letter("o", plain(share), "share that may hide behind compute"),
            Letter(
                "W",
                format_seconds(w.window),
                "backward of the last micro step"
                + ("" if kind == "ddp" else ", and forward of the first for parameters"),
            ),
            Letter(
                "",
                format_bytes(gradient),
                f"{plain(w.field('reduce_bytes'))} bytes x {plain(w.params)} gradients of a rank",
            ),
        ),
        working=lines,
        result=layered + once,
        source=_stack(w, "o and bucket"),
    )


def _layered_reduce(w: Worked) -> float:
    """Seconds of the reductions that run layer by layer and that nothing hides."""
    return w.steps * (w.others * w.exposed_backward * w.reduce_share + w.tail)


def _layered_letters(w: Worked) -> tuple[Letter, ...]:
    """The letters of that sum."""
    hides = bool(number(tail_hides(w.case, w.traffic))) and w.steps > 1
    mean = ", mean over micro steps: each but the last has a next one to hide it" if hides else ""
    return (
        Letter(
            "X",
            format_seconds(w.exposed_backward * w.reduce_share),
            "of a layer's reduction, behind backward",
        ),
        Letter(
            "S",
            format_seconds(w.tail - w.root_tail),
            "reduction of one layer; the last hides nowhere" + mean,
        ),
        Letter("Se", format_seconds(w.root_tail), f"reduction of {_edge(w)}" + mean),
    )


def _sharded_reduce(w: Worked) -> Explained:
    params = w.field("layer_params") / w.field("tp")
    bytes_ = w.field("reduce_bytes") * params
    lines = _gather(w, bytes_ * w.field("scatter_factor"), shard_group(w.case))
    replicas = replica_group(w.case)
    if number(replicas.ranks) > 1:
        lines = (*lines, "between replicas: " + _all_reduce(w, bytes_ / w.shards, replicas))
    if w.field("reduce_every_micro_step") == 0 and w.steps > 1:
        lines = (*lines, f"once per step, spread over {plain(w.steps)} micro steps")
    return Explained(
        key="data_parallel_reduce",
        title="Exposed gradient reduction",
        formula="T = a ((L - 1) X + S + Se)",
        letters=(
            *per_step(w),
            *_layered_letters(w),
            Letter(
                "",
                format_bytes(bytes_),
                f"{plain(w.field('reduce_bytes'))} bytes x {plain(params)} gradients of a layer",
            ),
        ),
        working=lines,
        result=_layered_reduce(w) + number(w.reduction.exposed),
        source=_stack(w, "bytes per gradient"),
    )


def contention(w: Worked) -> Explained:
    """Explain how much communication slows down the compute it hides behind."""
    return Explained(
        key="contention",
        title="Contention: compute slowed down by communication beside it",
        formula="T = a ((L - 1) D + E),  D = block - compute - exposed,  "
        "block = max(compute + c min(comm, compute), comm)",
        letters=(
            *per_step(w),
            Letter("E", format_seconds(w.tail_slowed), "beside the last reductions before"),
            Letter("c", plain(w.field("contention")), "slow-down per second of communication"),
            Letter("compute", format_seconds(w.forward), "forward of a layer"),
            Letter("comm", format_seconds(number(w.traffic.forward)), "beside forward"),
            Letter("compute", format_seconds(w.backward), "backward of a layer"),
            Letter("comm", format_seconds(number(w.traffic.backward)), "beside backward"),
        ),
        working=(
            f"blocks take {format_seconds(w.block_forward)} forward and "
            f"{format_seconds(w.block_backward)} backward: D = {format_seconds(w.slowed)}",
        ),
        result=w.steps * (w.others * w.slowed + w.tail_slowed),
        source=f"c: stack {w.e.stack.name}",
    )
