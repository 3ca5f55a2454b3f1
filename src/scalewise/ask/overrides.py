"""Overrides: `--set cluster.scale_out_bandwidth=800Gbit/s` and every other field.

    overrides = Overrides.read(["cluster.pue=1.3", "fabric.efficiency=0.9"])
    cluster = overrides.apply("cluster", load_cluster("dgx-h100"))
    overrides.changed         # ["cluster.pue = 1.3 (was 1.15)", ...]

Every field of every noun can be set, so that a new question needs no new flag. All changes of one
noun are made at once: `model.heads` and `model.kv_heads` must fit each other, not what was before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from scalewise.catalog import load_accelerator, load_fabric
from scalewise.cluster import (
    ACCELERATOR_UNITS,
    CLUSTER_UNITS,
    FABRIC_UNITS,
    Accelerator,
    Cluster,
    Fabric,
)
from scalewise.errors import InputError, did_you_mean
from scalewise.fields import replace
from scalewise.model import Model
from scalewise.stack import Stack
from scalewise.strategy import Strategy
from scalewise.units import (
    FORMATS,
    parse,
    parse_count,
)
from scalewise.workload import Workload

T = TypeVar("T", bound=msgspec.Struct)

TARGETS = ("model", "cluster", "accelerator", "fabric", "workload", "strategy", "stack")
"""What stands before the first dot."""

_WORKLOAD = Workload.__struct_fields__
_INSIDE_CLUSTER = ("accelerator", "fabric")
_UNITS: Mapping[type, Mapping[str, str]] = {
    Accelerator: ACCELERATOR_UNITS,
    Fabric: FABRIC_UNITS,
    Cluster: CLUSTER_UNITS,
}
_LOADERS: Mapping[str, Callable[[str], msgspec.Struct]] = {
    "accelerator": load_accelerator,
    "fabric": load_fabric,
}
_NOUNS: Mapping[str, Any] = {
    "model": Model,
    "cluster": Cluster,
    "accelerator": Accelerator,
    "fabric": Fabric,
    "workload": Workload,
    "strategy": Strategy,
    "stack": Stack,
}
# A cluster has its own of these; those of the accelerator only fill in cluster files.
_CLUSTER_KNOWS = ("scale_up_domain", "scale_up_bandwidth", "scale_out_bandwidth", "usd_per_hour")


Tree = dict[str, Any]
"""Field -> text, or field -> Tree."""


class Overrides:
    """The `--set` options of one command, by noun."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._used: set[str] = set()
        self.changed: list[str] = []
        """What was changed so far, one phrase each."""

    @classmethod
    def read(cls, texts: Sequence[str]) -> Overrides:
        """Read "target.field=value" texts.

        Raises:
            InputError: If one has no `=`, an unknown target, or is there twice.
        """
        tree: Tree = {}
        for text in texts:
            key, equals, value = text.partition("=")
            target, *path = key.strip().split(".")
            if not equals or not path or not all(path):
                raise InputError(
                    f"--set {text!r} is not of the form target.field=value",
                    hint="for example --set cluster.scale_out_bandwidth=800Gbit/s",
                )
            if target not in TARGETS:
                raise InputError(
                    f"--set {text!r}: there is no `{target}` to change",
                    hint=did_you_mean(target, TARGETS),
                )
            if target in _INSIDE_CLUSTER:
                path = [target, *path]
                target = "cluster"
            _put(tree, [target, *path], value.strip(), text)
        return cls(tree)

    def touches(self, target: str, *fields: str) -> bool:
        """Whether a noun (or one of some fields of it) is changed."""
        changes = self._tree.get(target, {})
        return any(field in changes for field in fields) if fields else bool(changes)

    def take(self, target: str, field: str) -> str | None:
        """Take one value out, for a field that others are derived from."""
        value = self._tree.get(target, {}).pop(field, None)
        if isinstance(value, dict):
            raise InputError(f"--set {target}.{field} is a single value, not a group")
        if value is not None:
            self.changed.append(f"{target}.{field} = {value}")
        return None if value is None else str(value)

    def workload(self, given: Mapping[str, str | float | None]) -> dict[str, str | float | None]:
        """Merge `workload.*` over the flags.

        Raises:
            InputError: If a field does not exist.
        """
        self._used.add("workload")
        for field in self._tree.get("workload", {}):
            if field not in _WORKLOAD:
                raise InputError(
                    f"Workload has no field `{field}`", hint=did_you_mean(field, _WORKLOAD)
                )
        return {field: self.take("workload", field) or value for field, value in given.items()}

    def apply(self, target: str, noun: T) -> T:
        """Return the noun with its changes made, all at once, and note them.

        Raises:
            InputError: If a field does not exist, or a value cannot be.
        """
        self._used.add(target)
        tree = self._tree.get(target)
        if not tree:
            return noun
        return self._changed(noun, tree, target)

    def check_used(self) -> None:
        """Make sure that no change was read and then forgotten."""
        assert self._used >= set(self._tree), "every target must be applied"

    def _changed(self, noun: T, tree: Tree, where: str) -> T:
        known = noun.__struct_fields__
        units = _UNITS.get(type(noun), {})
        types = {field.name: field.type for field in msgspec.structs.fields(type(noun))}
        values: dict[str, Any] = {}
        for field, new in tree.items():
            full = f"{where}.{field}"
            if field not in known:
                raise InputError(
                    f"{type(noun).__name__} has no field `{field}`",
                    hint=did_you_mean(field, known),
                )
            if isinstance(noun, Accelerator) and field in _CLUSTER_KNOWS:
                raise InputError(
                    f"accelerator.{field} does not decide here: the cluster has its own",
                    hint=f"use --set cluster.{field}=...",
                )
            old = getattr(noun, field)
            unit = units.get(field, _unit_by_name(field))
            if isinstance(new, dict):
                values[field] = self._inside(old, new, full, unit)
                continue
            if isinstance(old, dict):
                raise InputError(
                    f"--set {full} is a table",
                    hint="set one of its values: " + ", ".join(f"{full}.{key}" for key in old),
                )
            if field in _LOADERS and isinstance(noun, Cluster):
                values[field] = _LOADERS[field](new)
                old = old.name
            else:
                values[field] = _read(full, new, types[field], unit)
            self.changed.append(f"{full} = {new} (was {_shown(old, unit)})")
        if isinstance(noun, Model):
            values = _implied(noun, values)
        return replace(noun, **values)

    def _inside(self, old: Any, tree: Tree, where: str, unit: str | None) -> Any:
        """Change what lies inside a field: a noun of its own, or a table."""
        if isinstance(old, msgspec.Struct):
            return self._changed(old, tree, where.removeprefix("cluster."))
        if not isinstance(old, dict):
            raise InputError(f"--set {where}: there is nothing inside {where} to change")
        table = dict(old)
        for key, text in tree.items():
            if isinstance(text, dict):
                raise InputError(f"--set {where}.{key} is a single value, not a group")
            table[key] = _read(f"{where}.{key}", text, float, unit)
            self.changed.append(f"{where}.{key} = {text} (was {_shown(old.get(key), unit)})")
        return table


