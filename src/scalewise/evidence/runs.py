"""Measured runs: published ones that ship with scalewise, or any file with the same columns.

    runs = read_runs()                    # the shipped table
    run = runs[0]
    run.tokens_per_second, run.plan()     # measured; (model, cluster, workload, strategy)

A run says what was stated and nothing more. `plan()` turns it into nouns, lists every default it
had to choose, and refuses with a reason when something a prediction needs is absent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewise.catalog import (
    knows,
    load_accelerator,
    load_cluster,
    load_fabric,
    names,
    typical_cluster,
)
from scalewise.catalog.nearest import nearest_accelerator
from scalewise.cluster import Cluster
from scalewise.errors import InputError, ScalewiseError
from scalewise.evidence.recipes import mtp_layers, recipe_of
from scalewise.model import Convention, Mla, Model, Moe
from scalewise.reading import read_csv, user_path
from scalewise.stack import Stack, stack_for
from scalewise.strategy import Strategy
from scalewise.workload import Workload

if TYPE_CHECKING:
    pass

SHIPPED = Path(__file__).parent.parent / "catalog" / "runs" / "runs.csv"

# Columns without which a row cannot be read at all.
REQUIRED = ("accelerator", "accelerators")

# Latent attention of the only family in the table (DeepSeek-V3, arXiv 2412.19437, section 4.2).
DEEPSEEK_MLA = Mla(query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)

# Windows of the two patterns in the table: GPT-OSS and Gemma 2 alternate, Gemma 3 has 5 of 6.
WINDOWS = {"sliding-alternate": (128, 1 / 2), "sliding-5of6": (1024, 5 / 6)}


# Window of rows that name windowed attention without its width: Mistral 7B's, on every layer.
DEFAULT_WINDOW = (4096, 1.0)


class UnsupportedError(ScalewiseError):
    """A run that cannot be predicted, with the reason."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run as nouns."""

    model: Model
    cluster: Cluster
    workload: Workload
    strategy: Strategy
    defaults: tuple[str, ...]
    """What the row does not state and was chosen for it."""


