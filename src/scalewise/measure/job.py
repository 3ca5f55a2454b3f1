"""What one launch trains: model, strategy, workload and how long, checked before anything starts.

    job = TrainJob(model=load_model("tiny"), strategy=parse_strategy("fsdp2"), sequence=256,
                   global_batch=2, precision="fp32", steps=20, warmup=5)
    check_job(job, device="cpu")            # a sentence where PyTorch or the device cannot

A job is plain data: it travels to the ranks as JSON, and into the record as the inputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.model import Model
from scalewise.strategy import Strategy, parse_strategy
from scalewise.workload import Workload

Precision = Literal["fp32", "bf16"]
Device = Literal["cuda", "cpu"]
"""As PyTorch says it: ROCm devices are "cuda" too."""

Optimizer = Literal["adamw", "sgd"]

PRECISIONS: tuple[str, ...] = get_args(Precision)


class TrainJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training run of a few steps, whose purpose is its speed."""

    model: Model
    """What is trained."""
    strategy: Strategy
    """How it is split; its product is the number of ranks."""
    sequence: int
    """Tokens per sequence."""
    global_batch: int
    """Sequences per optimizer step, over all ranks."""
    precision: Precision = "bf16"
    """Of the matrix products; master weights, gradients' sums and optimizer stay in fp32."""
    steps: int
    """Optimizer steps in all, warm-up included."""
    warmup: int
    """First steps that are kept in the record but not in the statistics."""
    trace_steps: int = 0
    """Further steps, after the timed ones, that run under the profiler; 0 for none."""
    compile: bool = False
    """Whether blocks go through torch.compile."""
    optimizer: Optimizer = "adamw"
    """AdamW as in practice; plain SGD shows a wrong scale of gradients, which AdamW hides."""
    learning_rate: float = 3e-4
    """Of every step."""
    seed: int = 0
    """Of weights and synthetic tokens."""
    text: str | None = None
    """A file whose bytes are the tokens; None for synthetic ones."""

    def __post_init__(self) -> None:
        for field in ("sequence", "global_batch", "steps"):
            if getattr(self, field) < 1:
                raise InputError(
                    f"{field} = {getattr(self, field)} must be at least 1",
                    hint="leave it out for what suits the device",
                )
        for field in ("warmup", "trace_steps", "seed"):
            if getattr(self, field) < 0:
                raise InputError(f"{field} = {getattr(self, field)} must not be negative")
        if self.warmup >= self.steps:
            raise InputError(
                f"warmup = {self.warmup} leaves none of {self.steps} steps to measure",
                hint="raise --steps, or lower --warmup",
            )

    @property
    def ranks(self) -> int:
        """Processes, one per device."""
        return self.strategy.accelerators

    @property
    def micro_steps(self) -> int:
        """Micro steps per optimizer step and data-parallel rank."""
        return self.strategy.micro_steps(
            Workload(sequence=self.sequence, global_batch=self.global_batch)
        )

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step consumes."""
        return self.sequence * self.global_batch

    @property
    def chunks(self) -> int:
        """Model chunks per pipeline rank; ZB-V always has two."""
        s = self.strategy
        return 2 if s.pp > 1 and s.schedule == "zbv" else s.virtual_stages


def inputs_of(job: TrainJob) -> dict[str, Any]:
    """A job as a record keeps it: plain types, and the strategy in its one spelling."""
    plain: dict[str, Any] = msgspec.to_builtins(job)
    plain["strategy"] = str(job.strategy)
    return plain


def job_of(inputs: dict[str, Any]) -> TrainJob:
    """The job that a record of kind "train" was made from.

    Raises:
        InputError: If it cannot be read.
    """
    try:
        strategy = msgspec.to_builtins(parse_strategy(str(inputs["strategy"])))
        return msgspec.convert({**inputs, "strategy": strategy}, TrainJob)
    except (KeyError, msgspec.ValidationError) as error:
        raise InputError(f"the inputs of a record cannot be read: {error}") from error


def check_precision(word: str) -> Precision:
    """Read the name of a precision that can be measured.

    Raises:
        InputError: If it is another.
    """
    for known in get_args(Precision):
        if word.lower() == known:
            found: Precision = known
            return found
    hint = did_you_mean(word.lower(), PRECISIONS)
    raise InputError(f"precision {word[:40]!r} cannot be measured here", hint=hint)


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
    if job.strategy.tp > 1:
        _check_tensor_parallel(job)
    if job.strategy.pp > 1:
        _check_pipeline(job)
    if job.text is not None and not Path(job.text).is_file():
        raise InputError(f"there is no text file {job.text}", hint="leave --text out")
    job.micro_steps  # noqa: B018 - refuses a batch that does not divide


def _check_model(job: TrainJob) -> None:
    model = job.model
    absent = {
        "experts": model.moe is not None,
        "latent attention (MLA)": model.mla is not None,
        "attention sinks": model.attention_sinks,
        "ALiBi positions": model.positions == "alibi",
    }
    for what, needed in absent.items():
        if needed:
            raise InputError(
                f"{model.name} has {what}, which the decoder that is trained here has not",
                hint="take a dense Llama-like model of the same size",
            )
    if model.window is not None and model.window < job.sequence:
        raise InputError(
            f"{model.name} attends within a window of {model.window}, shorter than the sequence "
            f"of {job.sequence}: the fused kernel used here has no window",
            hint=f"use --seq {model.window} or less",
        )
    if model.positions == "learned" and job.sequence > model.max_positions:
        raise InputError(
            f"{model.name} has {model.max_positions} learned positions, fewer than the sequence "
            f"of {job.sequence}",
            hint=f"use --seq {model.max_positions} or less",
        )


def _check_degrees(job: TrainJob, device: Device) -> None:
    s = job.strategy
    if s.cp > 1 and device == "cpu":
        raise InputError(
            f"cp = {s.cp} cannot be measured on CPUs: PyTorch has no context-parallel attention "
            "for them",
            hint="measure it on GPUs, or leave the cp token out",
        )
    if s.cp > 1 and (s.pp > 1 or job.sequence % (2 * s.cp)):
        why = "a pipeline" if s.pp > 1 else f"a sequence of {job.sequence}"
        raise InputError(
            f"cp = {s.cp} cannot be measured together with {why}",
            hint="context parallelism needs pp = 1 and a sequence that 2 x cp divides",
        )
    if s.cp > 1 and (s.sharding != "zero3" or s.dp_replicate > 1):
        raise InputError(
            f"cp = {s.cp} can be measured with fsdp alone, not in {s}",
            hint=f"use fsdp{s.data_parallel}-cp{s.cp}",
        )
    if s.ep > 1:
        raise InputError(f"ep = {s.ep} needs experts, which the decoder has not")
    if s.sharding == "zero2":
        raise InputError(
            "zero2 cannot be measured: PyTorch shards gradients only together with parameters",
            hint=f"fsdp{s.dp_shard}-noreshard gathers parameters once and comes closest",
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
    if s.reduce_precision == "bf16" and s.sharding != "zero3" and device == "cpu":
        raise InputError(
            "reducebf16 with ddp cannot be measured on CPUs: Gloo has no such reduction",
            hint="leave the token out, or take fsdp",
        )
    if s.sharding == "zero3" and s.dp_shard > 1 and device == "cuda" and not _prefetches(s):
        raise InputError(
            "FSDP on GPUs always gathers ahead: pf0 and nodpoverlap cannot be measured",
            hint="leave the token out",
        )


def _prefetches(s: Strategy) -> bool:
    return s.overlap_dp and s.prefetch > 0


def _check_tensor_parallel(job: TrainJob) -> None:
    model, tp = job.model, job.strategy.tp
    divided = {"heads": model.heads, "kv_heads": model.kv_heads, "ffn": model.ffn,
               "vocab": model.vocab}  # fmt: skip
    if job.strategy.sequence_parallel:
        divided["sequence"] = job.sequence
    for field, value in divided.items():
        if value % tp:
            raise InputError(
                f"tp = {tp} does not divide {field} = {value} of {model.name}",
                hint="each tensor-parallel rank holds the same share",
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
    if s.schedule in ("zbh1", "zbv") and s.sharding == "zero3" and s.dp_shard > 1 and s.reshard:
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
    count = job.micro_steps
    if s.schedule == "1f1b" and count < s.pp:
        raise InputError(
            f"{count} micro batches are fewer than {s.pp} pipeline stages",
            hint=f"use a --batch of at least {s.pp * s.micro_batch * s.data_parallel}",
        )
    rounds = max(1, count // s.pp)
    if s.schedule in ("interleaved", "zbh1") and count % rounds:
        raise InputError(
            f"{count} micro batches do not fall into {rounds} equal rounds of {s.pp} stages",
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
