"""Start and end of every rank: join the process group, and leave it.

    with joined(spec) as context:
        context.device, context.environment, context.warnings

Ranks find each other by the variables that torchrun sets, or `slurm_rank` in its place.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

import torch
import torch.distributed as dist

from scalewise.measure.launch_spec import NOTICED, LaunchSpec
from scalewise.measure.machine import environment
from scalewise.records.environment import Environment


class RankContext(NamedTuple):
    """What a rank knows once it has joined."""

    device: torch.device
    """Its own."""
    environment: Environment
    """Of the whole launch."""
    warnings: list[str]
    """What the machines noticed before the start, each with its name; under Slurm only, because
    elsewhere the launcher looks by itself."""


@contextmanager
def joined(spec: LaunchSpec) -> Iterator[RankContext]:
    """Join the process group of a launch; leave it at the end, but not after an error.

    Args:
        spec: Says on which device, and with how many threads.
    """
    device = device_of(spec)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    # Containers of NVIDIA allow TF32 by TORCH_ALLOW_TF32_CUBLAS_OVERRIDE; records say fp32.
    torch.set_float32_matmul_precision("highest")
    dist.init_process_group(backend, device_id=device if device.type == "cuda" else None)
    nodes, warnings = _machines()
    yield RankContext(device, environment_of(spec, device, backend, nodes), warnings)
    # Not after an error: NCCL would wait for ranks that wait for this one, until the time limit.
    dist.destroy_process_group()


def run_rank(main: Callable[[], object]) -> NoReturn:
    """Run a rank, and end its process at once: with code 0, or 1 after an error.

    The interpreter's own end would also take down native threads of PyTorch and Gloo, which on a
    busy machine now and then abort ("terminate called without an active exception") after all the
    work is done; the launcher would then report a finished measurement as failed. After an error
    it would wait for collectives that the other ranks never join.
    """
    code = 0
    try:
        main()
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def device_of(spec: LaunchSpec) -> torch.device:
    """This rank's device, chosen for everything that follows."""
    if spec.device == "cpu":
        return torch.device("cpu")
    # A cluster may show each rank its own GPU alone.
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def environment_of(
    spec: LaunchSpec, device: torch.device, backend: str, nodes: list[str]
) -> Environment:
    """The machine and the software, as a rank that has joined sees them.

    Args:
        spec: Names the accelerator, if the user did.
        device: This rank's.
        backend: Of the collectives.
        nodes: Names of the machines, where Slurm gave them.
    """
    versions: dict[str, str] = {}
    name = ""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        nccl = torch.cuda.nccl.version()
        versions["nccl"] = ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl)
        for library, version in (("cuda", torch.version.cuda), ("rocm", torch.version.hip)):
            if version:
                versions[library] = str(version)
    return environment(
        device=spec.device,
        device_name=name,
        accelerator=spec.accelerator,
        backend=backend,
        ranks=dist.get_world_size(),
        ranks_per_node=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        threads=torch.get_num_threads() if device.type == "cpu" else None,
        nodes=nodes,
        links=spec.links,
        versions=versions,
    )


def _machines() -> tuple[list[str], list[str]]:
    """The machines in the order of their ranks, and what each noticed; nothing without Slurm."""
    node = os.environ.get("SLURMD_NODENAME")
    if node is None or NOTICED not in os.environ:
        return [], []
    everyone: list[tuple[str, list[str]]] = [("", [])] * dist.get_world_size()
    dist.all_gather_object(everyone, (node, json.loads(os.environ[NOTICED])))
    warnings = [f"{name}: {said}" for name, noticed in everyone for said in noticed]
    return list(dict.fromkeys(name for name, _ in everyone)), warnings
