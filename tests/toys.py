"""A model, a cluster and a software stack with round numbers, for arithmetic by hand.

    case_of("fsdp8-mb2")                 # the numbers of one step, as `step` reads them

Nothing here depends on the catalog's calibrations: every constant that enters is written below.
"""

import numpy as np

from scalewise.chip import Calibration
from scalewise.cluster import Accelerator, Cluster, Fabric
from scalewise.model import Mla, Model, Moe
from scalewise.stack import Stack
from scalewise.step.case import Case
from scalewise.step.compose import compose
from scalewise.step.estimate import estimate
from scalewise.step.layout import lay_out
from scalewise.step.terms import step_terms
from scalewise.strategies import Strategies
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload

# One layer: 1024 x (1024 + 2 x 256) + 1024 x 1024 of attention, 3 x 1024 x 4096 of MLP, two norms.
LAYER_PARAMS = 15_206_400
EDGE_PARAMS = 32_768_000  # 32000 x 1024, once for the embedding and once for the head


def toy_model(**changes):
    """Four layers, eight heads of 128 (two of keys), a gated MLP of 4096, 32000 words."""
    fields = {
        "name": "toy",
        "layers": 4,
        "hidden": 1024,
        "heads": 8,
        "kv_heads": 2,
        "ffn": 4096,
        "vocab": 32_000,
    }
    return Model(**(fields | changes))


# Eight experts of three matrices of 1024 x 2048; a layer without them, but with their router.
EXPERT_PARAMS = 8 * 6_291_456
SPARSE_PARAMS = LAYER_PARAMS - 3 * 1024 * 4096 + 8 * 1024


def toy_experts(moe=None, **changes):
    """The toy with eight experts of 2048 in every layer; each token visits two of them."""
    fields = {"experts": 8, "experts_per_token": 2, "ffn": 2048} | (moe or {})
    return toy_model(moe=Moe(**fields), **changes)


def toy_latent(query_rank=256, **changes):
    """The toy with queries and keys of 64 + 32, values of 64, from a latent of 128."""
    mla = Mla(query_rank=query_rank, kv_rank=128, nope_dim=64, rope_dim=32, value_dim=64)
    return toy_model(mla=mla, kv_heads=8, **changes)


def toy_cluster(accelerators=8, **changes):
    """Domains of 4 at 100 GB/s, joined at 10 GB/s; 100 TFLOP/s and 1 TB/s each."""
    accelerator = Accelerator(
        name="toy",
        vendor="Toys",
        architecture="toy",
        kind="gpu",
        peak_flops={"bf16": 100e12, "fp8": 200e12},
        memory_bytes=16e9,
        memory_bandwidth=1e12,
        scale_up_name="string",
        scale_up_domain=4,
        compute_units=100,
        tdp_watts=300.0,
        idle_watts=60.0,
    )
    fields = {
        "name": "toys",
        "accelerator": accelerator,
        "accelerators": accelerators,
        "scale_up_domain": 4,
        "scale_up_bandwidth": 100e9,
        "scale_out_bandwidth": 10e9,
        "fabric": Fabric(name="tin", hop_seconds=0.0, call_seconds=0.0, efficiency=1.0),
        "host_watts": 100.0,
        "network_watts": 20.0,
        "usd_per_hour": 3.6,
    }
    return Cluster(**(fields | changes))


def toy_chip():
    """A chip that does what its datasheet says."""
    return Calibration(
        name="toy",
        gemm={"bf16": 1.0, "fp8": 1.0},
        attention={kind: (1.0, 0.5) for kind in ("flash1", "flash2", "cudnn", "splash", "unfused")},
        memory_efficiency=1.0,
        link_efficiency=1.0,
    )


def toy_stack(**changes) -> Stack:
    """Software with round constants; fields beyond these are at their defaults."""
    fields = {
        "name": "toy",
        "family": "pytorch",
        "compiled": False,
        "attention_kernel": "flash2",
        "partition": "even",
        "keeps_sp_all_gather": False,
        "recompute_skips_last": True,
        "reduce_every_micro_step": True,
        "memory_traffic": 1.0,
        "host_layer_seconds": 0.0,
        "attention_forward": 1.0,
        "attention_backward": 1.0,
        "gemm": 1.0,
        "contention": 0.5,
        "tp_overlap": 0.25,
        "dp_overlap": 0.5,
        "shard_overlap": 0.25,
        "update_gather_overlap": 0.25,
        "zero2_every_micro_step": True,
        "pipeline_gathers_once": False,
        "gradient_bytes": 4.0,
        "logit_bytes": 10.0,
        "optimizer_bytes": 30.0,
        "overhead_seconds": 0.01,
        "selective_share": 0.0,
        "reduce_bytes": 4.0,
        "bucket_bytes": 25e6,
        "bucket_bytes_per_rank": 0.0,
        "cast_bytes": 4.0,
        "pipeline_host_seconds": 0.0,
        "straggler": 0.0,
        "gradient_memory": 4.0,
        "activation_factor": 1.0,
        "logit_memory": 8.0,
        "workspace_bytes": 1e9,
        "fragmentation": 0.0,
        "memory_interval": (0.5, 1.5),
    }
    return Stack(**(fields | changes))


def toy_workload(**changes):
    """A thousand tokens, sixteen sequences."""
    return Workload(**({"seq_len": 1000, "global_batch": 16} | changes))


def case_of(*spellings, model=None, cluster=None, workload=None, stack=None) -> Case:
    """Lay out one or several strategies on the toys; nothing is checked."""
    return lay_out(
        model or toy_model(),
        cluster or toy_cluster(),
        workload or toy_workload(),
        Strategies.of([parse_strategy(spelling) for spelling in spellings]),
        stack or toy_stack(),
        toy_chip(),
    )


ROUND_EXPERTS = {
    "inside_efficiency": 0.5,
    "network_efficiency": 0.8,
    "grouped_gemm": 1.0,
    "routing_traffic": 2.0,
    "activation_traffic": 1.0,
    "expert_casts": 1.0,
    "host_attention": 0.0,
    "host_routing": 0.0,
    "host_expert": 0.0,
    "ep_overlap": 0.0,
    "latent_attention": 0.8,
}
"""Constants of experts, round."""


def sparse_case_of(*spellings, constants=None, model=None, **toys) -> Case:
    """Lay out strategies of the toy with experts, with round constants."""
    case = case_of(*spellings, model=model or toy_experts(), **toys)
    values = ROUND_EXPERTS | (constants or {})
    return case.changed(**{name: np.full(len(case), value) for name, value in values.items()})


def terms_of(case) -> dict[str, float]:
    """Seconds of every term of one step."""
    return {name: one(value) for name, value in step_terms(case, compose(case))[0].parts().items()}


def seconds(spelling, **toys) -> float:
    """Time of one step of a strategy on the toys, some of them replaced."""
    fields = {
        "model": toy_model(),
        "cluster": toy_cluster(),
        "workload": toy_workload(),
        "stack": toy_stack(),
    } | toys
    stack = fields.pop("stack")
    return estimate(**fields, strategy=parse_strategy(spelling), stack=stack).step_seconds


def one(value) -> float:
    """Read a result of length one, or a plain number."""
    return float(np.asarray(value).item())
