"""Software of published runs of experts: what their rows and the recipes of their release state.

    recipe = recipe_of(run)
    recipe.dispatcher, recipe.etp, recipe.recompute

The runs table has no columns for dispatchers, CUDA graphs or routing. Notes of a row state some of
them; the rest is in `catalog/runs/expert_recipes.csv`, by source, model, accelerator and date, as
the public recipes of each release say (NVIDIA-NeMo/Megatron-Bridge, scripts/performance;
NVIDIA/dgxc-benchmarking; yanring/Megatron-MoE-ModelZoo, best_practice;
AI-Hypercomputer/tpu-recipes, run_recipe.sh). The first line that matches a row holds; blank cells
match anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from scalewise.experts import UNTRAINED, CudaGraphs, Dispatcher
from scalewise.reading import read_csv

if TYPE_CHECKING:
    from scalewise.evidence.runs import Run

TABLE = Path(__file__).parent.parent / "catalog" / "runs" / "expert_recipes.csv"

MTP_FLOPS = 255e9
"""FLOP per token and training step of DeepSeek-V3 above which a source counts multi-token
prediction: 250 without, 260 with one module (`Model.training_flops`)."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Software and routing of one run of experts."""

    etp: int | None = None
    """Expert tensor parallelism; None for that of the dense layers."""
    dispatcher: Dispatcher = "nccl"
    cuda_graphs: CudaGraphs = "none"
    overlap: bool = False
    """Whether the all-to-all overlaps another micro-batch."""
    fused: bool = False
    """Whether experts run in one fused kernel."""
    routing: str = ""
    """forced (balanced), drop (padded to capacity 1), dropless; empty if not stated."""
    recompute: str = ""
    """Modules that are recomputed besides; "full" if a layer keeps its input alone."""

    @property
    def imbalance(self) -> float:
        """Tokens of the busiest rank over the mean."""
        return UNTRAINED if self.routing == "dropless" else 1.0

    @property
    def capacity(self) -> float | None:
        """Capacity factor, where tokens are dropped and padded."""
        return 1.0 if self.routing == "drop" else None


def recipe_of(run: Run) -> Recipe | None:
    """Return what is known of the software of a run, or None if nothing is."""
    line = next((each for each in _lines() if _matches(run, each)), None)
    notes = (run.text("notes") or "").lower()
    stated = any(word in notes for word in ("deepep", "hybridep", "all-to-all dispatcher"))
    if line is None and not stated:
        return None
    return _with_notes(_read(line) if line else Recipe(etp=1), notes)


def _with_notes(recipe: Recipe, notes: str) -> Recipe:
    """What the notes of a row say goes before the recipe of its release."""
    changes: dict[str, object] = {}
    for word, dispatcher in (
        ("all-to-all dispatcher", "nccl"), ("deepep", "deepep"), ("hybridep", "hybridep"),
    ):  # fmt: skip
        if word in notes:
            changes["dispatcher"] = dispatcher
    if "overlap" in notes and "no overlap" not in notes:
        changes["overlap"] = True
    if "cuda graphs" in notes:
        changes["cuda_graphs"] = "router" if "partial cuda graphs" in notes else "attention"
    if "dropless routing" in notes:
        changes["routing"] = "dropless"
    if "recompute layernorm" in notes:
        changes["recompute"] = "norm"
    return replace(recipe, **changes)  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def _lines() -> tuple[dict[str, str], ...]:
    return tuple(row for _, row in read_csv(TABLE).rows)


def _matches(run: Run, line: dict[str, str]) -> bool:
    """Whether a line speaks of a run: prefixes of names, dates from and before, exact counts."""
    date = run.text("software_date") or ""
    names = all((run.text(name) or "").startswith(line[name]) for name in ("model", "accelerator"))
    counts = all(
        not line[name] or (run.count(name) or 1) == int(line[name])
        for name in ("ep", "pp", "micro_batch")
    )
    return (
        names
        and counts
        and run.source.startswith(line["source"])
        and (not line["since"] or date >= line["since"])
        and (not line["until"] or date < line["until"])
        and line["precision"] in ("", run.text("precision"))
    )


def _read(line: dict[str, str]) -> Recipe:
    return Recipe(
        etp=None if line["etp"] == "tp" else int(line["etp"]),
        dispatcher=line["dispatcher"],  # type: ignore[arg-type]
        cuda_graphs=line["cuda_graphs"],  # type: ignore[arg-type]
        overlap=line["overlap"] == "true",
        fused=line["fused"] == "true",
        routing=line["routing"],
        recompute=line["recompute"],
    )


def mtp_layers(run: Run) -> int:
    """Return the multi-token-prediction modules that a source counted: its FLOPs tell."""
    rate = run.number("tokens_per_second_per_accelerator")
    tflops = run.number("tflops_per_accelerator")
    deepseek = (run.text("model") or "").startswith("deepseek-v3")
    if not deepseek or run.source != "megatron-bridge" or not rate or not tflops:
        return 0
    return int(tflops * 1e12 / rate > MTP_FLOPS)
