"""Catalog as Markdown: tables, meaning of keys, and every file with its sources.

accelerators(), clusters(), fabrics(), calibrations(), stacks()
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from scalewise.catalog import find, load_accelerator, load_cluster, load_fabric, names
from scalewise.chip import load_chip
from scalewise.cluster import Accelerator, Cluster, Fabric
from scalewise.stack import Stack, load_stack
from scalewise.units import (
    format_bit_rate,
    format_bytes,
    format_rate,
    format_seconds,
    format_watts,
)
from sitegen.python_api import fields
from sitegen.words import fence, folded, table

DTYPES = ("bf16", "fp8", "fp4")


def accelerators() -> str:
    """Return a table of accelerator datasheets, then the files with their sources."""
    rows = []
    for name in names("accelerators"):
        chip = load_accelerator(name)
        rows.append(
            [
                f"`{name}`",
                *(
                    f"{chip.peak_flops[d] / 1e12:,.0f}" if d in chip.peak_flops else ""
                    for d in DTYPES
                ),
                format_bytes(chip.memory_bytes),
                format_rate(chip.memory_bandwidth),
                _maybe(chip.scale_up_bandwidth, format_rate),
                _maybe(chip.tdp_watts, format_watts),
            ]
        )
    heads = [
        "accelerator",
        *(f"{d}, TFLOP/s" for d in DTYPES),
        "memory",
        "bandwidth",
        "scale-up",
        "TDP",
    ]
    return "\n\n".join(
        [table(heads, rows, "lrrrrrrr"), _meanings(Accelerator), _files("accelerators")]
    )


def clusters() -> str:
    """Return a table of clusters, then the files with their sources."""
    rows = []
    for name in names("clusters"):
        one = load_cluster(name)
        price = ""
        if one.price is not None:
            price = f"${one.price.usd_per_hour:.2f}/h, {one.price.words}"
        rows.append(
            [
                f"`{name}`",
                f"`{one.accelerator.name}`",
                one.scale_up_domain,
                format_bit_rate(one.scale_out_bandwidth),
                f"`{one.fabric.name}`",
                price,
            ]
        )
    heads = ["cluster", "accelerator", "domain", "network per GPU", "fabric", "cost per GPU"]
    return "\n\n".join([table(heads, rows, "llrrlr"), _meanings(Cluster), _files("clusters")])


def fabrics() -> str:
    """Return a table of fabrics, then the files with their sources."""
    rows = []
    for name in names("fabrics"):
        one = load_fabric(name)
        rows.append(
            [
                f"`{name}`",
                one.description,
                format_seconds(one.hop_seconds),
                format_seconds(one.call_seconds),
                f"{one.efficiency:g}",
                f"{one.congestion:g}",
            ]
        )
    heads = ["fabric", "description", "per hop", "per call", "efficiency", "congestion"]
    return "\n\n".join([table(heads, rows, "llrrrr"), _meanings(Fabric), _files("fabrics")])


def calibrations() -> str:
    """Return a table of sustained fractions of peak by architecture, then the files."""
    rows = []
    for name in names("calibrations"):
        chip = load_chip(name)
        shares = (f"{chip.gemm[d]:.3f}" if d in chip.gemm else "" for d in DTYPES)
        rows.append(
            [f"`{name}`", *shares, chip.memory_efficiency, chip.link_efficiency, chip.fitted_on]
        )
    heads = ["architecture", *DTYPES, "memory", "links", "fitted on"]
    text = table(heads, rows, "lrrrrrl")
    return "\n\n".join([text, _meanings(type(load_chip("hopper"))), _files("calibrations")])


def stacks() -> str:
    """Return a table of every constant of every software stack."""
    known = {name: load_stack(name) for name in names("stacks")}
    numbers = [
        f.name for f in msgspec.structs.fields(Stack)
        if isinstance(getattr(next(iter(known.values())), f.name), float)
    ]  # fmt: skip
    rows = [
        [f"`{field}`", *(f"{getattr(stack, field):.4g}" for stack in known.values())]
        for field in numbers
    ]
    text = table(["constant", *(f"`{name}`" for name in known)], rows, "l" + "r" * len(known))
    sources = table(
        ["stack", "fitted on"], [(f"`{name}`", stack.fitted_on) for name, stack in known.items()]
    )
    return "\n\n".join([text, sources, _meanings(Stack), _files("stacks")])


def _meanings(type_: type) -> str:
    """Return a folded table of keys and their meaning."""
    rows = [(f"`{name}`", doc) for name, _, _, doc in fields(type_)]
    return folded("Meaning of the keys", table(["key", "meaning"], rows))


def _files(kind: str) -> str:
    """Return every file of a kind, folded, with its comments and sources."""
    out = []
    for name in names(kind):
        text = find(kind, name).read_text(encoding="utf-8")
        out.append(folded(f"{name}.toml", fence(text, "toml"), "quote"))
    return "\n\n".join(out)


def _maybe(value: float | None, form: Callable[[float], str]) -> str:
    return "" if value is None else form(value)
