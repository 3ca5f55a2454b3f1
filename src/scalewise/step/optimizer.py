"""The optimizer step: elementwise update of the local shard, and products of Muon and Shampoo.

Elementwise updates stream states, gradients and weights through memory. Muon and Shampoo work on
whole matrices: with sharded states each rank takes the matrices of its shard, after the momentum
of all has been all-gathered in 16 bits (Liu et al., arXiv 2502.16982, section 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, maximum, scalar, some, where
from scalewise.physics.collectives import all_gather_seconds, derive_ring
from scalewise.step import offload
from scalewise.step.case import Case
from scalewise.step.groups import expert_shard_group, shard_group

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """Optimizer step of one rank, seconds."""

    streamed: Num
    """Elementwise part, on the device or on the CPUs of the host."""
    products: Num
    """Products on whole matrices."""
    gathers: Num
    """All-gather of momentum that they need under sharding."""

    @property
    def seconds(self) -> Num:
        """All of it."""
        return self.streamed + self.products + self.gathers


def moved_bytes(case: Case) -> Num:
    """Return the bytes that an update moves per local parameter."""
    return case.habits.optimizer_bytes * case.update.traffic


def update(case: Case, layers: Num, params: Num, experts: Num, local: Num) -> Update:
    """Return the optimizer step.

    Args:
        case: The step.
        layers: Layers of the rank.
        params: Parameters of the rank but experts, before data parallelism shards them.
        experts: Parameters of its experts, likewise.
        local: Parameters whose state the rank holds.
    """
    streamed = moved_bytes(case) * local / case.rates.memory
    if some(case.split.offload):
        # Clipping and casts of the stack stay on the device.
        on_cpu = maximum(streamed, offload.cpu_update_seconds(case, local))
        streamed = where(offload.opt(case), on_cpu, streamed)
    none = case.zeros
    if not some(case.update.layer_flops):
        return Update(streamed=streamed, products=none, gathers=none)
    split, momentum = case.split, case.rates.activation_bytes
    dense = where(split.shards_optimizer, split.shards, 1.0)
    products = layers * case.update.layer_flops / split.tp / dense
    gathers: Num = all_gather_seconds(momentum * params, shard_group(split), case.links)
    if case.has_experts:
        own = where(split.shards_optimizer, split.expert_shards, 1.0)
        sparse = split.middle_sparse / (split.ep * split.etp) / own
        products = products + layers * sparse * case.update.expert_flops
        gathers = gathers + all_gather_seconds(
            momentum * experts, expert_shard_group(split), case.links
        )
    needs = split.shards_optimizer & (case.update.layer_flops > 0.0)
    return Update(
        streamed=streamed,
        products=products / case.rates.gemm16,
        gathers=where(needs, gathers, 0.0),
    )


def derive(o: Origin) -> Derivation:
    """Return how the optimizer step comes about."""
    case, step = o.case, o.step
    letters: tuple[Letter, ...] = (
        Letter("b", scalar(case.habits.optimizer_bytes), "bytes AdamW moves per parameter"),
        Letter("r", scalar(case.update.traffic), "bytes of this optimizer over those"),
        Letter("P", scalar(step.optimizer_params), "parameters that one rank updates"),
        o.memory,
    )
    formula = "b * r * P / B"
    if scalar(offload.opt(case)):
        from scalewise.step.derive_offload import derive_update

        formula, more = derive_update(o)
        letters = (*letters, *more)
    if scalar(case.update.layer_flops):
        formula += " + X + G"
        letters = (
            *letters,
            Letter("X", scalar(step.update.products), "products on whole matrices", "s"),
            Letter("G", scalar(step.update.gathers), "all-gather of momentum", "s", _gather(o)),
        )
    return Derivation(
        key="optimizer",
        label="optimizer",
        formula=formula,
        letters=letters,
        source=f"b: {o.software}; r: catalog of optimizers",
    )


def _gather(o: Origin) -> Derivation | None:
    """How the all-gather of momentum comes about, where experts do not add to it."""
    split = o.case.split
    if o.case.has_experts or not split.shards_optimizer[0]:
        return None
    bytes_ = scalar(o.case.rates.activation_bytes) * scalar(o.step.params)
    return derive_ring("all-gather of momentum", bytes_, shard_group(split), o.case.links)
