"""Every reader and every door, as functions that may answer or refuse and nothing else.

DOORS["estimate"].check({"model": "llama-2-7b", "gpus": "64"})     # "answered"
DOORS["page"].check(["/api/estimate", b"{"])                       # "refused"
"""

from __future__ import annotations

from dataclasses import replace

from fuzz_asks import (
    answer_request,
    ask_estimate,
    ask_verb,
    diagnose,
    draw_address,
    draw_export,
    draw_line,
    draw_measured,
    draw_plan,
    draw_quantity,
    draw_request,
    draw_template,
    draw_verb,
    read_address,
    read_line,
    read_plan,
    read_quantity,
    read_strategy,
    read_template,
    write_export,
)
from fuzz_commands import draw_command, run_command
from fuzz_door import Door
from fuzz_files import FILE_DOORS
from fuzz_inputs import question, strategy

_ASKING: dict[str, Door] = {
    "estimate": Door(draw=question, run=ask_estimate),
    "verbs": Door(draw=draw_verb, run=ask_verb),
    "commands": Door(draw=draw_command, run=run_command),
    "page": Door(draw=draw_request, run=answer_request),
    "plans": Door(draw=draw_plan, run=read_plan),
    "exports": Door(draw=draw_export, run=write_export),
    "measured": Door(draw=draw_measured, run=diagnose),
    "addresses": Door(draw=draw_address, run=read_address),
    "strategies": Door(draw=strategy, run=read_strategy),
    "templates": Door(draw=draw_template, run=read_template),
    "units": Door(draw=draw_quantity, run=read_quantity),
    "lines": Door(draw=draw_line, run=read_line),
}

SHARES = {
    "estimate": 20, "verbs": 10, "commands": 12, "page": 10, "plans": 20, "exports": 12,
    "measured": 10, "addresses": 54, "strategies": 60, "templates": 50, "units": 40, "lines": 60,
    "configs": 60, "models": 30, "clusters": 25, "accelerators": 25, "fabrics": 25, "stacks": 30,
    "calibrations": 30, "optimizers": 10, "reliability": 15, "regions": 12, "ranges": 20,
    "runs": 30, "collectives": 20, "kernels": 20, "nccl": 10, "records": 25, "study-records": 20,
    "journals": 15, "traces": 20, "lengths": 30, "logs": 20, "run-logs": 12, "frameworks": 30,
    "yaml": 40, "queues": 10, "captures": 12, "machines": 12, "own-runs": 10, "overlays": 12,
    "studies": 12,
}  # fmt: skip
"""Inputs of each door of every thousand: at least 10, and more where an answer takes less time."""

DOORS = {name: replace(door, share=SHARES[name]) for name, door in (_ASKING | FILE_DOORS).items()}
"""Every way in by name."""
