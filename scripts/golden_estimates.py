"""Golden estimates: random questions with every number of their answers.

    python scripts/golden_estimates.py                 # answer the questions of the table anew
    python scripts/golden_estimates.py --draw 2000     # draw new questions about dense models first
    python scripts/golden_estimates.py --experts 400   # the same for models with experts

Take a table before a change that must not change numbers, such as a rebuild or a vectorization,
and commit it alone: `tests/step/test_step_golden.py` then compares every number with it. After a
change that does change numbers, such as a new calibration, run it without arguments: it prints
by how much each column moved, which belongs in the message of the commit.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from scalewise.catalog import load_cluster, names
from scalewise.cluster import Cluster
from scalewise.errors import ScalewiseError
from scalewise.model import Model, load_model
from scalewise.recompute import MODULES
from scalewise.stack import Stack, load_stack
from scalewise.step.estimate import estimate
from scalewise.step.result import Estimate
from scalewise.strategy import SCHEDULES, Strategy, parse_strategy
from scalewise.workload import Workload

TABLE = Path(__file__).resolve().parent.parent / "tests" / "data" / "golden_estimates.csv.gz"
QUESTION = (
    "model", "cluster", "gpus", "strategy", "seq_len", "batch", "precision", "stack", "algorithm",
    "protocol", "power_cap", "imbalance", "capacity",
)  # fmt: skip
"""Columns that are inputs; all others are numbers of the answer."""
SEED = 20261118
GPUS = (1, 2, 4, 8, 8, 16, 24, 32, 64, 72, 96, 128, 144, 256, 512, 768, 1024, 2048, 4096, 16384)
AXES = ("dp_replicate", "dp_shard", "dp_shard", "tp", "cp", "pp")

Row = dict[str, str]


@lru_cache
def _model(name: str) -> Model:
    return load_model(name)


@lru_cache
def _stack(name: str) -> Stack:
    return load_stack(name)


@lru_cache(maxsize=2048)
def _cluster(name: str, gpus: int) -> Cluster:
    return load_cluster(name, accelerators=gpus)


def inputs(row: Row) -> tuple[Model, Cluster, Workload, Strategy, Stack]:
    """Return what the question of a row is about."""
    changes: dict[str, object] = {name: row[name] for name in ("algorithm", "protocol")}
    if row["power_cap"]:
        changes["power_cap_watts"] = float(row["power_cap"])
    workload = Workload(
        seq_len=int(row["seq_len"]),
        global_batch=int(row["batch"]),
        precision=row["precision"],
        imbalance=float(row.get("imbalance") or 1.0),
        capacity=float(row["capacity"]) if row.get("capacity") else None,
    )
    cluster = _cluster(row["cluster"], int(row["gpus"])).with_(**changes)
    return (
        _model(row["model"]), cluster, workload, parse_strategy(row["strategy"]),
        _stack(row["stack"]),
    )  # fmt: skip


def ask(row: Row) -> Estimate:
    """Return today's estimate for the question of a row."""
    model, cluster, workload, strategy, stack = inputs(row)
    return estimate(model, cluster, workload, strategy, stack=stack)


def answer(e: Estimate) -> dict[str, float | None]:
    """Return every number of an estimate by column; None where it is not known."""
    return {
        "step_seconds": e.step_seconds,
        "memory_bytes": e.memory_bytes,
        "mfu": e.mfu,
        "hfu": e.hfu,
        "low": e.low,
        "high": e.high,
        "watts": e.watts_per_accelerator,
        "joules_per_token": e.joules_per_token,
        "usd_per_million_tokens": e.usd_per_million_tokens,
        "feasible": e.feasible,
        **{f"term.{key}": seconds for key, seconds in e.terms.items()},
        **{f"comm.{key}": seconds for key, seconds in e.comm_seconds.items()},
        **{f"memory.{key}": bytes_ for key, bytes_ in e.memory.items()},
    }


