"""Export of a plan as text: what is not said, then the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.resolve import Asked
    from scalewise.frameworks.export import Export


def print_export(out: Export, asked: Asked, console: Console, *, files: bool) -> None:
    """Print an export.

    Args:
        out: The export.
        asked: The plan.
        console: Where it is printed.
        files: Whether the files are printed too.
    """
    chips = f"{asked.cluster.accelerators:,}x {asked.cluster.accelerator.name}"
    parts = (asked.model.name, chips, str(asked.strategy), f"for {out.version}")
    console.print(Text(" | ".join(parts), style="bold"))
    for gap in out.refused:
        console.print(Text(f"refused: {gap}", style="red"), soft_wrap=True)
    for gap in out.warned:
        console.print(Text(f"not said: {gap}", style="yellow"), soft_wrap=True)
    for each in asked.defaults:
        # Failures change days and dollars, and nothing of what is launched.
        if each.flag == "--goodput":
            continue
        console.print(Text(f"default: {each}", style="dim"), soft_wrap=True)
    if not files:
        return
    for name, text in out.files.items():
        console.print(Text(f"\n==> {name} <==", style="bold"))
        console.print(Text(text.rstrip("\n")), soft_wrap=True)
