"""Parts of a `Case` that strategies have no fields for: rates, experts, optimizer, host.

case.rates.gemm, case.sparse.experts, case.update.moment_bytes, case.host.host_link
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from numpy.typing import NDArray

from scalewise.numeric import Array, Mask


class Part:
    """Base of the parts of a case: data classes whose fields are all arrays."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of its fields."""
        return tuple(each.name for each in fields(cls))  # type: ignore[arg-type]

    def columns(self) -> dict[str, Array]:
        """Its fields by name."""
        return {name: getattr(self, name) for name in self.names()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rates(Part):
    """Sustained rates of one GPU, at the precision of the workload."""

    gemm: Array
    """FLOP/s of GEMMs in the layers."""
    gemm16: Array
    """FLOP/s of GEMMs outside of layers (LM head): in 16 bits, or in the 32 of tf32 and fp32."""
    peak: Array
    """Datasheet FLOP/s."""
    matmul_bytes: Array
    """Bytes per GEMM operand element."""
    activation_bytes: Array
    """Bytes per element of activations and messages: 2, or 4 in tf32 and fp32."""
    quantizing: Array
    """Kernel launches of a layer relative to 16 bits: quantizing adds its own."""
    quantize_bytes: Array
    """Bytes moved to quantize one element of a GEMM input, all copies; 0 in 16 bits."""
    scale_bytes: Array
    """Bytes of scales per element of a quantized GEMM input."""
    units: Array
    """Compute units over which tiles are spread."""
    gemm_fill: Array
    """Depth at which a tile begins to pay, elements."""
    gemm_shapes: NDArray[Any]
    """Products that were timed on the device, a tuple each: `physics.shapes`."""
    attention_forward: Array
    """FLOP/s of attention forward on long sequences."""
    attention_backward: Array
    """FLOP/s of attention backward."""
    attention_cast_bytes: Array
    """Bytes moved to quantize an element of queries, keys and values; 0 for 16-bit attention."""
    memory: Array
    """Bytes/s of streaming kernels."""
    memory_bytes: Array
    """Capacity, bytes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sparse(Part):
    """Experts: their shapes, how tokens are routed, and what the software makes of that.

    All zero for dense models.
    """

    experts: Array
    """Routed experts of a layer."""
    per_token: Array
    """Experts that each token visits."""
    expert_ffn: Array
    """Width of one expert."""
    shared_ffn: Array
    """Width of all shared experts together."""
    expert_params: Array
    """Parameters of all routed experts of a layer."""
    more_params: Array
    """Other parameters of a layer with experts over those of a dense layer: shared experts and
    router against the MLP."""
    load: Array
    """Tokens of the busiest rank over the mean: imbalance, or the capacity that is padded to."""
    deduplicated: Mask
    """Whether a token is sent once per rank and domain, not once per expert."""
    inside_efficiency: Array
    """Fraction of the scale-up bandwidth that the all-to-all reaches."""
    network_efficiency: Array
    """Fraction of the NIC's rate that it reaches."""
    grouped_gemm: Array
    """Rate of grouped GEMMs relative to single ones."""
    routing_traffic: Array
    """Bytes of permutation and activation relative to the minimum."""
    activation_traffic: Array
    """Bytes of the activation besides, relative to a fused one."""
    expert_casts: Array
    """Bytes to quantize the tokens of experts, relative to those of dense layers."""
    fused_experts: Mask
    """Whether experts run in one fused kernel."""
    host_attention: Array
    """Launches of the attention half of a layer with experts, seconds."""
    host_routing: Array
    """Launches of its routing and dispatch."""
    host_expert: Array
    """Launches per local expert."""
    ep_overlap: Array
    """Fraction of the all-to-all that another micro-batch can overlap."""
    latent_attention: Array
    """Rate of attention kernels with latent attention, relative to equal heads."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Update(Part):
    """The optimizer, and how parameters are stored."""

    moment_bytes: Array
    """State per parameter of layers, besides master weights."""
    other_bytes: Array
    """State per parameter of embedding and head."""
    weight_bytes: Array
    """Weights that compute reads, per parameter."""
    master_bytes: Array
    """Master copy per parameter; 0 without one."""
    stored_gradient: Array
    """Gradient per parameter as it is kept; 0 for what the software does."""
    host_moments: Array
    """Moments per parameter wherever they are: those of paged optimizers too."""
    traffic: Array
    """Bytes of an update over those of AdamW with master weights."""
    layer_flops: Array
    """FLOPs of an update's products on the matrices of a layer but experts."""
    expert_flops: Array
    """The same for all routed experts of a layer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Host(Part):
    """The host of a rank, for what is offloaded."""

    host_ranks: Array
    """Ranks that share a host."""
    host_link: Array
    """Bytes/s of copies of one rank, one way, while all of the host copy; sustained."""
    host_update: Array
    """Bytes/s that updates on all CPUs of a host move, sustained."""
    host_bytes: Array
    """Memory of a host; infinite if unknown."""
    nvme_read: Array
    """Bytes/s read from the NVMe of a host."""
    nvme_write: Array
    """Bytes/s written to it."""
    fetched: Array
    """Bytes per offloaded parameter that are copied before its all-gather."""
