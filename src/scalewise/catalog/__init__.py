"""Catalog of accelerators, clusters, fabrics, models and stacks by name.

One TOML file per entry, every number with its source. The folder in `$SCALEWISE_CATALOG`, with the
same sub-folders, is searched before the package; the path of a `.toml` file works in place of a
name.

    load_cluster("dgx-h100", accelerators=2048)
    load_accelerator("./my-chip.toml").memory_bandwidth
    names("clusters")

Files have quantities with units ("3.35TB/s"); loaded values are SI.
"""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_origin

import msgspec

from scalewise.cluster import (
    ACCELERATOR_UNITS,
    CLUSTER_UNITS,
    FABRIC_UNITS,
    Accelerator,
    Cluster,
    Fabric,
)
from scalewise.errors import InputError, did_you_mean
from scalewise.reading import read_toml, user_path
from scalewise.units import parse

T = TypeVar("T", bound=msgspec.Struct)

# Structs are frozen, so one copy per version of a file is enough.
_LOADED: dict[tuple[Path, int, type], Any] = {}

PACKAGE = Path(__file__).parent
"""Folder of the shipped files."""
_INSTALLED = f"{PACKAGE}{os.sep}"

# Assumptions for unpublished numbers; each use is listed in `Cluster.assumptions`.
# Host share of TDP: A100 237/400 (BLOOM: 256.6 MWh beside 1.083 M GPU-hours), H100 340/700 and
# B200 245/1000 (MLPerf power logs), GB300 475/1400 (rack plan): 24 to 59 %, mean 42 %.
HOST_SHARE = 0.42
# 59.6 kW, the submitter's estimate for the network of 64 nodes with 8 H100 at 400 Gbit/s each
# (mlcommons/training_results_v4.0, smc-ac-power): 116 W per GPU, in proportion to the rate.
NETWORK_WATTS_PER_RATE = 59.6e3 / (64 * 8) / 50e9


def load_accelerator(name: str) -> Accelerator:
    """Load one accelerator.

    Args:
        name: Its name, an alias ("h100"), or the path of a `.toml` file.

    Returns:
        The accelerator.

    Raises:
        InputError: If there is no such accelerator, or its file is wrong.
    """
    return load("accelerators", name, Accelerator, ACCELERATOR_UNITS)


def load_fabric(name: str) -> Fabric:
    """Load one fabric.

    Args:
        name: Its name, an alias, or the path of a `.toml` file.

    Returns:
        The fabric.

    Raises:
        InputError: If there is no such fabric, or its file is wrong.
    """
    return load("fabrics", name, Fabric, FABRIC_UNITS)


def load_cluster(name: str, accelerators: int | None = None, **given: Any) -> Cluster:
    """Load one cluster, or build one from an accelerator.

    Args:
        name: A cluster, an accelerator (then its typical figures are taken, and `notes` says so),
            an alias of either, or the path of a `.toml` file of either.
        accelerators: How many; by default what the file says, or else one scale-up domain.
        **given: Fields of `Cluster` that stand for those of the file, in SI; another network rate
            has another network power too.

    Returns:
        The cluster.

    Raises:
        InputError: If neither a cluster nor an accelerator has that name, or a file is invalid.
    """
    size: dict[str, Any] = dict(given)
    if accelerators is not None:
        # Sweeps pass NumPy integers, which msgspec does not accept as int.
        whole = isinstance(accelerators, numbers.Integral)
        size["accelerators"] = int(accelerators) if whole else accelerators
    if _names_accelerator(name):
        accelerator = load_accelerator(name)
        notes = f"no cluster of this name: typical figures of the accelerator {accelerator.name}"
        return typical_cluster(accelerator, notes=notes, source=accelerator.source, **size)
    path = find("clusters", name)
    table = _cluster_table(path)
    if "scale_out_bandwidth" in given:
        table.pop("network_watts", None)
    table |= size
    if "accelerator" not in table:
        raise InputError(
            f"{path}: missing key `accelerator`", hint='for example accelerator = "h100-sxm-80gb"'
        )
    accelerator = load_accelerator(_beside(path, table.pop("accelerator")))
    fabric = table.pop("fabric", "unknown")
    if not isinstance(fabric, Fabric):
        fabric = load_fabric(_beside(path, fabric))
    full = _completed(accelerator, fabric, table, path)
    return _convert(full, Cluster, path)


