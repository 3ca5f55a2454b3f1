r"""Slurm scripts that launch a plan: nodes, ranks, environment, and where each group lands.

    script(asked, files, lines)          # "#!/bin/bash\n#SBATCH --nodes=64 ..."

Ranks are numbered as the prediction assumes: tp innermost, then cp, dp_shard, dp_replicate, and pp
outermost (`step.groups`), which is the order of Megatron-LM and of PyTorch's device meshes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scalewise.slurm.script import header

if TYPE_CHECKING:
    from scalewise.ask.resolve import Asked

PORT = 29500
"""Port of the rendezvous: PyTorch's default."""


def gpus_per_node(asked: Asked) -> int:
    """GPUs that one operating system sees."""
    cluster = asked.cluster
    return min(cluster.host_accelerators or cluster.scale_up_domain, cluster.accelerators)


def groups(asked: Asked) -> list[tuple[str, int, int]]:
    """Return the process groups: name, ranks, distance between neighbors in ranks."""
    s = asked.strategy
    found, stride = [], 1
    for name in ("tp", "cp", "dp_shard", "dp_replicate", "pp"):
        size = getattr(s, name)
        if size > 1:
            found.append((name, size, stride))
        stride *= size
    if asked.model.moe is not None:
        found += [("etp", s.etp, 1)] * (s.etp > 1) + [("ep", s.ep, s.etp)] * (s.ep > 1)
    return found


def placements(asked: Asked) -> list[str]:
    """Return one line per process group: its ranks, and whether they share a scale-up domain."""
    domain, lines = asked.cluster.scale_up_domain, []
    where = "node" if domain == gpus_per_node(asked) else f"scale-up domain of {domain}"
    for name, size, stride in groups(asked):
        span = size * stride
        if span <= domain and domain % span == 0:
            place = f"inside one {where}"
        elif stride >= domain:
            place = "across the fabric, one rank per node"
        else:
            place = f"across the fabric, {max(1, domain // stride)} ranks per {where}"
        lines.append(f"{name}: {size} ranks, every {stride}: {place}"
                     if stride > 1 else f"{name}: {size} ranks, neighbors: {place}")  # fmt: skip
    return lines


def nccl(asked: Asked) -> list[str]:
    """Return variables of NCCL: those that the prediction assumes, and warnings of NCCL."""
    cluster, lines = asked.cluster, ["export NCCL_DEBUG=WARN"]
    words = {"ring": "Ring", "tree": "Tree", "pat": "PAT"}
    if cluster.algorithm in words:
        lines.append(f"export NCCL_ALGO={words[cluster.algorithm]}")
    if cluster.protocol != "auto":
        lines.append(f"export NCCL_PROTO={cluster.protocol.upper()}")
    return lines


def script(
    asked: Asked,
    command: Sequence[str],
    *,
    notes: Sequence[str],
    environment: Sequence[str] = (),
    per_rank: bool = False,
) -> str:
    """Return a batch script.

    Args:
        asked: The plan.
        command: Lines of the command behind `srun`.
        notes: Comments at the top.
        environment: Lines that set variables.
        per_rank: Whether srun starts every rank, instead of one launcher per node.
    """  # fmt: skip
    per_node = gpus_per_node(asked)
    nodes = -(-asked.cluster.accelerators // per_node)
    options = {
        "job_name": f"{asked.model.name}-{asked.cluster.accelerators}",
        "nodes": nodes,
        "gpus_per_node": per_node,
        "ntasks_per_node": per_node if per_rank else 1,
        "exclusive": True,
    }
    return "\n".join([
        *header(options, [*notes, "Rank order, and where each group lands:",
                          *placements(asked)]),
        "",
        "set -euo pipefail",
        *environment,
        *nccl(asked),
        'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "",
        *command,
        "",
    ])  # fmt: skip


def torchrun(asked: Asked) -> list[str]:
    """Return the first lines of a command that starts one rank per GPU with torchrun."""
    return [
        "srun torchrun \\",
        f"    --nnodes=$SLURM_NNODES --nproc-per-node={gpus_per_node(asked)} \\",
        f"    --rdzv-backend=c10d --rdzv-endpoint=$HEAD:{PORT} --rdzv-id=$SLURM_JOB_ID \\",
    ]
