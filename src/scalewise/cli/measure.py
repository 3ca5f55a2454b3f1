"""`scalewise measure`: take real measurements on the devices that are here.

    scalewise measure train tiny --strategy fsdp2 --steps 20

Each kind of measurement is a command in a file of its own, imported when it is invoked.
"""

from __future__ import annotations

import click

from scalewise.cli.lazy import Entry, LazyGroup

KINDS: dict[str, Entry] = {
    "train": Entry("scalewise.cli.measure_train", "train", "Train for a few steps, and time them."),
    "collectives": Entry(
        "scalewise.cli.measure_collectives",
        "collectives",
        "Time collectives by size, group and placement.",
    ),
    "kernels": Entry("scalewise.cli.measure_kernels", "kernels", "Time the kernels of a model."),
    "merge": Entry("scalewise.cli.measure_merge", "merge", "Join records, or write them as runs."),
}
"""Every measurement, in the order of `--help`."""


@click.group(
    "measure",
    cls=LazyGroup,
    entries=KINDS,
    unknown="`{}` cannot be measured",
    short_help="Measure training on the devices here.",
)
def measure() -> None:
    """Measure what really happens on the devices that are here, and keep it as records.

    Needs PyTorch: pip install 'scalewise[measure]'.
    """