class Run:
    """One measured row; columns as in the runs table, blank cells as None."""

    def __init__(self, row: dict[str, str], line: int) -> None:
        self.row = {key: value.strip() for key, value in row.items() if key and value}
        self.line = line

    def text(self, column: str) -> str | None:
        """A cell as text, None when blank."""
        return self.row.get(column) or None

    def number(self, column: str) -> float | None:
        """A cell as a number, None when blank.

        Raises:
            InputError: If it is not a number.
        """
        text = self.text(column)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not abs(value) < float("inf"):
            raise InputError(
                f"line {self.line}: {column} = {text!r} is not a number",
                hint="numbers are plain SI, blank means not stated",
            )
        return value

    def count(self, column: str) -> int | None:
        """A cell as a whole number, None when blank."""
        value = self.number(column)
        if value is not None and value != int(value):
            raise InputError(
                f"line {self.line}: {column} = {value} is not a whole number",
                hint="degrees and shapes are counts",
            )
        return None if value is None else int(value)

    def flag(self, column: str) -> bool | None:
        """A cell as true or false, None when blank."""
        text = self.text(column)
        if text is None:
            return None
        word = text.lower()
        if word not in ("true", "1", "1.0", "yes", "false", "0", "0.0", "no"):
            raise InputError(
                f"line {self.line}: {column} = {text!r} is neither true nor false",
                hint="write true or false, or leave it blank",
            )
        return word in ("true", "1", "1.0", "yes")

    @property
    def stack(self) -> Stack | None:
        """Software that is known as such; None where a framework and a date speak for it."""
        return None

    @property
    def id(self) -> str:
        """The row's key."""
        return self.text("id") or f"line-{self.line}"

    @property
    def source(self) -> str:
        """Who published it."""
        return self.text("source") or "unnamed"

    @property
    def framework(self) -> str | None:
        """Software, if stated."""
        return self.text("framework")

    @property
    def quality(self) -> str:
        """The grade of the row; rows of the user's own are taken as ok."""
        return self.text("quality") or "ok"

    @property
    def dense(self) -> bool:
        """Whether every layer is an ordinary attention + MLP block."""
        return not self.number("experts") and self.text("attention") not in (
            "mla",
            "hybrid-mamba",
        )

    @property
    def tokens_per_second(self) -> float | None:
        """Measured tokens/s per accelerator; from step time or TFLOP/s where only these are given.

        TFLOP/s are turned back only where the source states which FLOPs it counted.
        """
        stated = self.number("tokens_per_second_per_accelerator")
        if stated is not None and stated < 0.0:
            raise InputError(
                f"line {self.line}: tokens_per_second_per_accelerator = {stated:g} is negative",
                hint="blank means not stated",
            )
        if stated:
            return stated
        seconds, batch = self.number("step_seconds"), self.number("global_batch")
        seq_len, count = self.number("seq_len"), self.number("accelerators")
        if seconds and batch and seq_len and count:
            return batch * seq_len / seconds / count
        tflops, basis = self.number("tflops_per_accelerator"), self.text("tflops_basis")
        if tflops and seq_len and basis in ("model-causal", "model-full"):
            model = self.model([])
            convention: Convention = "causal" if basis == "model-causal" else "palm"
            return tflops * 1e12 / model.training_flops(int(seq_len), convention)
        return None

    @property
    def memory_bytes(self) -> float | None:
        """Measured peak memory, bytes."""
        value = self.number("memory_gb")
        return None if value is None else value * 1e9

    def _needed(self, column: str) -> int:
        value = self.count(column)
        if value is None:
            raise UnsupportedError(f"{column} is not stated")
        return value

    def model(self, defaults: list[str]) -> Model:
        """The model of the row's architecture columns."""
        layers, hidden = self._needed("layers"), self._needed("hidden")
        heads = self._needed("heads")
        if heads < 1:
            raise InputError(
                f"line {self.line}: heads = {heads} must be at least 1", hint="correct the cell"
            )
        attention = self.text("attention") or "full"
        if attention == "hybrid-mamba":
            raise UnsupportedError("hybrid Mamba layers are not modeled")
        windowed = WINDOWS.get(attention)
        if windowed is None and any(word in attention for word in ("slid", "window", "local")):
            windowed = DEFAULT_WINDOW
            defaults.append(f"attention window {windowed[0]} ({attention}, width not stated)")
        elif windowed is None and attention not in ("full", "mla"):
            defaults.append(f"full attention ({attention} is not known)")
        vocab = self.count("vocab")
        if vocab is None:
            vocab = 32000
            defaults.append("vocab 32000 (not stated)")
        window, share = windowed or (None, 0.0)
        experts = self.count("experts")
        moe = None
        if experts:
            moe = Moe(
                experts=experts,
                experts_per_token=self._needed("experts_per_token"),
                ffn=self.count("moe_ffn_hidden") or self._needed("ffn_hidden"),
                shared_experts=self.count("shared_experts") or 0,
                layers=self.count("moe_layers") or layers,
                bias=(self.text("model") or "").startswith("gpt-oss"),
                # Half of the layers: Llama 4 Maverick, every second one.
                dense="alternating" if (self.count("moe_layers") or 0) * 2 == layers else "first",
            )
        ffn = self.count("ffn_hidden") or (moe.ffn if moe else None)
        if ffn is None:
            raise UnsupportedError("ffn_hidden is not stated")
        learned = self.source == "llm-foundry"
        return Model(
            name=self.text("model") or self.id,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self.count("kv_heads") or heads,
            head_dim=self.count("head_dim") or hidden // heads,
            ffn=ffn,
            gated=bool(self.flag("gated_mlp")),
            vocab=vocab,
            tied=bool(self.flag("tied_embeddings")),
            positions="learned" if learned else "rotary",
            max_positions=(self.count("seq_len") or 0) if learned else 0,
            window=window,
            windowed_layers=round(share * layers),
            moe=moe,
            mla=DEEPSEEK_MLA if attention == "mla" else None,
            mtp_layers=mtp_layers(self),
            source=self.text("source_ref") or self.source,
        )

    def cluster(self, defaults: list[str]) -> Cluster:
        """The cluster of the row: stated figures, else those typical of the accelerator."""
        name, count = self.text("accelerator"), self._needed("accelerators")
        if name is None:
            raise UnsupportedError("accelerator is not stated")
        if not knows("accelerators", name):
            if name.lower() == "cpu":
                # `scalewise measure` writes it; no accelerator is like it.
                raise UnsupportedError("a cpu is no accelerator; calibrate the machine to price it")
            near, note = nearest_accelerator(name)
            name = near.name
            defaults.append(note)
        domain, rate = self.count("scaleup_domain"), self.number("scaleout_gbps")
        # The column speaks of the network between domains; slices of a TPU are joined by DCN.
        stated = self.text("fabric") or "unknown"
        fabric = {"ici": "dcn"}.get(stated, stated)
        if not knows("fabrics", fabric):
            defaults.append(f"fabric like any RDMA network ({fabric} is not known)")
            fabric = "unknown"
        cluster = _cluster(name, count, domain, rate, fabric)
        if rate is None and cluster.nodes > 1:
            defaults.append("network rate typical of the accelerator (not stated)")
        return cluster

    def strategy(self, defaults: list[str]) -> Strategy:
        """The parallelization of the row."""
        micro_batch = self.count("micro_batch")
        if micro_batch is None:
            micro_batch = 1
            defaults.append("micro-batch 1 (not stated)")
        sharding = self.text("sharding")
        replicate, shard = self.count("dp_replicate"), self.count("dp_shard")
        tp, pp, cp = (self.count(name) or 1 for name in ("tp", "pp", "cp"))
        if replicate is None and shard is None:
            ranks = self._needed("accelerators") // (tp * pp * cp)
            replicate, shard = (1, ranks) if sharding in ("zero1", "zero3") else (ranks, 1)
            defaults.append(f"{ranks} data-parallel ranks (derived)")
        replicate, shard = replicate or 1, shard or 1
        family = stack_for(self.framework, fully_sharded=sharding == "zero3").family
        if sharding is None:
            # Megatron's recipes shard the optimizer; elsewhere nothing is known.
            sharding = "zero1" if family in ("megatron", "neuron") else "ddp"
            defaults.append(f"sharding {sharding} (not stated)")
            if sharding == "zero1":
                replicate, shard = 1, replicate * shard
        kind = {"hsdp": "zero3", "fsdp": "zero3"}.get(sharding, sharding)
        # FSDP's SHARD_GRAD_OP is tabled as ZeRO-2: parameters are sharded between steps and
        # gathered once, in forward.
        grad_op = kind == "zero2" and family == "pytorch" and self.framework != "deepspeed"
        if kind == "ddp":
            replicate, shard = replicate * shard, 1
        recompute = self.text("recompute") or "unknown"
        if recompute == "unknown":
            recompute = "none"
        elif recompute == "selective":
            recompute = _selective(self.text("notes") or "")
        experts = recipe_of(self) if self.count("experts") else None
        etp = (tp if experts.etp is None else experts.etp) if experts else 1
        modules = experts.recompute if experts else ""
        if modules == "full":
            recompute, modules = "full", ""
        elif modules and recompute == "selective":
            # The named modules, not the attention core.
            recompute = "none"
        sequence_parallel = self.flag("sequence_parallel")
        if tp > 1 and self.count("experts"):
            # Megatron-LM runs experts with tensor parallelism only so.
            sequence_parallel = True
        if sequence_parallel is None:
            sequence_parallel = True
            if tp > 1:
                defaults.append("sequence parallelism on (not stated)")
        chunks = (self.count("virtual_stages") or 1) if pp > 1 else 1
        ep = self.count("ep") or 1
        ranks = tp * cp * replicate * shard // etp
        if ranks % ep:
            defaults.append(f"ep {ranks} ({ep} does not divide the ranks of a stage)")
            ep = ranks
        notes = self.text("notes") or ""
        overlap = "no overlap" not in notes
        return Strategy(
            dp_replicate=replicate,
            dp_shard=shard,
            sharding="zero3" if grad_op else kind,  # type: ignore[arg-type]
            reshard_after_forward=not grad_op,
            tp=tp,
            sequence_parallel=sequence_parallel,
            cp=cp,
            pp=pp,
            virtual_stages=chunks,
            schedule="interleaved" if chunks > 1 else "1f1b",
            ep=ep,
            etp=etp,
            micro_batch=micro_batch,
            recompute=recompute,
            recompute_modules=modules,
            overlap_dp=overlap,
            overlap_tp=overlap,
            attention_precision="fp8" if "fp8 attention" in notes else None,
            gather_precision="fp8" if "float8 all-gather" in notes else None,
            reduce_precision="bf16" if "MP-mode PURE" in notes else None,
        )

    def _routing(self, defaults: list[str]) -> dict[str, Any]:
        """Balance of experts, the optimizer and the tuning, as fields of a workload."""
        # As `evidence.measured` writes them; variants of Muon (MuonH) orthogonalize the same.
        notes = self.text("notes") or ""
        found = {
            "optimizer": re.search(r"\boptimizer (muon|momentum|sgd|adafactor)", notes),
            "tuning": re.search(r"\btuning (q?lora[\w-]+)", notes),
        }
        stated = {name: match[1] for name, match in found.items() if match}
        return self._experts(defaults) | stated

    def _experts(self, defaults: list[str]) -> dict[str, Any]:
        """Balance of experts, and the moments of models that have some."""
        if not self.count("experts"):
            return {}
        recipe = recipe_of(self)
        if recipe is None or not recipe.routing:
            defaults.append("balanced routing (not stated)")
        # DeepSeek's recipes keep moments in 16 bits (arXiv 2412.19437, section 3.3.2).
        deepseek = (self.text("model") or "").startswith("deepseek")
        state = {"optimizer": "adamw-bf16"} if deepseek else {}
        if recipe is None:
            return state
        return {"imbalance": recipe.imbalance, "capacity": recipe.capacity, **state}

    @property
    def states_recompute(self) -> bool:
        """Whether the row, or the recipe of its release, says what was recomputed."""
        known = (self.text("recompute") or "unknown") != "unknown"
        return known or (bool(self.count("experts")) and recipe_of(self) is not None)

    def plan(self) -> Plan:
        """Turn the row into nouns.

        Raises:
            UnsupportedError: If it states too little, or something scalewise does not model.
            InputError: If it contradicts itself.
        """
        defaults: list[str] = []
        precision = _scaled(self.text("precision") or "bf16", self.text("notes") or "")
        workload = Workload(
            seq_len=self._needed("seq_len"),
            global_batch=self._needed("global_batch"),
            precision=precision,  # type: ignore[arg-type]
            **self._routing(defaults),
        )
        plan = Plan(
            model=self.model(defaults),
            cluster=self.cluster(defaults),
            workload=workload,
            strategy=self.strategy(defaults),
            defaults=tuple(defaults),
        )
        plan.strategy.check_mesh(plan.cluster.accelerators)
        return plan


