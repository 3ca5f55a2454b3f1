"""Captures by hand: one transformer layer on toy ranks."""

import msgspec

from scalewise.program.events import Capture, Event, Group, Mesh


def kernel(tick, *, flops=0.0, read=0.0, written=0.0, **fields):
    """A kernel; with FLOPs a product."""
    shapes = ((64, 32), (32, 16)) if flops else ()
    shapes = ((64, 32), (32, 16)) if flops else ()
    given = {"name": "mm" if flops else "add", "dtype": "bfloat16", "shapes": shapes}
    return Event(
        tick=tick, kind="kernel", flops=flops, read=read, written=written, **(given | fields)
    )


def collective(tick, name, group, size, **fields):
    """A collective of so many bytes."""
    return Event(
        tick=tick, kind="collective", name=name, group=group, bytes=size,
        **({"dtype": "bfloat16"} | fields),
    )  # fmt: skip


def capture(events, *, world=8, meshes=(), groups=None, **fields):
    """A capture of rank 0 that read two sequences of 16 tokens."""
    given = {
        "program": "toy.py", "adapter": "script", "rank": 0, "versions": {"torch": "2.13.0"},
        "inputs": ((2, 16),), "vocab": 10, "hidden": 4, "parameters": 1000.0,
        "local_parameters": 125.0, "multiplied": 960.0,
    }  # fmt: skip
    if groups is None:
        groups = {"g": Group(name="g", dimension="dp", ranks=tuple(range(world)))}
    return Capture(
        world=world, events=tuple(events), groups=groups,
        meshes=tuple(Mesh(names=n, shape=s) for n, s in meshes), **(given | fields),
    )  # fmt: skip


def fsdp(world=8, **fields):
    """FSDP of 1,000 parameters: gathered twice, reduced once, enough FLOPs."""
    gather, reduce = "FSDP::all_gather (layers.0)", "FSDP::post_backward_reduce (layers.0)"
    events = [
        collective(1, "all_gather", "g", 2000.0, label=gather),
        kernel(2, flops=70e3),
        collective(3, "all_gather", "g", 2000.0, label=gather, phase="backward"),
        kernel(4, flops=140e3, phase="backward"),
        collective(
            5, "reduce_scatter", "g", 4000.0, label=reduce, phase="backward", dtype="float32"
        ),
    ]
    return capture(events, world=world, meshes=[(("dp",), (world,))], **fields)


def without(of, name):
    """A capture that lost its collectives of one kind."""
    return msgspec.structs.replace(of, events=tuple(e for e in of.events if e.name != name))
