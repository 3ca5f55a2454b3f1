"""Checks of a training job against what PyTorch and the device can run.

    check_job(job, device="cpu")            # InputError: tp = 3 does not divide heads = 4 of tiny

Everything is checked before the first process starts.
"""

from __future__ import annotations

import math
from pathlib import Path

from scalewise.errors import InputError
from scalewise.records.job import PRECISIONS, Device, TrainJob
from scalewise.sharding import data_token, is_mics, variant_tokens
from scalewise.strategy import Strategy
from scalewise.tuning import check_tuning, parse_tuning


def check_job(job: TrainJob, device: Device) -> None:
    """Refuse what cannot run, in a sentence, before any process starts.

    Args:
        job: What is asked for.
        device: Where it would run.

    Raises:
        InputError: Naming the field and the reason.
    """
    _check_model(job)
    _check_degrees(job, device)
    _check_experts(job)
    _check_optimizer(job)
    _check_tuning(job)
    if job.strategy.tp > 1:
        _check_tensor_parallel(job)
    if job.strategy.pp > 1:
        _check_pipeline(job)
    if job.text is not None and not Path(job.text).is_file():
        raise InputError(f"there is no text file {job.text}", hint="leave --text out")
    job.num_microbatches  # noqa: B018 - refuses a batch that does not divide


def _check_model(job: TrainJob) -> None:
    model = job.model
    absent = {
        "latent attention (MLA)": model.mla is not None,
        "attention sinks": model.attention_sinks,
        "multi-token prediction": model.mtp_layers > 0,
        "ALiBi positions": model.positions == "alibi",
    }
    for what, needed in absent.items():
        if needed:
            raise InputError(
                f"{model.name} has {what}, which the decoder of `measure` does not support",
                hint="take a Llama-like or Mixtral-like model of the same size",
            )
    if model.window is not None and model.window < job.seq_len:
        raise InputError(
            f"{model.name} attends within a window of {model.window}, shorter than the sequence "
            f"of {job.seq_len}: the fused kernel used here has no window",
            hint=f"use --seq {model.window} or less",
        )
    if model.positions == "learned" and job.seq_len > model.max_positions:
        raise InputError(
            f"{model.name} has {model.max_positions} learned positions, fewer than the sequence "
            f"of {job.seq_len}",
            hint=f"use --seq {model.max_positions} or less",
        )


def _check_degrees(job: TrainJob, device: Device) -> None:
    s = job.strategy
    if s.recompute == "op":
        raise InputError(
            "recompute op is not supported by `measure`", hint="use acattn, ac1of2 or acfull"
        )
    if modules := s.recompute_modules:
        raise InputError(
            f"recompute of {modules} is not supported by `measure`",
            hint="use acattn, ac1of2 or acfull",
        )
    if s.mlp_tiles > 1:
        raise InputError(
            f"mlp_tiles = {s.mlp_tiles} is not supported by `measure`",
            hint="drop the tilemlp token",
        )
    if s.cp > 1 and device == "cpu":
        raise InputError(
            f"cp = {s.cp} cannot be measured on CPUs: PyTorch has no context-parallel attention "
            "for them",
            hint="measure it on GPUs, or leave the cp token out",
        )
    if s.cp > 1 and (s.pp > 1 or job.seq_len % (2 * s.cp)):
        why = "a pipeline" if s.pp > 1 else f"a sequence of {job.seq_len}"
        raise InputError(
            f"cp = {s.cp} cannot be measured together with {why}",
            hint="context parallelism needs pp = 1 and a sequence that 2 x cp divides",
        )
    if s.cp > 1 and (s.sharding != "zero3" or s.dp_replicate > 1):
        raise InputError(
            f"cp = {s.cp} can be measured with fsdp alone, not in {s}",
            hint=f"use fsdp{s.data_parallel}-cp{s.cp}",
        )
    if s.sharding == "zero2":
        raise InputError(
            "zero2 cannot be measured: PyTorch shards gradients only together with parameters",
            hint=f"fsdp{s.dp_shard}-noreshard all-gathers parameters once and is the closest",
        )
    if s.sharding == "zero1" and (s.dp_replicate > 1 or s.tp > 1 or s.pp > 1):
        raise InputError(
            f"{s} cannot be measured: PyTorch's ZeRO-1 optimizer works with plain data parallelism",
            hint=f"use zero1x{s.data_parallel}, or fsdp",
        )
    if s.precision is not None and s.precision != job.precision:
        raise InputError(
            f"precision {s.precision} of the strategy cannot be measured here",
            hint="use --precision " + " or ".join(PRECISIONS),
        )
    if tokens := [data_token(s)] * is_mics(s) + variant_tokens(s):
        raise InputError(
            f"{tokens[0]} cannot be measured here", hint="drop it: fsdp, hsdp, ddp and zero1 can be"
        )
    for field, token in (("attention_precision", "fp8attn"), ("gather_precision", "gatherfp8")):
        if getattr(s, field) is not None:
            raise InputError(f"{token} cannot be measured here", hint=f"drop {token}")
    if s.reduce_precision == "bf16" and s.sharding != "zero3" and device == "cpu":
        raise InputError(
            "reducebf16 with ddp cannot be measured on CPUs: Gloo has no such reduction",
            hint="leave the token out, or take fsdp",
        )
    if s.sharding == "zero3" and s.dp_shard > 1 and device == "cuda" and not _prefetches(s):
        raise InputError(
            "FSDP on GPUs always prefetches: pf0 and nodpoverlap cannot be measured",
            hint="leave the token out",
        )


