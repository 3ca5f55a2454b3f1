"""Launch of ranks by torchrun on this machine; other launchers have the same interface.

    device = choose_device(None)                     # "cuda" where there are GPUs, else "cpu"
    launcher = LocalLauncher(timeout=600.0)
    launcher.run(spec)                               # returns when all records are written

An error in a rank becomes one sentence that names the rank and its log file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from scalewise.errors import InputError, ScalewiseError, require
from scalewise.measure.launch_spec import LaunchSpec
from scalewise.measure.machine import cores, memory_bytes
from scalewise.records.environment import accelerator_of
from scalewise.records.job import Device
from scalewise.units import format_bytes
from scalewise.writing import write_atomically

GRACE_SECONDS = 40.0
"""Longest time torchrun may take to end its ranks, seconds: it kills them after 30 s."""


RANK_BYTES = 0.15e9
"""Memory that a process has for itself once it has imported PyTorch, bytes: 151 MB of private dirty
pages in /proc/self/smaps_rollup with torch 2.13.0+cpu on Linux."""


class LaunchError(ScalewiseError):
    """Ranks that failed, were killed, or did not finish in time."""


class Launcher(Protocol):
    """Starts the ranks of a launch and waits for them."""

    def run(self, spec: LaunchSpec) -> None:
        """Return when every record of the launch is written.

        Raises:
            LaunchError: If a rank failed; what was finished before is in the records.
        """
        ...


def choose_device(asked: str | None) -> tuple[Device, int]:
    """Return the device to run on, and how many there are.

    Args:
        asked: "cuda" or "cpu"; None for GPUs where there are some.

    Returns:
        The device, and the number of GPUs, or of cores.

    Raises:
        MissingExtraError: If PyTorch is not installed.
        InputError: If GPUs are asked for where there are none.
    """
    torch: Any = require("torch", "measure")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "cuda" and not gpus:
        raise InputError("there is no GPU that PyTorch can use here", hint="leave --device out")
    if gpus and asked != "cpu":
        if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
            raise InputError(
                "this PyTorch was built without NCCL, which GPUs need for collectives",
                hint="use PyTorch on Linux, or --device cpu",
            )
        return "cuda", gpus
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise InputError(
            "this PyTorch was built without Gloo, which CPUs need for collectives",
            hint="install PyTorch from pytorch.org or PyPI",
        )
    return "cpu", cores()


def accelerator_here() -> str | None:
    """Return the catalog name of this machine's first GPU; None if the catalog has none."""
    torch: Any = require("torch", "measure")
    return accelerator_of(torch.cuda.get_device_name(0))


def check_room(device: Device, ranks: int, count: int, what: str) -> None:
    """Check that this machine has the GPUs, or the memory, for so many processes.

    Args:
        device: Where they would run.
        ranks: How many.
        count: GPUs here, or cores.
        what: Needs them, for the message.

    Raises:
        InputError: Naming it.
    """
    if device == "cuda" and ranks > count:
        raise InputError(
            f"{what} needs {ranks} GPUs, but there are {count} here",
            hint="take fewer, --slurm for several machines, or --device cpu",
        )
    room = memory_bytes()
    if device == "cpu" and room is not None and ranks * RANK_BYTES > room:
        raise InputError(
            f"{what} needs {ranks} processes of about {format_bytes(RANK_BYTES)} each, but this "
            f"machine has {format_bytes(room)}",
            hint=f"take fewer: it has {count} cores; or --slurm for several machines",
        )


def threads_for(device: Device, ranks: int) -> int | None:
    """Return the threads of each rank: an equal part of the cores on CPUs, None on GPUs."""
    return max(1, cores() // ranks) if device == "cpu" else None


class LocalLauncher:
    """torchrun on this machine."""

    def __init__(
        self, *, timeout: float | None = None, logs: Path | None = None, lock: int | None = None
    ) -> None:
        """Remember how to launch.

        Args:
            timeout: Seconds for one launch, or None to wait for ever.
            logs: Where logs of failed launches are kept; None for a temporary folder.
            lock: Descriptor of a locked file that torchrun inherits: the lock lasts until it ends,
                even if this process is killed.
        """
        self.timeout, self.logs, self.lock = timeout, logs, lock

    def run(self, spec: LaunchSpec) -> None:
        """See `Launcher`."""
        root = self.logs if self.logs is not None else Path(tempfile.gettempdir())
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="scalewise-launch-", dir=root))
        file = folder / "launch.json"
        write_atomically(file, msgspec.json.encode(spec))
        code, said = self._start(spec, file, folder)
        if code == 0:
            shutil.rmtree(folder, ignore_errors=True)
            return
        raise _explained(code, said, folder, self.timeout)

    def _start(self, spec: LaunchSpec, file: Path, folder: Path) -> tuple[int | None, str]:
        """Run torchrun; its exit code (None after a time-out) and what it said."""
        output = folder / "torchrun.log"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                self.command(spec, file, folder),
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment_for(spec),
                start_new_session=True,
                pass_fds=() if self.lock is None else (self.lock,),
            )
            try:
                code: int | None = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # Also after Ctrl-C, which ranks in a session of their own do not get.
                _end(process)
        return code, output.read_text(errors="replace")

    @staticmethod
    def command(spec: LaunchSpec, file: Path, folder: Path) -> list[str]:
        """The command that starts the ranks.

        Args:
            spec: Says how many.
            file: Holds the launch spec.
            folder: For the logs of the ranks.
        """
        return [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            "--nproc-per-node", str(spec.ranks), "--log-dir", str(folder), "--redirects", "3",
            "-m", spec.module, str(file),
        ]  # fmt: skip


