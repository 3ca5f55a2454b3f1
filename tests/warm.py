"""Processes that start with PyTorch imported, in milliseconds instead of seconds.

    warm.Popen([sys.executable, "-m", module, ...], stdout=file, start_new_session=True)
    warm.launch(spec)                                # ranks, as torchrun starts them

A server imports PyTorch once and forks; it computes nothing, so a fork loses no threads. Processes
of their own are started by test_measure_launch.py, test_program_robust.py and the command lines.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import torch.distributed as dist

from scalewise.measure.launch import environment_for
from waiting import PATIENCE

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["scalewise.program.capture.child", "scalewise.measure.worker"])


class Popen:
    """`python -m module` in a process that the server forks."""

    def __init__(self, command, *, stdout, env=None, **usual):
        """Start it; stderr goes where stdout goes, in a session of its own."""
        assert command[:2] == [sys.executable, "-m"]
        assert usual["start_new_session"]
        given = (command[2:], dict(os.environ if env is None else env), Path.cwd(), stdout.name)
        self._process = CONTEXT.Process(target=_run, args=given)
        self._process.start()
        self.pid = self._process.pid

    def wait(self, timeout=None):
        """Exit code, once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self._process.exitcode

    def kill(self):
        """End it at once."""
        self._process.kill()


def _run(words, environment, folder, output):
    """Become the process that the command would have started."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for stream, name, flags in ((0, os.devnull, os.O_RDONLY), (1, output, os.O_WRONLY)):
        os.dup2(os.open(name, flags | os.O_APPEND), stream)
    os.dup2(1, 2)
    sys.argv = list(words)
    sys.modules.pop(words[0], None)
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def launch(spec):
    """Run all ranks of a launch on this machine, with the variables that torchrun sets."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with TemporaryDirectory() as name:
        file, log = Path(name) / "launch.json", Path(name) / "log"
        file.write_bytes(msgspec.json.encode(spec))
        with log.open("wb") as output:
            ranks = [
                Popen(
                    [sys.executable, "-m", spec.module, str(file)],
                    stdout=output,
                    env=environment_for(spec) | _variables(rank, spec.ranks, store.port),
                    start_new_session=True,
                )
                for rank in range(spec.ranks)
            ]
        try:
            for process in ranks:
                assert process.wait(PATIENCE) == 0, log.read_text(errors="replace")
        finally:
            for process in ranks:
                process.kill()


def _variables(rank, ranks, port):
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    return {key: str(value) for key, value in (place | store).items()}