def _check_experts(job: TrainJob) -> None:
    moe, s, etp, name = job.model.moe, job.strategy, job.etp, job.model.name
    if moe is None:
        for field, degree in (("ep", s.ep), ("etp", etp)):
            if degree > 1:
                raise InputError(
                    f"{field} = {degree} needs experts, but {name} is dense",
                    hint=f"leave the {field} token out, or take a model with experts",
                )
        return
    for field, degree, divided, value in (
        ("ep", s.ep, "moe.experts", moe.experts),
        ("etp", etp, "moe.ffn", moe.ffn),
    ):
        if value % degree:
            raise InputError(
                f"{field} = {degree} does not divide {divided} = {value} of {name}",
                hint="each rank holds an equal part of the experts",
            )
    inside = {"dp_shard": s.dp_shard, "cp": s.cp, "tp": s.tp}
    if s.sharding != "zero3":
        inside["dp_replicate"] = s.dp_replicate
    ranks = math.prod(inside.values())
    if ranks % (s.ep * etp):
        raise InputError(
            f"ep x etp = {s.ep * etp} does not divide {' x '.join(inside)} = {ranks} of {s}",
            hint="experts are split over the ranks of the other degrees",
        )
    split = {"cp": s.cp > 1, "ZeRO-1": s.sharding == "zero1"}
    for what, used in split.items():
        if used and s.ep * etp > 1:
            raise InputError(
                f"ep = {s.ep} cannot be measured together with {what}",
                hint="use ddp or fsdp without cp, or leave the ep token out",
            )
    if s.tp > 1 and not s.sequence_parallel:
        raise InputError(
            f"tp = {s.tp} with experts cannot be measured without sequence parallelism",
            hint="leave nosp out",
        )
    if etp > 1 and moe.bias:
        raise InputError(
            f"{name} has biases in its experts, which etp = {etp} does not split",
            hint="leave the etp token out",
        )
    if job.compile:
        raise InputError(
            f"{name} has experts, whose routing cannot be compiled", hint="leave --compile out"
        )


def _check_optimizer(job: TrainJob) -> None:
    s, name = job.strategy, job.optimizer
    split = (s.sharding == "zero3" and s.data_parallel > 1) or s.tp * s.pp * s.cp * s.ep > 1
    if name == "adafactor" and split:
        raise InputError(
            f"optimizer adafactor cannot be measured in {s}: PyTorch's does not update split "
            "parameters",
            hint="use ddp, or another optimizer",
        )
    if name == "muon" and job.model.moe is not None:
        raise InputError(
            f"optimizer muon cannot be measured on {job.model.name}: PyTorch's updates no stacked "
            "experts",
            hint="use adamw, or a dense model",
        )
    if name == "muon" and s.sharding == "zero1":
        raise InputError(
            f"optimizer muon cannot be measured in {s}: PyTorch's ZeRO-1 has one optimizer for all "
            "parameters",
            hint="use ddp or fsdp",
        )


def _check_tuning(job: TrainJob) -> None:
    tuning, s = parse_tuning(job.tuning), job.strategy
    if not tuning.frozen:
        return
    check_tuning(job.model, tuning)
    reasons = {
        "PyTorch has no parameters in 4 bits": (tuning.quantized, f"use lora{tuning.rank or 16}"),
        "nothing is trained": (tuning.rank == 0, "use lora16"),
        f"adapters are not split over tp = {s.tp}": (s.tp > 1, "leave the tp token out"),
        f"schedule {s.schedule} splits backward by weights": (
            s.pp > 1 and s.schedule in ("zbh1", "zbv"), "use 1f1b or interleaved"),
    }  # fmt: skip
    for why, (applies, hint) in reasons.items():
        if applies:
            raise InputError(f"tuning {tuning} cannot be measured in {s}: {why}", hint=hint)


