"""Catalog files of a calibration, with what each constant was fitted on.

    write_catalog(fit, memory, table, folder, links)

Stack files keep their facts (frameworks, kernel, partition) and get new constants. Chip files keep
their kernel tables and get new GEMM efficiencies. Fabric files get the constants of their family.
Every fitted number has its spread, and what the data did not determine is marked.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.catalog import find, load_fabric, names
from scalewise.chip import Calibration, load_chip
from scalewise.evidence.calibrate import ANY_KIND, kind_of
from scalewise.evidence.expert_fit import PRIORS as EXPERT_PRIORS
from scalewise.evidence.parameters import CHIP, COMPLEMENT, FABRIC, STACK
from scalewise.evidence.table import precision_families
from scalewise.fields import field_docs
from scalewise.reading import read_toml
from scalewise.stack import Stack, load_stack
from scalewise.writing import write_atomically

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scalewise.evidence.calibrate import Calibrator, Key
    from scalewise.evidence.expert_fit import ExpertFit
    from scalewise.evidence.memory_fit import MemoryFit
    from scalewise.evidence.table import RunTable
    from scalewise.experts import Experts
    from scalewise.numeric import Array
    from scalewise.ranges import Effects

# Beyond this spread (the prior's own) a constant is its prior, not a result.
_UNDETERMINED = 0.9


def toml_value(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # A JSON string is a TOML basic string.
        return msgspec.json.encode(value).decode()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def struct_toml(
    struct: msgspec.Struct, notes: Mapping[str, str], *, elsewhere: Collection[str] = ()
) -> str:
    """A struct as a commented TOML file; fields at their default are left out.

    Args:
        struct: What to write.
        notes: Remarks by field, put behind the docstring above the key.
        elsewhere: Fields that another file has.
    """
    docs, lines, tables = field_docs(type(struct)), [], []
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if (
            value is None
            or value == {}
            or (field.default is not msgspec.NODEFAULT and value == field.default)
        ):
            continue
        if field.name == "name" or field.name in elsewhere:
            continue
        comment = docs.get(field.name, "") + notes.get(field.name, "")
        text = textwrap.fill(comment, 98, initial_indent="# ", subsequent_indent="# ")
        if isinstance(value, dict):
            inner = [
                f"{k} = {toml_value(v)}" + notes.get(f"{field.name}.{k}", "")
                for k, v in value.items()
            ]
            tables.append("\n".join([text, f"[{field.name}]", *inner]))
        else:
            lines.append(f"{text}\n{field.name} = {toml_value(value)}")
    return "\n".join(lines) + "\n" + "".join(f"\n{table}\n" for table in tables)


def _note(fit: Calibrator, key: Key, prior_spread: float) -> str:
    """Return a comment on how well a constant is determined."""
    spread = fit.spread_.get(key)
    if spread is None:
        return " Not fitted."
    if key in fit.on_bounds_:
        return " Fitted, on its bound."
    return _determined(spread, prior_spread)


def _determined(spread: float, prior_spread: float) -> str:
    """Return a comment on a spread beside that of the prior."""
    if np.log(spread) > _UNDETERMINED * prior_spread:
        return f" Prior: the runs hardly determine it (x/: {spread:.2f})."
    return f" Fitted (x/: {spread:.2f})."


def fitted_stack(
    template: Stack,
    fit: Calibrator,
    memory: MemoryFit,
    *,
    fitted_on: str,
) -> tuple[Stack, dict[str, str]]:
    """A stack with the constants of a fit, and a remark for each of them."""
    changes: dict[str, Any] = {"fitted_on": fitted_on}
    notes: dict[str, str] = {}
    optional = {p.name: p for p in fit.optional()}
    bounds: list[str] = []
    for parameter in [*STACK, *(optional[name] for name in template.fits)]:
        field = COMPLEMENT.get(parameter.name, parameter.name)
        if field in template.declares:
            continue
        key = ("stack", template.owner(field), parameter.name)
        value = fit.value(key, parameter, kind=kind_of(template))
        changes[field] = round_to(1.0 - value if field != parameter.name else value)
        notes[field] = _note(fit, key, parameter.spread)
        if key in fit.on_bounds_:
            bounds.append(field)
    for parameter_name in ("gradient_memory", "activation_factor", "logit_memory",
                           "workspace_bytes"):  # fmt: skip
        if (template.name, parameter_name) in memory.values_:
            changes[parameter_name] = round_to(memory.values_[template.name, parameter_name])
            notes[parameter_name] = " Fitted."
    if template.name in memory.interval_:
        low, high = memory.interval_[template.name]
        changes["memory_interval"] = (round(low - 5e-3, 2), round(high, 2))
    if (template.name, "workspace_bytes") in memory.values_:
        # Measured peaks are what the allocator handed out: nothing is lost in them.
        changes["fragmentation"] = 0.0
    changes["undetermined"] = tuple(bounds)
    return msgspec.structs.replace(template, **changes), notes


def fitted_experts(fit: ExpertFit) -> tuple[Experts, dict[str, str]]:
    """Constants of experts, and a remark for each of them."""
    notes: dict[str, str] = {}
    unknown: list[str] = []
    for name, prior in EXPERT_PRIORS.items():
        value, spread = getattr(fit.constants, name), fit.spread[name]
        if min(value / prior.low, prior.high / value) < 1.001:
            notes[name] = " Fitted, on its bound."
        else:
            notes[name] = _determined(spread, prior.spread)
        if not notes[name].startswith(" Fitted ("):
            unknown.append(name)
    changes = {name: round_to(getattr(fit.constants, name)) for name in EXPERT_PRIORS}
    seen = _words([run.source for run in fit.rows.table.runs], np.abs(fit.errors))
    done = msgspec.structs.replace(
        fit.constants, **changes, fitted_on=seen, undetermined=tuple(unknown)
    )
    return done, notes


def write_experts(fit: ExpertFit, folder: Path) -> Path:
    """Write the constants of experts into a catalog folder."""
    constants, notes = fitted_experts(fit)
    path = folder / "experts" / f"{constants.name}.toml"
    return write_atomically(path, struct_toml(constants, notes), make_folder=True)


def round_to(value: float, digits: int = 5) -> float:
    """Round to significant digits: what is stored is what is used."""
    return float(f"{value:.{digits}g}")


def fitted_chip(
    architecture: str,
    fit: Calibrator,
    fitted_on: str,
    links: Mapping[Key, float],
    runs: Mapping[str, int],
) -> tuple[Calibration, dict[str, str]]:
    """A chip with the GEMM shares of a fit, and the runs behind each; kernel tables stay."""
    chip = load_chip(architecture)
    gemm, notes = dict(chip.gemm), {}
    for parameter in CHIP:
        key = ("chip", architecture, parameter.name)
        family = parameter.name.removeprefix("gemm.")
        share = fit.value(key, parameter, kind=ANY_KIND)
        # Narrow precisions are fitted relative to the 16-bit share.
        gemm[family] = round_to(share if family == "bf16" else share * gemm["bf16"])
        notes[parameter.name] = f"  #{_note(fit, key, parameter.spread)}"
    link = ("chip", architecture, "link_efficiency")
    return (
        msgspec.structs.replace(
            chip,
            calibrated=True,
            gemm=gemm,
            link_efficiency=round_to(links.get(link, chip.link_efficiency), 3),
            fitted_on=fitted_on,
            runs=dict(runs),
        ),
        notes,
    )


def write_catalog(
    fit: Calibrator,
    memory: MemoryFit,
    table: RunTable,
    folder: Path,
    links: Mapping[Key, float],
) -> list[Path]:
    """Write stacks, calibrations and fabrics below `folder`.

    Args:
        fit: Constants of time.
        memory: Constants of memory.
        table: The runs they were fitted on.
        folder: A catalog folder; sub-folders are made.
        links: Link efficiencies by chip, learned from collective timings.

    Returns:
        The files.
    """
    written: list[Path] = []

    def put(kind: str, name: str, text: str) -> None:
        path = folder / kind / f"{name}.toml"
        written.append(write_atomically(path, text, make_folder=True))

    owners = [stack.constants_from or stack.name for stack in table.stacks]
    for name in names("stacks"):
        template = load_stack(name)
        mine = np.array([owner == (template.constants_from or name) for owner in owners])
        if not mine.any():
            # Nothing was learned about it: what others taught must not overwrite it.
            continue
        seen = _seen(table, mine, fit)
        sizes = table.case.split.gpus[mine]
        stack, notes = fitted_stack(
            msgspec.structs.replace(template, runs=len(sizes), largest_run=int(sizes.max())),
            fit,
            memory,
            fitted_on=seen,
        )
        put("stacks", name, struct_toml(stack, notes, elsewhere=stack.shares))
    chips = [plan.cluster.accelerator.architecture for plan in table.plans]
    behind = Counter(zip(chips, precision_families(table), strict=True))
    for name in sorted(set(chips)):
        seen = _seen(table, np.array([chip == name for chip in chips]), fit)
        runs = {family: behind[name, family] for family in ("bf16", "fp8", "fp4")}
        chip, notes = fitted_chip(name, fit, seen, links, runs)
        put("calibrations", name, struct_toml(chip, notes))
    for name in names("fabrics"):
        fabric = load_fabric(name)
        changes, notes = {}, {}
        for parameter in FABRIC:
            key = ("fabric", fabric.family or name, parameter.name)
            if key in fit.values_:
                changes[parameter.name] = round_to(fit.values_[key])
                notes[parameter.name] = _note(fit, key, parameter.spread)
        if changes:
            text = struct_toml(msgspec.structs.replace(fabric, **changes), notes)
            put("fabrics", name, _aliases("fabrics", name) + text)
    return written


def write_ranges(effects: Effects, folder: Path) -> Path:
    """Write the effects behind intervals into a catalog folder."""
    path = folder / "ranges.toml"
    return write_atomically(path, struct_toml(effects, {}), make_folder=True)


def _aliases(kind: str, name: str) -> str:
    """The line of aliases that the present file has: structs do not carry it."""
    table = read_toml(find(kind, name))
    return f"aliases = {toml_value(table['aliases'])}\n" if "aliases" in table else ""


def _seen(table: RunTable, rows: Any, fit: Calibrator) -> str:
    """What a constant was fitted on, in words."""
    if not np.any(rows):
        return "no run of its own"
    part = table.select(rows)
    error = np.abs(fit.predict(part) / part.measured - 1.0)
    return _words([run.source for run in part.runs], error)


def _words(sources: list[str], error: Array) -> str:
    """Runs, their sources and their median error in words."""
    return (
        f"{len(sources)} published runs of {', '.join(sorted(set(sources)))}; "
        f"median error {100 * float(np.nanmedian(error)):.1f} % in sample"
    )
