"""What did they mean? Names of the catalog, spelled as people do, and what a list of them shows.

    find_name("models", "llama 2 7b")       # "llama-2-7b"
    listing()["models"][0]                  # name, words, parameters, whether it can be estimated

Letters and digits decide, not the blanks, hyphens and points between them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from scalewise.catalog import find, knows, load_accelerator, load_cluster, names
from scalewise.errors import InputError, ScalewiseError, did_you_mean
from scalewise.model import load_model
from scalewise.stack import load_stack
from scalewise.step.support import check_supported
from scalewise.units import format_bit_rate, format_bytes, format_count, format_flops

SHORT = {"l": "llama", "g": "gpt", "q": "qwen", "m": "mistral"}
"""First letters that stand for a family: L2-7b."""


def plain(text: str) -> str:
    """Only letters and digits, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def tokens(text: str) -> list[str]:
    """Words and numbers: "Llama-2 7B" is llama, 2, 7b."""
    return re.findall(r"[a-z]+|[0-9]+(?:\.[0-9]+)?[a-z]*", text.lower())


def score(wanted: str, name: str) -> int:
    """How well a name fits what was typed; 0 if it does not."""
    if plain(wanted) == plain(name):
        return 100
    if plain(name).startswith(plain(wanted)):
        return 80
    asked, has = tokens(wanted), tokens(name)
    if asked and asked[0] in SHORT:
        asked = [SHORT[asked[0]], *asked[1:]]
    if not asked or not all(any(h.startswith(a) for h in has) for a in asked):
        return 0
    exact = sum(a in has for a in asked)
    return 20 + 10 * exact - min(len(has), 9)


def find_name(kind: str, text: str, *, also: str | None = None) -> str:
    """Find the name that was meant.

    Args:
        kind: A folder of the catalog.
        text: What was typed.
        also: Another folder to look in, second.

    Raises:
        InputError: If nothing is like it.
    """
    for folder in (kind, also):
        if folder is not None and knows(folder, text):
            return find(folder, text).stem
    known: list[str] = names(kind) + (names(also) if also else [])
    best = max(known, key=lambda name: score(text, name))
    if score(text, best):
        return best
    raise InputError(f"`{text}` is not among the {kind}", hint=did_you_mean(text, known))


@lru_cache(maxsize=1)
def listing() -> dict[str, list[dict[str, Any]]]:
    """Everything that can be chosen, with what a list shows about it."""
    return {
        "models": [_model(name) for name in names("models")],
        "clusters": [_cluster(name) for name in names("clusters")],
        "accelerators": [_accelerator(name) for name in names("accelerators")],
        "stacks": [_stack(name) for name in names("stacks")],
    }


def _model(name: str) -> dict[str, Any]:
    model = load_model(name)
    try:
        check_supported(model)
        reason = None
    except ScalewiseError as error:
        reason = str(error)
    return {
        "name": name,
        "words": f"{format_count(model.parameters)} parameters, {model.layers} layers",
        "parameters": float(model.parameters),
        "unsupported": reason,
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
