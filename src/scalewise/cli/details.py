"""Catalog entries as tables of many and views of one.

    models([load_model("gpt2")]).draw(console)
    stack(load_stack("megatron")).data          # ready for JSON

Every view has `data`, which `--json` prints, and `draw`, which prints it in a terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scalewise.chip import load_chip
from scalewise.cli.pages import cut, draw_heading, draw_list, draw_pairs, draw_source
from scalewise.fields import field_docs
from scalewise.model import CONVENTIONS
from scalewise.units import (
    format_bit_rate,
    format_bytes,
    format_count,
    format_dollars,
    format_flops,
    format_percent,
    format_rate,
    format_watts,
)

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.cluster import Accelerator, Cluster
    from scalewise.model import Model
    from scalewise.price import Price
    from scalewise.stack import Stack

SEQ_LEN = 4096
"""Tokens per sequence of the FLOP counts of a model."""


class Listing(NamedTuple):
    """Table of many entries."""

    data: list[dict[str, Any]]
    """The rows as plain types."""
    draw: Callable[[Console], None]
    """Prints the table."""


class Detail(NamedTuple):
    """View of one entry."""

    data: dict[str, Any]
    """Everything as plain types."""
    draw: Callable[[Console], None]
    """Prints the view."""


def models(found: list[Model]) -> Listing:
    """Return the table of models: size and shape."""
    found = sorted(found, key=lambda model: model.parameters)
    data = [
        {
            "name": model.name,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "vocab": model.vocab,
            "source": model.source,
        }
        for model in found
    ]
    rows = [
        (
            model.name,
            format_count(model.parameters),
            format_count(model.active_parameters) if model.moe else "",
            str(model.layers),
            str(model.hidden),
            f"{model.heads}/{model.kv_heads}",
            format_count(model.vocab),
            model.source,
        )
        for model in found
    ]
    heads = ("model", "params", "active", "layers", "hidden", "heads/kv", "vocab", "source")
    return Listing(data, draw_list(heads, rows))


def accelerators(found: list[Accelerator]) -> Listing:
    """Return the table of accelerators: peaks, memory, links, power and calibration."""
    data = [{**msgspec.to_builtins(chip), "calibrated": _is_calibrated(chip)} for chip in found]
    rows = [
        (
            chip.name,
            _tera(chip.peak_flops.get("bf16", chip.peak_flops.get("fp16"))),
            _tera(chip.peak_flops.get("fp8")),
            format_bytes(chip.memory_bytes),
            format_rate(chip.memory_bandwidth),
            _or_blank(chip.scale_up_bandwidth, format_rate),
            _or_blank(chip.tdp_watts, format_watts),
            "yes" if _is_calibrated(chip) else "no",
            chip.source,
        )
        for chip in found
    ]
    heads = (
        "accelerator",
        "bf16",
        "fp8",
        "memory",
        "rate",
        "scale-up",
        "TDP",
        "fitted",
        "source",
    )
    caption = "Dense peaks in TFLOP/s; fitted: whether efficiencies are fitted to measured runs."
    return Listing(data, draw_list(heads, rows, caption))


def clusters(found: list[Cluster]) -> Listing:
    """Return the table of clusters: accelerators, links and fabric."""
    data = [msgspec.to_builtins(cluster) for cluster in found]
    rows = [
        (
            cluster.name,
            cluster.accelerator.name,
            str(cluster.scale_up_domain),
            format_rate(cluster.scale_up_bandwidth),
            format_bit_rate(cluster.scale_out_bandwidth),
            _or_blank(cluster.usd_per_hour, format_dollars),
            "" if cluster.price is None else _price_origin(cluster.price),
            cluster.fabric.name,
            cluster.source,
        )
        for cluster in found
    ]
    heads = (
        "cluster",
        "accelerator",
        "domain",
        "scale-up",
        "scale-out",
        "$/GPU-h",
        "price",
        "fabric",
        "source",
    )
    caption = (
        "price: list (on demand), reserved (with a commitment) or market (middle of the offers for "
        "a chip; * inherited)."
    )
    return Listing(data, draw_list(heads, rows, caption))


def _price_rows(one: Cluster) -> list[tuple[str, str]]:
    """Kind, date, region and source of a price."""
    price = one.price
    if price is None:
        return []
    of = f" of {price.chip}" if price.chip else ""
    return [
        ("price", f"{price.words}{of}"),
        ("price region", price.region),
        ("price source", price.source),
    ]


def _price_origin(price: Price) -> str:
    """Kind and date of a price, with a star if it is that of the chip."""
    return f"{price.words}{'*' if price.chip else ''}"


def stacks(found: list[Stack]) -> Listing:
    """Return the table of software stacks: frameworks, and what they were fitted on."""
    data = [msgspec.to_builtins(stack) for stack in found]
    rows = [
        (
            stack.name,
            stack.devices,
            "compiled" if stack.compiled else "eager",
            stack.attention_kernel,
            f"{stack.largest_run:,}" if stack.largest_run else "-",
            cut(", ".join(stack.frameworks), 20),
            stack.fitted_on,
        )
        for stack in found
    ]
    heads = ("stack", "device", "mode", "attention", "largest run", "frameworks", "fitted on")
    caption = "Largest run: GPUs of the largest run it was fitted on; intervals widen beyond."
    return Listing(data, draw_list(heads, rows, caption))


def model(one: Model) -> Detail:
    """Return one model: shapes, parameters and FLOPs by part."""
    parts = {name: count for name, count in one.parameter_parts().items() if count}
    flops = {name: value for name, value in one.forward_flops_parts(SEQ_LEN).items() if value}
    training = {name: one.training_flops(SEQ_LEN, name) for name in CONVENTIONS}
    data = {
        **msgspec.to_builtins(one),
        "parameters": one.parameters,
        "active_parameters": one.active_parameters,
        "parameter_parts": parts,
        "mtp_parameters": one.mtp_parameters,
        "seq_len": SEQ_LEN,
        "forward_flops_per_token": flops,
        "training_flops_per_token": training,
    }

    def draw(out: Console) -> None:
        active = f", {format_count(one.active_parameters)} active" if one.moe else ""
        draw_heading(out, f"{one.name}: {one.parameters:,} parameters{active}")
        draw_pairs(out, "Shape", _shape(one))
        total = one.parameters
        rows = [(_plain(n), f"{c:,}", format_percent(c / total)) for n, c in parts.items()]
        draw_pairs(out, "Parameters", [*rows, ("total", f"{total:,}", "100.0%")], numbers=2)
        all_flops = sum(flops.values())
        lines = [(_plain(n), _flop(f), format_percent(f / all_flops)) for n, f in flops.items()]
        whole = ("forward", _flop(all_flops), "100.0%")
        draw_pairs(out, f"FLOP per token forward, {SEQ_LEN:,} tokens", [*lines, whole], numbers=2)
        named = [(name, _flop(value)) for name, value in training.items()]
        draw_pairs(out, "FLOP per token of training, by convention", named, numbers=1)
        draw_source(out, one.source)

    return Detail(data, draw)


def accelerator(one: Accelerator) -> Detail:
    """Return one accelerator: peaks, sustained fractions of them, links, power and cost."""
    chip = load_chip(one.architecture)
    data = {
        **msgspec.to_builtins(one),
        "calibrated": chip.calibrated,
        "calibration": msgspec.to_builtins(chip),
    }

    def draw(out: Console) -> None:
        draw_heading(
            out, f"{one.name}: {one.vendor} {one.architecture}, {one.release or 'unknown date'}"
        )
        peaks = [(dtype, format_flops(value)) for dtype, value in one.peak_flops.items()]
        draw_pairs(out, "Dense peaks", peaks, numbers=1)
        draw_pairs(out, "Datasheet", _datasheet(one))
        state = (
            "calibrated"
            if chip.calibrated
            else "NOT calibrated: efficiencies of other architectures"
        )
        rows = [("state", state)]
        rows += [
            (f"{name} GEMM", f"{fraction:.0%} of peak") for name, fraction in chip.gemm.items()
        ]
        rows += [
            (f"attention, {kernel}", f"{f:.0%} of the 16-bit peak forward, {b:.0%} backward")
            for kernel, (f, b) in chip.attention.items()
        ]
        rows.append(("memory", f"{chip.memory_efficiency:.0%} of its bandwidth"))
        rows.append(("scale-up links", f"{chip.link_efficiency:.0%} of their bandwidth"))
        draw_pairs(out, f"Sustained by {one.architecture}", [*rows, ("fitted on", chip.fitted_on)])
        draw_source(out, one.source, one.notes)

    return Detail(data, draw)


def cluster(one: Cluster) -> Detail:
    """Return one cluster: accelerators, links, fabric, power, cost and assumptions."""
    data = {**msgspec.to_builtins(one), "assumed": one.assumed}

    def draw(out: Console) -> None:
        draw_heading(out, f"{one.name}: {one.accelerators:,} x {one.accelerator.name} by default")
        rows = [
            ("scale-up domain", f"{one.scale_up_domain} GPUs"),
            ("scale-up", f"{format_rate(one.scale_up_bandwidth)} one way per GPU"),
            (
                "scale-out",
                f"{format_bit_rate(one.scale_out_bandwidth)} one way per GPU",
            ),
            ("oversubscription", f"{one.oversubscription:g}"),
            ("fabric", f"{one.fabric.name}: {one.fabric.description}".rstrip(": ")),
            ("host CPUs", one.host),
            ("host power", f"{format_watts(one.host_watts)} per GPU"),
            ("network power", f"{format_watts(one.network_watts)} per GPU"),
            ("PUE", f"{one.pue:g}"),
            ("cost", _or_blank(one.usd_per_hour, lambda value: format_dollars(value) + "/GPU-h")),
            *_price_rows(one),
        ]
        draw_pairs(out, "Numbers", [row for row in rows if row[1]])
        if one.assumed:
            draw_pairs(out, "Assumed", [(sentence,) for sentence in one.assumed])
        draw_source(out, one.source, one.notes)

    return Detail(data, draw)


def stack(one: Stack) -> Detail:
    """Return one software stack: every constant with its meaning, and the runs it was fitted on."""
    docs = field_docs(type(one))
    values = {name: getattr(one, name) for name in one.__struct_fields__}
    data = {
        **msgspec.to_builtins(one),
        "constants": {
            name: {"value": msgspec.to_builtins(value), "meaning": docs.get(name, "")}
            for name, value in values.items()
        },
    }

    def draw(out: Console) -> None:
        draw_heading(out, f"{one.name}: {', '.join(one.frameworks) or 'any framework'}")
        known = ("name", "frameworks", "fitted_on", "undetermined", "fits")
        rows = [
            (name, _value(value), docs.get(name, ""))
            for name, value in values.items()
            if name not in known and value not in (None, "")
        ]
        draw_pairs(out, "Constants", rows, numbers=1)
        loose = ", ".join(one.undetermined)
        if loose:
            draw_pairs(out, "Not determined by the data", [(loose,)])
        draw_source(out, one.fitted_on, heading="Fitted on")

    return Detail(data, draw)


def _is_calibrated(chip: Accelerator) -> bool:
    return load_chip(chip.architecture).calibrated


def _shape(one: Model) -> list[tuple[str, ...]]:
    rows = [
        ("layers", str(one.layers)),
        ("hidden", str(one.hidden)),
        ("heads", f"{one.heads} of {one.head_dim}, {one.kv_heads} for keys and values"),
        ("MLP", f"{one.ffn} wide, {one.mlp_matrices} matrices" if one.ffn else ""),
        ("vocabulary", f"{one.vocab:,}{', tied to the head' if one.tied else ''}"),
        ("positions", one.positions),
    ]
    if one.moe is not None:
        moe = one.moe
        rows.append(
            (
                "experts",
                f"{moe.experts} of {moe.ffn} in {moe.layers} layers, {moe.experts_per_token} per "
                f"token, {moe.shared_experts} shared",
            )
        )
        if one.dense_layers:
            rows.append(("dense layers", f"{one.dense_layers}, {moe.dense}"))
    if one.mla is not None:
        rows.append(("latent attention", f"rank {one.mla.kv_rank}"))
    if one.mtp_layers:
        more = f"{format_count(one.mtp_parameters)} parameters beside the model's"
        rows.append(("multi-token prediction", f"{one.mtp_layers} layer, {more}"))
    if one.window is not None:
        rows.append(("window", f"{one.window:,} tokens in {one.windowed_layers} layers"))
    return [row for row in rows if row[1]]


def _datasheet(one: Accelerator) -> list[tuple[str, ...]]:
    def dollars(value: float) -> str:
        return format_dollars(value) + "/GPU-h"

    rows = [
        ("memory", f"{format_bytes(one.memory_bytes)} at {format_rate(one.memory_bandwidth)}"),
        ("scale-up", f"{one.scale_up_name}, domains of {one.scale_up_domain}"),
        ("scale-up rate", _or_blank(one.scale_up_bandwidth, format_rate)),
        ("scale-out rate", _or_blank(one.scale_out_bandwidth, format_bit_rate)),
        ("compute units", _or_blank(one.compute_units, lambda value: f"{value:g}")),
        ("power limit", _or_blank(one.tdp_watts, format_watts)),
        ("idle power", _or_blank(one.idle_watts, format_watts)),
        ("cost", _or_blank(one.usd_per_hour, dollars)),
        ("lowest cost", _or_blank(one.usd_per_hour_low, dollars)),
        ("highest cost", _or_blank(one.usd_per_hour_high, dollars)),
        ("kind of costs", f"{one.price_kind} {one.price_date}" if one.price_date else ""),
        ("source of costs", one.price_source),
        ("purchase", _or_blank(one.purchase_usd, format_dollars)),
        (
            "source of purchase",
            f"{one.purchase_date}: {one.purchase_source}".strip(" :")
            if one.purchase_usd is not None
            else "",
        ),
    ]
    return [row for row in rows if row[1]]


def _tera(value: float | None) -> str:
    return "" if value is None else f"{value / 1e12:,.0f}"


def _or_blank(value: float | None, show: Callable[[float], str]) -> str:
    return "" if value is None else show(value)


def _flop(value: float) -> str:
    return format_flops(value).removesuffix("/s")


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return " - ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value if value is not None else "")
