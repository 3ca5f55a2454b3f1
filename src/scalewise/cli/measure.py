"""`scalewise measure`: measurements on the GPUs or CPUs of this machine or of a Slurm cluster.

    scalewise measure train tiny --strategy fsdp2 --steps 20

Each kind of measurement is a command in its own file, imported when it is invoked.
"""

from __future__ import annotations

import click

from scalewise.cli.lazy import Entry, LazyGroup

KINDS: dict[str, Entry] = {
    "train": Entry("scalewise.cli.measure_train", "train", "Time training steps of a model."),
    "collectives": Entry(
        "scalewise.cli.measure_collectives",
        "collectives",
        "Time collectives by message size, group and placement.",
    ),
    "kernels": Entry("scalewise.cli.measure_kernels", "kernels", "Time the kernels of a model."),
    "host": Entry("scalewise.cli.measure_host", "host", "Time host work of FSDP and TP on CPUs."),
    "merge": Entry("scalewise.cli.measure_merge", "merge", "Merge records, or write them as runs."),
}
"""Every measurement, in the order of `--help`."""


@click.group(
    "measure",
    cls=LazyGroup,
    entries=KINDS,
    unknown="unknown measurement {}",
    short_help="Measure training on the GPUs of this machine or cluster.",
)
def measure() -> None:
    """Measure training, collectives and kernels on the GPUs of this machine, and write records.

    Without GPUs the CPUs are measured; --slurm measures on the nodes of a cluster. Needs PyTorch:
    pip install 'scalewise[measure]'.
    """