def kind_of_key(key: str) -> tuple[Any, str | None]:
    """Return the type of the field that a key names, and its kind of quantity.

    Args:
        key: Such as "cluster.scale_out_bandwidth" or "accelerator.peak_flops.bf16".

    Raises:
        InputError: If there is no such field.
    """
    target, *path = key.split(".")
    if target not in TARGETS:
        raise InputError(f"there is no `{target}` to change", hint=did_you_mean(target, TARGETS))
    type_, unit = _NOUNS[target], None
    for field in path:
        inside = [each for each in get_args(type_) if _holds_fields(each)]
        type_ = inside[0] if inside else type_
        if get_origin(type_) is dict:
            type_ = get_args(type_)[1]
            continue
        if not _holds_fields(type_):
            raise InputError(f"there is nothing inside {key.rpartition('.')[0]} to change")
        types = {each.name: each.type for each in msgspec.structs.fields(type_)}
        if field not in types:
            raise InputError(
                f"{type_.__name__} has no field `{field}`", hint=did_you_mean(field, types)
            )
        unit = _UNITS.get(type_, {}).get(field, _unit_by_name(field))
        type_ = types[field]
    if _holds_fields(type_):
        return str, None
    return type_, unit


def _holds_fields(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _put(tree: Tree, path: list[str], value: str, text: str) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise InputError(f"--set {text!r} changes what another --set replaces")
    if isinstance(tree.get(path[-1]), dict):
        raise InputError(f"--set {text!r} replaces what another --set changes")
    if path[-1] in tree:
        raise InputError(f"--set {text!r} is given twice", hint="keep one of the two")
    tree[path[-1]] = value


def _unit_by_name(field: str) -> str | None:
    """Stacks write their unit into the name of the field."""
    for ending, kind in (("_seconds", "seconds"), ("_bytes", "bytes"), ("_watts", "watts")):
        if field.endswith(ending):
            return kind
    return None


def _implied(model: Model, values: dict[str, Any]) -> dict[str, Any]:
    """Let widths that followed from others follow the changed ones."""
    implied = dict(values)
    if model.mla is None and model.head_dim * model.heads == model.hidden:
        implied.setdefault("head_dim", 0)
    if model.kv_heads == model.heads:
        implied.setdefault("kv_heads", 0)
    return implied


def _read(where: str, text: str, type_: Any, unit: str | None) -> Any:
    """Read one value by its unit, or else by the type of its field."""
    options = [get_args(type_)] if get_origin(type_) is not Literal else []
    members = options[0] if options else ()
    try:
        # "none" is a word of recompute, and else no value.
        if text.lower() in ("none", "null") and type_ is not str:
            return msgspec.convert(None, type_)
        if unit is not None:
            number = parse(text, unit)
            return int(number) if unit == "count" else number
        if type_ is int or int in members:
            return parse_count(text)
        value = msgspec.convert(text, type_, strict=False)
    except msgspec.ValidationError:
        raise InputError(
            f"--set {where}: `{text}` is not a value it can have", hint=_accepted(text, type_)
        ) from None
    except InputError as error:
        raise InputError(f"--set {where}: {error}", hint=error.hint) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"--set {where}: `{text}` must be a finite number")
    return value


def _accepted(text: str, type_: Any) -> str | None:
    """Return what a type accepts, where that is a short list."""
    if get_origin(type_) in (tuple, dict):
        return "only a file can hold such a list"
    options = [type_, *get_args(type_)]
    words = [
        str(word) for each in options if get_origin(each) is Literal for word in get_args(each)
    ]
    if words:
        return did_you_mean(text, words)
    if bool in options:
        return "write true or false"
    if float in options:
        return "write a number"
    return None


def _shown(value: Any, unit: str | None) -> str:
    if value is None:
        return "not set"
    if unit is not None and unit in FORMATS and isinstance(value, int | float):
        return FORMATS[unit](value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
