"""The known accelerator nearest to a name that the catalog lacks.

    nearest_accelerator("h100-sxm-94gb")      # (h100-sxm-80gb, "accelerator h100-sxm-94gb ...")

Names are made of a family ("h100"), a form ("sxm", "pcie") and a memory size ("80gb"): the family
decides, because it fixes compute and architecture; form and memory break ties. Tables of runs name
parts that no datasheet covers, and a near answer with a note is of more use than none.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from scalewise.catalog import knows, load_accelerator, names
from scalewise.cluster import Accelerator

_FORMS = frozenset({"sxm", "pcie", "nvl", "oam"})
# Words of vendors and product lines, which many families share.
_LINES = frozenset(
    {"nvidia", "amd", "intel", "google", "aws", "tesla", "geforce", "instinct", "rtx", "tpu"}
)
_MEMORY = re.compile(r"(\d+)g(?:i?b)?")


def nearest_accelerator(name: str) -> tuple[Accelerator, str]:
    """Return the accelerator of a name, or else the nearest one, and a note.

    Args:
        name: As a table or a user writes it, in any spelling.

    Returns:
        The accelerator, and one sentence that says what stands for what; empty if the name is
        known.

    >>> chip, note = nearest_accelerator("h100-sxm-94gb")
    >>> chip.name, note
    ('h100-sxm-80gb', 'accelerator h100-sxm-94gb is not in the catalog: h100-sxm-80gb assumed')
    >>> nearest_accelerator("h100")[1]
    ''
    """
    if knows("accelerators", name):
        return load_accelerator(name), ""
    nearest = max(names("accelerators"), key=lambda known: _likeness(name, known))
    note = f"accelerator {name} is not in the catalog: {nearest} assumed"
    return load_accelerator(nearest), note


def _likeness(name: str, known: str) -> tuple[float, bool, bool, float]:
    """What makes two names alike, most important first."""
    (family, form, memory), (other, its_form, its_memory) = _parts(name), _parts(known)
    same = 1.0 if family == other else 0.9 * SequenceMatcher(None, family, other).ratio()
    # SXM parts before cards where nothing is said: they are what large runs have.
    forms = (form or "sxm") == its_form
    apart = -abs(memory - its_memory) if memory and its_memory else 0.0
    usual = not known.endswith(("custom", "w"))
    return same, forms, usual, apart


def _parts(name: str) -> tuple[str, str, float]:
    """Family, form and memory of a name.

    >>> _parts("NVIDIA H100 SXM5 80GB")
    ('h100', 'sxm', 80.0)
    """
    words = re.split(r"[\s_-]+", name.strip().lower())
    forms = [re.sub(r"\d+$", "", word) for word in words]
    form = next((word for word in forms if word in _FORMS), "")
    sizes = [float(found[1]) for word in words if (found := _MEMORY.fullmatch(word))]
    left = [
        word
        for word, plain in zip(words, forms, strict=True)
        if plain not in _FORMS and not _MEMORY.fullmatch(word) and word not in _LINES
    ]
    return (left[0] if left else name), form, (sizes[0] if sizes else 0.0)
