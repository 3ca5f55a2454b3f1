"""Crossovers: the first size at which one strategy is faster than another.

    find(curves)                        # at the given sizes: "from 512 tp2 beats fsdp"
    refine(crossover, ..., priced)      # between them: "from 384"

Sizes between two given ones that both strategies can have, with whole scale-up domains, are
bisected until the crossover is enclosed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import msgspec

from scalewise.cluster import Cluster
from scalewise.errors import InputError
from scalewise.explore.causes import TIE
from scalewise.explore.points import Crossover, Curve, Point
from scalewise.explore.sizes import Rule
from scalewise.explore.templates import Template
from scalewise.ranges import chance_faster

PARTS = 16
"""Maximum number of parts of a gap between two sizes: finer would exceed the accuracy."""

PointResult = Callable[[Template, int], Point | None]
"""Evaluates a strategy at a size; None if it cannot run."""


def find(curves: Sequence[Curve]) -> list[Crossover]:
    """Return all crossovers between strategies of the same group.

    Sizes at which either cannot run are skipped. A lead after equal values counts as a crossover; a
    return to equal values does not.
    """
    found: list[Crossover] = []
    for first, second in combinations(curves, 2):
        if first.group == second.group:
            found += _crossings(first, second)
    return sorted(found, key=lambda each: each.accelerators)


def _crossings(first: Curve, second: Curve) -> list[Crossover]:
    """Yield every change of the lead between two curves."""
    others = {point.accelerators: point for point in second.feasible}
    pairs = [(p, others[p.accelerators]) for p in first.feasible if p.accelerators in others]
    found: list[Crossover] = []
    ahead: str | None = None
    if not pairs:
        return []
    end = pairs[-1][0].tokens_per_second / pairs[-1][1].tokens_per_second
    likely = float(chance_faster(pairs[-1][0].basis, pairs[-1][1].basis))
    for place, (one, other) in enumerate(pairs):
        ratio = one.tokens_per_second / other.tokens_per_second
        if abs(ratio - 1.0) <= TIE:
            continue
        winner, loser = (first, second) if ratio > 1.0 else (second, first)
        if winner.label == ahead:
            continue
        ahead = winner.label
        # The first size sets the leader; there is no crossover before it.
        if place:
            leading = one if ratio > 1.0 else other
            found.append(
                Crossover(
                    model=first.model,
                    cluster=first.cluster,
                    seq_len=first.seq_len,
                    accelerators=one.accelerators,
                    previous=pairs[place - 1][0].accelerators,
                    winner=winner.label,
                    loser=loser.label,
                    gain=max(ratio, 1.0 / ratio) - 1.0,
                    rate=leading.tokens_per_second_per_accelerator,
                    last=pairs[-1][0].accelerators,
                    last_gain=(end if winner is first else 1.0 / end) - 1.0,
                    chance=likely if winner is first else 1.0 - likely,
                )
            )
    return found


def refine(
    found: Crossover, winner: Template, loser: Template, sizes: Sequence[int], priced: PointResult
) -> Crossover:
    """Return a crossover enclosed between sizes that were not given.

    Args:
        found: The crossover, at two given sizes.
        winner: The strategy that leads from there.
        loser: The other one.
        sizes: Sizes in between that both can have, ascending.
        priced: Evaluates either of them.

    Returns:
        The crossover at the smallest of these sizes at which the winner leads, if the lead changes
        once. A size at which either does not fit ends the search there.
    """
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        one, other = priced(winner, sizes[middle]), priced(loser, sizes[middle])
        if one is None or other is None:
            break
        gain = one.tokens_per_second / other.tokens_per_second - 1.0
        if gain > TIE:
            high = middle
            found = msgspec.structs.replace(
                found,
                accelerators=sizes[middle],
                gain=gain,
                rate=one.tokens_per_second_per_accelerator,
            )
        else:
            low = middle + 1
            found = msgspec.structs.replace(found, previous=sizes[middle])
    return found


def between(
    found: Crossover, cluster: Cluster, rule: Rule, templates: Sequence[Template]
) -> list[int]:
    """Return sizes inside a crossover's gap that all templates can have, at most `PARTS` - 1.

    They fill whole scale-up domains, as powers of two do: a partly filled domain has other links.
    """
    step = math.lcm(cluster.scale_up_domain, *(each.multiple for each in templates))
    gap = found.accelerators - found.previous
    # Not every size of a large gap needs to be evaluated.
    step *= max(gap // step // (64 * PARTS), 1)
    start = (found.previous // step + 1) * step
    sizes = [
        size
        for size in range(start, found.accelerators, step)
        if all(_shares(rule, size, each) for each in templates)
    ]
    stride = math.ceil((len(sizes) + 1) / PARTS)
    return sizes[stride - 1 :: stride]


def _shares(rule: Rule, size: int, template: Template) -> bool:
    """Return whether the data-parallel ranks of a size divide its batch."""
    inner = template.base.tp * template.base.cp * template.base.pp
    micro = template.base.micro_batch if template.has_micro_batch else 1
    try:
        return rule.global_batch(size) % (size // inner * micro) == 0
    except InputError:
        return False