def _prefetches(s: Strategy) -> bool:
    return s.overlap_dp and s.prefetch > 0


def _check_tensor_parallel(job: TrainJob) -> None:
    model, tp = job.model, job.strategy.tp
    divided = {"heads": model.heads, "kv_heads": model.kv_heads, "ffn": model.ffn,
               "vocab": model.vocab}  # fmt: skip
    if model.moe is not None:
        divided["moe.shared_ffn"] = model.moe.shared_experts * model.moe.shared_ffn
    if job.strategy.sequence_parallel:
        divided["seq_len"] = job.seq_len
    for field, value in divided.items():
        if value % tp:
            raise InputError(
                f"tp = {tp} does not divide {field} = {value} of {model.name}",
                hint="each tensor-parallel rank holds an equal part",
            )
    absent = {
        "norms of queries and keys": model.qk_norm,
        "learned positions": model.positions == "learned",
        "a norm behind the embedding": model.embedding_norm,
        "biases behind row-split products": model.output_bias or model.mlp_bias,
    }
    for what, needed in absent.items():
        if needed:
            raise InputError(
                f"{model.name} has {what}, which the tensor-parallel plan does not split",
                hint="measure it without tp, or take a Llama-like model",
            )


def _check_pipeline(job: TrainJob) -> None:
    model, s = job.model, job.strategy
    stages = s.pp * job.chunks
    if stages > model.layers:
        raise InputError(
            f"{stages} pipeline stages (pp {s.pp} x {job.chunks} chunks) are more than the "
            f"{model.layers} layers of {model.name}",
            hint="use fewer stages, or a deeper model",
        )
    if s.schedule == "zbv" and s.virtual_stages > 2:
        raise InputError(f"zbv has two chunks per rank, not {s.virtual_stages}")
    if s.schedule in ("gpipe", "1f1b") and s.virtual_stages > 1:
        raise InputError(
            f"schedule {s.schedule} has one chunk per rank, not {s.virtual_stages}",
            hint="use interleaved",
        )
    if model.tied:
        raise InputError(
            f"{model.name} ties head and embedding, which lie on different pipeline stages",
            hint="take a model with tied = false",
        )
    if (
        s.schedule in ("zbh1", "zbv")
        and s.sharding == "zero3"
        and s.dp_shard > 1
        and s.reshard_after_forward
    ):
        raise InputError(
            f"schedule {s.schedule} cannot be measured with FSDP that frees its parameters: "
            "PyTorch then loses gradients where it splits backward",
            hint="add noreshard, or take ddp, 1f1b or interleaved",
        )
    if job.compile and s.schedule in ("zbh1", "zbv"):
        raise InputError(
            f"schedule {s.schedule} cannot be compiled: PyTorch splits its backward in eager mode",
            hint="leave --compile out, or take 1f1b or interleaved",
        )
    count = job.num_microbatches
    if s.schedule == "1f1b" and count < s.pp:
        raise InputError(
            f"{count} micro-batches are fewer than {s.pp} pipeline stages",
            hint=f"use a --batch of at least {s.pp * s.micro_batch * s.data_parallel}",
        )
    rounds = max(1, count // s.pp)
    if s.schedule in ("interleaved", "zbh1") and count % rounds:
        raise InputError(
            f"{count} micro-batches do not fall into {rounds} equal rounds of {s.pp} stages",
            hint=f"use a --batch that is a multiple of {s.pp * s.micro_batch * s.data_parallel}",
        )


def stage_bounds(layers: int, stages: int, first: int | None, last: int | None) -> list[range]:
    """Layers of every pipeline stage: consecutive, and as even as can be.

    Args:
        layers: Of the model.
        stages: In all, chunks included.
        first: Layers of the first stage, if fixed.
        last: Layers of the last stage, if fixed.

    Raises:
        InputError: If a stage would be empty.
    """
    fixed = {0: first, stages - 1: last}
    counts = [fixed.get(i) or 0 for i in range(stages)]
    free = [i for i in range(stages) if fixed.get(i) is None]
    rest = layers - sum(counts)
    if rest < len(free) or (rest and not free):
        raise InputError(
            f"first_stage_layers = {first} and last_stage_layers = {last} leave {rest} layers "
            f"for {len(free)} other stages",
            hint="every stage needs a layer, and all layers a stage",
        )
    for i in free:
        # The rest goes to the middle first: the ends hold embedding and head as well.
        counts[i] = rest // len(free)
    extra = rest - sum(counts[i] for i in free)
    middle_first = sorted(free, key=lambda i: (i in (0, stages - 1), i))
    for i in middle_first[:extra]:
        counts[i] += 1
    bounds, start = [], 0
    for count in counts:
        bounds.append(range(start, start + count))
        start += count
    return bounds
