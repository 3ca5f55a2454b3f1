"""A throw-away Slurm cluster of two nodes on this one machine, for tests.

    python scripts/slurm_on_loopback.py start /tmp/cluster    # prints the line to export
    SLURM_CONF=/tmp/cluster/slurm.conf sinfo
    python scripts/slurm_on_loopback.py stop /tmp/cluster

A real Slurm from the distribution's packages: munged, slurmctld and two slurmd, bound to
127.0.0.1, each on a free port, everything they write in one folder. Nothing of a Slurm that this
machine may belong to is touched. `start` installs missing packages with `scripts/system_packages`.
`stop` ends exactly the processes that `start` began. Only the standard library is used, so that a
test fixture and a shell can both run it.
"""

from __future__ import annotations

import argparse
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = Path(__file__).with_name("system_packages")
"""Installs Slurm where it is missing, as root or through sudo."""

NODES = ("node1", "node2")

PATIENCE = 600.0
"""Seconds until both nodes must be idle; about three are usual, on a machine that is not busy."""

# The folders of daemons are not in every user's path.
SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class LoopbackError(Exception):
    """The cluster could not be started; the message says why."""


def program(name: str) -> str | None:
    """The path of a program, the folders of daemons included."""
    return shutil.which(name, path=SEARCH)


