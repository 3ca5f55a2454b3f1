"""A search for people: the ranking, why it is so, and what became of the rest.

print_search(found, console)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scalewise.explore.search import MOST_TIES, Search
from scalewise.report.tables import can_draw_blocks, sentences
from scalewise.step.estimate import NEAR_TIE

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.step.result import Estimate

KINDS: dict[str, tuple[str, ...]] = {
    "compute": ("gemm", "attention", "memory_bound", "head", "recompute", "optimizer"),
    "communication": (
        "tensor_parallel", "context_parallel", "data_parallel_gather", "data_parallel_reduce",
        "contention", "pipeline_send", "straggler",
    ),
    "waiting": ("bubble", "host", "overhead"),
}  # fmt: skip
"""Terms of a step by what they are to people."""

BLOCKS, LETTERS = "\u2588\u2592\u2591", "#+."
"""What draws them in a bar."""

BAR_WIDTH = 20
"""Characters of the longest step."""

FRONT_SHOWN = 20
"""Rows of a front that are printed."""


def print_search(found: Search, console: Console, *, chosen: Sequence[str] = ()) -> None:
    """Answer first, then the ranking, why it is so, and what became of the rest.

    Args:
        found: What was found.
        console: Where to.
        chosen: What was chosen for the user.
    """
    if found.interrupted:
        console.print("Stopped by you: the best so far.\n")
    best = found.best
    if best is not None:
        console.print(headline(found) + "\n", soft_wrap=True)
        print_ranking(found.strategies, console, ties=found.ties)
        for sentence in found.why():
            console.print(f"\n{sentence}.", soft_wrap=True)
        console.print(f"\nTo launch {best.strategy}: {launch_facts(best)}.", soft_wrap=True)
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
    sentences(console, "Chosen for you", chosen)


def headline(found: Search) -> str:
    """The winner and how sure one may be of it, in one sentence."""
    best = found.best
    if best is None:
        return "No strategy fits."
    rate = f"{best.tokens_per_second_per_accelerator:,.0f} tokens/s per accelerator"
    said = f"{best.strategy} is best: {rate}, a step of {best.step_seconds:.3g} s."
    if found.ties > 1:
        many = f"{found.ties} or more" if found.ties >= MOST_TIES else f"{found.ties}"
        said += (
            f" {many} strategies lie within {100 * NEAR_TIE:.1f} % (marked =), which no model "
            "can tell apart"
        )
        if found.simplest is not None and found.simplest.strategy != best.strategy:
            behind = found.simplest.step_seconds / best.step_seconds - 1.0
            said += f"; the simplest of them is {found.simplest.strategy} ({100 * behind:+.1f} %)"
        said += "."
    return said


def print_ranking(rows: list[Estimate], console: Console, *, ties: int) -> None:
    """One line per strategy, with a bar of where its step goes."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("strategy", no_wrap=True)
    for name in ("tokens/s", "step, s", "MFU, %", "exp., %", "GiB", "W", "$/Mtok"):
        table.add_column(name, justify="right", no_wrap=True)
    longest = max(len(str(e.strategy)) for e in rows)
    drawn = console.width >= longest + 60 + BAR_WIDTH
    if drawn:
        table.add_column("where the step goes", no_wrap=True)
    blocks = can_draw_blocks(console)
    slowest = max(e.step_seconds for e in rows)
    for place, e in enumerate(rows):
        price, watts = e.usd_per_million_tokens, e.watts_per_accelerator
        cells = [
            ("= " if place < ties and ties > 1 else "  ") + str(e.strategy),
            f"{e.tokens_per_second_per_accelerator:,.0f}",
            f"{e.step_seconds:.3g}",
            f"{100 * e.mfu:.1f}",
            f"{100 * e.exposed_share:.1f}",
            f"{e.memory_bytes / 2**30:.1f}",
            "-" if watts is None else f"{watts:.0f}",
            "-" if price is None else f"{price:.3g}",
        ]
        table.add_row(*cells, *([step_bar(e, slowest, blocks=blocks)] if drawn else []))
    console.print(table)
    if drawn:
        letters = BLOCKS if blocks else LETTERS
        names = (f"{letter} {name}" for letter, name in zip(letters, KINDS, strict=True))
        console.print("  " + "   ".join(names))


def launch_facts(e: Estimate) -> str:
    """What one must set to run it."""
    s = e.strategy
    facts = [
        f"data-parallel replicas {s.dp_replicate} x shards {s.dp_shard} ({s.sharding})",
        f"tensor {s.tp}"
        + (" with sequence parallelism" if s.tp > 1 and s.sequence_parallel else ""),
        f"pipeline {s.pp}"
        + (f" ({s.schedule}, {s.virtual_stages} chunks per stage)" if s.pp > 1 else ""),
        f"context {s.cp}" + (f" ({s.cp_method})" if s.cp > 1 else ""),
        f"micro batch {s.micro_batch} x {e.micro_steps} micro steps",
        f"recompute {s.recompute}",
    ]
    if s.sharding == "zero3":
        facts.append("parameters " + ("freed" if s.reshard else "kept") + " after forward")
    return ", ".join(facts)


def step_bar(e: Estimate, longest: float, *, blocks: bool) -> str:
    """Draw a step as a bar of compute, communication and waiting.

    Args:
        e: The estimate.
        longest: Seconds of a bar of full width.
        blocks: Use block characters; else ASCII.
    """
    drawn, seconds = "", 0.0
    for letter, names in zip(BLOCKS if blocks else LETTERS, KINDS.values(), strict=True):
        seconds += sum(e.terms[name] for name in names)
        # Ends are rounded, not lengths: the bar is as long as the step.
        drawn += letter * (round(BAR_WIDTH * seconds / longest) - len(drawn))
    return drawn
