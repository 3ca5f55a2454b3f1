"""The software stack of a run: as named, or as strategy and device suggest.

    choose_stack("torchtitan", cluster).stack.name              # "pytorch"
    choose_stack(None, cluster, fully_sharded=True).reason      # why it was chosen

Fully sharded training is PyTorch's, tensor and pipeline parallelism Megatron's, TPUs run MaxText:
what people use is assumed where nothing is said, as they get it without tuning, and the answer then
covers what the tuned software of the same family reaches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from scalewise.catalog import knows, names
from scalewise.errors import InputError, did_you_mean, is_like
from scalewise.stack import USUAL, Stack, load_stack, nearest, stack_for

if TYPE_CHECKING:
    from scalewise.cluster import Cluster

TUNED = {"pytorch": "pytorch-compiled", "megatron-lm": "megatron"}
"""Stacks of the same family with its tuning (compiled code, recipes of the vendor): the other end
of an answer where no software was named."""


@dataclass(frozen=True, kw_only=True)
class Software:
    """A stack, and how it came about."""

    stack: Stack
    reason: str | None
    """Why it was chosen, as a phrase; None where it was named and is in the catalog."""
    others: tuple[Stack, ...] = ()
    """What else is plausible, where none was named: the tuned end of the family."""

    @property
    def default(self) -> str:
        """The choice as a flag, with its reason."""
        return f"--stack {self.stack.name} ({self.reason})"


def choose_stack(
    name: Software | Stack | str | None,
    cluster: Cluster,
    *,
    fully_sharded: bool = False,
    frozen: bool = False,
    compiled: bool | None = None,
) -> Software:
    """Return the software of a run.

    Args:
        name: Constants, the name or file of a stack, the name of a framework, or None; what is
            chosen already stays as it is.
        cluster: Whose devices it must run on.
        fully_sharded: Whether the strategy shards parameters.
        frozen: Whether adapters of a frozen model are trained, which is PyTorch's too.
        compiled: What the strategy says of the code, or None.

    Raises:
        InputError: If the name is misspelled, or the stack does not run on the device.
    """
    if isinstance(name, Software):
        return name
    kind = cluster.accelerator.kind
    if name is None:
        found = _assumed(cluster, fully_sharded=fully_sharded or frozen, compiled=compiled)
        if frozen and found.stack.family == "pytorch":
            return replace(found, reason="usual for adapters")
        return found
    found = _named(name, kind, compiled=compiled, fully_sharded=fully_sharded)
    if found.stack.devices not in (kind, "any"):
        usual = _assumed(cluster, fully_sharded=fully_sharded, compiled=None).stack.name
        raise InputError(
            f"--stack {found.stack.name} runs on a {found.stack.devices}, but "
            f"{cluster.accelerator.name} is a {kind}",
            hint=f"leave it out for {usual}",
            field="stack",
        )
    return found


def _assumed(cluster: Cluster, *, fully_sharded: bool, compiled: bool | None) -> Software:
    """What people use for such a strategy on such a device."""
    kind = cluster.accelerator.kind
    if knows("stacks", cluster.name):
        # A calibrated machine has software of its own name.
        return Software(stack=load_stack(cluster.name), reason="calibrated with this cluster")
    stack = load_stack(nearest(kind, compiled=compiled, fully_sharded=fully_sharded))
    chip = cluster.accelerator
    if stack.vendor not in ("", chip.vendor):
        near = msgspec.structs.replace(stack, stands_in=True)
        return Software(stack=near, reason=f"nearest one, no software of {chip.name} has runs")
    if kind in USUAL:
        return Software(stack=stack, reason=f"usual on {chip.name}")
    reason = "usual for FSDP" if fully_sharded else "usual for TP, PP and ZeRO-1"
    tuned = TUNED.get(stack.name) if compiled is None else None
    others = (load_stack(tuned),) if tuned else ()
    return Software(stack=stack, reason=reason, others=others)


def _named(name: Stack | str, kind: str, *, compiled: bool | None, fully_sharded: bool) -> Software:
    """The stack of a name: in the catalog, of a framework, or the nearest family."""
    if isinstance(name, Stack):
        return Software(stack=name, reason=None)
    word = name.strip()
    if word.endswith(".toml") or knows("stacks", word):
        return Software(stack=_in_mode(load_stack(word), compiled=compiled), reason=None)
    frameworks = framework_names()
    stack = stack_for(word, device=kind, compiled=compiled, fully_sharded=fully_sharded)
    if word.lower() in frameworks:
        return Software(stack=stack, reason=f"speaks for {word}")
    known = (*names("stacks"), *frameworks)
    # A misspelled name is an error; a name like no other is software that no run has shown.
    if is_like(word, known):
        raise InputError(
            f"--stack {word}: unknown stack or framework",
            hint=did_you_mean(word, known),
            field="stack",
        )
    reason = f"nearest to {word}, which the catalog does not know"
    return Software(stack=msgspec.structs.replace(stack, stands_in=True), reason=reason)


def _in_mode(stack: Stack, *, compiled: bool | None) -> Stack:
    """The same software, compiled where the strategy says so and the catalog has it."""
    if compiled and not stack.compiled and stack.name in TUNED:
        return load_stack(TUNED[stack.name])
    return stack


@lru_cache(maxsize=1)
def framework_names() -> tuple[str, ...]:
    """Every framework that some stack speaks for."""
    return tuple(sorted({f for name in names("stacks") for f in load_stack(name).frameworks}))
