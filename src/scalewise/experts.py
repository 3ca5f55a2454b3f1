"""Constants of expert layers: how well dispatchers, grouped GEMMs and the host do.

    load_experts("megatron").routing_traffic

What software does (dispatcher, CUDA graphs, overlap, fusion) is stated by its `Stack`; what that is
worth is here, in one file that stacks share, because the published runs of experts are of one
code base. `scalewise calibrate` fits it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from scalewise.errors import InputError

Dispatcher: TypeAlias = Literal["nccl", "deepep", "hybridep"]
"""What moves tokens to their experts: NCCL's all-to-all, DeepEP (deepseek-ai/DeepEP), or HybridEP
(its branch for NVLink domains of racks)."""

DISPATCHERS: tuple[str, ...] = get_args(Dispatcher)

CudaGraphs: TypeAlias = Literal["none", "router", "attention", "full"]
"""Part of a step that replays from CUDA graphs: router and preprocessing, attention too, or all."""


UNTRAINED = 1.45
"""Imbalance of dropless routing in published pairs with and without forced balance: the seconds
that it adds to steps of Qwen3-235B on 256 H100s at 16k, 32k, 64k and 128k tokens are 0.45, 0.46,
0.46 and 0.45 of what experts, routing and all-to-all take (`megatron-moe-zoo`)."""


class Experts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named constants of expert layers. Times in seconds."""

    name: str
    """Name."""

    nccl: float
    """Fraction of the scale-up bandwidth that NCCL's all-to-all reaches, preprocessing included."""

    deepep: float
    """The same for DeepEP."""

    hybridep: float
    """The same for HybridEP."""

    network: float
    """Fraction of the NIC's rate that an all-to-all reaches."""

    grouped_gemm: float
    """Rate of grouped GEMMs relative to single ones."""

    routing_traffic: float
    """Bytes moved to permute, unpermute and activate, relative to the minimum."""

    biased_activation: float
    """Bytes moved by a clamped activation with biases (gpt-oss), relative to a fused one."""

    fused_traffic: float
    """Bytes that a fused grouped MLP leaves of permutation, activation and casts."""

    host_attention_seconds: float
    """Host time to launch the attention half of an expert layer, forward and backward."""

    host_routing_seconds: float
    """Host time to route and dispatch the tokens of a layer: dropless routing reads the counts
    back, so launches cannot run ahead."""

    host_expert_seconds: float
    """Host time per local expert: launches of its GEMMs."""

    static_host: float
    """Host time that routing with fixed shapes (dropped and padded tokens) leaves."""

    graph_routing: float
    """Host time of routing that partial CUDA graphs leave."""

    overlap: float
    """Fraction of the all-to-all that the compute of another micro-batch can overlap."""

    latent_attention: float
    """Rate of attention kernels with latent attention's wider keys, relative to equal heads."""

    fitted_on: str = "not fitted"
    """Runs it was fitted on: sources, rows, error."""

    undetermined: tuple[str, ...] = ()
    """Constants that the data did not determine: on a bound, or at their prior."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, float) and not 0.0 < value < float("inf"):
                raise InputError(
                    f"experts {self.name}: {field} = {value} must be finite and positive",
                    hint="run `scalewise calibrate` again, or edit the file",
                )

    def inside(self, dispatcher: Dispatcher) -> float:
        """Fraction of the scale-up bandwidth that a dispatcher reaches."""
        return float(getattr(self, dispatcher))


GRAPH_ATTENTION: dict[CudaGraphs, float] = {
    "none": 1.0, "router": 0.75, "attention": 0.1, "full": 0.0,
}  # fmt: skip
"""Host time of the attention half that CUDA graphs of a scope leave: what they do not replay."""


def load_experts(name: str) -> Experts:
    """Load constants of expert layers by name or path to a TOML file."""
    from scalewise.catalog import load

    return load("experts", name, Experts)
