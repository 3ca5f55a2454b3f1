"""What can a page insert by name?

<!-- insert: command_line -->
<!-- insert: section README.md | What is not modelled -->
"""

from __future__ import annotations

from collections.abc import Callable

from sitegen import commands, hardware, includes, layers, physics, python_api
from sitegen.words import docstring


def strategy_words() -> str:
    """The spelling of strategies, as its module has it."""
    import scalewise.strategy

    return docstring(scalewise.strategy.__doc__)


GENERATED: dict[str, Callable[[], str]] = {
    "command_line": commands.command_line,
    "public_names": python_api.public_names,
    "worked_examples": physics.worked_examples,
    "formulas": physics.formulas,
    "accelerators": hardware.accelerators,
    "clusters": hardware.clusters,
    "fabrics": hardware.fabrics,
    "calibrations": hardware.calibrations,
    "stacks": hardware.stacks,
    "layers": layers.layers,
    "strategy_words": strategy_words,
}
"""What is read from the code."""


def insert(order: str) -> str:
    """Produce what a comment asks for.

    Raises:
        KeyError: If there is no such thing.
    """
    word, _, rest = order.partition(" ")
    if not rest:
        if word not in GENERATED:
            raise KeyError(f"nothing is called {word!r}: {', '.join(GENERATED)}")
        return GENERATED[word]()
    name, _, part = (piece.strip() for piece in rest.partition("|"))
    if word == "section":
        return includes.section(name, part)
    if word == "between":
        return includes.between(name, part)
    if word == "page":
        return includes.whole(name)
    raise KeyError(f"nothing is called {word!r}")
