"""Launch of ranks on pretend nodes, between which links are limited.

    ShapedLauncher(timeout=600.0).run(spec)          # spec.links: ShapedLinks(...)

Every rank is a process in the namespace of its node; torchrun, which would import PyTorch once more
per node, is not needed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from scalewise.measure.launch import LaunchError, LocalLauncher, environment_for, last_error
from scalewise.measure.launch_spec import LaunchSpec
from scalewise.measure.shaped import INTERFACE, PretendNode, pretend_nodes

PORT = 29500
"""Where ranks meet: namespaces are new, so every port is free."""

POLL_SECONDS = 0.05
"""Interval between looks at the ranks, seconds."""

GRACE_SECONDS = 10.0
"""Time that the other ranks have to end after the first failure, seconds."""


class ShapedLauncher(LocalLauncher):
    """Ranks in network namespaces on this machine."""

    def _start(self, spec: LaunchSpec, file: Path, folder: Path) -> tuple[int | None, str]:
        """Run the ranks; return 0, or None after a time-out.

        Raises:
            LaunchError: If a rank failed.
        """
        assert spec.links is not None
        ranks: list[subprocess.Popen[bytes]] = []
        with pretend_nodes(spec.links, spec.ranks) as nodes:
            try:
                for rank in range(spec.ranks):
                    node = nodes[rank // spec.links.ranks_per_node]
                    ranks.append(self._rank(spec, node, nodes[0].address, rank, file, folder))
                failed = _first_failure(ranks, self.timeout)
            finally:
                _end(ranks)
        if failed is None:
            return 0, ""
        if failed < 0:
            return None, ""
        log = _log(folder, failed)
        why = last_error(log)
        raise LaunchError(f"rank {failed} failed: {why}", hint=f"the full log is {log}")

    def _rank(
        self, spec: LaunchSpec, node: PretendNode, first: str, rank: int, file: Path, folder: Path
    ) -> subprocess.Popen[bytes]:
        """Start one rank."""
        assert spec.links is not None
        each = spec.links.ranks_per_node
        variables = {
            **environment_for(spec), "RANK": str(rank), "WORLD_SIZE": str(spec.ranks),
            "LOCAL_RANK": str(rank % each), "LOCAL_WORLD_SIZE": str(min(each, spec.ranks)),
            "MASTER_ADDR": first, "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": INTERFACE,
        }  # fmt: skip
        with _log(folder, rank).open("wb") as log:
            return subprocess.Popen(
                [*node.command, sys.executable, "-m", spec.module, str(file)],
                env=variables, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                pass_fds=() if self.lock is None else (self.lock,),
            )  # fmt: skip


def _log(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.log"


def _first_failure(ranks: list[subprocess.Popen[bytes]], timeout: float | None) -> int | None:
    """Wait for the ranks; return the one that failed, -1 after a time-out, None if all ended well.

    The first that is seen to have failed need not be the cause: of several, one that was not
    ended by a signal counts.
    """
    began = time.monotonic()
    while any(each.poll() is None for each in ranks):
        if any(each.returncode for each in ranks):
            break
        if timeout is not None and time.monotonic() - began > timeout:
            return -1
        time.sleep(POLL_SECONDS)
    failed = [rank for rank, each in enumerate(ranks) if each.returncode]
    return min(failed, key=lambda rank: (ranks[rank].returncode < 0, rank), default=None)


def _end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """End the ranks that still run: SIGTERM, then SIGKILL."""
    running = [each for each in ranks if each.poll() is None]
    for each in running:
        each.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for each in running:
        try:
            each.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()
