"""Catalog files of a user's machine, with what they were fitted on.

write_machine(fit, Path("scalewise-catalog"))
# SCALEWISE_CATALOG=scalewise-catalog scalewise estimate tiny --on my-cluster ...
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TypeVar

import msgspec

from scalewise.cluster import Cluster
from scalewise.evidence.files import round_to, struct_toml, toml_value
from scalewise.evidence.machine import MachineFit
from scalewise.fields import field_docs
from scalewise.writing import write_atomically

S = TypeVar("S", bound=msgspec.Struct)


def write_machine(fit: MachineFit, folder: Path) -> list[Path]:
    """Write cluster, stack, and what they need, below a catalog folder.

    Args:
        fit: Fitted.
        folder: Sub-folders are made; files of the same name are replaced as a whole.

    Returns:
        The files.
    """
    notes = {c.name: f" Fitted on {c.source} (x/: {c.spread:.2f})." for c in fit.constants_}
    written = [_put(folder, "stacks", fit.name, struct_toml(_plain(fit.stack_), notes))]
    own_device = fit.accelerator_.name == fit.name
    if own_device:
        text = struct_toml(_plain(fit.accelerator_), {})
        written.append(_put(folder, "accelerators", fit.name, text))
    if fit.chip_.fitted_on == fit.fitted_on_:
        # A known device shares its architecture with others: in this folder they follow it.
        name = fit.accelerator_.architecture
        text = struct_toml(_plain(fit.chip_), {})
        written.append(_put(folder, "calibrations", name, text))
    if fit.fabric_.name == fit.name:
        text = struct_toml(_plain(fit.fabric_), notes)
        written.append(_put(folder, "fabrics", fit.name, text))
    written.append(_put(folder, "clusters", fit.name, _cluster_text(fit)))
    return sorted(written)


def _plain(struct: S) -> S:
    """The same with numbers rounded to what is stored, so that a file gives what a fit gave."""
    changes = {}
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if isinstance(value, float):
            changes[field] = round_to(value)
    return msgspec.structs.replace(struct, **changes)


def _cluster_text(fit: MachineFit) -> str:
    """A cluster names its accelerator and fabric instead of holding them."""
    cluster, docs = _plain(fit.cluster_), field_docs(Cluster)
    named = {"accelerator": fit.accelerator_.name, "fabric": fit.fabric_.name}
    lines = []
    for field in msgspec.structs.fields(cluster):
        value = named.get(field.name, getattr(cluster, field.name))
        if field.name == "name" or value is None or value == field.default:
            continue
        comment = textwrap.fill(
            docs.get(field.name, ""), 98, initial_indent="# ", subsequent_indent="# "
        )
        lines.append(f"{comment}\n{field.name} = {toml_value(value)}")
    return "\n".join(lines) + "\n"


def _put(folder: Path, kind: str, name: str, text: str) -> Path:
    return write_atomically(folder / kind / f"{name}.toml", text, make_folder=True)