def environment_for(spec: LaunchSpec) -> dict[str, str]:
    """The variables that ranks start with."""
    variables = dict(os.environ)
    if spec.threads is not None:
        variables["OMP_NUM_THREADS"] = str(spec.threads)
    # Gloo asks the name service for this host's address, which many laptops and containers lack.
    if spec.device == "cpu" and Path("/sys/class/net/lo").exists():
        variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return variables


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and its ranks: SIGTERM, then SIGKILL after GRACE_SECONDS."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # Its ranks are in sessions of their own only if they chose to be.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Failure(NamedTuple):
    """A failed rank, as torchrun reports it."""

    rank: int
    code: int
    """What it returned, or minus the signal that ended it."""


# A line of the report, not of the message above it, which names a local rank too.
_FAILURE = re.compile(
    r"^\s*rank\s*:\s*(\d+)\s*\(.*?exitcode\s*:\s*(-?\d+)", re.DOTALL | re.MULTILINE
)


def first_failure(said: str) -> Failure | None:
    """The rank that failed, out of all that ended with it.

    torchrun names the first one it noticed, last in its report. But when a rank is killed, its
    neighbors may be noticed first, because their connections break; and those that torchrun ends
    itself, by SIGTERM, are not the cause.

    Args:
        said: torchrun's output.
    """
    found = [Failure(int(rank), int(code)) for rank, code in _FAILURE.findall(said)]
    killed = [each for each in found if each.code < 0 and each.code != -signal.SIGTERM]
    failed = [each for each in found if each.code >= 0]
    for group in (killed, failed, found):
        if group:
            return group[-1]
    return None


def _explained(code: int | None, said: str, folder: Path, timeout: float | None) -> LaunchError:
    """Turn what is left of a launch into one sentence and a hint."""
    if code is None:
        return LaunchError(
            f"the ranks did not finish within {timeout:g} s and were ended; logs are in {folder}",
            hint="raise --timeout, or take fewer steps",
        )
    failure = first_failure(said)
    if failure is None:
        last = said.strip().splitlines()
        return LaunchError(
            f"torchrun failed with exit code {code}: {last[-1] if last else 'no output'}",
            hint=f"see {folder / 'torchrun.log'}",
        )
    log = log_of(folder, failure.rank)
    if failure.code < 0:
        name = _signal_name(-failure.code)
        hint = "the system may have run out of memory" if name == "SIGKILL" else None
        return LaunchError(f"rank {failure.rank} was killed by {name}; its log is {log}", hint=hint)
    why = last_error(log)
    if "out of memory" in why.lower():
        why = "the device ran out of memory"
    return LaunchError(f"rank {failure.rank} failed: {why}", hint=f"the full log is {log}")


def log_of(folder: Path, rank: int) -> Path:
    """The file with what a rank wrote to stderr."""
    found = sorted(folder.glob(f"*/attempt_*/{rank}/stderr.log"))
    return found[-1] if found else folder / "torchrun.log"


_ERROR = re.compile(r"^(?:\[rank\d+\]:\s*)?([A-Za-z_][\w.]*(?:Error|Exception|Exit)\b.*)$")


def error_in(log: Path) -> str | None:
    """The last line of a log that names an exception; None if none does."""
    for line in reversed(_lines(log)):
        if match := _ERROR.match(line):
            # Errors of scalewise read as sentences without their class.
            return re.sub(r"^scalewise\.errors\.\w+: ", "", match[1])
    return None


def last_error(log: Path) -> str:
    """The last line of a log that names an exception, else its last line."""
    lines = _lines(log)
    return error_in(log) or (lines[-1] if lines else "no output")


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return []


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
