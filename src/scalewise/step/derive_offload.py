"""Derivations of offload: exposed copies, updates on CPUs, and what stays on the device.

derive(e.origin).value                     # equals e.terms["offload"]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, scalar
from scalewise.physics import offload as physics
from scalewise.physics.memory import REDUCED
from scalewise.step import offload
from scalewise.step.memory import activation_bytes

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


def derive_update(o: Origin) -> tuple[str, tuple[Letter, ...]]:
    """Return the formula of an update on the CPUs, and its letters but b, r, P and B."""
    host = o.case.host
    letters = (
        Letter("a", physics.UPDATE_BYTES, "bytes AdamW moves per parameter on the CPU"),
        Letter("g", scalar(host.host_ranks), "ranks of a host"),
        Letter("H", scalar(host.host_update), "rate of updates on the CPUs of a host", "B/s"),
    )
    return "max(b * r * P / B, a * r * P * g / H)", letters


def derive(o: Origin) -> Derivation:
    """Return how the exposed copies of a step come about."""
    case, x = o.case, o.step.offload
    n, often, times = o.n.value, scalar(offload.fetches(case)), scalar(offload.rounds(case))
    parts: list[str] = []
    letters: list[Letter] = []

    def add(part: str, *more: Letter) -> None:
        parts.append(part)
        known = {letter.name for letter in letters}
        letters.extend(letter for letter in more if letter.name not in known)

    others = Letter("K", scalar(o.step.stage.others), "layers of the slowest stage but one")
    fetched = Letter("f", often, "forward passes that copy parameters")
    reduced = Letter("r", times, "backward passes that copy reduced gradients")
    if scalar(x.forward) and often:
        add("K * f * Xf", others, fetched, _forward(o))
    if n > often and scalar(x.forward_more):
        more = Letter("Xm", scalar(x.forward_more), "exposed in a layer's other forwards", "s")
        add("K * (n - f) * Xm", others, o.n, fetched, more)
    if scalar(x.backward):
        add("K * n * Xb", others, o.n, _backward(o))
    if scalar(x.reduced):
        add("r * Xr", reduced, _reduced(o))
    if scalar(x.first):
        what = "copy of the first parameters of a pass, at the rate of a layer's"
        add("f * C", fetched, Letter("C", scalar(x.first), what, "s"))
    if scalar(x.last):
        what = "copy of the last gradients of a pass, at the rate of a layer's"
        add("r * D", reduced, Letter("D", scalar(x.last), what, "s"))
    if scalar(x.updated):
        add("U", _updated(o))
    if scalar(x.nvme):
        add("N", _nvme(o))
    return Derivation(
        key="offload",
        label="exposed offload",
        formula=" + ".join(parts) or "0",
        letters=tuple(letters),
        source=f"host link and memory: cluster {o.cluster.name}; copies: arXiv 2101.06840, "
        "2104.07857",
    )


def _link(o: Origin) -> Letter:
    return Letter("R", scalar(o.case.host.host_link), "sustained rate of the host link", "B/s")


def _activations(o: Origin) -> Letter:
    kept, _ = activation_bytes(o.case)
    because = Derivation(
        key="activation_copy",
        label="copy of a layer's activations, one way",
        formula="k / R",
        letters=(Letter("k", scalar(kept), "kept per layer and micro-batch", "B"), _link(o)),
    )
    moves = bool(scalar(o.case.split.offloads("act")))
    value = scalar(o.step.offload.activations)
    return Letter("A", value, because.label, "s", because if moves else None)


def _copy(
    o: Origin, name: str, value: float, label: str, bytes_: Num, rate: Num, own: Num
) -> Letter:
    """A copy of what a rank holds of a layer, as a letter."""
    because = Derivation(
        key="layer_copy",
        label=label,
        formula="c * p / R",
        letters=(
            Letter("c", scalar(bytes_), "bytes per parameter"),
            Letter("p", scalar(own), "parameters of a layer that the rank holds"),
            Letter("R", scalar(rate), "sustained rate of the copy", "B/s"),
        ),
    )
    return Letter(name, value, label, "s", because if value else None)


def _parameters(o: Origin) -> Letter:
    label, value = "copy of a layer's parameters", scalar(o.step.offload.parameters)
    case = o.case
    own = offload.layer_local(case, case.split.middle_sparse)
    return _copy(o, "P", value, label, case.host.fetched, offload.fetch_rate(case), own)


def _gradients(o: Origin) -> Letter:
    label, value = "copy of a layer's reduced gradients", scalar(o.step.offload.gradients)
    case = o.case
    own = offload.layer_trained(case, case.split.middle_sparse)
    return _copy(o, "G", value, label, case.habits.reduce_bytes, offload.gradient_rate(case), own)


def _forward(o: Origin) -> Letter:
    case, block = o.case, o.step.block
    gather = scalar(o.step.traffic.all_gather / case.habits.gathers(case.split))
    ahead = bool(scalar(offload.prefetches(case)))
    letters = (
        _activations(o),
        Letter("T", scalar(block.first_forward), "forward of the layer", "s"),
        _parameters(o),
        Letter("g", gather, "its all-gather, which follows the copy", "s"),
    )
    because = Derivation(
        key="offload_forward",
        label="exposed copies of a layer's forward",
        formula="max(A - T, P - max(T - g, 0), 0)" if ahead else "max(A - T, P, 0)",
        letters=letters if ahead else letters[:3],
    )
    return Letter("Xf", scalar(o.step.offload.forward), because.label, "s", because)


def _backward(o: Origin, name: str = "Xb") -> Letter:
    case, block, split = o.case, o.step.block, o.case.split
    again = bool(scalar(split.reshard_after_forward & ~case.habits.gathers_once(split)))
    parameters = _parameters(o)
    letters = [_activations(o), Letter("T", scalar(block.backward), "backward of the layer", "s")]
    formula = "max(A - T, 0)"
    if again and parameters.value:
        letters.append(parameters)
        formula = "P + max(A - T, 0)"
        if bool(scalar(offload.prefetches(case))):
            formula = "max(A + P - max(T - g, 0), 0)"
            gather = scalar(o.step.traffic.backward_all_gather)
            letters.append(Letter("g", gather, "its all-gather, which follows the copy", "s"))
    because = Derivation(
        key="offload_backward",
        label="exposed copies of a layer's backward",
        formula=formula,
        letters=tuple(letters),
    )
    return Letter(name, scalar(o.step.offload.backward), because.label, "s", because)


def _reduced(o: Origin) -> Letter:
    case, stage = o.case, o.step.stage
    letters: tuple[Letter, ...] = (
        Letter("K", scalar(stage.others), "layers of the slowest stage but one"),
        _gradients(o),
    )
    formula = "K * G"
    if bool(scalar(case.split.overlap_dp)):
        formula = "max(K * (G - T - X) - Z, 0)"
        trails = scalar(o.step.once.exposed)
        if bool(scalar(case.split.shards_gradients)):
            trails = o.n.value / scalar(offload.rounds(case)) * scalar(stage.tail)
        letters = (
            *letters,
            Letter("T", scalar(o.step.block.backward), "backward of the layer", "s"),
            _backward(o, "X"),
            Letter("Z", trails, "exposed reductions, which copies follow", "s"),
        )
    because = Derivation(
        key="offload_reduced",
        label="exposed copies of the gradients of a pass",
        formula=formula,
        letters=letters,
    )
    return Letter("Xr", scalar(o.step.offload.reduced), because.label, "s", because)


def _updated(o: Origin) -> Letter:
    update = o.case.update
    because = Derivation(
        key="updated_parameters",
        label="exposed copy of updated parameters",
        formula="max(min(w * P, w * t) / R, w * P / R - Z)",
        letters=(
            Letter("w", scalar(update.weight_bytes), "bytes per parameter"),
            Letter("P", scalar(o.step.optimizer_params), "parameters that one rank updates"),
            Letter("t", physics.TILE, "parameters of the last tile"),
            _link(o),
            Letter("Z", scalar(o.step.update.seconds), "update that it overlaps", "s"),
        ),
    )
    return Letter("U", scalar(o.step.offload.updated), because.label, "s", because)


def _nvme(o: Origin) -> Letter:
    case, host = o.case, o.case.host
    because = Derivation(
        key="nvme",
        label="optimizer state from and to NVMe",
        formula="g * P * ((s + d) / Nr + s / Nw)",
        letters=(
            Letter("g", scalar(host.host_ranks), "ranks of a host"),
            Letter("P", scalar(o.step.optimizer_params), "parameters that one rank updates"),
            Letter("s", scalar(offload.state_bytes(case)), "bytes of state per parameter"),
            Letter("d", REDUCED, "bytes of a reduced gradient"),
            Letter("Nr", scalar(host.nvme_read), "read rate of a host's NVMe", "B/s"),
            Letter("Nw", scalar(host.nvme_write), "write rate of a host's NVMe", "B/s"),
        ),
        source="sequential: DeepSpeed's pipeline_read and pipeline_write are off by default",
    )
    return Letter("N", scalar(o.step.offload.nvme), because.label, "s", because)


def device_states(
    o: Origin, states: list[Derivation], layers: float, edge: float, sparse: float
) -> list[Derivation]:
    """Return how weights, gradients and optimizer state that stay on the device come about.

    Args:
        o: The step.
        states: The three of them without offload.
        layers: Layers of the stage.
        edge: Its parameters outside of layers.
        sparse: Fraction of its layers that have experts.
    """
    case, split, host = o.case, o.case.split, o.case.host
    if not bool(scalar(offload.opt(case))):
        return states
    sharded = bool(scalar(split.shards_optimizer))
    dense = scalar(split.shards) if sharded else 1.0
    local = scalar((layers * case.params_of_layer(sparse) + edge) / split.tp) / dense
    if case.has_experts:
        ranks = scalar(split.expert_shards) if sharded else 1.0
        local += layers * sparse * scalar(case.expert_params_of_layer) / ranks
    parameters, gradients, optimizer = states
    here = Letter("S", parameters.value, "without offload", "B", parameters)
    own = Letter("P", local, "parameters whose state the rank holds")
    if bool(scalar(split.fully_sharded)):
        weight = Letter("w", scalar(case.update.weight_bytes), "bytes per weight")
        formula, letters = "min(w * P, S)", (weight, own, here)
        if bool(scalar(split.offloads("param"))):
            formula = "min(c * (1 + k) * p, w * P, S)"
            letters = (
                weight,
                Letter("c", scalar(host.fetched), "bytes per copied parameter"),
                Letter("k", scalar(split.prefetch), "layers all-gathered ahead"),
                Letter("p", scalar(offload.layer_local(case, sparse)), "its part of a layer"),
                own,
                here,
            )  # type: ignore[assignment]
        parameters = replace(
            parameters, formula=formula, letters=letters, source="the rest is in host memory"
        )
    if bool(scalar(offload.reduces_to_shard(case))):
        gradients = replace(
            gradients,
            formula="min(S, q * u)",
            letters=(
                Letter("S", gradients.value, "without offload", "B", gradients),
                Letter("q", scalar(case.habits.reduce_bytes), "bytes per reduced gradient"),
                Letter("u", physics.BUCKET, "gradients that wait for their copy"),
            ),
            source="DeepSpeed reduce_bucket_size",
        )
    optimizer = replace(optimizer, formula="0", letters=(), source="in host memory")
    return [parameters, gradients, optimizer]
