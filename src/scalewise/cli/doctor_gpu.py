"""`scalewise doctor --gpu`: every path of `measure` that needs GPUs, run for real.

    scalewise doctor --gpu
    scalewise doctor --gpu --json > doctor-gpu.json
    scalewise doctor --gpu --device cpu --only memory,all_reduce

Exit code 0: nothing failed; 1: a check failed, or there is no GPU; 2: wrong usage.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import show, to_json
from scalewise.cli.measure_options import require_torch
from scalewise.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.measure.gpu_doctor import Check
    from scalewise.records.job import Device

FAILED = 1

UNITS = {
    "power_joules": " J", "counter_joules": " J", "host_seconds": " s", "event_seconds": " s",
    "step_seconds": " s", "tflops": " TFLOP/s", "latency_us": " us", "busbw_gb_per_s": " GB/s",
    "peak_bytes": " B", "after_reset_bytes": " B", "loss_difference": "", "count": "",
    "chosen_seconds": " s",
}  # fmt: skip
"""Numbers of the table, with their units; all others are in the JSON."""


def examine_gpus(device: Device, only: str | None, *, as_json: bool) -> int:
    """Run the checks, print them, and return the exit code.

    Args:
        device: Where to run.
        only: Names of checks, separated by commas; None for all.
        as_json: Whether to print JSON.

    Raises:
        InputError: If a check is unknown.
        MissingExtraError: If PyTorch is not installed.
    """
    require_torch()
    from scalewise.measure import gpu_doctor

    names = _names(only, tuple(gpu_doctor.CHECKS))
    folder = Path(tempfile.mkdtemp(prefix="scalewise-doctor-"))
    checks = []
    for check in gpu_doctor.examine_gpus(device, folder, names):
        click.echo(f"{check.name}: {check.status}, {check.seconds:.0f} s", err=True)
        checks.append(check)
    found = report_of(checks, folder)
    if as_json:
        click.echo(to_json(found))
    else:
        show(lambda out: _draw(checks, found, out))
    return FAILED if any(check.status == "failed" for check in checks) else 0


def _names(only: str | None, known: tuple[str, ...]) -> tuple[str, ...] | None:
    if only is None:
        return None
    names = tuple(word.strip() for word in only.split(",") if word.strip())
    for name in names:
        if name not in known:
            raise InputError(f"--only {name[:40]}: unknown check", hint=did_you_mean(name, known))
    return names


def report_of(checks: list[Check], folder: Path) -> dict[str, Any]:
    """Return all outcomes as plain types, with versions and what to send.

    Args:
        checks: Outcomes.
        folder: Records and logs of them.
    """
    from scalewise.cli.doctor import examine

    failed = [check.name for check in checks if check.status == "failed"]
    return {
        "installation": examine(),
        "checks": checks,
        "failed": failed,
        "logs": str(folder),
        "send": f"the output of `scalewise doctor --gpu --json`, and {folder}"
        if failed and checks[0].measured.get("count")
        else None,
    }


def _draw(checks: list[Check], found: dict[str, Any], out: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    first = checks[0]
    counts = Counter(check.status for check in checks)
    if not first.measured.get("count"):
        out.print(f"{first.problem}: {counts['not run']} checks are not run")
    else:
        out.print(", ".join(f"{count} {status}" for status, count in counts.items()))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("check", "result", "measured", "problem"):
        table.add_column(name, overflow="fold")
    for check in checks:
        numbers = [
            f"{name.replace('_', ' ')} {value:.4g}{UNITS[name]}"
            for name, value in check.measured.items()
            if name in UNITS and isinstance(value, int | float)
        ]
        table.add_row(check.name, check.status, Text(", ".join(numbers)), Text(check.problem or ""))
    out.print(table)
    if found["send"]:
        out.print(f"send: {found['send']}")
