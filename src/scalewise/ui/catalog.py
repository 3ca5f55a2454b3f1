"""The catalog of the web UI: everything that can be chosen, and the tables it draws by.

listing()["models"][0]                  # name, words, parameters
listing()["terms"][0]                   # key, label, kind, color
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from scalewise.ask.question import Field, question_fields
from scalewise.ask.state import ON
from scalewise.catalog import load_accelerator, load_cluster, names
from scalewise.explore.search import SAFE_WITHIN
from scalewise.metrics import as_dicts
from scalewise.model import load_model
from scalewise.ranges import tie_width
from scalewise.report.suggestions import WORTH_SAYING
from scalewise.stack import load_stack
from scalewise.terms import COLORS, GROUPS, MEMORY_PARTS, TERMS
from scalewise.ui.inputs import inputs
from scalewise.ui.requests import FIRST
from scalewise.units import format_bit_rate, format_bytes, format_count, format_flops

SENTENCE = (
    "model", "on", "gpus", "batch", "seq", "precision", "tokens", "stack", "strategy",
)  # fmt: skip
"""Fields of a question that the web UI asks in a sentence; all others are in a list below it."""


@lru_cache(maxsize=1)
def listing() -> dict[str, Any]:
    """Everything that can be chosen, with what a list shows about it, and the tables."""
    return {
        "models": [_model(name) for name in names("models")],
        "clusters": [_cluster(name) for name in names("clusters")],
        "accelerators": [_accelerator(name) for name in names("accelerators")],
        "stacks": [_stack(name) for name in names("stacks")],
        "tables": tables(),
    }


def tables() -> dict[str, Any]:
    """Tables that the web UI draws by, so that a field, a term or a color has one name everywhere.

    Fields of a question by their key in an address, terms and memory parts with labels, kinds,
    groups and colors, metrics with labels and units, and the width of a tie.
    """
    first = inputs(FIRST).question
    shown = ("model", "on", "gpus", "seq", "batch")
    fields = question_fields().values()
    return {
        "question": {field.key: field.name for field in fields},
        "numbers": [field.key for field in fields if field.number],
        "switches": [field.key for field in fields if field.switch],
        "on": ON,
        "inputs": [
            {
                "key": field.key,
                "label": _label(field),
                "help": field.help,
                "default": field.default or _first(field),
                "choices": (ON,) if field.switch else field.choices,
            }
            for field in fields
            if field.name not in SENTENCE and not field.repeated
        ],
        "first": {question_fields()[name].key: str(getattr(first, name)) for name in shown},
        "terms": [
            {name: getattr(term, name) for name in ("key", "label", "kind", "color", "group")}
            for term in TERMS.values()
        ],
        "kinds": COLORS,
        "groups": GROUPS,
        "memory": [
            {"key": part.key, "label": part.label, "color": part.color}
            for part in MEMORY_PARTS.values()
        ],
        "metrics": [
            {key: row[key] for key in ("name", "label", "unit", "factor", "axis", "head")}
            for row in as_dicts()
        ],
        "near_tie": tie_width(),
        "safe_within": SAFE_WITHIN,
        "worth_saying": WORTH_SAYING,
    }


def _first(field: Field) -> str:
    """What holds where nothing is said and the field has no word for it."""
    return "no" if field.switch else field.choices[0] if field.choices else ""


def _label(field: Field) -> str:
    """Name of a field for people."""
    words = field.name.replace("_", " ")
    return {"by": "Objective", "fit": "Chance to fit", "pue": "PUE"}.get(words, words.capitalize())


def _model(name: str) -> dict[str, Any]:
    model = load_model(name)
    active = f", {format_count(model.active_parameters)} active" if model.moe else ""
    return {
        "name": name,
        "words": f"{format_count(model.parameters)} parameters{active}, {model.layers} layers",
        "parameters": float(model.parameters),
    }


def _cluster(name: str) -> dict[str, Any]:
    cluster = load_cluster(name)
    chip = cluster.accelerator
    rate = format_bit_rate(cluster.scale_out_bandwidth)
    return {
        "name": name,
        "accelerator": chip.name,
        "words": f"{chip.name}, domains of {cluster.scale_up_domain}, {rate} {cluster.fabric.name}",
        "usd_per_hour": cluster.usd_per_hour,
    }


def _accelerator(name: str) -> dict[str, Any]:
    chip = load_accelerator(name)
    peak = chip.peak_flops.get("bf16") or next(iter(chip.peak_flops.values()), 0.0)
    words = f"{chip.vendor}, {format_flops(peak)}, {format_bytes(chip.memory_bytes)}"
    return {"name": name, "words": words}


def _stack(name: str) -> dict[str, Any]:
    stack = load_stack(name)
    return {"name": name, "words": stack.fitted_on[:160], "devices": stack.devices}
