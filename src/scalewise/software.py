"""The software stack of a run: as named, or as strategy and device suggest.

    choose_stack("torchtitan", cluster).stack.name              # "pytorch"
    choose_stack(None, cluster, fully_sharded=True).reason      # why it was chosen

Fully sharded training is PyTorch's, tensor and pipeline parallelism Megatron's, TPUs run MaxText:
what people use is assumed where nothing is said, and the answer then covers what else is plausible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from scalewise.catalog import knows, names
from scalewise.errors import InputError, did_you_mean, is_like
from scalewise.stack import Stack, load_stack, stack_for

if TYPE_CHECKING:
    from scalewise.cluster import Cluster

SHARDED, MODEL_PARALLEL = "pytorch", "megatron"
"""Stacks assumed on GPUs: for fully sharded data parallelism, and for everything else."""

BY_KIND = {"tpu": "maxtext-tpu", "other": "neuronx"}
"""Stacks assumed on other devices: the only ones with published runs."""

PLAUSIBLE = {"gpu": (SHARDED, MODEL_PARALLEL)}
"""Stacks that an answer covers where none was named, by kind of device."""


@dataclass(frozen=True, kw_only=True)
class Software:
    """A stack, and how it came about."""

    stack: Stack
    reason: str | None
    """Why it was chosen, as a phrase; None where it was named and is in the catalog."""
    others: tuple[Stack, ...] = ()
    """What else is plausible, where none was named."""

    @property
    def default(self) -> str:
        """The choice as a flag, with its reason."""
        return f"--stack {self.stack.name} ({self.reason})"


def choose_stack(
    name: Stack | str | None,
    cluster: Cluster,
    *,
    fully_sharded: bool = False,
    compiled: bool | None = None,
) -> Software:
    """Return the software of a run.

    Args:
        name: Constants, the name or file of a stack, the name of a framework, or None.
        cluster: Whose devices it must run on.
        fully_sharded: Whether the strategy shards parameters.
        compiled: What the strategy says of the code, or None.

    Raises:
        InputError: If the name is misspelled, or the stack does not run on the device.
    """
    kind = cluster.accelerator.kind
    if name is None:
        return _assumed(cluster, fully_sharded=fully_sharded, compiled=compiled)
    found = _named(name, kind, compiled=compiled)
    if found.stack.devices not in (kind, "any"):
        usual = _assumed(cluster, fully_sharded=fully_sharded, compiled=None).stack.name
        raise InputError(
            f"--stack {found.stack.name} runs on a {found.stack.devices}, but "
            f"{cluster.accelerator.name} is a {kind}",
            hint=f"leave it out for {usual}, or use generic-compiled",
            field="stack",
        )
    return found


def _assumed(cluster: Cluster, *, fully_sharded: bool, compiled: bool | None) -> Software:
    """What people use for such a strategy on such a device."""
    kind = cluster.accelerator.kind
    if knows("stacks", cluster.name):
        # A calibrated machine has software of its own name.
        return Software(stack=load_stack(cluster.name), reason="calibrated with this cluster")
    if compiled is False:
        return Software(stack=load_stack("generic-eager"), reason="the strategy says eager")
    if kind in BY_KIND:
        stack = load_stack(BY_KIND[kind])
        return Software(stack=stack, reason=f"usual on {cluster.accelerator.name}")
    chosen = SHARDED if fully_sharded else MODEL_PARALLEL
    reason = "usual for FSDP" if fully_sharded else "usual for TP, PP and ZeRO-1"
    others = tuple(load_stack(each) for each in PLAUSIBLE[kind] if each != chosen)
    return Software(stack=load_stack(chosen), reason=reason, others=others)


def _named(name: Stack | str, kind: str, *, compiled: bool | None) -> Software:
    """The stack of a name: in the catalog, of a framework, or generic."""
    if isinstance(name, Stack):
        return Software(stack=name, reason=None)
    word = name.strip()
    if word.endswith(".toml") or knows("stacks", word):
        return Software(stack=load_stack(word), reason=None)
    frameworks = framework_names()
    if word.lower() in frameworks:
        stack = stack_for(word, device=kind, compiled=compiled)
        return Software(stack=stack, reason=f"speaks for {word}")
    known = (*names("stacks"), *frameworks)
    # A misspelled name is an error; a name like no other is software that no run has shown.
    if is_like(word, known):
        raise InputError(
            f"--stack {word}: unknown stack or framework",
            hint=did_you_mean(word, known),
            field="stack",
        )
    stack = stack_for(word, device=kind, compiled=compiled)
    return Software(stack=stack, reason=f"the catalog does not know {word}")


@lru_cache(maxsize=1)
def framework_names() -> tuple[str, ...]:
    """Every framework that some stack speaks for."""
    return tuple(sorted({f for name in names("stacks") for f in load_stack(name).frameworks}))
