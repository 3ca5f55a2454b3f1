"""A search in a terminal: question, best strategy, ranking, reasons, how to launch it.

print_search(found, console, defaults=asked.defaults)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from scalewise.explore.search import MAX_TIES, SAFE_WITHIN, Search
from scalewise.recompute import recompute_words
from scalewise.report.terminal import print_defaults, print_title, put, say, table
from scalewise.report.words import (
    chance,
    cluster_words,
    device_word,
    interval_words,
    memory_words,
    model_words,
    precision_of,
    rate_words,
    run_words,
)
from scalewise.sharding import variant_words
from scalewise.step.estimate import STATED_FIT
from scalewise.units import GIB, format_column, format_percent, format_seconds, grouped

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.defaults import Default
    from scalewise.step.result import Estimate

TIES_SHOWN = 2
"""Ties in the ranking of a search for ten strategies or fewer; a longer one shows all."""
SHORT = 10
"""Rows up to which a ranking is short."""
FRONT_SHOWN = 20
"""Rows of a Pareto front."""

HEADS = (
    "  strategy", "tok/s/{}", "step s", "MFU %", "exposed %", "GiB", "fit %", "W/{}", "$/M tok",
)  # fmt: skip
SPARE = ("fit %", "W/{}", "exposed %", "$/M tok")
"""Columns that a narrow terminal does without, first to last."""

REASONS = {
    "mesh": "other GPU counts",
    "batch": "batch not divisible",
    "heads": "heads not divisible by TP",
    "sequence": "sequence not divisible by CP",
    "stages": "layers not divisible into stages",
    "experts": "EP without experts",
    "precision": "weights that fp8 cannot gather",
    "partition": "ranks not divisible by hpz",
    "tuning": "a frozen model computes in 16 bits",
    "memory": "out of memory",
}
"""Why strategies cannot run, by the first word of `step.feasibility.REASONS`."""


def print_search(
    found: Search,
    console: Console,
    *,
    defaults: Sequence[Default] = (),
    changes: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print a search.

    Args:
        found: What was found.
        console: Where to.
        defaults: What was chosen for the user.
        changes: What-if changes.
        notes: What looks odd about the question.
    """
    best, any_ = found.best, found.best or found.nearest
    if any_ is not None:
        print_title(console, title(any_, found.strategies), changes)
    if found.interrupted:
        put(console, "Interrupted: best so far", style="yellow")
    put(console, headline(found), hang=6, style="bold" if best else "bold red")
    if best is not None:
        if run := run_words(best):
            say(console, "Run" if best.days is not None else "Goodput", run)
        ties = tie_words(found)
        if ties:
            put(console, ties)
        if found.safest is not None and found.safest.strategy != best.strategy:
            say(console, f"Safest within {SAFE_WITHIN:.0%}", _safest(found.safest, best))
        print_ranking(_rows(found), console, ties=found.is_tie)
        for text in found.why():
            say(console, f"Why not {text.partition(': ')[0]}", text.partition(": ")[2])
        say(console, "Launch", launch_facts(best))
    if found.pareto:
        say(console, "Pareto front", ", ".join(found.objectives))
        print_ranking(found.pareto[:FRONT_SHOWN], console, ties=lambda _: False)
        if len(found.pareto) > FRONT_SHOWN:
            put(console, f"  ... ({len(found.pareto) - FRONT_SHOWN:,} more: --json)")
    put(console, evaluated_words(found), hang=2)
    print_defaults(console, defaults)
    say(console, "Note", *notes, *(best.warnings if best else ()), style="yellow")
    if best is not None:
        put(console, interval_words(best), style="dim")


def title(e: Estimate, ranked: Sequence[Estimate] = ()) -> str:
    """Return what was searched, in one line.

    Args:
        e: Any estimate of the search.
        ranked: Strategies that are listed; where no stack was named, each has its own.
    """
    work = e.workload
    stacks = ", ".join(sorted({each.stack.name for each in (e, *ranked)}))
    parts = (
        model_words(e.model), cluster_words(e.cluster),
        f"batch {work.global_batch:,} x {work.seq_len:,}", precision_of(e), f"stack {stacks}",
    )  # fmt: skip
    return " | ".join(parts)


def headline(found: Search) -> str:
    """Return the best strategy with its numbers, or what the nearest one lacks."""
    best = found.best
    if best is None:
        text = "No strategy fits"
        if found.nearest is not None:
            text += f". Nearest: {found.nearest.strategy}, {memory_words(found.nearest)}"
        return text
    parts = (
        f"Best: {best.strategy}",
        rate_words(best),
        format_seconds(best.step_seconds),
        f"MFU {format_percent(best.mfu)}",
        f"{grouped(best.memory_bytes / GIB)} of {grouped(best.memory_capacity / GIB)} GiB",
    )
    likely = "" if best.fit > 0.99 else f" (chance to fit {chance(best.fit)})"
    return "   ".join(parts) + likely


