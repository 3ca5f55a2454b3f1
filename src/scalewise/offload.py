"""Words of offload: what a strategy keeps in host memory or on NVMe instead of the device.

    offloads_of("opt+act")          # ["opt", "act"]; in a strategy the tokens offopt and offact

This file imports only `errors` of scalewise.
"""

from __future__ import annotations

from collections.abc import Collection

from scalewise.errors import InputError, did_you_mean

OFFLOADS = {
    "opt": "optimizer state and reduced gradients in host memory, updated by the CPU",
    "param": "parameters in host memory too, which FSDP all-gathers from there",
    "act": "activations kept for backward in host memory",
    "nvme": "what `opt` and `param` keep on NVMe of the host",
}
"""What is offloaded, by word, in the order of their bits in columns. DeepSpeed: offload_optimizer,
offload_param, device nvme (ZeRO-Offload, ZeRO-Infinity); PyTorch FSDP2: CPUOffloadPolicy is opt and
param; torchtune and Megatron-LM: activation offload."""

OFFLOAD_TOKENS = {f"off{word}": word for word in OFFLOADS}
"""Offloads by their token in a strategy."""


def offloads_of(text: str) -> list[str]:
    """Return the words of an `offload`.

    >>> offloads_of("opt+act"), offloads_of("")
    (['opt', 'act'], [])
    """
    return text.split("+") if text else []


def joined(words: Collection[str]) -> str:
    """Return words as an `offload`, in the order of `OFFLOADS`.

    >>> joined(["act", "opt"])
    'opt+act'
    """
    return "+".join(each for each in OFFLOADS if each in words)


def check_offload(text: object) -> None:
    """Check that a value names distinct offloads, in the order of `OFFLOADS`, that go together.

    Raises:
        InputError: With the rule.
    """
    words = offloads_of(text) if isinstance(text, str) else [type(text).__name__]
    for each in words:
        if each not in OFFLOADS:
            raise InputError(f"unknown offload {each[:40]}", hint=did_you_mean(each[:40], OFFLOADS))
    ordered = joined(words)
    if text != ordered:
        raise InputError(f"offload = {text} is out of order", hint=f"use {ordered}")
    for each in ("param", "nvme"):
        if each in words and "opt" not in words:
            raise InputError(
                f"offload = {text}: {each} needs opt, because the CPU updates what it holds",
                hint=f"use {joined(['opt', *words])}; in a strategy offopt-off{each}",
            )
