"""A training job: model, strategy, workload and number of steps.

    job = TrainJob(model=load_model("tiny"), strategy=parse_strategy("fsdp2"), seq_len=256,
                   global_batch=2, precision="fp32", steps=20, warmup=5)
    job_of(inputs_of(job)) == job

A job is plain data: it travels to the ranks as JSON, and into the record as the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

from scalewise.catalog import knows
from scalewise.errors import InputError, did_you_mean
from scalewise.model import Model
from scalewise.strategy import Strategy, parse_strategy
from scalewise.tuning import parse_tuning
from scalewise.workload import Workload

Precision = Literal["fp32", "bf16"]
Device = Literal["cuda", "cpu"]
"""As PyTorch says it: ROCm devices are "cuda" too."""

Optimizer = Literal["adamw", "sgd", "momentum", "adafactor", "muon"]
"""Those of the catalog that PyTorch has."""
Routing = Literal["balanced", "topk"]

PRECISIONS: tuple[str, ...] = get_args(Precision)
OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)
ROUTINGS: tuple[str, ...] = get_args(Routing)


class TrainJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training run of a few steps, whose purpose is its speed."""

    model: Model
    """What is trained."""
    strategy: Strategy
    """How it is split; its product is the number of ranks."""
    seq_len: int
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
    tuning: str = "full"
    """What is trained: "full", or adapters of a frozen model such as "lora16"."""
    learning_rate: float = 3e-4
    """Of every step."""
    seed: int = 0
    """Of weights and synthetic tokens."""
    text: str | None = None
    """A file whose bytes are the tokens; None for synthetic ones."""
    routing: Routing = "balanced"
    """Experts of a token: "balanced" deals tokens in turn, so that all experts get the same rows;
    "topk" asks the router. Dense models have no use for it."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "tuning", str(parse_tuning(self.tuning)))
        for field in ("seq_len", "global_batch", "steps"):
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
    def etp(self) -> int:
        """Expert tensor-parallel degree."""
        return self.strategy.etp

    @property
    def num_microbatches(self) -> int:
        """Micro steps per optimizer step and data-parallel rank."""
        return self.strategy.microbatches_of(
            Workload(seq_len=self.seq_len, global_batch=self.global_batch)
        )

    def workload(self, precision: Any = None) -> Workload:
        """Return the workload whose estimate describes this job.

        Args:
            precision: Precision to ask for; None for that of the job.

        Raises:
            InputError: If adapters are estimated in 16 bits alone.
        """
        return Workload(
            seq_len=self.seq_len, global_batch=self.global_batch, optimizer=self.optimizer,
            precision=precision or self.precision, tuning=self.tuning,
        )  # fmt: skip

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step consumes."""
        return self.seq_len * self.global_batch

    @property
    def chunks(self) -> int:
        """Model chunks per pipeline rank; ZB-V always has two."""
        s = self.strategy
        return 2 if s.pp > 1 and s.schedule == "zbv" else s.virtual_stages


def inputs_of(job: TrainJob) -> dict[str, Any]:
    """A job as a record keeps it: plain types, and the strategy in its one spelling."""
    plain: dict[str, Any] = msgspec.to_builtins(job)
    plain["strategy"] = str(job.strategy)
    if job.tuning == "full":
        # As in records from before it could be another.
        del plain["tuning"]
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


def _same_word(word: str, words: Sequence[Any]) -> Any:
    """Return the one of some words that is the same but for capitals; None if none is."""
    return next((each for each in words if each == word.lower()), None)


def check_routing(word: str) -> Routing:
    """Read the name of a routing.

    Raises:
        InputError: If there is none of that name.
    """
    found: Routing | None = _same_word(word, get_args(Routing))
    if found is not None:
        return found
    raise InputError(f"unknown routing {word[:40]}", hint=did_you_mean(word.lower(), ROUTINGS))


def check_optimizer(word: str) -> Optimizer:
    """Read the name of an optimizer that can be measured.

    Raises:
        InputError: If it is another.
    """
    found: Optimizer | None = _same_word(word, get_args(Optimizer))
    if found is not None:
        return found
    if knows("optimizers", word):
        raise InputError(
            f"optimizer {word[:40]} cannot be measured: PyTorch has none of that kind",
            hint="use " + ", ".join(OPTIMIZERS),
        )
    raise InputError(f"unknown optimizer {word[:40]}", hint=did_you_mean(word.lower(), OPTIMIZERS))


def check_precision(word: str) -> Precision:
    """Read the name of a precision that can be measured.

    Raises:
        InputError: If it is another.
    """
    found: Precision | None = _same_word(word, get_args(Precision))
    if found is not None:
        return found
    hint = did_you_mean(word.lower(), PRECISIONS)
    raise InputError(f"precision {word[:40]!r} cannot be measured here", hint=hint)
