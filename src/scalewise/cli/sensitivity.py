"""`scalewise sensitivity`: what the next upgrade buys."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import question_options

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.explore.sensitivity import Sensitivity


@click.command(short_help="Say what the next upgrade buys.")
@click.argument("model")
@question_options
@click.option(
    "--factor",
    type=click.FloatRange(min=1.0, min_open=True, max=1000.0),
    default=2.0,
    show_default=True,
    help="Size of the finite upgrade.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def sensitivity(*, model: str, on: str, factor: float, as_json: bool, **flags: Any) -> None:
    """Change one thing at a time and see what it brings, at the same strategy."""
    from scalewise.cli.common import show, to_json
    from scalewise.cli.inputs import ask
    from scalewise.explore.sensitivity import sensitivity as vary

    question = ask(model, on, **flags)
    rows = vary(
        question.model,
        question.cluster,
        question.workload,
        question.strategy,
        stack=question.stack,
        factor=factor,
    )
    if as_json:
        click.echo(to_json({"strategy": str(question.strategy), "rows": [asdict(r) for r in rows]}))
        return
    title = (
        f"{question.model.name} on {question.cluster.accelerators:,} x "
        f"{question.cluster.accelerator.name}, {question.strategy}: what one change brings"
    )
    show(lambda console: print_rows(title, rows, console))


def print_rows(title: str, rows: list[Sensitivity], console: Console) -> None:
    """One line per change, the most useful first, and the sentence that follows."""
    from rich.table import Table

    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:+.1f} %"

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("change", "to"):
        table.add_column(name, no_wrap=True)
    for name in ("tokens/s", "tokens/J", "tokens/$", "elasticity"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        local = "-" if row.elasticity is None else f"{row.elasticity:.2f}"
        gains = (percent(row.gain), percent(row.energy_gain), percent(row.cost_gain))
        table.add_row(row.name, row.upgrade, *gains, local)
    console.print(title + "\n")
    console.print(table)
    console.print(
        "\nelasticity: per cent of tokens/s per per cent of the quantity, here and now. tokens/$\n"
        "at unchanged prices. The strategy stays; `scalewise search` on the changed cluster may\n"
        "find a better one."
    )