def install() -> None:
    """Install Slurm if it is missing.

    Raises:
        LoopbackError: If that is not possible.
    """
    done = subprocess.run(
        ["sh", str(PACKAGES), "slurm"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LoopbackError(done.stderr.strip().splitlines()[-1])


def version() -> tuple[int, int]:
    """Year and month of the installed Slurm, such as (22, 5)."""
    said = subprocess.run(
        [str(program("slurmctld")), "-V"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None:
        raise LoopbackError(f"slurmctld -V says {said!r}, which has no version")
    return int(found[1]), int(found[2])


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def write_configuration(folder: Path) -> None:
    """Write slurm.conf, cgroup.conf and the MUNGE key of a new cluster."""
    for name in ("state", "log", "spool", "munge"):
        (folder / name).mkdir()
    # munged refuses a socket that others cannot reach and a key that others can read.
    folder.chmod(0o755)
    (folder / "munge").chmod(0o755)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    controller, *ports = free_ports(1 + len(NODES))
    user = getpass.getuser()
    cores = os.cpu_count() or 1
    lines = [
        "ClusterName=loopback",
        "SlurmctldHost=localhost(127.0.0.1)",
        f"SlurmctldPort={controller}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge/socket",
        "CredType=cred/munge",
        # Neither cgroups nor a database: what works in any container.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        # Loopback only, and no waiting for anything that a test could not wait for.
        "CommunicationParameters=NoAddrCache,NoInAddrAny,NoCtldInAddrAny",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0",
        "ReturnToService=2",
        "MinJobAge=300",
        "KillWait=2",
        "SlurmctldTimeout=60",
        "SlurmdTimeout=60",
        f"StateSaveLocation={folder}/state",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmctldLogFile={folder}/log/slurmctld.log",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmdPidFile={folder}/%n.pid",
        f"SlurmdLogFile={folder}/log/%n.log",
    ]
    lines += [
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
        f"CPUs={cores} State=UNKNOWN"
        for name, port in zip(NODES, ports, strict=True)
    ]
    lines += [f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=1:00:00 State=UP"]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # Versions from 23.11 on look for cgroups even where no plugin uses them.
    disabled = "CgroupPlugin=disabled\n" if version() >= (23, 11) else ""
    (folder / "cgroup.conf").write_text(disabled, encoding="utf-8")


def started_at(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; None if it is gone.

    Numbers of processes are given again, so a number alone does not name a process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def launch(folder: Path, name: str, *command: str) -> subprocess.Popen[bytes]:
    """Start one daemon in the foreground of its own session, and write down which it is."""
    path = program(command[0])
    assert path is not None
    with (folder / "log" / f"{name}.out").open("wb") as log:
        daemon = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env=environment(folder),
        )
    with (folder / "pids").open("a", encoding="utf-8") as pids:
        pids.write(f"{daemon.pid} {started_at(daemon.pid)} {name}\n")
    return daemon


def environment(folder: Path) -> dict[str, str]:
    """What a program needs to talk to this cluster."""
    # Variables of a job that this may run in would make its steps part of that job.
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
    return {**outside, "PATH": SEARCH, "SLURM_CONF": str(folder / "slurm.conf")}


def sinfo(folder: Path) -> list[str]:
    """The states of the nodes, or nothing while the controller does not answer."""
    done = subprocess.run(
        [str(program("sinfo")), "--noheader", "--Node", "--format=%T"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(folder),
    )
    return done.stdout.split() if done.returncode == 0 else []


def start(folder: Path) -> None:
    """Start the cluster and wait until both nodes are idle.

    Args:
        folder: A folder that does not exist yet; its path must be short enough for a socket.

    Raises:
        LoopbackError: If something is missing or a daemon does not come up; what was started is
            stopped again.
    """
    folder = folder.absolute()
    install()
    folder.mkdir(parents=True)
    write_configuration(folder)
    daemons = {}
    try:
        daemons["munged"] = launch(
            folder,
            "munged",
            "munged",
            "--foreground",
            f"--socket={folder}/munge/socket",
            f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munge/munged.pid",
            f"--log-file={folder}/munge/munged.log",
            f"--seed-file={folder}/munge/munged.seed",
        )
        deadline = time.monotonic() + PATIENCE
        while not (folder / "munge" / "socket").exists():
            check(folder, daemons, deadline)
        daemons["slurmctld"] = launch(folder, "slurmctld", "slurmctld", "-D", "-i")
        for node in NODES:
            daemons[node] = launch(folder, node, "slurmd", "-D", "-N", node)
        while sinfo(folder) != ["idle"] * len(NODES):
            check(folder, daemons, deadline)
    except BaseException:
        stop(folder)
        raise


def check(folder: Path, daemons: dict[str, subprocess.Popen[bytes]], deadline: float) -> None:
    """Wait a moment; complain if a daemon ended or time is up."""
    time.sleep(0.1)
    for name, daemon in daemons.items():
        if daemon.poll() is not None:
            raise LoopbackError(f"{name} ended with {daemon.returncode}: {tail(folder, name)}")
    if time.monotonic() > deadline:
        logs = "; ".join(f"{name}: {tail(folder, name)}" for name in daemons)
        raise LoopbackError(f"nodes are {sinfo(folder)} after {PATIENCE:.0f} s; {logs}")


def tail(folder: Path, name: str) -> str:
    """The last lines of what a daemon said."""
    files = [folder / "log" / f"{name}.out", folder / "log" / f"{name}.log"]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files if path.exists()]
    return " ".join(" ".join(texts).split())[-600:]


def stop(folder: Path) -> None:
    """Cancel all jobs of the cluster and end the daemons that `start` began, the last first."""
    folder = folder.absolute()
    pids = folder / "pids"
    if not pids.exists():
        return
    if sinfo(folder):
        everything = [str(program("scancel")), f"--user={getpass.getuser()}"]
        subprocess.run(everything, check=False, capture_output=True, env=environment(folder))
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and running_jobs(folder):
            time.sleep(0.1)
    for line in reversed(pids.read_text(encoding="utf-8").splitlines()):
        number, began, _ = line.split(" ", 2)
        end(int(number), began)
    pids.unlink()


def running_jobs(folder: Path) -> bool:
    """Whether anything is in the queue."""
    done = subprocess.run(
        [str(program("squeue")), "--noheader"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(folder),
    )
    return bool(done.stdout.strip())


def end(pid: int, began: str) -> None:
    """End one process if it is still the one that was started."""
    for sign, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience
        while started_at(pid) == began and time.monotonic() < deadline:
            os.kill(pid, sign)
            time.sleep(0.1)


def main() -> int:
    """Read the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="A throw-away Slurm cluster on loopback.")
    parser.add_argument("action", choices=("start", "stop"))
    parser.add_argument("folder", type=Path, help="Of this cluster; start makes it.")
    given = parser.parse_args()
    try:
        if given.action == "start":
            start(given.folder)
            print(f"export SLURM_CONF={given.folder.absolute() / 'slurm.conf'}")
        else:
            stop(given.folder)
    except (LoopbackError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