def _selective(notes: str) -> str:
    """The kind of a selective recompute by what the notes of a row say of it."""
    if match := _EVERY.search(notes):
        return f"1of{match[1]}"
    return "op" if "AC option: op" in notes else "selective"


def _scaled(precision: str, notes: str) -> str:
    """The precision of a row by what its notes say of scales; per tensor where they are silent."""
    if precision == "fp8":
        for word, scaled in (("rowwise", "fp8row"), ("blockwise", "fp8block")):
            if f"fp8 {word}" in notes or f"float8 {word}" in notes:
                return scaled
    return precision


_EVERY = re.compile(r"every[- ]([2-9])(?:nd|rd|th)[- ]layer")


@lru_cache(maxsize=4096)
def _cluster(
    name: str, count: int, domain: int | None, rate_gbps: float | None, fabric: str
) -> Cluster:
    """A cluster as a run states it; many rows share one."""
    accelerator = load_accelerator(name)
    given: dict[str, object] = {"accelerators": count}
    if domain:
        given["scale_up_domain"] = domain
    if rate_gbps:
        given["scale_out_bandwidth"] = rate_gbps * 1e9 / 8
    machine = _only_machine(name)
    if machine is not None and fabric == "infiniband":
        given["host"] = machine.host
        return typical_cluster(accelerator, machine.fabric, **given)
    return typical_cluster(accelerator, load_fabric(fabric), **given)


@lru_cache(maxsize=256)
def _only_machine(accelerator: str) -> Cluster | None:
    """The one machine of the catalog that has this part, if it is built into no other.

    A row names the kind of its network; a machine of its own has one that is known better.
    """
    found = [
        each
        for each in map(load_cluster, names("clusters"))
        if each.accelerator.name == accelerator
    ]
    return found[0] if len(found) == 1 else None


def read_runs(path: str | Path | None = None) -> list[Run]:
    """Read a table of runs.

    Args:
        path: A CSV file with the columns of the shipped one, or None for the shipped one.

    Raises:
        InputError: If it cannot be read, or lacks the columns a run needs.
    """
    file = SHIPPED if path is None else user_path(path)
    hint = "give a CSV file with the columns of the shipped runs"
    columns, rows = read_csv(file, what="table of runs", hint=hint)
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InputError(
            f"{file} has no column {missing[0]!r}",
            hint="see `scalewise validate --help` for the columns",
        )
    return [Run({key: cell for key, cell in row.items() if cell}, line) for line, row in rows]
