"""What training updates: all parameters, or low-rank adapters of a frozen model.

    parse_tuning("lora16").targets             # adapters on all linear layers of attention and MLP
    parse_tuning("qlora64-qv").quantized       # True: the frozen model is stored in NF4
    adapter_parameters(load_model("llama-2-7b"), parse_tuning("lora8-qv"))       # 4194304

LoRA (Hu et al., arXiv 2106.09685) freezes the model and trains two narrow matrices beside some of
its own. QLoRA (Dettmers et al., arXiv 2305.14314) stores the frozen model in 4 bits besides.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import msgspec

from scalewise.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from scalewise.model import Convention, Model

Kind: TypeAlias = Literal["full", "lora", "qlora"]
"""All parameters, adapters of a 16-bit model, adapters of a 4-bit model."""

TARGETS: dict[str, tuple[str, ...]] = {
    "": ("query", "key", "value", "out", "mlp"),
    "attn": ("query", "key", "value", "out"),
    "qv": ("query", "value"),
}
"""Projections that get adapters, by suffix; the LoRA paper has -qv."""

NF4_BYTES = (4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0
"""Bytes per parameter in 4-bit NormalFloat with double quantization: 4.127 bits, an 8-bit scale per
64 parameters and a 32-bit one per 256 of those (Dettmers et al., arXiv 2305.14314, section 3)."""

MAX_RANK = 4096
"""Largest rank: wider adapters are no longer low-rank."""

SAME_AS_FULL = ("continued", "pretraining", "sft", "full-ft")
"""Words for training that updates all parameters: a step of it is one of pre-training."""

REINFORCEMENT = {
    "ppo": "PPO", "grpo": "GRPO", "rloo": "RLOO", "rlhf": "RLHF", "rl": "reinforcement learning",
    "rft": "reinforcement fine-tuning", "dapo": "DAPO", "gspo": "GSPO", "reinforce": "REINFORCE",
}  # fmt: skip
"""Methods that generate sequences between updates."""

PREFERENCE = {
    "dpo": "DPO", "ipo": "IPO", "kto": "KTO", "orpo": "ORPO", "simpo": "SimPO", "cpo": "CPO",
    "reward": "reward-model training", "rm": "reward-model training",
    "distill": "distillation", "distillation": "distillation",
}  # fmt: skip
"""Methods with another loss, or with forward passes of other models."""

_ADAPTERS = re.compile(r"(?P<kind>q?lora)[ -]?(?P<rank>\d+)(?:-(?P<suffix>[a-z]+))?")

_HINT = "use full, lora16, lora16-attn, lora8-qv or qlora64"


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What training updates, and how the rest is stored."""

    kind: Kind = "full"
    """All parameters, adapters of a 16-bit model, or adapters of a 4-bit model."""
    rank: int = 0
    """Width of the adapters; 0 for a frozen model without any."""
    suffix: str = ""
    """Key of `TARGETS`."""

    @property
    def frozen(self) -> bool:
        """Whether the parameters of the model stay as they are."""
        return self.kind != "full"

    @property
    def quantized(self) -> bool:
        """Whether the frozen model is stored in 4 bits."""
        return self.kind == "qlora"

    @property
    def targets(self) -> tuple[str, ...]:
        """Projections that have adapters."""
        return TARGETS[self.suffix] if self.frozen else ()

    @property
    def base_bytes(self) -> float:
        """Bytes per parameter of a frozen weight matrix as it is stored and all-gathered."""
        return NF4_BYTES if self.quantized else 2.0

    def __str__(self) -> str:
        """The word that gives it."""
        if not self.frozen:
            return "full"
        return f"{self.kind}{self.rank}" + (f"-{self.suffix}" if self.suffix else "")


def parse_tuning(word: str) -> Tuning:
    """Read a tuning: full, lora16, lora16-attn, lora8-qv, qlora64.

    Raises:
        InputError: If the word is none of these, or names a method that has other work in a step.
    """
    return _parsed(str(word).strip().lower())


@lru_cache(maxsize=256)
def _parsed(text: str) -> Tuning:
    """The tuning of a word; read once, because every estimate asks."""
    if text == "full" or text in SAME_AS_FULL:
        return Tuning()
    name = re.sub(r"[^a-z]", "", text)
    if name in REINFORCEMENT or name in PREFERENCE:
        _refuse(name)
    match = _ADAPTERS.fullmatch(text)
    if match is None:
        if text in ("lora", "qlora"):
            raise InputError(
                f"--tuning {text}: the rank is missing",
                hint=f"for example {text}16",
                field="tuning",
            )
        known = ("full", "lora16", "lora16-attn", "lora8-qv", "qlora64")
        hint = did_you_mean(text[:40], known)
        raise InputError(f"unknown tuning {text[:40]}", hint=hint, field="tuning")
    suffix, rank = match["suffix"] or "", match["rank"]
    if suffix not in TARGETS:
        raise InputError(
            f"--tuning {text[:40]}: unknown targets -{suffix[:20]}", hint=_HINT, field="tuning"
        )
    if len(rank) > 9 or int(rank) > MAX_RANK:
        raise InputError(
            f"--tuning {text[:40]}: the rank must be at most {MAX_RANK:,}",
            hint="for example lora16",
        )
    kind: Kind = "qlora" if match["kind"] == "qlora" else "lora"
    return Tuning(kind=kind, rank=int(rank), suffix=suffix)


