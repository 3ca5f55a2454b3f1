"""Capture of scripts that use the Trainer of Hugging Face, with or without an accelerate launch.

    run_transformers(CaptureSpec(adapter="transformers", world=64, arguments=("train.py",)))

The Trainer runs as it is; FSDP2 is asked for by accelerate's own environment variables. Only masks
differ: on fake tensors transformers builds those that a real run leaves to the attention kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from scalewise.program.capture.patches import replaced
from scalewise.program.capture.script import run_script
from scalewise.program.capture.spec import CaptureSpec
from scalewise.program.capture.steps import Steps
from scalewise.program.capture.tracer import Tracer
from scalewise.program.capture.versions import check_framework

WHOLE = "sequences are taken as whole: masks that separate packed ones are left out"


def run_transformers(spec: CaptureSpec) -> tuple[Tracer, Steps]:
    """Run a script until the second step of its Trainer is done."""
    return run_script(spec, prepared)


@contextmanager
def prepared(tracer: Tracer) -> Iterator[None]:
    """Let causal attention be causal attention.

    Args:
        tracer: Gets the versions.
    """
    for name in ("transformers", "accelerate"):
        tracer.versions[name] = check_framework(name)
    # Here, because loading it asks for the accelerator.
    masking_utils = import_module("transformers.masking_utils")
    tracer.notes.append(WHOLE)
    with replaced(
        masking_utils,
        is_tracing=lambda *arguments: False,
        find_packed_sequence_indices=lambda *arguments, **options: None,
    ):
        yield
