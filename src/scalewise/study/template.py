"""Template of a new study file: every key with its meaning and default.

    new_study("my-cluster")           # TOML text that runs unchanged

Comments are the docstrings of `study.files`, so that the template is always complete.
"""

from __future__ import annotations

import textwrap
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from scalewise.fields import field_docs
from scalewise.study.files import Case, Claim, Experiment, Figure, Published, Study, Variant
from scalewise.study.measures import AXES, METRICS

WIDTH = 96
"""Characters per line."""

# Keys that are set in a first study; all others are comments with their default.
_EXPERIMENT: dict[str, Any] = {
    "id": "scaling",
    "title": "How far does it scale?",
    "models": ["llama-3-8b"],
    "clusters": ["dgx-h100"],
    "sizes": "8..1024",
    "strategies": ["fsdp", "hsdp64", "best"],
    "sequences": [8192],
    "batch": 1.0,
}
_FIGURE: dict[str, Any] = {
    "y": ["tokens_per_second_per_accelerator", "mfu", "communication_share"],
    "caption": "Throughput, utilization and communication against size.",
}
_VARIANT: dict[str, Any] = {
    "name": "twice the network",
    "set": {"scale_out_bandwidth": "800Gbit/s"},
}
_CASE: dict[str, Any] = {
    "name": "fixed batch",
    "set": {"scaling": "strong", "batch": 1024},
}
_PUBLISHED: dict[str, Any] = {
    "metric": "mfu",
    "value": 0.4,
    "at": {"accelerators": 64},
    "label": "our run of May",
    "source": "internal wiki",
}
_CLAIM: dict[str, Any] = {
    "statement": "MFU is at least 35% on 1,024 GPUs",
    "source": "our plan",
    "measure": "value",
    "metric": "mfu",
    "second": {"accelerators": 1024, "strategy": "best"},
    "at_least": 0.35,
}


def new_study(name: str = "my-study") -> str:
    """Return a commented study file.

    Args:
        name: Name of the study, for the comment with the command.
    """
    lines = [
        f"# A study of your own. Run it:  scalewise study run {name}.toml -o report/",
        "#",
        "# Keys that are commented out show their default. Axes (models, clusters, sizes, ...) are",
        "# combined in every way; points are kept in a store, so a stopped study goes on.",
        "",
        *_keys(Study, {"title": "What does the next node buy us?"},
               skip=("experiment", "text", "name")),
        "# [defaults]",
        "# Keys of an experiment that all experiments share, unless they say otherwise.",
        "",
        "[[experiment]]",
        *_keys(Experiment, _EXPERIMENT,
               skip=("figures", "published", "claims", "variants", "cases")),
        "[[experiment.figures]]",
        *_keys(Figure, _FIGURE),
        *_commented("experiment.variants", Variant, _VARIANT),
        *_commented("experiment.cases", Case, _CASE),
        *_commented("experiment.published", Published, _PUBLISHED),
        *_commented("experiment.claims", Claim, _CLAIM),
        "# Axes, for x, series, facet, where, at, first and second:",
        *_wrapped(", ".join(AXES)),
        "#",
        "# Metrics, for y, metrics, published and claims:",
        *_wrapped(", ".join(METRICS)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _keys(
    type_: type[msgspec.Struct], given: dict[str, Any], *, skip: tuple[str, ...] = ()
) -> list[str]:
    """Return every key of a table: its meaning, then its value or, as a comment, its default."""
    docs, hints = field_docs(type_), get_type_hints(type_)
    lines: list[str] = []
    for field in msgspec.structs.fields(type_):
        if field.name in skip:
            continue
        lines += _wrapped(docs.get(field.name, "") + _choices(hints[field.name]))
        if field.name in given:
            lines.append(f"{field.name} = {_toml(given[field.name])}")
        else:
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            shown = "" if default is None or default is msgspec.NODEFAULT else f" {_toml(default)}"
            lines.append(f"# {field.name} ={shown}")
        lines.append("")
    return lines


def _choices(hint: Any) -> str:
    """Return the words that a key accepts, if they are few."""
    inner = get_args(hint)[0] if get_origin(hint) is tuple else hint
    return " One of: " + ", ".join(get_args(inner)) + "." if get_origin(inner) is Literal else ""


def _commented(name: str, type_: type[msgspec.Struct], given: dict[str, Any]) -> list[str]:
    """Return a commented-out table."""
    lines = [f"[[{name}]]", *_keys(type_, given)]
    return [line if line.startswith("#") else f"# {line}".rstrip() for line in lines] + [""]


def _wrapped(text: str) -> list[str]:
    return ["# " + line for line in textwrap.wrap(text, WIDTH - 2)]


def _toml(value: Any) -> str:
    """Return one value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return repr(value)
