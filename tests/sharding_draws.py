"""Random variants of sharding for the strategies of random questions."""

from __future__ import annotations

import math


def divisors(number):
    """Everything above 1 that divides it, smallest first."""
    return [each for each in range(2, number + 1) if number % each == 0]


def varied(rng, strategy, *, experts=False):
    """The strategy with variants that go with its sharding, drawn from `rng`."""
    fields = {"reduce_each": rng.choice((None, True, False))}
    if strategy.sharding != "zero3":
        fields["bucket_mb"] = rng.choice((None, 1, 25, 500))
        return strategy.with_(**fields)
    shards = strategy.dp_shard * strategy.cp
    if experts:
        # Groups that divide the shards of experts too.
        inside = strategy.tp * shards // (strategy.ep * strategy.etp)
        shards = math.gcd(shards, max(inside, 1))
    if strategy.reshard_after_forward and divisors(shards) and rng.random() < 0.6:
        fields["backward_shard"] = rng.choice(divisors(shards))
    return strategy.with_(
        **fields,
        gather_precision=rng.choice((None, "int8")),
        reduce_precision=rng.choice((None, "bf16", "int4", "int4")),
        replica_sync=rng.choice((None, "once")),
        hierarchical_gather=rng.random() < 0.4,
    )