def _cluster_table(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the fields of a cluster file, on top of those of its `base`.

    A cluster that names a base has what its own file does not say from there, but for the name. The
    power of the network follows its rate, unless the file has both.
    """
    base, fields = _cluster_fields(path, _version(path))
    table = dict(fields)
    if base is None:
        return table
    below = find("clusters", _beside(path, base))
    if below in (path, *above):
        raise InputError(f"{path}: base = {base} leads back to this file", hint="name another base")
    inherited = _cluster_table(below, (path, *above))
    for key in ("accelerator", "fabric"):
        if key in inherited:
            inherited[key] = _beside(below, inherited[key])
    if "accelerator" in table:
        # These belong to the accelerator of the base.
        for key in ("scale_up_bandwidth", "host_watts", "power_cap_watts", "usd_per_hour"):
            inherited.pop(key, None)
    if "scale_out_bandwidth" in table:
        inherited.pop("network_watts", None)
    return inherited | table


@lru_cache(maxsize=256)
def _cluster_fields(path: Path, _version: int) -> tuple[Any, dict[str, Any]]:
    """The base of a cluster file and its own fields, read once for all of its sizes."""
    own = dict(_read(path))
    base = own.pop("base", None)
    return base, _table(path, Cluster, CLUSTER_UNITS, content=own)


def _names_accelerator(name: str) -> bool:
    """Whether a name or file is that of an accelerator and not of a cluster.

    Raises:
        InputError: If it is neither.
    """
    if name.endswith(".toml"):
        chip_only = set(Accelerator.__struct_fields__) - set(Cluster.__struct_fields__)
        keys = _read(find("clusters", name)).keys()
        return "accelerator" not in keys and not chip_only.isdisjoint(keys)
    if _search("clusters", name) is not None:
        return False
    if _search("accelerators", name) is None:
        known = names("clusters") + names("accelerators")
        raise InputError(f"unknown cluster or accelerator {name}", hint=did_you_mean(name, known))
    return True


def typical_cluster(
    accelerator: Accelerator, fabric: Fabric | None = None, **given: Any
) -> Cluster:
    """Build a cluster from an accelerator's typical values, noting the assumptions.

    Args:
        accelerator: The device.
        fabric: The network between domains; by default that of its vendor's clouds.
        **given: Known fields of `Cluster`; they override the typical values.

    Returns:
        The cluster, by default one scale-up domain.

    Raises:
        InputError: If it spans domains and the network rate is unknown.
    """
    if fabric is None:
        usual = {"Google": "dcn", "AWS": "efa"}.get(accelerator.vendor, "unknown")
        fabric = load_fabric(usual)
    return Cluster(**_completed(accelerator, fabric, given, None))


def names(kind: str) -> list[str]:
    """Return the names of a kind, including those of the user's catalog.

    Args:
        kind: "accelerators", "clusters", "fabrics", "models" or another sub-folder.

    Returns:
        The names, sorted; aliases are not listed.

    Raises:
        InputError: If no catalog folder has that kind.
    """
    found = [folder for folder in _folders(kind) if folder.is_dir()]
    if not found:
        kinds = [path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"]
        message = f"unknown folder {kind} of the catalog"
        raise InputError(message, hint=did_you_mean(kind, kinds))
    return sorted({_plain(path.stem) for folder in found for path in folder.glob("*.toml")})


def load(kind: str, name: str, type_: type[T], units: Mapping[str, str] | None = None) -> T:
    """Load one thing of any kind.

    Args:
        kind: The sub-folder to look in.
        name: A name, an alias, or the path of a `.toml` file.
        type_: The struct to build. A `name` left out of the file is the file's own.
        units: Kind of quantity (see `scalewise.units`) by field, for fields written with a unit;
            in a field that is a table, every value is read so.

    Returns:
        The struct.

    Raises:
        InputError: If it is not found, not TOML, or does not fit the struct.
    """
    path = find(kind, name)
    key = (path, _version(path), type_)
    if key not in _LOADED:
        _LOADED[key] = _convert(_table(path, type_, units or {}), type_, path)
    found: T = _LOADED[key]
    return found


def knows(kind: str, name: str) -> bool:
    """Return whether the catalog has a name or alias of a kind."""
    return _search(kind, name) is not None


def name_of(kind: str, name: str) -> str | None:
    """Return the name of a kind that a name or alias stands for; None where there is none."""
    found = _search(kind, name)
    return None if found is None else found.stem


def find(kind: str, name: str) -> Path:
    """Find the file of a name.

    Args:
        kind: The sub-folder to look in.
        name: A name in any case, an alias, or a path that ends in `.toml`.

    Returns:
        The file.

    Raises:
        InputError: If there is none.
    """
    if name.endswith(".toml"):
        path = user_path(name)
        if not path.is_file():
            message = f"{path}: no such file"
            raise InputError(message)
        return path
    found = _search(kind, name)
    if found is None:
        message = f"unknown {kind.removesuffix('s')} {name}"
        raise InputError(message, hint=did_you_mean(name, names(kind)))
    return found


def _search(kind: str, name: str) -> Path | None:
    """Search the folders in order, for file names first and aliases second."""
    folders = _folders(kind)
    return _search_version(folders, tuple(map(_version, folders)), _plain(name))


@lru_cache(maxsize=1024)
def _search_version(
    folders: tuple[Path, ...], _versions: tuple[int, ...], wanted: str
) -> Path | None:
    """Cache the search until a file of the folders is added or removed."""
    for folder in folders:
        files = {_plain(path.stem): path for path in sorted(folder.glob("*.toml"))}
        if wanted in files:
            return files[wanted]
        for path in files.values():
            if wanted in map(_plain, _read(path).get("aliases", ())):
                return path
    return None


def _folders(kind: str) -> tuple[Path, ...]:
    return _folders_of(kind, os.environ.get("SCALEWISE_CATALOG"))


@lru_cache(maxsize=64)
def _folders_of(kind: str, own: str | None) -> tuple[Path, ...]:
    """Return the user's folder, if there is one, before the package's."""
    return (*([user_path(own) / kind] if own else []), PACKAGE / kind)


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    """Map "H100 SXM_80GB" and "h100-sxm-80gb" to one name."""
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def _beside(path: Path, name: Any) -> str:
    """Resolve a relative path inside a file against that file."""
    if not isinstance(name, str):
        message = f"{path}: accelerator, fabric and base must be names or paths, not {name!r}"
        raise InputError(message)
    return str(path.parent / user_path(name)) if name.endswith(".toml") else name


def _read(path: Path) -> dict[str, Any]:
    """Parse a file, cached until it changes."""
    return _read_version(path, _version(path))


def _version(path: Path) -> int:
    """Return the time of the last change of a file or folder; 0 if there is none.

    Those of the package do not change while a process runs, so nobody asks the system for them.
    """
    if (name := os.fspath(path)).startswith(_INSTALLED):
        return 0
    try:
        return os.stat(name).st_mtime_ns  # noqa: PTH116 - half the cost of Path.stat, asked often
    except OSError:
        return 0


@lru_cache(maxsize=512)
def _read_version(path: Path, _version: int) -> dict[str, Any]:
    return read_toml(path, what="catalog file")


def _table(
    path: Path,
    type_: type[msgspec.Struct],
    units: Mapping[str, str],
    content: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of a file with quantities in SI; unknown keys are errors."""
    known = type_.__struct_fields__
    given = _read(path) if content is None else content
    table = {key: value for key, value in given.items() if key != "aliases" or key in known}
    for key in table:
        if key not in known:
            message = f"{path}: unknown key `{key}`"
            raise InputError(message, hint=did_you_mean(key, known))
    if "name" in known:
        table.setdefault("name", path.stem)
    if table.get("shares"):
        table = _shared(path, table) | table
    tables = {
        field.name for field in msgspec.structs.fields(type_) if get_origin(field.type) is dict
    }
    for key, value in table.items():
        if isinstance(value, dict) and key in units and key not in tables:
            raise InputError(f"{path}: {key} is a table", hint=f"write one value: {key} = ...")
    return {key: _si(path, key, value, units.get(key)) for key, value in table.items()}


def _shared(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants that a file shares with its base."""
    shares, name = table["shares"], table.get("base")
    if not isinstance(shares, list) or not isinstance(name, str):
        raise InputError(f"{path}: shares needs a list of constants and the name of a base")
    base = _read(find(path.parent.name, name))
    for key in shares:
        if not isinstance(key, str) or key not in base:
            raise InputError(f"{path}: shares has {key!r}, which {name} has not")
    return {key: base[key] for key in shares}


def _si(path: Path, key: str, value: Any, unit: str | None) -> Any:
    if unit is None:
        return value
    if isinstance(value, dict):
        return {inner: _si(path, f"{key}.{inner}", each, unit) for inner, each in value.items()}
    try:
        number = parse(value, unit)
    except InputError as error:
        message = f"{path}: {key}: {error}"
        raise InputError(message, hint=error.hint) from error
    return int(number) if unit == "count" else number


def _convert(table: Mapping[str, Any], type_: type[T], path: Path) -> T:
    try:
        return msgspec.convert(table, type_)
    except msgspec.ValidationError as error:
        # msgspec writes the place as `$.memory_bytes`; TOML has no dollar sign.
        message = f"{path}: " + re.sub(r"`[$][.]?(.*?)`", r"`\1`", str(error))
        raise InputError(message) from error
    except InputError as error:
        message = f"{path}: {error}"
        raise InputError(message, hint=error.hint) from error


def _completed(
    accelerator: Accelerator, fabric: Fabric, given: Mapping[str, Any], path: Path | None
) -> dict[str, Any]:
    """Return the fields of a cluster, completed from its accelerator, with all assumptions."""
    where = f"{path}: " if path else ""
    assumptions: list[str] = list(given.get("assumptions", ()))
    full: dict[str, Any] = {
        "name": accelerator.name,
        "scale_up_domain": accelerator.scale_up_domain,
        "scale_up_bandwidth": accelerator.scale_up_bandwidth,
        "scale_out_bandwidth": accelerator.scale_out_bandwidth,
        **given,
        "accelerator": accelerator,
        "fabric": fabric,
    }
    full.setdefault("accelerators", full["scale_up_domain"])
    if full["scale_up_bandwidth"] is None:
        message = f"{where}the scale-up bandwidth of {accelerator.name} is not published"
        raise InputError(message, hint="set scale_up_bandwidth in a cluster file")
    if full["scale_out_bandwidth"] is None:
        if full["accelerators"] > full["scale_up_domain"]:
            message = (
                f"{where}{full['accelerators']} x {accelerator.name} span several scale-up domains "
                f"of {full['scale_up_domain']}, but the network rate is unknown"
            )
            hint = "say --network 100GbE, or set scale_out_bandwidth in a cluster file"
            raise InputError(message, hint=hint)
        full["scale_out_bandwidth"] = full["scale_up_bandwidth"]
        assumptions.append(
            f"network rate of {accelerator.name} unknown: scale-up rate assumed, "
            "which holds within one domain only"
        )
    if "host_watts" not in full:
        full["host_watts"] = HOST_SHARE * (accelerator.tdp_watts or 0.0)
        if accelerator.tdp_watts is not None:
            assumptions.append(
                f"host power unknown: {HOST_SHARE:.0%} of TDP assumed "
                "(A100, H100, B200 hosts and GB300 racks: 24 to 59%)"
            )
    if "network_watts" not in full:
        full["network_watts"] = NETWORK_WATTS_PER_RATE * full["scale_out_bandwidth"]
        assumptions.append("network power unknown: 116 W per 400 Gbit/s assumed (H100 fabric)")
    if "usd_per_hour" not in full:
        low, high = accelerator.usd_per_hour_low, accelerator.usd_per_hour_high
        full["usd_per_hour"] = accelerator.usd_per_hour
        if accelerator.usd_per_hour is not None or (low and high):
            full |= {
                "price_kind": accelerator.price_kind,
                "price_date": accelerator.price_date or "",
                "price_source": accelerator.price_source,
                "price_chip": accelerator.name,
            }
        if accelerator.usd_per_hour is None and low and high:
            # Prices spread by factors, so their middle is the geometric one: for H100 it gives 3.15
            # where the published median is 2.95.
            full["usd_per_hour"] = (low * high) ** 0.5
            assumptions.append(
                f"cost unknown: geometric mean of ${low:g} and ${high:g} per GPU-hour assumed "
                f"({accelerator.price_date})"
            )
    return full | {"assumptions": tuple(assumptions)}
