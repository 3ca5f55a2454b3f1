"""Critical batch: how many tokens a larger batch costs, by several laws.

    batch = kaplan_batch(loss(7e9, 1.4e11))           # tokens
    statistical_efficiency(4e6, batch)                # against a very small batch

The critical batch is the one that needs twice the tokens, and twice the steps, of the fewest
possible (McCandlish et al., arXiv 1812.06162). Laws differ by factors: use them for ratios, with
their spread as the range, and never for a loss. Pure functions on floats or arrays; batches, data
and compute in tokens and FLOPs.
"""

from __future__ import annotations

from scalewise.numeric import Num

MIN_PARAMETERS, MAX_PARAMETERS = 1e8, 1e11
"""Parameters between which laws are used. All were fitted on at most a few billion (Kaplan: 1.5 B,
Zhang: 1.2 B, Bergsma: 3.3 B), so the upper part is an extrapolation."""

MIN_TOKENS_PER_PARAMETER, MAX_TOKENS_PER_PARAMETER = 5.0, 500.0
"""Tokens per parameter between which laws are used."""

ZHANG_EXPONENT, ZHANG_OVERHEAD = 0.47, 0.2
"""Growth of the critical batch with data, and the fraction of extra steps that defines it there
(Zhang et al., arXiv 2410.21676, 85 M to 1.2 B parameters)."""

BERGSMA_EXPONENT = 0.462
"""Growth of the critical batch with data (Bergsma et al., arXiv 2505.13738, 111 M to 3.3 B; from
summaries)."""

STEP_LAW, STEP_EXPONENT = 0.58, 0.571
"""Batch of the lowest loss by data (Li et al., arXiv 2503.04715, from summaries)."""

DEEPSEEK, DEEPSEEK_EXPONENT = 0.292, 0.327
"""Batch of the lowest loss by compute (DeepSeek LLM, arXiv 2401.02954, equation 1, from
summaries)."""

KAPLAN, KAPLAN_EXPONENT = 2e8, 0.21
"""Critical batch by loss (Kaplan et al., arXiv 2001.08361, equation 1.4)."""

ENTROPY, A, ALPHA, B, BETA = 1.8172, 482.01, 0.3478, 2085.43, 0.3658
"""Loss by parameters and data: the refit of Chinchilla (Besiroglu et al., arXiv 2404.10102)."""


def loss(parameters: Num, tokens: Num) -> Num:
    """Return the loss after training, nats per token; only for `kaplan_batch`.

        E + A / N^a + B / D^b

    >>> round(float(loss(7e10, 1.4e12)), 2)                  # Chinchilla
    1.97
    """
    return ENTROPY + A / parameters**ALPHA + B / tokens**BETA


def kaplan_batch(nats: Num) -> Num:
    """Return the critical batch at a loss, tokens.

        2e8 / L ** (1 / 0.21)

    >>> [round(float(kaplan_batch(each)) / 1e6, 1) for each in (3.0, 2.0)]
    [1.1, 7.4]
    """
    return KAPLAN / nats ** (1.0 / KAPLAN_EXPONENT)


def step_law_batch(tokens: Num) -> Num:
    """Return the batch of the lowest loss by data, tokens: a low end of the critical batch.

        0.58 D ** 0.571

    >>> round(float(step_law_batch(1e11)) / 1e6, 2)
    1.11
    """
    return STEP_LAW * tokens**STEP_EXPONENT


def deepseek_batch(flops: Num) -> Num:
    """Return the batch of the lowest loss by compute, tokens: a low end of the critical batch.

        0.292 C ** 0.327

    >>> round(float(deepseek_batch(6.0 * 6.7e10 * 2e12)) / 1e6, 1)     # DeepSeek LLM 67B
    19.2
    """
    return DEEPSEEK * flops**DEEPSEEK_EXPONENT


def grown_batch(measured: Num, at: Num, tokens: Num, exponent: Num) -> Num:
    """Return a measured critical batch at another amount of data, tokens.

        B0 (D / D0) ** e

    For laws whose exponent is published, and whose prefactor depends on data and settings.

    >>> round(float(grown_batch(1e6, 1e11, 2e12, ZHANG_EXPONENT)) / 1e6, 2)
    4.09
    """
    return measured * (tokens / at) ** exponent


def from_overhead(batch: Num, overhead: Num) -> Num:
    """Return the critical batch from one that needs a fraction more steps than linear scaling.

        B / o

    By the curve of McCandlish: 1 + B / Bc = 1 + o. Zhang's batch at 20 % is a fifth of it.

    >>> from_overhead(1e6, ZHANG_OVERHEAD)
    5000000.0
    """
    return batch / overhead


def statistical_efficiency(batch: Num, critical: Num) -> Num:
    """Return the tokens that a very small batch needs over those of a batch, 0 to 1.

        1 / (1 + B / Bc)

    Effective tokens are tokens times this. Tokens to a loss are D = D_min (1 + B / Bc), steps
    S = S_min (1 + Bc / B) (McCandlish et al., arXiv 1812.06162, equation 2.11): at B = Bc both are
    doubled.

    >>> statistical_efficiency(4e6, 4e6), statistical_efficiency(1e6, 4e6)
    (0.5, 0.8)
    """
    return 1.0 / (1.0 + batch / critical)


def tokens_needed(tokens: Num, batch: Num, other: Num, critical: Num) -> Num:
    """Return the tokens that another batch needs for the same loss.

        D (1 + B1 / Bc) / (1 + B0 / Bc)

    Args:
        tokens: Tokens at `batch`, D.
        batch: B0.
        other: B1.
        critical: Bc.

    >>> tokens_needed(1e12, 4e6, 1.2e7, 4e6)
    2000000000000.0
    """
    return (
        tokens * statistical_efficiency(batch, critical) / statistical_efficiency(other, critical)
    )


def within_range(parameters: float, tokens: float) -> bool:
    """Return whether the laws are used at all for a model and its data.

    >>> within_range(7e9, 1.4e11), within_range(7e9, 1.5e13), within_range(4e11, 1.5e13)
    (True, False, False)
    """
    ratio = tokens / parameters
    return (
        MIN_PARAMETERS <= parameters <= MAX_PARAMETERS
        and MIN_TOKENS_PER_PARAMETER <= ratio <= MAX_TOKENS_PER_PARAMETER
    )