def difference(column: str, value: float | None, row: Row) -> float:
    """Return the relative difference of a number from its row; infinite if only one is known.

    A column that the table does not have yet was zero. Terms and communication below a thousandth
    of the step are relative to that.
    """
    known = row.get(column, "0.0")
    if value is None or not known:
        return 0.0 if value is None and not known else math.inf
    before = float(known)
    floor = 1e-3 * float(row["step_seconds"]) if column.startswith(("term.", "comm.")) else 0.0
    return abs(value - before) / (max(abs(before), floor) or 1.0)


def read(path: Path = TABLE) -> list[Row]:
    """Return the rows of a table."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[Row], path: Path = TABLE) -> None:
    """Write a table; the same rows give the same bytes."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        packed.write("".join(",".join(line) + "\n" for line in lines).encode())


def answered(question: Row) -> Row:
    """Return the row of a question: its inputs, then today's numbers, exact to the last bit."""
    numbers = answer(ask(question))
    spelled = {name: "" if v is None else repr(float(v)) for name, v in numbers.items()}
    return {name: question.get(name, "") for name in QUESTION} | spelled


def draw(number: int, seed: int = SEED, *, experts: bool = False) -> list[Row]:
    """Return random questions that the cost model covers, whether they fit into memory or not.

    Args:
        number: How many.
        seed: Of the draw.
        experts: Whether about models with experts, or about dense ones.
    """
    return [question for question, _ in drawn(number, seed, experts=experts)]


def drawn(
    number: int, seed: int = SEED, *, experts: bool = False
) -> Iterator[tuple[Row, Estimate]]:
    """Yield the questions of `draw` with today's estimates."""
    rng = random.Random(seed)
    models = [_model(name) for name in names("models")]
    models = [model for model in models if has_experts(model) == experts]
    found = 0
    while found < number:
        try:
            question = _draw_question(rng, rng.choice(models))
            e = ask(question)
        except ScalewiseError:
            # Not every size, strategy and precision goes with every machine.
            continue
        found += 1
        yield question, e


def has_experts(model: Model) -> bool:
    """Whether a model has experts or latent attention."""
    return model.moe is not None or model.mla is not None


def _draw_question(rng: random.Random, model: Model) -> Row:
    """One random question about a model."""
    name, gpus = rng.choice(names("clusters")), rng.choice(GPUS)
    seq_len, cap = rng.choice((512, 1024, 2048, 4096, 8192, 32768)), ""
    cluster = _cluster(name, gpus)
    if rng.random() < 0.2 and cluster.tdp and cluster.idle:
        cap = str(round(cluster.idle + rng.uniform(0.2, 1.0) * (cluster.tdp - cluster.idle)))
    kinds = (cluster.accelerator.kind, "any")
    strategy = _draw_strategy(rng, model, gpus, seq_len)
    return {
        "model": model.name,
        "cluster": name,
        "gpus": str(gpus),
        "strategy": str(strategy),
        "seq_len": str(seq_len),
        "batch": str(
            strategy.micro_batch * strategy.data_parallel * rng.choice((1, 1, 2, 3, 8, 32))
        ),
        "precision": rng.choice(("bf16", "bf16", "bf16", "fp8", "mxfp8", "nvfp4", "fp16")),
        "stack": rng.choice([each for each in names("stacks") if _stack(each).devices in kinds]),
        "algorithm": rng.choice(("auto",) * 4 + ("ring", "tree", "pat", "hierarchical")),
        "protocol": rng.choice(("auto",) * 4 + ("ll", "ll128", "simple")),
        "power_cap": cap,
        "imbalance": rng.choice(("", "", "1.25", "2.0")) if has_experts(model) else "",
        "capacity": rng.choice(("", "", "", "1.0", "1.5")) if has_experts(model) else "",
    }


