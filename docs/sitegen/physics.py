"""Formulas and constants behind an estimate, read from the code that computes it.

    worked_examples()       # --explain, as a chapter
    formulas()              # every function and constant of the physics, with its source

No formula is written a second time, so none can go out of date.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sitegen.blocks import ROOT, BlockError, execute
from sitegen.words import docstring, fence, folded, indented

PACKAGE = ROOT / "src" / "scalewise"

FIRST = "llama-3.1-70b --on dgx-h100 --gpus 512 --strategy fsdp8-tp4-cp2-pp8-v2-mb1 --batch 512"
"""Example shown in full: every kind of parallelism at once."""

FURTHER = {
    "Hybrid sharding": "llama-2-7b --on dgx-h100 --strategy hsdp32x64-mb1 --batch 4096",
    "ZeRO++ and MiCS": (
        "llama-2-7b --on dgx-a100 --strategy mics4x64-hpz8-qwz-qgz-mb1 --batch 1024"
    ),
    "DDP, no sequence parallelism, selective recompute": (
        "llama-2-7b --on dgx-a100 --strategy ddp32-tp2-nosp-mb1-acsel --batch 128"
    ),
    "All-gather context parallelism, full recompute": (
        "llama-3.1-8b --on dgx-h200 --strategy zero1x8-cp8ag-mb1-acfull --seq 65536 --batch 8"
    ),
    "Experts over two domains": (
        "deepseek-v3 --on dgx-h100 --strategy zero1x32-tp4-pp16-ep16-mb1 --batch 4096 "
        "--stack megatron"
    ),
    "Offload to host memory": (
        "llama-2-7b --on dgx-h100 --strategy fsdp8-mb1-offopt-offparam-offact --batch 16"
    ),
    "MXFP8, ZB-H1": (
        "llama-3.1-8b --on dgx-b200 --strategy zero2x16-pp4-zbh1-mb1 --batch 256 --precision mxfp8"
    ),
}
"""Examples of which only steps that no earlier example has are shown."""

PARTS: dict[str, tuple[str, ...]] = {
    "Collectives": ("physics/collectives.py",),
    "Kernels": (
        "physics/compute.py",
        "physics/layer.py",
        "physics/shapes.py",
        "step/kernels.py",
    ),
    "Precision": ("precision.py", "step/wide.py"),
    "Sequences": ("lengths.py", "step/sequences.py", "step/mlp_tiles.py"),
    "Overlap": ("physics/overlap.py",),
    "Data parallelism": ("step/data_parallel.py", "step/gradient_buckets.py"),
    "Variants of sharding": (
        "physics/quantized.py",
        "step/hierarchical.py",
        "step/quantized_collectives.py",
    ),
    "Tensor parallelism": ("step/tensor_parallel.py",),
    "Context parallelism": ("step/context_parallel.py",),
    "Experts": ("physics/all_to_all.py", "physics/experts.py", "step/expert_parallel.py"),
    "Latent attention": ("step/latent_attention.py",),
    "Fine-tuning": ("tuning.py", "physics/adapters.py", "step/tuning.py"),
    "Pipeline parallelism": (
        "physics/pipeline.py",
        "step/schedule.py",
        "step/zero_bubble.py",
        "step/p2p.py",
        "step/stages.py",
    ),
    "Groups and links": ("physics/links.py", "step/groups.py"),
    "Composition of the step": (
        "step/layer.py",
        "step/wrappers.py",
        "step/block.py",
        "step/stage.py",
        "step/slowest_mix.py",
        "step/compose.py",
        "step/terms.py",
        "step/flops.py",
    ),
    "Optimizer": ("physics/optimizer.py", "step/optimizer.py"),
    "Memory": ("physics/memory.py", "step/memory.py"),
    "Offload": ("physics/offload.py", "step/offload.py"),
    "Activation recompute": ("step/recompute.py",),
    "Feasibility": ("step/feasibility.py",),
    "Power": ("physics/power.py",),
    "Carbon": ("physics/carbon.py",),
    "Cost": ("physics/cost.py", "physics/ownership.py"),
    "Critical batch": ("physics/critical_batch.py", "step/statistical_efficiency.py"),
    "Goodput": ("physics/goodput.py", "step/goodput.py"),
    "Estimate": ("step/case.py", "step/estimate.py"),
    "Assumptions for unpublished values": (
        "cluster.py",
        "catalog/__init__.py",
        "chip.py",
        "host.py",
    ),
    "Knees, ties and upgrades": (
        "explore/points.py",
        "explore/causes.py",
        "explore/upgrades.py",
        "explore/sensitivity.py",
    ),
}
"""Chapters of the page, and the files behind them."""

CONSTANTS_ONLY = {
    "cluster.py", "catalog/__init__.py", "chip.py", "host.py", "step/estimate.py", "step/case.py",
    "explore/points.py", "explore/causes.py", "explore/upgrades.py", "explore/sensitivity.py",
}  # fmt: skip
"""Files of which only the constants belong to the physics."""

LEFT_OUT = {
    "physics/__init__.py", "step/__init__.py", "step/result.py", "step/breakdown.py",
    "step/layout.py", "step/hardware.py", "step/origin.py", "step/explain.py", "step/finite.py",
    "step/distinct.py",
    "step/derive_kernels.py",
    "step/derive_goodput.py", "step/derive_memory.py", "step/derive_data_parallel.py",
    "step/derive_offload.py",
    "step/parts.py", "step/tuned.py",
}  # fmt: skip
"""Files of physics/ and step/ that hold inputs, results or their derivations, not formulas."""

SKIPPED = {"TypeVar", "compile", "columns"}
"""Calls whose results are not constants of the physics."""


def worked_examples() -> str:
    """Return one estimate with every formula, and from others the steps that it does not have."""
    out: list[str] = []
    seen: set[tuple[str, str]] = set()
    for title, example in {"Everything at once": FIRST, **FURTHER}.items():
        command = f"scalewise estimate {example} --explain"
        text = execute(["bash", "-c", command], ROOT, 0)
        new = [step for step in steps(text) if _key(*step) not in seen]
        seen |= {_key(*step) for step in new}
        if not new:
            raise BlockError(f"this example has no step that earlier ones do not have: {example}")
        out += [f"### {title}", fence(command, "sh")]
        if example != FIRST:
            out.append("Steps that the examples above do not have:")
        out += [f"#### {name}\n\n{fence(body, 'text', 'output')}" for name, body in new]
    return "\n\n".join(out) + "\n"


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield (title, formula and numbers) of each numbered step that --explain prints."""
    for match in re.finditer(r"^\d+\. ([^\n]+)\n(.*?)(?=^\S|\Z)", text, flags=re.M | re.S):
        lines = match[2].rstrip().splitlines()
        yield match[1], "\n".join(line.removeprefix("  ") for line in lines)