def tie_words(found: Search) -> str:
    """Return how many strategies tie with the best, and which is the simplest; empty if none."""
    best, simplest = found.best, found.simplest
    if best is None or found.ties < 2:
        return ""
    many = f"{found.ties:,}" + (" or more" if found.ties >= MAX_TIES else "")
    text = f"{many} strategies tie (=: at least 1 chance in 3 to be the better one)"
    if simplest is None or simplest.strategy == best.strategy:
        return f"{text}; the best one is also the simplest"
    behind = format_percent(simplest.step_seconds / best.step_seconds - 1.0)
    odds = f"chance {chance(found.chance(simplest))} to be better"
    return f"{text}; the simplest is {simplest.strategy}, {behind} slower ({odds})"


def _safest(safest: Estimate, best: Estimate) -> str:
    behind = safest.step_seconds / best.step_seconds - 1.0
    return (
        f"{safest.strategy} (chance to fit {chance(safest.fit)}), "
        f"{grouped(safest.memory_bytes / GIB)} GiB, {format_percent(behind)} slower"
    )


def _rows(found: Search) -> list[Estimate | str]:
    """Return the rows of a ranking: of a short one, most ties are left out."""
    ties = [e for e in found.strategies if e is found.best or found.is_tie(e)]
    others = [e for e in found.strategies if e not in ties]
    if len(found.strategies) <= SHORT and found.ties > TIES_SHOWN + 1:
        ties = ties[:TIES_SHOWN]
        others = others or [e for e in (found.loser,) if e is not None]
    for e in (found.simplest, found.safest):
        if e is not None and e.strategy not in [row.strategy for row in (*ties, *others)]:
            ties.append(e)
    left = found.ties - sum(found.is_tie(e) for e in ties)
    return [*ties, *([f"... ({left:,} more ties)"] if left > 0 else []), *others]


def print_ranking(
    rows: Sequence[Estimate | str], console: Console, *, ties: Callable[[Estimate], bool]
) -> None:
    """Print one row per strategy; a string is a line of its own.

    Args:
        rows: Best first.
        console: Where to.
        ties: Whether a strategy is marked as a tie.
    """
    es = [row for row in rows if not isinstance(row, str)]
    word = device_word(es[0].cluster.accelerator.kind)
    columns = [
        [("= " if ties(e) else "  ") + str(e.strategy) for e in es],
        format_column([e.tokens_per_second_per_accelerator for e in es]),
        format_column([e.step_seconds for e in es]),
        [f"{100 * e.mfu:.1f}" for e in es],
        [f"{100 * e.exposed_fraction:.1f}" for e in es],
        format_column([e.memory_bytes / GIB for e in es]),
        [chance(e.fit).removesuffix("%") for e in es],
        format_column([e.watts_per_accelerator for e in es]),
        format_column([e.usd_per_million_tokens for e in es]),
    ]
    if all(e.fit > 0.99 for e in es):
        columns[HEADS.index("fit %")] = ["" for _ in es]
    lines = iter(zip(*columns, strict=True))
    table(
        console,
        [head.format(word) for head in HEADS],
        [(row,) if isinstance(row, str) else next(lines) for row in rows],
        spare=[head.format(word) for head in SPARE],
    )


def launch_facts(e: Estimate) -> str:
    """Return what has to be set to run a strategy."""
    s = e.strategy
    sharding = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "FSDP"}[s.sharding]
    if s.sharding != "ddp" and s.dp_replicate > 1:
        sharding += f", {s.dp_replicate} replicas x {s.dp_shard} shards"
    schedule = s.schedule + (
        f" ({s.virtual_stages} virtual stages)" if s.virtual_stages > 1 else ""
    )
    facts = [
        f"DP {s.data_parallel} ({sharding})",
        f"TP {s.tp}" + (" with SP" if s.tp > 1 and s.sequence_parallel else ""),
        f"PP {s.pp}" + (f" {schedule}" if s.pp > 1 else ""),
        f"CP {s.cp}" + (f" ({s.cp_method})" if s.cp > 1 else ""),
        *([f"EP {s.ep}" + (f" x ETP {s.etp}" if s.etp > 1 else "")] if e.model.moe else []),
        f"micro-batch {s.micro_batch}",
        f"grad accum {e.num_microbatches}",
        recompute_words(s.recompute),
        *([f"MLP in {s.mlp_tiles} tiles"] if s.mlp_tiles > 1 else []),
    ]
    facts += variant_words(s)
    if s.sharding == "zero3":
        facts.append(("" if s.reshard_after_forward else "no ") + "reshard after forward")
    return ", ".join(facts)


def evaluated_words(found: Search) -> str:
    """Return how many strategies were evaluated, and why some of them cannot run."""
    any_ = found.best or found.nearest
    counts = sorted(found.infeasible.items(), key=lambda item: -item[1])
    parts = [f"{found.feasible:,} fit"]
    for reason, count in counts:
        key = reason.partition(":")[0]
        parts.append(f"{count:,} {REASONS.get(key, reason)}")
        if key == "memory" and any_ is not None and any_.many.fit != STATED_FIT:
            parts[-1] += f" (chance to fit below {chance(any_.many.fit)})"
    return f"Evaluated {found.evaluated:,}: {', '.join(parts)}"
