"""Kinds of activation recompute: their words, tokens in a strategy, and checks.

recomputed_blocks("1of4"), recompute_of_token("acop")      # (1, 4), "op"
"""

from __future__ import annotations

import re

from scalewise.errors import InputError, did_you_mean

RECOMPUTES = {
    "none": "nothing",
    "selective": "what the software's selective mode repeats: one of the next two, or a policy",
    "attention": "the attention core alone, as Megatron-LM does",
    "op": "every other matmul and all memory-bound kernels, as torchtitan does",
    "full": "whole blocks",
}
"""Kinds of activation recompute by word, the least repeated work first. "1of4" is full recompute of
every fourth block."""

MODULES = {
    "norm": "norms, as Megatron-LM's module layernorm",
    "latent": "up-projections of latent attention, as its module mla_up_proj",
    "activation": "the activation of experts, as its module moe_act",
    "mlp": "dense MLPs, as its module mlp",
}
"""Modules that are recomputed besides, by word, in the order of their bits in columns."""

MODULE_TOKENS = {"acnorm": "norm", "aclatent": "latent", "acact": "activation", "acmlp": "mlp"}
"""Modules by their token in a strategy."""

MAX_BLOCKS = 1023
"""Largest N of "KofN"."""

_BLOCKS = re.compile("([0-9]{1,4})of([0-9]{1,4})")


def recomputed_blocks(kind: str) -> tuple[int, int] | None:
    """Return (K, N) of a recompute of K of every N blocks, or None for the other kinds.

    >>> recomputed_blocks("1of4"), recomputed_blocks("full"), recomputed_blocks("op")
    ((1, 4), (1, 1), None)
    """
    if kind == "full":
        return 1, 1
    match = _BLOCKS.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def check_recompute(kind: object) -> None:
    """Check that a value is a kind of recompute."""
    if isinstance(kind, str):
        if kind in RECOMPUTES:
            return
        blocks = recomputed_blocks(kind)
        if blocks is not None:
            if 1 <= blocks[0] < blocks[1] <= MAX_BLOCKS and kind == "{}of{}".format(*blocks):
                return
            raise InputError(
                f"recompute {kind} must be K of N blocks with 1 <= K < N <= {MAX_BLOCKS}",
                hint="for example 1of4; all blocks are `full`",
            )
    shown = kind[:40] if isinstance(kind, str) else type(kind).__name__
    known = [*RECOMPUTES, "1of4", "1of2"]
    raise InputError(f"unknown recompute {shown}", hint=did_you_mean(shown, known))


def modules_of(text: str) -> list[str]:
    """Return the modules of a `recompute_modules`.

    >>> modules_of("latent+activation"), modules_of("")
    (['latent', 'activation'], [])
    """
    return text.split("+") if text else []


def check_modules(text: object) -> None:
    """Check that a value names distinct modules, in the order of `MODULES`."""
    modules = modules_of(text) if isinstance(text, str) else [type(text).__name__]
    for module in modules:
        if module not in MODULES:
            word = module[:40]
            raise InputError(f"unknown recompute module {word}", hint=did_you_mean(word, MODULES))
    ordered = "+".join(each for each in MODULES if each in modules)
    if text != ordered:
        raise InputError(f"recompute_modules = {text} is out of order", hint=f"use {ordered}")


RECOMPUTE_TOKENS = {
    "acsel": "selective", "acattn": "attention", "acop": "op", "acfull": "full",
}  # fmt: skip
"""Kinds of recompute by their token in a strategy; blocks are "ac1of4"."""


def recompute_of_token(token: str) -> str | None:
    """Return the kind of recompute that a token of a strategy says, or None.

    >>> recompute_of_token("acop"), recompute_of_token("ac1of4"), recompute_of_token("tp8")
    ('op', '1of4', None)
    """
    if token in RECOMPUTE_TOKENS:
        return RECOMPUTE_TOKENS[token]
    return token[2:] if token.startswith("ac") and _BLOCKS.fullmatch(token[2:]) else None


def recompute_words(kind: str) -> str:
    """Return a kind of recompute in words, for launch lines and suggestions.

    >>> recompute_words("1of4"), recompute_words("op")
    ('full recompute of 1 in 4 blocks', 'op recompute')
    """
    if kind == "none":
        return "no recompute"
    blocks = recomputed_blocks(kind)
    if blocks is None or kind == "full":
        return f"{kind} recompute"
    return f"full recompute of {blocks[0]} in {blocks[1]} blocks"
