"""`scalewise search`: every strategy for a model, a cluster and a batch, ranked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.explore.search import Search
    from scalewise.step.result import Estimate

PATIENCE = 1.0
"""Seconds after which progress is shown."""

FRONT_SHOWN = 20
"""Rows of a front that are printed."""


def _numbers(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Read "1,2,4"."""
    del ctx
    if text is None:
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        from scalewise.errors import InputError

        message = f"--{parameter.name} {text!r} is not a list of whole numbers"
        raise InputError(message, hint="for example 1,2,4,8") from None


def _words(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Read "time,cost"."""
    del ctx, parameter
    return None if text is None else tuple(word.strip() for word in text.split(","))


@click.command(short_help="Try every strategy and rank what can run.")
@click.argument("model")
@click.option("--on", required=True, help="Cluster or accelerator, by name or file.")
@click.option("--gpus", type=int, help="How many accelerators; by default the cluster's own.")
@click.option("--batch", type=int, required=True, help="Global batch, sequences; never changed.")
@click.option("--seq", type=int, default=4096, show_default=True, help="Tokens per sequence.")
@click.option("--precision", default="bf16", show_default=True, help="Of the matrix products.")
@click.option("--stack", help="Software, by name, framework or file.")
@click.option("--by", default="time", show_default=True, help="time, tokens, cost, energy, memory.")
@click.option("--top", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--pareto", callback=_words, help="Objectives of a front: time,energy,memory.")
@click.option("--tp", callback=_numbers, help="Allowed tensor-parallel degrees: 1,2,4,8.")
@click.option("--pp", callback=_numbers, help="Allowed pipeline stages.")
@click.option("--cp", callback=_numbers, help="Allowed context-parallel degrees.")
@click.option("--micro-batch", "micro_batch", callback=_numbers, help="Allowed micro batches.")
@click.option("--sharding", callback=_words, help="Allowed: ddp,zero1,zero2,zero3.")
@click.option("--recompute", callback=_words, help="Allowed: none,selective,full.")
@click.option("--schedule", callback=_words, help="Allowed: gpipe,1f1b,interleaved,zbh1,zbv.")
@click.option("--tp-anywhere", is_flag=True, help="Let tensor parallelism leave its domain.")
@click.option("--json", "as_json", is_flag=True, help="Counts and full estimates as JSON.")
@click.option("-o", "--output", help="Write the JSON to a file.")
def search(
    *,
    model: str,
    on: str,
    gpus: int | None,
    batch: int,
    seq: int,
    precision: str,
    stack: str | None,
    by: str,
    top: int,
    pareto: tuple[str, ...] | None,
    as_json: bool,
    output: str | None,
    tp_anywhere: bool,
    **limits: Any,
) -> None:
    """Try every strategy and rank what can run.

    Exit code 1 if nothing fits; then the nearest strategy is shown.
    """
    from scalewise.catalog import load_cluster
    from scalewise.cli.common import show, to_json, write
    from scalewise.explore.search import search as search_all
    from scalewise.explore.space import Limits
    from scalewise.model import load_model
    from scalewise.workload import Workload

    found = search_all(
        load_model(model),
        load_cluster(on, accelerators=gpus),
        Workload(sequence=seq, global_batch=batch, precision=precision),  # type: ignore[arg-type]
        limits=Limits(tp_within_domain=not tp_anywhere, **limits),
        by=by,
        top=top,
        pareto=pareto or (),
        stack=stack,
        progress=_Progress(),
    )
    if output:
        write(output, to_json(as_dict(found)))
    if as_json:
        click.echo(to_json(as_dict(found)))
    else:
        show(lambda console: print_search(found, console))
    if found.best is None:
        raise click.exceptions.Exit(1)


class _Progress:
    """Says on stderr how far a search is, once it takes longer than people like to wait."""

    def __init__(self) -> None:
        self.start = self.said = time.monotonic()

    def __call__(self, examined: int) -> None:
        now = time.monotonic()
        if now - self.start > PATIENCE and now - self.said > PATIENCE:
            self.said = now
            click.echo(f"{examined:,} strategies tried ... (Ctrl-C keeps the best)", err=True)


def as_dict(found: Search) -> dict[str, Any]:
    """A search as plain types."""
    best = found.best
    return {
        "by": found.by,
        "examined": found.examined,
        "feasible": found.feasible,
        "infeasible": found.infeasible,
        "interrupted": found.interrupted,
        "ties": found.ties,
        "why": found.why(),
        "best": None if best is None else best.to_dict(),
        "strategies": [e.to_dict() for e in found.strategies],
        "pareto": [e.to_dict() for e in found.pareto],
        "nearest": None if found.nearest is None else found.nearest.to_dict(),
    }


def print_search(found: Search, console: Console) -> None:
    """The ranking, why it is so, and what became of the rest."""
    if found.interrupted:
        console.print("Stopped by you: the best so far.\n")
    if found.strategies:
        print_ranking(found.strategies, console, ties=found.ties)
        if found.ties > 1:
            console.print(
                f"\nThe first {found.ties} lie within 1.5 %: no model can tell them apart, "
                "take the simplest."
            )
        why = found.why()
        if why:
            console.print(f"\n{why}.")
        for one in found.strategies[:1]:
            console.print("\nTo launch: " + launch_facts(one) + ".")
    else:
        console.print("No strategy fits.")
        if found.nearest is not None:
            console.print(f"Nearest: {found.nearest.strategy}, {found.nearest.infeasible}")
    if found.pareto:
        console.print("\nNot beaten in all of the objectives asked for")
        print_ranking(found.pareto[:FRONT_SHOWN], console, ties=0)
        if len(found.pareto) > FRONT_SHOWN:
            console.print(f"  and {len(found.pareto) - FRONT_SHOWN} more (--json)")
    console.print(f"\n{found.examined:,} strategies tried, {found.feasible:,} can run.")
    for reason, count in sorted(found.infeasible.items(), key=lambda item: -item[1]):
        console.print(f"  {count:>12,}  {reason}")


def print_ranking(rows: list[Estimate], console: Console, *, ties: int) -> None:
    """One line per strategy."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("strategy", no_wrap=True)
    for name in ("tokens/s/acc.", "step", "MFU", "exposed", "memory", "W", "$/Mtok"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, e in enumerate(rows):
        price, watts = e.usd_per_million_tokens, e.watts_per_accelerator
        table.add_row(
            ("= " if place < ties and ties > 1 else "  ") + str(e.strategy),
            f"{e.tokens_per_second_per_accelerator:,.0f}",
            f"{e.step_seconds:.3g} s",
            f"{100 * e.mfu:.1f} %",
            f"{100 * e.exposed_share:.1f} %",
            f"{e.memory_bytes / 2**30:.1f} GiB",
            "-" if watts is None else f"{watts:.0f}",
            "-" if price is None else f"{price:.3g}",
        )
    console.print(table)


def launch_facts(e: Estimate) -> str:
    """What one must set to run it."""
    s = e.strategy
    facts = [
        f"data-parallel replicas {s.dp_replicate} x shards {s.dp_shard} ({s.sharding})",
        f"tensor {s.tp}"
        + (" with sequence parallelism" if s.tp > 1 and s.sequence_parallel else ""),
        f"pipeline {s.pp}" + (f" ({s.schedule}, {s.virtual_stages} chunks)" if s.pp > 1 else ""),
        f"context {s.cp}",
        f"micro batch {s.micro_batch} x {e.micro_steps} micro steps",
        f"recompute {s.recompute}",
    ]
    return ", ".join(facts)
