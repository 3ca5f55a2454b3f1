"""`scalewise models | accelerators | clusters | stacks`: what is known by name, and from where?

    scalewise models llama               # the models whose name contains "llama"
    scalewise accelerators h100-sxm-80gb # one of them, with every number and its source
    scalewise clusters --json

A word that is exactly a name (or an alias, or a file) shows that one thing in detail; any other
word filters the list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from scalewise.catalog import PACKAGE, load_accelerator, load_cluster, names
from scalewise.cli.common import light_numpy, show, to_json
from scalewise.errors import InputError, did_you_mean
from scalewise.model import load_model
from scalewise.stack import load_stack

if TYPE_CHECKING:
    from scalewise.cli.details import Detail, Listing

T = TypeVar("T")

_FILTER = click.argument("word", metavar="[FILTER]", required=False)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


@click.command(short_help="List the models, or show one.")
@_FILTER
@_JSON
def models(word: str | None, *, as_json: bool) -> None:
    """List the models, filtered by FILTER, or show one in detail (a name or a config.json)."""
    from scalewise.cli import details

    _answer("models", word, load_model, details.models, details.model, as_json=as_json)


@click.command(short_help="List the accelerators, or show one.")
@_FILTER
@_JSON
def accelerators(word: str | None, *, as_json: bool) -> None:
    """List the accelerators, filtered by FILTER, or show one in detail."""
    from scalewise.cli import details

    _answer(
        "accelerators",
        word,
        load_accelerator,
        details.accelerators,
        details.accelerator,
        as_json=as_json,
    )


@click.command(short_help="List the clusters, or show one.")
@_FILTER
@_JSON
def clusters(word: str | None, *, as_json: bool) -> None:
    """List the clusters, filtered by FILTER, or show one in detail."""
    from scalewise.cli import details

    _answer("clusters", word, load_cluster, details.clusters, details.cluster, as_json=as_json)


@click.command(short_help="List the software stacks, or show one.")
@_FILTER
@_JSON
def stacks(word: str | None, *, as_json: bool) -> None:
    """List the software stacks, filtered by FILTER, or show one in detail."""
    from scalewise.cli import details

    _answer("stacks", word, load_stack, details.stacks, details.stack, as_json=as_json)


def _answer(
    kind: str,
    word: str | None,
    load: Callable[[str], T],
    listing: Callable[[list[T]], Listing],
    detail: Callable[[T], Detail],
    *,
    as_json: bool,
) -> None:
    """Show one thing where the word names it, else the list of those that contain it."""
    light_numpy()
    known = names(kind)
    if word is not None and (one := _named(kind, word, load)) is not None:
        told = detail(one)
        if as_json:
            click.echo(to_json(told.data))
        else:
            show(told.draw)
        return
    wanted = [name for name in known if word is None or word.lower() in name]
    if not wanted:
        assert word is not None
        raise InputError(f"no {kind} match `{word}`", hint=did_you_mean(word, known))
    table = listing(list(_loaded(kind, wanted, load)))
    if as_json:
        click.echo(to_json(table.data))
    else:
        show(table.draw)


def _named(kind: str, word: str, load: Callable[[str], T]) -> T | None:
    """Load what a word names: a file, a name, or an alias; None if it is only a filter."""
    from scalewise.catalog import find

    is_file = word.endswith((".toml", ".json")) or word.startswith((".", "/", "~"))
    if not is_file:
        try:
            path = find(kind, word)
        except InputError:
            return None
        # A broken file must be heard of, so it is loaded outside of the attempt.
        return load(path.stem)
    return load(word)


def _loaded(kind: str, wanted: Iterable[str], load: Callable[[str], T]) -> Iterable[T]:
    """Load each from its file; one broken file of the user's own must not hide the rest."""
    files = _files(kind)
    for name in wanted:
        try:
            yield load(str(files[name]) if name in files else name)
        except InputError as error:
            click.echo(f"skipped {name}: {error}", err=True)


def _files(kind: str) -> dict[str, Path]:
    """Find the file of every name without opening any, because opening is what may fail."""
    own = os.environ.get("SCALEWISE_CATALOG")
    folders = [PACKAGE / kind, *([Path(own).expanduser() / kind] if own else [])]
    return {path.stem: path for folder in folders for path in folder.glob("*.toml")}