def _refuse(name: str) -> NoReturn:
    """Refuse a method by name, with the question that can be asked instead."""
    if name in REINFORCEMENT:
        raise InputError(
            f"--tuning {name}: {REINFORCEMENT[name]} generates sequences and scores them between "
            "updates, which is not supported",
            hint="ask for the update step of the policy: --tuning full or lora16, with the --seq "
            "and --batch of one update",
            field="tuning",
        )
    raise InputError(
        f"--tuning {name}: {PREFERENCE[name]} has another loss or forward passes of other models, "
        "which is not supported",
        hint="ask for the update step of the trained model: --tuning full or lora16, with both "
        "sequences of a pair counted in --batch",
        field="tuning",
    )


def adapted_matrices(model: Model, tuning: Tuning) -> list[tuple[float, float]]:
    """Return inputs and outputs of the projections of one layer that have adapters, elements."""
    hidden, found = float(model.hidden), []
    widths = {
        "query": (hidden, float(model.query_width)),
        "key": (hidden, float(model.key_width)),
        "value": (hidden, float(model.value_width)),
        "out": (float(model.context_width), hidden),
    }
    for target in tuning.targets:
        if target == "mlp":
            up, down = (hidden, float(model.ffn)), (float(model.ffn), hidden)
            found += [*(up,) * (model.mlp_matrices - 1), down]
        else:
            found.append(widths[target])
    return found


def adapter_parameters(model: Model, tuning: Tuning) -> int:
    """Return the parameters of all adapters: rank x (inputs + outputs) of each projection."""
    layer = sum(int(one + other) for one, other in adapted_matrices(model, tuning))
    return model.layers * tuning.rank * layer


def trained_parameters(model: Model, tuning: Tuning) -> int:
    """Return the parameters that a step updates."""
    return adapter_parameters(model, tuning) if tuning.frozen else model.parameters


def check_tuning(model: Model, tuning: Tuning) -> None:
    """Refuse a tuning that is not modeled for a model.

    Raises:
        InputError: If it is not.
    """
    if not tuning.frozen:
        return
    if model.mla is not None:
        _not_modeled(model, tuning, "latent attention is", "use full")
    if model.mtp_layers:
        hint = "leave the modules out: --set model.mtp_layers=0"
        _not_modeled(model, tuning, "multi-token prediction is", hint)
    if model.moe is None:
        return
    if tuning.quantized:
        hint = f"use lora{tuning.rank}-attn"
        _not_modeled(model, tuning, "routed experts in 4 bits are", hint)
    if "mlp" in tuning.targets and tuning.rank:
        hint = f"use lora{tuning.rank}-attn, or -qv"
        _not_modeled(model, tuning, "adapters of routed experts are", hint)


def _not_modeled(model: Model, tuning: Tuning, what: str, hint: str) -> NoReturn:
    message = f"--tuning {tuning} on {model.name}: {what} not supported"
    raise InputError(message, hint=hint, field="tuning")


def adapter_flops(model: Model, tuning: Tuning) -> float:
    """Return the FLOPs of all adapters forward, per token: 2 per parameter."""
    return 2.0 * adapter_parameters(model, tuning)


@lru_cache(maxsize=1024)
def training_flops(
    model: Model,
    tuning: Tuning,
    seq: int,
    convention: Convention = "causal",
    span: float | None = None,
) -> float:
    """Return the FLOPs of a training step per token, in a convention.

    A frozen matrix is multiplied twice, forward and for the gradient of its input; adapters three
    times; attention as ever: 4 N + 6 A instead of 6 N, plus attention.

    Args:
        model: Model.
        tuning: What is trained.
        seq: Sequence length, tokens.
        convention: As of `Model.training_flops`, like `span`.
        span: Keys a token attends to, mean; None for one document per sequence.
    """
    whole = model.training_flops(seq, convention, span=span)
    if not tuning.frozen:
        return whole
    # A third of what multiplies parameters is the gradient of the parameters.
    counted = model.active_parameters if convention in ("palm", "6n") else model.matmul_parameters
    return whole - 2.0 * counted + 3.0 * adapter_flops(model, tuning)
