"""Regions of the catalog: one table, `regions.toml`.

    load_region("france").kg_per_kwh        # 0.041
    region_names()                          # ["australia", ..., "world"]

A table of the same name in `$SCALEWISE_CATALOG` stands before it.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.reading import read_toml, user_path
from scalewise.region import Region

FILE = Path(__file__).parent / "regions.toml"

DEFAULT_REGION = "world"
"""Region where none is stated: the mean of all."""

_ALIASES = {"usa": "us", "united-states": "us", "united-kingdom": "uk", "global": "world"}


def load_region(name: str) -> Region:
    """Return one region.

    Raises:
        InputError: If there is none of that name, or a file is wrong.
    """
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    wanted = _ALIASES.get(wanted, wanted)
    found = _known()
    if wanted not in found:
        raise InputError(
            f"--region {name}: unknown region",
            hint=did_you_mean(wanted, found) or f"one of {', '.join(sorted(found))}",
            field="region",
        )
    return found[wanted]


def region_names() -> list[str]:
    """Return all names, in alphabetical order."""
    return sorted(_known())


def _known() -> dict[str, Region]:
    """All regions by name, read again when the user's table changes."""
    own = os.environ.get("SCALEWISE_CATALOG")
    mine = None if own is None else user_path(own) / FILE.name
    if mine is None or not mine.exists():
        return _regions(None, 0)
    return _regions(mine, mine.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _regions(mine: Path | None, _version: int) -> dict[str, Region]:
    found: dict[str, Region] = {}
    for file in (FILE, *([mine] if mine else [])):
        tables: dict[str, Any] = dict(read_toml(file, what="table of regions"))
        sources = tables.pop("sources", {})
        if not isinstance(sources, dict):
            raise InputError(f"{file}: `sources` is no table", hint="[sources]")
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise InputError(f"{file}: region `{name}` is no table", hint=f"[{name}]")
            for key in ("carbon_source", "price_source"):
                if table.get(key) in sources:
                    table = table | {key: sources[table[key]]}
            try:
                found[name] = msgspec.convert({"name": name} | table, Region)
            except (msgspec.ValidationError, TypeError) as error:
                raise InputError(f"{file}: region `{name}`: {error}") from error
    return found
