"""What the property tests draw: models, clusters, workloads and strategies that fit together.

    @given(data=st.data())
    def test_x(data):
        point = data.draw(points(maximum=8))    # one model, cluster and workload, 1 to 8 strategies

Every strategy of a point multiplies out to its cluster and divides its batch, so whatever fails
afterwards is the model's fault and not the input's.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache, lru_cache

import msgspec
from hypothesis import strategies as st

from scalewise.catalog import load_cluster
from scalewise.cluster import Cluster
from scalewise.experts import DISPATCHERS
from scalewise.model import Mla, Model, Moe
from scalewise.precision import PRECISIONS, RECIPES
from scalewise.recompute import MODULES
from scalewise.stack import USUAL, Stack, load_stack
from scalewise.step.estimate import estimate
from scalewise.strategy import SCHEDULES, Strategy
from scalewise.workload import Workload

CLUSTERS = (
    "dgx-h100", "dgx-a100", "gb200-nvl72", "gcp-tpu-v5p", "gcp-tpu-v5e", "dgx-b200", "mi300x-8",
    "frontier", "aws-p5", "gcp-a3-mega", "aws-trn2", "gaudi2-8",
)  # fmt: skip
SIZES = (1, 2, 3, 4, 8, 16, 24, 64, 72, 96, 144, 512, 2048, 16384)
AXES = ("dp_replicate", "dp_shard", "tp", "cp", "pp")


@dataclass(frozen=True, kw_only=True)
class Point:
    """Everything `estimate` takes, for several strategies."""

    model: Model
    cluster: Cluster
    workload: Workload
    strategies: list[Strategy]
    stack: Stack

    def estimate(self, **changes):
        """Estimate all strategies, with some of the inputs exchanged."""
        with_ = {name: changes.get(name, getattr(self, name)) for name in self.__annotations__}
        return estimate(
            with_["model"],
            with_["cluster"],
            with_["workload"],
            with_["strategies"],
            stack=with_["stack"],
        )


@cache
def _sample(kinds, values):
    return st.sampled_from(values)


def sampled_from(values):
    """One of some values; made once, since Hypothesis checks a strategy anew where it is made."""
    values = tuple(values)
    return _sample(tuple(map(type, values)), values)


@cache
def numbers(low, high):
    """Finite floats of a range, without the subnormal curiosities."""
    return st.floats(low, high, allow_subnormal=False)


@cache
def optional(values):
    """One of what a strategy draws, or None."""
    return st.one_of(st.none(), values)


DEGREES = st.integers(1, 2**22)
COUNTS = st.integers(1, 10_000)
STAGES = st.one_of(st.just(1), DEGREES)


@lru_cache(maxsize=64)
def catalog_cluster(name):
    """Load once: reading TOML would take longer than the estimate."""
    return load_cluster(name)


@lru_cache(maxsize=64)
def catalog_stack(name):
    """Load once."""
    return load_stack(name)


def recomputes():
    """Kinds of recompute."""
    kinds = ("none", "selective", "full", "attention", "op", "1of4", "1of2", "3of7")
    return sampled_from(kinds)


def offloads(sharding):
    """Mostly nothing; parameters only where they are sharded."""
    kinds = ["", "", "", "opt", "act", "opt+act", "opt+nvme", "opt+act+nvme"]
    if sharding == "zero3":
        kinds += ["opt+param", "opt+param+act", "opt+param+nvme"]
    return sampled_from(kinds)


@st.composite
def mixtures(draw, layers):
    """Draw experts of any plausible or implausible shape."""
    experts = draw(sampled_from((2, 3, 8, 60, 64, 256)))
    shared = draw(sampled_from((0, 0, 1, 2)))
    return Moe(
        experts=experts,
        experts_per_token=draw(st.integers(1, min(experts, 8))),
        ffn=draw(sampled_from((64, 512, 768, 1408, 2048, 14336))),
        layers=draw(st.integers(1, layers)),
        dense=draw(sampled_from(("first", "alternating"))),
        shared_experts=shared,
        shared_ffn=draw(sampled_from((128, 2048))) if shared else 0,
        bias=draw(st.booleans()),
    )


@cache
def latents():
    """Latent attention as DeepSeek-V3 has it, and without a latent of queries."""
    return st.builds(
        Mla,
        query_rank=sampled_from((0, 512, 1536)),
        kv_rank=sampled_from((64, 512)),
        nope_dim=sampled_from((32, 128)),
        rope_dim=sampled_from((16, 64)),
        value_dim=sampled_from((32, 128)),
    )


@st.composite
def models(draw, kinds=("dense", "dense", "experts")):
    """Draw a model of any plausible or implausible shape, dense or with experts."""
    kind = draw(sampled_from(kinds))
    heads = draw(sampled_from((1, 2, 4, 8, 12, 25, 32, 40, 64, 128)))
    head_dim = draw(sampled_from((16, 64, 128, 256)))
    window = draw(sampled_from((None, None, 128, 4096)))
    layers = draw(st.integers(1, 130))
    return Model(
        name="drawn",
        layers=layers,
        hidden=draw(sampled_from((64, 768, 1600, 4096, 16384))),
        heads=heads,
        head_dim=head_dim,
        kv_heads=draw(sampled_from([d for d in range(1, heads + 1) if heads % d == 0])),
        ffn=draw(st.integers(1, 60_000)),
        gated=draw(st.booleans()),
        vocab=draw(st.integers(1, 300_000)),
        tied=draw(st.booleans()),
        norm=draw(sampled_from(("rms", "layer"))),
        window=window,
        windowed_layers=0 if window is None else draw(st.integers(1, layers)),
        moe=draw(mixtures(layers)) if kind == "experts" else None,
        mla=draw(optional(latents())) if kind == "experts" else None,
        mtp_layers=draw(sampled_from((0, 0, 1))) if kind == "experts" else 0,
    )


@st.composite
def clusters(draw):
    """Draw a cluster of the catalog with other sizes, links, latencies and settings."""
    cluster = catalog_cluster(draw(sampled_from(CLUSTERS)))
    accelerators = draw(sampled_from(SIZES))
    changes = {"accelerators": accelerators}
    if draw(st.booleans()):
        fabric = msgspec.structs.replace(
            cluster.fabric,
            hop_seconds=draw(numbers(0.0, 1e-4)),
            call_seconds=draw(numbers(0.0, 2e-4)),
            ring_step_seconds=draw(numbers(0.0, 2e-5)),
            efficiency=draw(numbers(0.1, 1.0)),
            congestion=draw(numbers(0.0, 0.5)),
            rail_scaling=draw(numbers(0.0, 1.0)),
            latency_factor=draw(numbers(0.1, 3.0)),
        )
        changes |= {
            "fabric": fabric,
            "scale_up_domain": draw(sampled_from((1, 2, 4, 8, 72, 256))),
            "scale_up_bandwidth": cluster.scale_up_bandwidth * draw(numbers(0.05, 20.0)),
            "scale_out_bandwidth": cluster.scale_out_bandwidth * draw(numbers(0.05, 20.0)),
            "algorithm": draw(sampled_from(("auto", "ring", "tree", "pat", "hierarchical"))),
            "protocol": draw(sampled_from(("auto", "ll", "ll128", "simple"))),
            "host": draw(sampled_from(("intel", "amd", "arm", "unknown"))),
            "tier_size": draw(sampled_from((None, 64, 1024))),
        }
        if changes["tier_size"] is not None:
            changes["oversubscription"] = draw(numbers(1.0, 8.0))
        if cluster.tdp is not None and cluster.idle is not None:
            share = draw(numbers(0.05, 1.0))
            changes["power_cap_watts"] = cluster.idle + share * (cluster.tdp - cluster.idle)
    return cluster.with_(**changes)


@st.composite
def stacks(draw, kind):
    """Draw a software stack of the catalog, with its constants moved about."""
    names = {
        "gpu": (
            "megatron",
            "nanotron",
            "megatron-2021",
            "pytorch",
            "pytorch-compiled",
            "megatron-lm",
        ),
        "tpu": (USUAL["tpu"],),
        "other": (USUAL["other"],),
    }[kind]
    stack = catalog_stack(draw(sampled_from(names)))
    if draw(st.booleans()):
        return stack
    return msgspec.structs.replace(
        stack,
        contention=draw(numbers(0.0, 1.0)),
        tp_overlap=draw(numbers(0.0, 1.0)),
        dp_overlap=draw(numbers(0.0, 1.0)),
        shard_overlap=draw(numbers(0.0, 1.0)),
        update_gather_overlap=draw(numbers(0.0, 1.0)),
        zero2_every_micro_step=draw(st.booleans()),
        pipeline_gathers_once=draw(st.booleans()),
        balanced_ring=draw(st.booleans()),
        host_layer_seconds=draw(numbers(0.0, 0.01)),
        selective_share=draw(numbers(0.0, 0.5)),
        straggler=draw(numbers(0.0, 0.02)),
        bucket_bytes=draw(numbers(1e6, 1e9)),
        recompute_skips_last=draw(st.booleans()),
        selective=draw(sampled_from(("attention", "op", "policy"))),
        keeps_quantized=draw(st.booleans()),
        reduce_every_micro_step=draw(st.booleans()),
        keeps_sp_all_gather=draw(st.booleans()),
        composed_kernels=draw(st.booleans()),
        partition=draw(sampled_from(("even", "flops"))),
        dispatcher=draw(sampled_from(DISPATCHERS)),
        cuda_graphs=draw(sampled_from(("none", "router", "attention", "full"))),
        overlaps_all_to_all=draw(st.booleans()),
        fused_experts=draw(st.booleans()),
    )


def prime_factors(number):
    """The primes whose product it is, smallest first."""
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found


@st.composite
def meshes(draw, model, seq_len, accelerators):
    """Spread the prime factors of the accelerators over the axes that can take them."""
    mesh = dict.fromkeys(AXES, 1)
    for prime in prime_factors(accelerators):
        axis = draw(sampled_from(AXES))
        degree = mesh[axis] * prime
        fits = {
            "tp": model.heads % degree == 0,
            "cp": seq_len % degree == 0,
            "pp": degree <= model.layers,
        }.get(axis, True)
        mesh[axis if fits else "dp_shard"] *= prime
    return mesh


@st.composite
def strategies(draw, model, workload, accelerators, precisions=("bf16",), *, offload=False):
    """Draw a strategy that multiplies out to the accelerators and divides the batch."""
    fields = draw(meshes(model, workload.seq_len, accelerators))
    sharding = draw(sampled_from(("ddp", "zero1", "zero2", "zero3", "zero3")))
    if sharding == "ddp":
        fields["dp_replicate"] *= fields["dp_shard"]
        fields["dp_shard"] = 1
    pp = fields["pp"]
    chunks = draw(sampled_from([v for v in (1, 2, 3, 4) if v == 1 or 1 < pp * v <= model.layers]))
    if pp == 1:
        chunks = 1
    schedules = [name for name in SCHEDULES if name != "interleaved" or chunks > 1]
    if pp > 1 and 2 * pp > model.layers:
        schedules.remove("zbv")
    share = workload.global_batch // (fields["dp_replicate"] * fields["dp_shard"])
    precision = draw(sampled_from((None, *precisions)))
    gathers = precision is not None and RECIPES[precision].gathers
    fields |= {
        "sharding": sharding,
        "virtual_stages": chunks,
        "schedule": draw(sampled_from(schedules)),
        "micro_batch": draw(sampled_from([d for d in (1, 2, 3, 4, 8) if share % d == 0])),
        "recompute": draw(recomputes()),
        "cp_method": draw(sampled_from(("ring", "allgather"))),
        "precision": precision,
        "attention_precision": draw(sampled_from((None, *precisions[1:2]))),
        "gather_precision": draw(sampled_from((None, "fp8"))) if gathers else None,
        "reduce_precision": draw(sampled_from((None, "bf16", "fp32"))),
        "prefetch": draw(sampled_from((0, 1, 1, 2))),
        "offload": draw(offloads(sharding)) if offload else "",
        **draw(_switches()),
    }
    tokens = fields["micro_batch"] * workload.seq_len // fields["cp"]
    if model.dense_layers and tokens >= 8:
        fields["mlp_tiles"] = draw(sampled_from((1, 1, 1, 2, 8)))
    if model.moe is not None or model.mla is not None:
        fields |= draw(_experts(model, fields))
    if pp > 1 and draw(st.booleans()) and model.layers > pp:
        fields[draw(sampled_from(("first_stage_layers", "last_stage_layers")))] = draw(
            st.integers(1, model.layers - pp + 1)
        )
    return Strategy(**fields)


def divisors(number):
    """Everything that divides it, smallest first."""
    return [each for each in range(1, number + 1) if number % each == 0]


@st.composite
def _experts(draw, model, fields):
    """Degrees of expert parallelism that divide the ranks of a stage, and modules to recompute."""
    again = draw(st.integers(0, 15))
    modules = [module for bit, module in enumerate(MODULES) if again >> bit & 1]
    found = {
        "recompute_modules": "+".join(modules) if draw(st.booleans()) else "",
        "sequence_parallel": True,
        "overlap_ep": draw(st.booleans()),
    }
    if (moe := model.moe) is not None:
        inside = fields["tp"] * fields["cp"] * fields["dp_shard"]
        ranks = draw(sampled_from((inside, inside * fields["dp_replicate"])))
        # Groups that share experts and groups that shard parameters divide each other.
        free = fields["sharding"] == "ddp"
        nest = [d for d in divisors(ranks) if free or max(d, inside) % min(d, inside) == 0]
        found["ep"] = ep = draw(sampled_from([d for d in nest if moe.experts % d == 0]))
        slices = [d // ep for d in nest if d % ep == 0 and moe.ffn % (d // ep) == 0]
        found["etp"] = draw(sampled_from([1, *slices]))
    return found


@cache
def _switches():
    """All booleans of a strategy, as one draw."""
    names = ("reshard_after_forward", "sequence_parallel", "overlap_dp", "overlap_tp", "overlap_pp")
    return st.integers(0, 31).map(
        lambda bits: {name: not bits >> place & 1 for place, name in enumerate(names)}
    )


@st.composite
def points(draw, maximum=6, minimum=1, kinds=("dense", "dense", "experts"), *, offload=False):
    """Draw a whole point: `minimum` to `maximum` strategies of one model, cluster and workload.

    With offload some of them keep states or activations off the device.
    """
    model, cluster = draw(models(kinds)), draw(clusters())
    routing = {}
    if model.moe is not None:
        routing = {
            "imbalance": draw(sampled_from((1.0, 1.0, 1.3, 4.0))),
            "capacity": draw(sampled_from((None, None, 0.5, 1.0, 1.5))),
        }
    if draw(sampled_from((False, False, True))):
        routing["lengths"] = draw(sampled_from(("1", "600", "100..3000")))
        # Bucketed batches exclude context parallelism.
        routing["batching"] = draw(sampled_from(("packed", "padded")))
    workload = Workload(
        seq_len=draw(sampled_from((1, 60, 512, 2048, 4096, 131072))),
        global_batch=cluster.accelerators * draw(sampled_from((1, 2, 6, 16))),
        **routing,
    )
    eight = ("fp8", "fp8row", "fp8block") if "fp8" in cluster.accelerator.peak_flops else ()
    precisions = ("bf16", *eight)
    drawn = strategies(model, workload, cluster.accelerators, precisions, offload=offload)
    return Point(
        model=model,
        cluster=cluster,
        workload=workload,
        strategies=draw(st.lists(drawn, min_size=minimum, max_size=maximum)),
        stack=draw(stacks(cluster.accelerator.kind)),
    )


@st.composite
def any_strategy(draw):
    """Draw a valid strategy that need not fit any cluster: every field free."""
    sharding = draw(sampled_from(("ddp", "zero1", "zero2", "zero3")))
    pp = draw(STAGES)
    chunks = draw(st.integers(1, 16)) if pp > 1 else 1
    switches = draw(_switches())
    return Strategy(
        dp_replicate=draw(DEGREES),
        dp_shard=1 if sharding == "ddp" else draw(DEGREES),
        sharding=sharding,
        tp=draw(DEGREES),
        cp=draw(DEGREES),
        cp_method=draw(sampled_from(("ring", "allgather"))),
        pp=pp,
        virtual_stages=chunks,
        schedule=draw(
            sampled_from([name for name in SCHEDULES if name != "interleaved" or chunks > 1])
        ),
        first_stage_layers=draw(optional(COUNTS)),
        last_stage_layers=draw(optional(COUNTS)),
        ep=draw(DEGREES),
        etp=draw(DEGREES),
        micro_batch=draw(DEGREES),
        num_microbatches=draw(optional(COUNTS)),
        recompute=draw(recomputes()),
        precision=draw(sampled_from((None, *PRECISIONS))),
        attention_precision=draw(sampled_from((None, "fp8"))),
        gather_precision=draw(sampled_from((None, "fp8", *["int8"] * (sharding == "zero3")))),
        **draw(_variants(sharding, frees=switches["reshard_after_forward"])),
        recompute_modules=draw(sampled_from(("", "norm", "latent+activation", "norm+mlp"))),
        mlp_tiles=draw(sampled_from((1, 2, 8, 100))),
        offload=draw(offloads("zero3")),
        overlap_ep=draw(st.booleans()),
        compiled=draw(sampled_from((None, True, False))),
        prefetch=draw(st.integers(0, 64)),
        **switches,
    )


@st.composite
def _variants(draw, sharding, *, frees):
    """Variants that go with a sharding, of any size."""
    count = optional(st.integers(2, 10_000))
    found = {
        "reduce_each": draw(sampled_from((None, True, False))),
        "reduce_precision": draw(sampled_from((None, "bf16", "fp32"))),
    }
    if sharding != "zero3":
        return found | {"bucket_mb": draw(count)}
    return found | {
        "reduce_precision": draw(sampled_from((None, "bf16", "fp32", "int4"))),
        "backward_shard": draw(count) if frees else None,
        "replica_sync": draw(sampled_from((None, "once"))),
        "hierarchical_gather": draw(st.booleans()),
    }


@st.composite
def tuned_points(draw, words=None, **options):
    """Draw a point whose model is frozen; experts have adapters on attention alone."""
    point = draw(points(**options))
    model = msgspec.structs.replace(point.model, mla=None, mtp_layers=0)
    kinds = ("lora0", "lora8-qv", "lora16-attn") if model.moe else TUNINGS
    word = draw(sampled_from(words or kinds))
    workload = msgspec.structs.replace(point.workload, tuning=word)
    return dataclasses.replace(point, model=model, workload=workload)


TUNINGS = ("lora0", "lora4", "lora16", "lora64-attn", "lora8-qv", "qlora0", "qlora16", "qlora8-qv")
"""Words for frozen dense models."""


def wild():
    """Draw what a field should never be handed, and now and then what it should."""
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 70),
        st.integers(),
        sampled_from((2**31, 2**63, 10**400, 10**5000, -(10**5000))),
        st.floats(),
        st.text(max_size=5),
        sampled_from(("ddp", "zero3", "1f1b", "ring", "full", "bf16", "fp32")),
        st.just([]),
        st.just({}),
        st.just(b"x"),
    )
