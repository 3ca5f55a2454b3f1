"""A task of srun as a rank: it sets the variables that torchrun would set.

    srun --ntasks=16 python -m scalewise.measure.slurm_rank scalewise.measure.worker 1.json

torch is imported only after the load of the machine is checked: other load can be told from the
ranks' own only before they start.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from scalewise.measure.launch_spec import NOTICED
from scalewise.measure.machine import LOOK_SECONDS, cores, idle_warnings

FIRST_PORT, PORTS = 10_000, 20_000
"""Where ranks may meet: below the ports that Linux gives to clients (from 32768)."""

START_SECONDS = 0.4
"""Time for the interpreters of the other ranks of a machine to start."""


class _Options(msgspec.Struct):
    """The fields of a launch spec that matter here."""

    device: str
    threads: int | None = None


def main() -> None:
    """Become a rank, then run a worker in this process."""
    module, file = sys.argv[1:3]
    options = msgspec.json.decode(Path(file).read_bytes(), type=_Options)
    os.environ.update(rank_variables(os.environ))
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    if options.device == "cpu":
        # Each rank of a machine gets an equal part of the cores, as on a single machine.
        threads = options.threads or max(1, cores() // local)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        if os.environ["MASTER_ADDR"].startswith("127."):
            # All ranks are here; Gloo would ask the name service for this host's address.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ[NOTICED] = json.dumps(_noticed())
    sys.argv = [module, file]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def rank_variables(slurm: Mapping[str, str]) -> dict[str, str]:
    """The variables by which PyTorch's ranks find each other.

    Args:
        slurm: The variables of a task, as srun sets them.

    Raises:
        KeyError: If this is no task of a job step.
    """
    node = int(slurm["SLURM_NODEID"])
    step = int(slurm.get("SLURM_STEP_ID", "0"))
    # Steps of one job, and jobs of one node, each get a port of their own.
    port = FIRST_PORT + (64 * int(slurm["SLURM_JOB_ID"]) + step) % PORTS
    return {
        "RANK": slurm["SLURM_PROCID"],
        "WORLD_SIZE": slurm["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": slurm["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(tasks_of(slurm["SLURM_STEP_TASKS_PER_NODE"])[node]),
        "MASTER_ADDR": slurm.get("MASTER_ADDR") or master_addr(slurm),
        "MASTER_PORT": slurm.get("MASTER_PORT") or str(port),
    }


def tasks_of(text: str) -> list[int]:
    """Tasks of every node, from Slurm's "2(x3),1"."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if found is None:
            raise ValueError(f"{text!r} does not say how many tasks a node has")
        counts += [int(found[1])] * int(found[2] or "1")
    return counts


def master_addr(slurm: Mapping[str, str]) -> str:
    """Where rank 0 runs: the first node of the step, by its name if others can resolve it.

    Where they cannot, it is the address that the step was launched from, which for a batch script
    is the same machine.
    """
    name = first_node(slurm["SLURM_STEP_NODELIST"])
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return slurm.get("SLURM_LAUNCH_NODE_IPADDR", name)
    return name


def first_node(text: str) -> str:
    """The first name of Slurm's "gpu[003-005,9],login1"."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", text)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0] if first else text)


def _noticed() -> list[str]:
    """Whether this machine is idle; one rank of it looks while the others wait."""
    if os.environ["LOCAL_RANK"] == "0":
        time.sleep(START_SECONDS)
        return list(idle_warnings())
    time.sleep(START_SECONDS + LOOK_SECONDS)
    return []


if __name__ == "__main__":
    main()
