"""Records of a machine that does not exist, whose constants are therefore known.

records = machine_records(noise=0.02)
TRUTH["gemm_flops"]
"""

from __future__ import annotations

import random

import msgspec

from scalewise.evidence.machine import MachineFit
from scalewise.evidence.machine_kernels import predict_row
from scalewise.evidence.machine_links import LinkRates
from scalewise.evidence.machine_rows import gather
from scalewise.measure.kernel_plan import join_plans, plan_kernels
from scalewise.model import load_model
from scalewise.records.environment import Environment
from scalewise.records.files import Record
from scalewise.records.job import TrainJob, inputs_of
from scalewise.records.rows import bus_factor
from scalewise.strategy import parse_strategy

MODELS = ("tiny", "tiny-19m", "tiny-65m")

TRUTH = {
    "gemm_flops": 80e9,
    "memory_rate": 12e9,
    "attention_forward_flops": 60e9,
    "attention_backward_flops": 50e9,
    "memory_traffic": 3.0,
    "logit_bytes": 30.0,
    "optimizer_bytes": 40.0,
    "launch_seconds": 5e-6,
    "scale_out_rate": 0.8e9,
    "call_seconds": 4e-4,
    "all_reduce_factor": 0.7,
    "scatter_factor": 1.9,
    "gemm_fill": 4.0,
}

LINKS = ("scale_out_rate", "call_seconds", "all_reduce_factor", "scatter_factor")

BESIDE = {
    "message_bytes": 1.6e7,
    "communication_seconds": 0.02,
    "compute_seconds": 0.04,
    "together_seconds": 0.055,
}
"""A collective and a product, one after the other and at once."""

WHERE = Environment(
    device="cpu",
    device_name="Paper CPU",
    backend="gloo",
    ranks=2,
    ranks_per_node=2,
    threads=1,
    host="nowhere",
    platform="Linux",
    cpu="Paper CPU",
    cores=2,
    memory_bytes=16 * 10**9,
    python="3.11.7",
    scalewise="0.1.0",
    versions={"torch": "2.13.0"},
)


def record(kind, inputs, results, *, number=1, where=WHERE, warnings=()):
    """One record of that machine."""
    return Record(
        kind=kind,
        id=f"{kind}-{number}",
        started="2026-01-02T03:04:05+00:00",
        environment=where,
        inputs=inputs,
        results=results,
        warnings=list(warnings),
    )


def kernel_rows(noise=0.0, seed=0, truth=TRUTH, units=1.0):
    """Timings of the kernels of three models."""
    draw = random.Random(seed)
    plan = join_plans(
        [
            plan_kernels(load_model(name), parse_strategy("mb2"), seq_len=512, dtype="fp32")
            for name in MODELS
        ]
    )
    rows = [{"kernel": "gemm", "m": g.m, "n": g.n, "k": g.k} for g in plan.gemms]
    for a in plan.attention:
        shape = msgspec.to_builtins(a)
        rows += [{"kernel": "sdpa", **shape, "direction": way} for way in ("fwd", "fwd+bwd")]
    for e in plan.elementwise:
        shape = {"m": e.tokens, "n": e.hidden, "k": e.ffn, "gated": e.gated}
        rows.append({"kernel": "block_elementwise", **shape, "query": e.query,
                     "key_value": e.key_value})  # fmt: skip
    rows += [{"kernel": "cross_entropy", "m": x.tokens, "n": x.vocab} for x in plan.losses]
    rows += [{"kernel": "adamw", "m": count} for count in plan.optimizer]
    rows += [{"kernel": "hbm_stream_copy", "m": size} for size in plan.stream_bytes]
    rows.append({"kernel": "launch"})
    rows = [timed_kernel(row, draw.lognormvariate(0.0, noise), truth, units) for row in rows]
    return rows, msgspec.to_builtins(plan)


def timed_kernel(row, factor=1.0, truth=TRUTH, units=1.0):
    """What that machine reports of a kernel; `factor` is its noise."""
    seconds = predict_row(row, truth, units) * factor
    row = row | {"dtype": "fp32", "time_us": seconds * 1e6, "samples_us": []}
    if row["kernel"] == "gemm":
        row["tflops"] = 2.0 * row["m"] * row["n"] * row["k"] / seconds / 1e12
    elif row["kernel"] == "sdpa":
        row["tflops"] = 0.05
    elif row["kernel"] == "hbm_stream_copy":
        row["gb_per_s"] = 2.0 * row["m"] / seconds / 1e9
    return row


def collective_rows(noise=0.0, seed=1, truth=TRUTH, sizes=None):
    """Timings of collectives between two ranks."""
    draw = random.Random(seed)
    rows = []
    for op in ("all_gather", "reduce_scatter", "all_reduce"):
        for size in sizes or [2**i for i in range(16, 27)]:
            row = {"op": op, "accelerators": 2, "nodes": 1, "scaleup_domain": 2,
                   "placement": "packed", "message_bytes": size}  # fmt: skip
            rows.append(timed_collective(row, draw.lognormvariate(0.0, noise), truth))
    return rows


def timed_collective(row, factor=1.0, truth=TRUTH):
    """What that machine reports of a collective; `factor` is its noise."""
    links = LinkRates(domain=1)
    links.values_ = {k: truth[k] for k in LINKS}
    seconds = float(links.predict([row])[0]) * factor
    rate = row["message_bytes"] / seconds / 1e9
    bus = rate * bus_factor(row["op"], row["accelerators"])
    return {**row, "time_us": seconds * 1e6, "samples_us": [], "algbw_gb_per_s": rate,
            "busbw_gb_per_s": bus}  # fmt: skip


def job(model, strategy, batch=2):
    """A short training job."""
    return TrainJob(
        model=load_model(model), strategy=parse_strategy(strategy), seq_len=512,
        global_batch=batch, precision="fp32", steps=6, warmup=2,
    )  # fmt: skip


def train_record(one, seconds, *, number=1, where=WHERE, trace=None, launch_noise=()):
    """A record of training whose every step took the same time."""
    results = {
        "step_seconds": [9.0, 9.0] + [seconds] * 4,
        "losses": [9.0] * 6,
        "build_seconds": 1.0,
        "peak_memory_bytes": None,
        "memory_basis": "rss",
        "trace": trace,
    }
    del launch_noise
    place = msgspec.structs.replace(where, ranks=one.ranks)
    return record("train", inputs_of(one), results, number=number, where=place)


def machine_records(noise=0.0, step_noise=0.0, *, slow=1.25):
    """Sweeps and steps on one device; steps are `slow` times what kernels alone promise."""
    rows, plan = kernel_rows(noise)
    sweeps = [
        record("kernel", plan, {"rows": rows}),
        record(
            "collective",
            {},
            {"rows": collective_rows(noise), "beside": BESIDE},
        ),
    ]
    fit = MachineFit("truth").fit(gather(sweeps))
    draw = random.Random(2)
    jobs = [job(name, "ddp1-mb2") for name in MODELS]
    steps = [
        train_record(one, slow * float(seconds) * draw.lognormvariate(0.0, step_noise), number=i)
        for i, (one, seconds) in enumerate(zip(jobs, fit.predict(jobs), strict=True))
    ]
    return [*sweeps, *steps]