def _draw_strategy(rng: random.Random, model: Model, gpus: int, seq_len: int) -> Strategy:
    """One random strategy that multiplies out to the GPUs."""
    mesh = dict.fromkeys(AXES, 1)
    for prime in _prime_factors(gpus):
        axis = rng.choice(AXES)
        degree = mesh[axis] * prime
        fits = {
            "tp": model.heads % degree == 0,
            "cp": seq_len % degree == 0,
            "pp": degree <= model.layers,
        }.get(axis, True)
        mesh[axis if fits else "dp_shard"] *= prime
    sharding = rng.choice(("ddp", "zero1", "zero1", "zero2", "zero3", "zero3", "zero3"))
    if sharding == "ddp":
        mesh["dp_replicate"] *= mesh.pop("dp_shard")
    pp = mesh["pp"]
    chunks = rng.choice([1] + [v for v in (2, 3, 4) if pp > 1 and pp * v <= model.layers])
    schedules = [each for each in SCHEDULES if each != "interleaved" or chunks > 1]
    return Strategy(
        **mesh,
        **_draw_experts(rng, model, mesh),
        sharding=sharding,
        virtual_stages=chunks,
        schedule=rng.choice(schedules) if pp > 1 else "1f1b",
        micro_batch=rng.choice((1, 1, 2, 4)),
        recompute=rng.choice(("none", "selective", "full", "attention", "op", "1of4")),
        cp_method=rng.choice(("ring", "allgather")),
        reduce_precision=rng.choice((None, None, "bf16", "fp32")),
        prefetch=rng.choice((0, 1, 1, 1, 2)),
        reshard_after_forward=rng.random() < 0.7,
        sequence_parallel=has_experts(model) or rng.random() < 0.8,
        overlap_dp=rng.random() < 0.85,
        overlap_tp=rng.random() < 0.85,
        overlap_pp=rng.random() < 0.85,
    )


def _draw_experts(rng: random.Random, model: Model, mesh: dict[str, int]) -> dict[str, object]:
    """Degrees of expert parallelism that divide the ranks of a stage, and modules to recompute."""
    if not has_experts(model):
        return {}
    again = [each for each in MODULES if rng.random() < 0.15]
    found: dict[str, object] = {"recompute_modules": "+".join(again)}
    if (moe := model.moe) is not None:
        inside = mesh["tp"] * mesh["cp"] * mesh.get("dp_shard", 1)
        stage = inside * mesh["dp_replicate"] if rng.random() < 0.3 else inside
        ep = rng.choice(_divisors(math.gcd(moe.experts, stage)))
        etp = rng.choice([1, 1, *_divisors(math.gcd(moe.ffn, stage // ep))])
        found |= {"ep": ep, "etp": etp, "overlap_ep": rng.random() < 0.85}
    return found


def _divisors(number: int) -> list[int]:
    """Everything that divides it."""
    return [each for each in range(1, number + 1) if number % each == 0]


def _prime_factors(number: int) -> list[int]:
    """The primes whose product it is."""
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found


def main() -> None:
    """Write the table, and print which columns moved."""
    parser = argparse.ArgumentParser(description="Take a table of golden estimates.")
    parser.add_argument(
        "--draw", type=int, metavar="N", help="New questions, dense models; default: the present."
    )
    parser.add_argument(
        "--experts", type=int, metavar="N", help="The same for models with experts."
    )
    parser.add_argument("--seed", type=int, default=SEED, help="Random seed of new questions.")
    parser.add_argument("-o", "--output", type=Path, default=TABLE, help="Table to write.")
    options = parser.parse_args()
    before = read() if options.draw is None or options.experts is None else []
    dense, sparse = (
        [row for row in before if has_experts(_model(row["model"])) == kind]
        for kind in (False, True)
    )
    if options.draw is not None:
        dense = draw(options.draw, options.seed)
    if options.experts is not None:
        sparse = draw(options.experts, options.seed, experts=True)
    before = dense + sparse
    after = [answered(row) for row in before]
    write(after, options.output)
    print(f"{options.output}: {len(after):,} estimates")
    # New questions have no numbers yet.
    known = [(old, new) for old, new in zip(before, after, strict=True) if "step_seconds" in old]
    for column in [name for name in after[0] if name not in QUESTION]:
        moved = [
            difference(column, float(new[column]) if new[column] else None, old)
            for old, new in known
        ]
        count = sum(each > 1e-12 for each in moved)
        if count:
            print(f"{column:<28} {count:>6,} rows, at most {100 * max(moved):.3g}%")


if __name__ == "__main__":
    main()
