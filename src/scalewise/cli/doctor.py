"""`scalewise doctor`: versions, extras, GPUs and catalog of this installation.

    scalewise doctor
    scalewise doctor --json
    scalewise doctor --gpu

It never fails: a check that fails is reported in place of its result. Versions come from package
metadata, so no heavy library is imported. Nothing is sent anywhere. Only --gpu runs PyTorch, see
`doctor_gpu`: exit code 1 if a check fails, or if there is no GPU.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from scalewise._version import __version__
from scalewise.cli.common import show, to_json
from scalewise.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.records.job import Device

CORE = ("numpy", "msgspec", "click", "rich")
EXTRAS = {
    "plotly": "plot",
    "scipy": "calibrate",
    "polars": "data",
    "torch": "measure",
    "starlette": "ui",
}
"""Extra by optional library."""

CATALOG = (
    "models",
    "accelerators",
    "clusters",
    "fabrics",
    "stacks",
    "experts",
    "optimizers",
    "reliability",
    "calibrations",
)
DEVICE_TOOLS = {
    "nvidia-smi": ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"),
    "rocm-smi": ("--showproductname",),
}
DIAGNOSE = {
    "nvidia-smi": "throttled GPUs, NVLink",
    "all_reduce_perf": "network and NVLink bandwidth (nccl-tests)",
    "ibstat": "NIC rates and ports",
    "lspci": "devices of the host",
    "py-spy": "what the host does",
    "nsys": "profiles without code",
    "scontrol": "nodes of Slurm",
}
"""Tools whose output `diagnose` asks for, and what each decides."""

TIMEOUT_SECONDS = 5.0


@click.command(short_help="Print versions, GPUs and catalog, for bug reports.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("--gpu", is_flag=True, help="Run every path of `measure` on the GPUs (5 minutes).")
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Device of --gpu; cpu for a trial. [cuda]"
)
@click.option(
    "--only", metavar="A,B", help="Checks of --gpu to run, such as energy,all_reduce. [all]"
)
def doctor(*, as_json: bool, gpu: bool, device: Device | None, only: str | None) -> int:
    """Print versions, extras, GPUs and catalog of this installation. Attach it to bug reports."""
    if gpu:
        from scalewise.cli.doctor_gpu import examine_gpus

        return examine_gpus(device or "cuda", only, as_json=as_json)
    for flag, value in (("device", device), ("only", only)):
        if value is not None:
            raise InputError(f"--{flag} {value} needs --gpu", hint="add --gpu")
    found = examine()
    if as_json:
        click.echo(to_json(found))
    else:
        show(lambda out: _draw(found, out))
    return 0


def examine() -> dict[str, Any]:
    """Return the facts about this installation.

    Returns:
        Versions, extras, devices, tools of `diagnose` and catalog as plain types; a failed check
        is its message.
    """
    return {
        "scalewise": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "core": {name: _version(name) for name in CORE},
        "extras": {name: _version(name) for name in EXTRAS},
        "devices": {tool: _devices(tool) for tool in DEVICE_TOOLS},
        "diagnose": {tool: shutil.which(tool) is not None for tool in DIAGNOSE},
        "catalog": {kind: _entries(kind) for kind in CATALOG},
        "user_catalog": _user_catalog(),
    }


def _version(name: str) -> str | None:
    """Return the version of an installed distribution, without importing it."""
    try:
        return metadata.version(name)
    except Exception:
        # Broken metadata must not stop the other checks.
        return None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _devices(tool: str) -> list[str] | str:
    """Return the lines that a vendor's tool prints about its devices, or why there are none."""
    path = shutil.which(tool)
    if path is None:
        return "not on $PATH"
    try:
        done = subprocess.run(
            [path, *DEVICE_TOOLS[tool]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"timed out after {TIMEOUT_SECONDS:g} s"
    except OSError as error:
        return f"cannot run: {error.strerror or error}"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return f"exit code {done.returncode}: {output[0] if output else 'no output'}"
    return lines


def _entries(kind: str) -> int | str:
    from scalewise.catalog import names

    try:
        return len(names(kind))
    except Exception as error:
        # A broken catalog is part of the report.
        return str(error)


def _user_catalog() -> str | None:
    own = os.environ.get("SCALEWISE_CATALOG")
    if not own:
        return None
    folder = os.path.expanduser(own)  # noqa: PTH111 - Path.expanduser can raise
    return own if os.path.isdir(folder) else f"{own} (no such folder)"  # noqa: PTH112


def _diagnose(found: dict[str, Any]) -> str:
    """Return which checks of a slow run can be made here, and which tools are missing."""
    tools = found["diagnose"]
    lines = [f"{tool}: {DIAGNOSE[tool]}" for tool, present in tools.items() if present]
    if found["extras"]["torch"]:
        lines.append("torch.profiler: traces for diagnose --from")
    absent = [tool for tool, present in tools.items() if not present]
    if not found["extras"]["torch"]:
        absent.append("torch.profiler")
    if absent:
        lines.append(f"not here: {', '.join(absent)}")
    return "\n".join(lines)


def _draw(found: dict[str, Any], out: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from scalewise.units import format_bytes

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    memory = found["memory_bytes"]
    rows = [
        ("scalewise", found["scalewise"]),
        ("python", f"{found['python']} ({found['executable']})"),
        ("platform", found["platform"]),
        ("cpus", f"{found['cpus'] or 'unknown'}"),
        ("memory", "unknown" if memory is None else format_bytes(memory)),
        *((name, version or "NOT INSTALLED") for name, version in found["core"].items()),
    ]
    for name, version in found["extras"].items():
        missing = f"not installed (pip install 'scalewise[{EXTRAS[name]}]')"
        rows.append((name, version or missing))
    for tool, lines in found["devices"].items():
        text = lines if isinstance(lines, str) else "\n".join(lines) or "no device"
        rows.append((tool, text))
    rows.append(("diagnose", _diagnose(found)))
    counts = ", ".join(f"{count} {kind}" for kind, count in found["catalog"].items())
    rows.append(("catalog", counts))
    rows.append(("user catalog", found["user_catalog"] or "none ($SCALEWISE_CATALOG is not set)"))
    for name, value in rows:
        table.add_row(name, Text(value))
    out.print(table)