def _key(title: str, body: str) -> tuple[str, str]:
    """Return what makes a step new: its title, or another formula under the same title."""
    lines = body.splitlines() or [""]
    formula = lines[0]
    if title == "Step":
        formula = ""
    return title, formula


def formulas() -> str:
    """Return every function and constant of the physics, by chapter."""
    out = []
    for title, files in PARTS.items():
        out.append(f"### {title}")
        for name in files:
            out.append(module(name))
    return "\n\n".join(out) + "\n"


def module(name: str) -> str:
    """Return one file as Markdown: docstring, constants, functions."""
    source = (PACKAGE / name).read_text(encoding="utf-8")
    tree = ast.parse(source)
    short = name in CONSTANTS_ONLY
    out = [f"`scalewise/{name}`"]
    if not short:
        out.append(indented(ast.get_docstring(tree) or ""))
    values = constants(source)
    if values:
        out.append(fence("\n\n".join(values), "python"))
    if not short:
        out += functions(source, tree)
    return "\n\n".join(out)


def constants(source: str) -> list[str]:
    """Return each constant of a module as written, with comment above and docstring below."""
    lines = source.splitlines()
    found: list[tuple[int, int]] = []
    body = ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not _is_constant(node):
            continue
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        while first > 0 and lines[first - 1].startswith("#"):
            first -= 1
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            last = after.end_lineno or last
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return ["\n".join(lines[first:last]) for first, last in found]


def _is_constant(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets, value = [node.target], node.value
    else:
        return False
    if isinstance(value, ast.Call):
        called = getattr(value.func, "attr", getattr(value.func, "id", ""))
        if called in SKIPPED:
            return False
    names = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return all(n.id.isupper() for n in names)


def functions(source: str, tree: ast.Module) -> list[str]:
    """Return each function of a module: its docstring, and its code, folded."""
    out = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            code = ast.get_source_segment(source, node) or ""
            text = ast.get_docstring(node)
            body = _without_docstring(code, node)
            out.append(f"**{node.name}** " + docstring(text) if text else f"**{node.name}**")
            out.append(folded(f"{node.name}: code", fence(body, "python"), "quote"))
    return out


def _without_docstring(code: str, node: ast.FunctionDef) -> str:
    """Return the lines of a function without its docstring."""
    first = node.body[0]
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        return code
    lines = code.splitlines()
    start = first.lineno - node.lineno
    end = (first.end_lineno or first.lineno) - node.lineno + 1
    return "\n".join(lines[:start] + lines[end:])
