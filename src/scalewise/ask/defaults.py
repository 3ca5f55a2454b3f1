"""Defaults a person would choose, each with its reason.

    default_seq_len(model)                     # Default(flag="--seq", value="4096", why="...")
    default_batch(model, 4096, 256, exact=True)  # about 4 M tokens, in steps of the strategy

What is missing in a question is chosen here and nowhere else. Strategy and software, which need
estimates, are chosen by `explore.usual` and `software`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.experts import UNTRAINED
from scalewise.explore.sizes import default_precision as usual_precision

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.precision import Precision

SEQ_LEN = 4096
"""Tokens per sequence: what Llama 2 was trained with (arXiv 2307.09288, table 1)."""

TOKENS_PER_STEP = 2**22
"""Tokens per step: the power of two next to the 4 M tokens with which all sizes of Llama 2 were
trained (arXiv 2307.09288, table 1)."""

SMALL_TOKENS_PER_STEP, SMALL_PARAMETERS = 2**19, 1e9
"""The same for models below a billion parameters: 0.5 M tokens (GPT-3 125M to 760M, arXiv
2005.14165, table 2.1)."""

TOKENS_PER_PARAMETER = 20.0
"""Token budget of the web UI, tokens per parameter: about what Hoffmann et al. find compute-optimal
(arXiv 2203.15556: Chinchilla has 70 B parameters and saw 1.4 T tokens)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Default:
    """One value that was chosen for the user."""

    flag: str
    """The flag that changes it."""
    value: str
    """As it would be written there."""
    why: str
    """The reason, as a phrase."""

    def __str__(self) -> str:
        return f"{self.flag} {self.value} ({self.why})"


def default_seq_len(model: Model) -> tuple[int, Default]:
    """Return the sequence length: 4,096, or the learned positions of the model."""
    if model.positions == "learned" and model.max_positions < SEQ_LEN:
        length, why = model.max_positions, f"learned positions of {model.name}"
    else:
        length, why = SEQ_LEN, "usual for pre-training"
    return length, Default(flag="--seq", value=str(length), why=why)


def default_batch(model: Model, seq_len: int, multiple: int, *, exact: bool) -> tuple[int, Default]:
    """Return the global batch: about 4 M tokens, 0.5 M for small models.

    Args:
        model: What is trained.
        seq_len: Tokens per sequence.
        multiple: Sequences that it should be a multiple of: one micro-batch of every data-parallel
            rank.
        exact: Whether it must be one, because the strategy is given; otherwise the multiple is
            halved as long as it exceeds the wanted batch.
    """
    small = model.parameters < SMALL_PARAMETERS
    tokens = SMALL_TOKENS_PER_STEP if small else TOKENS_PER_STEP
    batch = batch_of(tokens, seq_len, multiple, exact=exact)
    why = f"{batch * seq_len / 1e6:.3g}M tokens per step"
    return batch, Default(flag="--batch", value=str(batch), why=why)


def batch_of(tokens: float, seq_len: int, multiple: int, *, exact: bool) -> int:
    """Return the sequences per step nearest to so many tokens; arguments as of `default_batch`."""
    wanted = max(tokens / seq_len, 1.0)
    while not exact and multiple > wanted and multiple % 2 == 0:
        multiple //= 2
    return max(round(wanted / multiple), 1) * multiple


def default_tokens(model: Model) -> tuple[float, Default]:
    """Return the token budget where days and dollars of a whole run are shown: 20 per parameter."""
    tokens = float(round(TOKENS_PER_PARAMETER * model.parameters))
    why = f"{TOKENS_PER_PARAMETER:g} per parameter, compute-optimal by Chinchilla"
    return tokens, Default(flag="--tokens", value=f"{tokens:.0f}", why=why)


def default_goodput() -> Default:
    """Return failures and checkpoints as published, wherever there is a token budget."""
    return Default(flag="--goodput", value="on", why="published failure rates; off: no failures")


def default_imbalance() -> Default:
    """Return balanced routing, as benchmarks of experts force it."""
    why = f"balanced routing; an untrained router measured {UNTRAINED:g}"
    return Default(flag="--imbalance", value="1", why=why)


def default_precision(cluster: Cluster) -> tuple[Precision, Default]:
    """Return bf16, or fp16 on chips that came before it."""
    precision = usual_precision(cluster)
    why = "usual" if precision == "bf16" else f"{cluster.accelerator.name} has no bf16"
    return precision, Default(flag="--precision", value=precision, why=why)
