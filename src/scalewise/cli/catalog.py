"""`scalewise models | accelerators | clusters | stacks`: entries of the catalog, with sources.

    scalewise models llama               # models whose name contains "llama"
    scalewise accelerators h100-sxm-80gb # one entry, with every number and its source
    scalewise stacks megatron-lm         # the stack of a framework
    scalewise clusters --json
    scalewise clusters new my-pod        # see `clusters_new`

A name, an alias or a file shows that entry in detail; any other word filters the list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scalewise.catalog import PACKAGE, knows, load_accelerator, load_cluster, names
from scalewise.cli.common import light_numpy, show, to_json
from scalewise.errors import InputError, did_you_mean
from scalewise.model import load_model
from scalewise.reading import user_path
from scalewise.stack import load_stack, stack_for

if TYPE_CHECKING:
    from scalewise.cli.details import Detail, Listing

T = TypeVar("T")

_FILTER = click.argument("word", metavar="[FILTER]", required=False)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


@click.command(short_help="List the models, or show one.")
@_FILTER
@_JSON
def models(word: str | None, *, as_json: bool) -> None:
    """List the models whose name contains FILTER, or show one in detail.

    FILTER is a part of a name, or the name of one model, a Hugging Face config.json, a directory
    that holds one, or a .toml file.
    """
    from scalewise.cli import details

    _answer("models", word, load_model, details.models, details.model, as_json=as_json)


@click.command(short_help="List the accelerators, or show one.")
@_FILTER
@_JSON
def accelerators(word: str | None, *, as_json: bool) -> None:
    """List the accelerators whose name contains FILTER, or show one in detail.

    FILTER is a part of a name, or the name of one accelerator, or its .toml file.
    """
    from scalewise.cli import details

    _answer(
        "accelerators",
        word,
        load_accelerator,
        details.accelerators,
        details.accelerator,
        as_json=as_json,
    )


class Clusters(click.Command):
    """List of the clusters; with `new` as its first word, another command."""

    def below(self) -> dict[str, click.Command]:
        """Return the commands that are named by the first word."""
        from scalewise.cli.clusters_new import new

        return {"new": new}

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Return the context of the list, or of the command that the first word names."""
        if args[:1] == ["new"]:
            name, rest = f"{info_name} new", args[1:]
            return self.below()["new"].make_context(name, rest, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=Clusters, short_help="List the clusters, or show one.")
@_FILTER
@_JSON
def clusters(word: str | None, *, as_json: bool) -> None:
    """List the clusters whose name contains FILTER, or show one in detail.

    FILTER is a part of a name, or the name of one cluster, or its .toml file. `clusters new NAME`
    writes a file of your own cluster, from what its tools say.
    """
    from scalewise.cli import details

    _answer("clusters", word, load_cluster, details.clusters, details.cluster, as_json=as_json)


@click.command(short_help="List the software stacks, or show one.")
@_FILTER
@_JSON
def stacks(word: str | None, *, as_json: bool) -> None:
    """List the software stacks whose name contains FILTER, or show one in detail.

    FILTER is a part of a name, or the name of one stack or framework, or a .toml file.
    """
    from scalewise.cli import details

    word = None if word is None else _stack_of(word)
    _answer("stacks", word, load_stack, details.stacks, details.stack, as_json=as_json)


def _stack_of(word: str) -> str:
    """Return the stack of a framework; the word itself where it is none, or has several stacks."""
    if knows("stacks", word):
        return word
    found = {stack_for(word, device=kind) for kind in ("gpu", "tpu", "other")}
    covering = [stack.name for stack in found if word.lower() in stack.frameworks]
    return covering[0] if len(covering) == 1 else word


def _singular(kind: str) -> str:
    return kind.removesuffix("s")


def _answer(
    kind: str,
    word: str | None,
    load: Callable[[str], T],
    listing: Callable[[list[T]], Listing],
    detail: Callable[[T], Detail],
    *,
    as_json: bool,
) -> None:
    """Print the entry that the word names, else the list of names that contain it."""
    light_numpy()
    known = names(kind)
    if word is not None and (one := _named(kind, word, load)) is not None:
        text = detail(one)
        if as_json:
            click.echo(to_json(text.data))
        else:
            show(text.draw)
        return
    wanted = [name for name in known if word is None or word.lower() in name]
    if not wanted:
        assert word is not None
        raise InputError(f"no {_singular(kind)} matches {word}", hint=did_you_mean(word, known))
    if word is not None:
        click.echo(f"no {_singular(kind)} named {word}; showing names that contain it", err=True)
    table = listing(list(_loaded(kind, wanted, load)))
    if as_json:
        click.echo(to_json(table.data))
    else:
        show(table.draw)


def _named(kind: str, word: str, load: Callable[[str], T]) -> T | None:
    """Load the entry of a file, a name or an alias; None for any other word."""
    from scalewise.catalog import find

    is_file = word.endswith((".toml", ".json")) or word.startswith((".", "/", "~"))
    if not is_file:
        try:
            path = find(kind, word)
        except InputError:
            return None
        # Outside of the `try`, because errors in the file must reach the user.
        return load(path.stem)
    return load(word)


def _loaded(kind: str, wanted: Iterable[str], load: Callable[[str], T]) -> Iterable[T]:
    """Load each entry from its file; a broken file is skipped with a message."""
    files = _files(kind)
    for name in wanted:
        try:
            yield load(str(files[name]) if name in files else name)
        except InputError as error:
            click.echo(f"skipped {name}: {error}", err=True)


def _files(kind: str) -> dict[str, Path]:
    """Return the file of every name, without opening any of them."""
    own = os.environ.get("SCALEWISE_CATALOG")
    folders = [PACKAGE / kind, *([user_path(own) / kind] if own else [])]
    return {path.stem: path for folder in folders for path in folder.glob("*.toml")}
