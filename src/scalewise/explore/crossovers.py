"""From which size does one strategy beat another? Found between the sizes that were asked for.

    find(curves)                        # at the sizes there are: "from 512 tp2 beats fsdp"
    refine(crossover, ..., priced)      # between them: "from 384"

Who leads may change between two neighbours of a doubling range. Sizes in between that both
strategies can have, whole scale-up domains each, are halved until the change is enclosed.
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

PARTS = 16
"""Into how many parts a gap between two sizes is cut at most: finer is finer than the model."""

Priced = Callable[[Template, int], Point | None]
"""Prices a strategy at a size, or None where it cannot run."""


def find(curves: Sequence[Curve]) -> list[Crossover]:
    """Find every place where one strategy overtakes another in the same group.

    Sizes at which either cannot run are passed over. Strategies that were level so far and then
    part count as well; falling back to level does not.
    """
    found: list[Crossover] = []
    for first, second in combinations(curves, 2):
        if first.group == second.group:
            found += _crossings(first, second)
    return sorted(found, key=lambda each: each.accelerators)


def _crossings(first: Curve, second: Curve) -> list[Crossover]:
    """Walk two curves side by side and note every change of the lead."""
    others = {point.accelerators: point for point in second.feasible}
    pairs = [(p, others[p.accelerators]) for p in first.feasible if p.accelerators in others]
    found: list[Crossover] = []
    ahead: str | None = None
    end = pairs[-1][0].tokens_per_second / pairs[-1][1].tokens_per_second if pairs else 1.0
    for place, (one, other) in enumerate(pairs):
        ratio = one.tokens_per_second / other.tokens_per_second
        if abs(ratio - 1.0) <= TIE:
            continue
        winner, loser = (first, second) if ratio > 1.0 else (second, first)
        if winner.label == ahead:
            continue
        ahead = winner.label
        # The first size sets who leads; there is nothing before it to cross from.
        if place:
            leading = one if ratio > 1.0 else other
            found.append(
                Crossover(
                    model=first.model,
                    cluster=first.cluster,
                    sequence=first.sequence,
                    accelerators=one.accelerators,
                    previous=pairs[place - 1][0].accelerators,
                    winner=winner.label,
                    loser=loser.label,
                    gain=max(ratio, 1.0 / ratio) - 1.0,
                    rate=leading.tokens_per_second_per_accelerator,
                    last=pairs[-1][0].accelerators,
                    last_gain=(end if winner is first else 1.0 / end) - 1.0,
                )
            )
    return found


def refine(
    found: Crossover, winner: Template, loser: Template, sizes: Sequence[int], priced: Priced
) -> Crossover:
    """Enclose a crossover between sizes that were not asked for.

    Args:
        found: The crossover, at two sizes that were.
        winner: The strategy that is ahead from there.
        loser: The other one.
        sizes: What both can have in between, rising.
        priced: Prices either of them.

    Returns:
        The crossover at the smallest of these sizes with the winner ahead, if the lead changes
        once; a size at which either does not fit the memory ends the search where it is.
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
    """List sizes inside a crossover's gap that all templates can have, at most `PARTS` - 1.

    They fill whole scale-up domains, as the neighbours of a doubling range do: a domain filled in
    part has other links, and would be compared with others.
    """
    step = math.lcm(cluster.scale_up_domain, *(each.multiple for each in templates))
    gap = found.accelerators - found.previous
    # Of a huge gap not every size needs to be looked at.
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
    """Whether the data-parallel ranks of a size can share its batch."""
    inner = template.base.tp * template.base.cp * template.base.pp
    micro = template.base.micro_batch if template.has_micro_batch else 1
    try:
        return rule.global_batch(size) % (size // inner * micro) == 0
    except InputError:
        return False
