"""Steps with round numbers, for the tests of the timeline."""

from __future__ import annotations

from dataclasses import fields

from scalewise import Workload, load_cluster, load_model, parse_strategy
from scalewise.simulation.build import build
from scalewise.simulation.durations import Durations, Stage
from scalewise.simulation.engine import simulation
from scalewise.simulation.layer import Block
from scalewise.simulation.simulate import timeline


def block(seconds):
    """A block that is one kernel."""
    return Block(seconds=seconds, pieces=(), tensor=0.0, context=0.0, expert=0.0, busy=seconds)


def stage(layers=3, **changes):
    """A stage that moves nothing."""
    numbers = {f.name: 0.0 for f in fields(Stage)} | {"layers": layers}
    return Stage(**(numbers | changes))


def durations(*stages, **changes):
    """Layers of 2 s forward and 4 s backward, of which 2 s are weights; nothing else."""
    numbers = {
        "forward_block": block(2.0),
        "backward_block": block(4.0),
        "inputs": 2.0,
        "weights": 2.0,
        "head_forward": 0.0,
        "head_backward": 0.0,
        "gather": 0.0,
        "gather_each": True,
        "reduce": 0.0,
        "across": 0.0,
        "reduce_each": True,
        "message": 0.0,
        "blocking": True,
        "contention": 0.0,
        "share": 0.0,
        "gather_share": 0.0,
        "overlap": True,
        "prefetch": 1,
        "reshard_after_forward": True,
        "sharding": 0,
        "schedule": "1f1b",
        "chunks": 1,
        "num_microbatches": 1,
        "overhead": 0.0,
        "straggler": 0.0,
        "data_ranks": 1,
        "stages": stages or (stage(),),
        "sync_once": False,
        "step_reduce_each": False,
    } | changes
    # The same in backward, and in the last micro-batch.
    alike = {"gather_again": numbers["gather"], "reduce_last": numbers["reduce"]}
    return Durations(**(alike | numbers))


def seconds(some):
    """Play a step up to its optimizer."""
    step = build(some)
    return simulation(step.graph, contention=some.contention, ranks=len(some.stages)).seconds


def line(
    spelled="fsdp8-mb1",
    model="llama-2-7b",
    cluster="dgx-h100",
    *,
    seq_len=4096,
    batch=None,
    tuning="full",
    **options,
):
    """Play a strategy of the catalog's nouns."""
    strategy = parse_strategy(spelled)
    work = Workload(
        seq_len=seq_len,
        global_batch=batch or strategy.data_parallel * strategy.micro_batch,
        tuning=tuning,
    )
    return timeline(
        load_model(model), load_cluster(cluster, strategy.accelerators), work, strategy, **options
    )
