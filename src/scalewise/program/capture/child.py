"""The capturing process: one program, one rank, one answer.

    python -m scalewise.program.capture.child spec.json answer.json BYTES

It replaces parts of PyTorch and may crash with the program, so nothing else runs in it.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import msgspec
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from scalewise.errors import ScalewiseError
from scalewise.program.capture.decoder import run_decoder
from scalewise.program.capture.script import layers_of, multiplied_of, parameters_of, run_script
from scalewise.program.capture.spec import Answer, CaptureSpec
from scalewise.program.capture.steps import Steps
from scalewise.program.capture.torchtitan import run_torchtitan
from scalewise.program.capture.tracer import Tracer
from scalewise.program.capture.transformers import run_transformers
from scalewise.program.capture.versions import check_version
from scalewise.program.events import Capture
from scalewise.program.run import OUTPUT_BYTES

ADAPTERS = {
    "script": run_script,
    "decoder": run_decoder,
    "torchtitan": run_torchtitan,
    "transformers": run_transformers,
}


def answer(spec: CaptureSpec) -> Answer:
    """Capture what a spec asks for."""
    try:
        check_version(torch.__version__)
        begun = time.process_time()
        tracer, steps = ADAPTERS[spec.adapter](spec)
        if tracer.refused:
            return Answer(refused=tuple(tracer.refused))
        return Answer(capture=_capture(spec, tracer, steps, time.process_time() - begun))
    except ScalewiseError as error:
        return Answer(error=str(error), hint=error.hint or "", exit_code=error.exit_code)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        reason = f"the result of {error.func} depends on values, which its tensors do not have"
        return Answer(refused=(reason,))
    except Exception as error:
        with suppress(OSError):
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)
        last = ([each for each in where if _is_own(each.filename)] or list(where))[-1]
        text = (str(error).splitlines() or [""])[0][:300]
        return Answer(
            error=f"{type(error).__name__} at {last.filename}:{last.lineno}: {text}",
            hint="the traceback is in the output of the program",
        )


def _is_own(filename: str) -> bool:
    """Whether a file is of the program, and not of PyTorch, Python or the capture."""
    here = str(Path(__file__).resolve().parents[2])
    return not ("site-packages" in filename or filename.startswith(("<", here, sys.base_prefix)))


def _capture(spec: CaptureSpec, tracer: Tracer, steps: Steps, seconds: float) -> Capture:
    whole, kept = parameters_of(steps.modules)
    if spec.job is not None:
        what = f"decoder {spec.job.model.name}, {spec.job.strategy}"
    else:
        what = " ".join(spec.arguments)
    labels = {event.label.split(":")[0] for event in tracer.events}
    versions = {"torch": str(torch.__version__), "python": platform.python_version()}
    versions |= tracer.versions
    return Capture(
        program=what,
        adapter=spec.adapter,
        world=spec.world,
        rank=spec.rank,
        versions=versions,
        events=tuple(tracer.events),
        groups=tracer.groups,
        meshes=tuple(tracer.meshes),
        parameters=whole,
        local_parameters=kept,
        multiplied=multiplied_of(steps.modules),
        trained_modules=tuple(sorted({type(each).__name__ for each in steps.modules})),
        inputs=tuple(tracer.inputs),
        vocab=tracer.vocab,
        hidden=tracer.hidden,
        layers=layers_of(steps.modules),
        peak_bytes=float(tracer.peak_bytes),
        pipelined="PP" in labels or any(event.peer >= 0 for event in tracer.events),
        checkpointed=tracer.checkpointed,
        build_seconds=steps.build_seconds,
        step_seconds=seconds - steps.build_seconds,
        resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
        notes=tuple(tracer.notes),
    )


def main() -> None:
    """Read the spec, write the answer."""
    limit = int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # What the program prints goes to a file.
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=CaptureSpec)
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(answer(spec)))
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Threads of PyTorch may abort an interpreter that ends; everything is written.
    os._exit(0)


if __name__ == "__main__":
    main()
