"""`scalewise clusters new`: a catalog file of one's own cluster, from what its tools say.

scalewise clusters new my-pod                                     # run on a node with GPUs
scalewise clusters new my-pod --from topo.txt --from ibstat.txt   # from their output
scalewise clusters new my-pod --base dgx-h100 --set scale_out_bandwidth=200Gbit/s
"""

from __future__ import annotations

import os
import re

import click

from scalewise.errors import InputError, did_you_mean
from scalewise.reading import user_path

FOLDER = "scalewise-catalog"


@click.command(name="new", short_help="Describe your own cluster.")
@click.argument("name")
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="PATH",
    help="Output of nvidia-smi topo -m, nvidia-smi --query-gpu, ibstat, rdma link, lspci, scontrol "
    "show node or sinfo, or a folder of them. Repeatable. [these tools on this machine]",
)
@click.option("--base", metavar="CLUSTER", help="Cluster that has everything that was not seen.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="A line of the file, such as scale_out_bandwidth=200Gbit/s. Repeatable.",
)
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    help="Catalog folder. [$SCALEWISE_CATALOG, else scalewise-catalog]",
)
@click.option("--replace", is_flag=True, help="Write over a cluster of this name.")
def new(
    *,
    name: str,
    files: tuple[str, ...],
    base: str | None,
    changes: tuple[str, ...],
    output: str | None,
    replace: bool,
) -> None:
    """Write a catalog file of your own cluster as NAME, with the evidence beside every value.

    Everything is read from tools that the machine has, or from their output in files. What could
    not be seen is printed: it comes from --base, or is typical of the accelerator.
    """
    from scalewise.catalog import find, load_cluster
    from scalewise.inventory.describe import Described, cluster_toml, describe
    from scalewise.inventory.sources import from_files, from_tools
    from scalewise.writing import write_atomically

    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise InputError(
            f"name = {name}: must be lower-case letters, digits, dots and dashes",
            hint="for example my-pod",
        )
    if base is not None:
        find("clusters", base)
    stated = [_line(change) for change in changes]
    absent: list[str] = []
    if files:
        sources = from_files(files)
    elif base is not None and stated:
        sources = []
    else:
        sources, absent = from_tools()
    for each in absent:
        click.echo(f"not run: {each}", err=True)
    found = describe(sources, base) if sources or base is None else Described()
    folder = user_path(output or os.environ.get("SCALEWISE_CATALOG") or FOLDER)
    file = folder / "clusters" / f"{name}.toml"
    if file.exists() and not replace:
        raise InputError(f"{file} exists", hint="choose another name, or add --replace")
    before = file.read_bytes() if file.exists() else None
    write_atomically(file, cluster_toml(found, base=base, changes=stated), make_folder=True)
    try:
        load_cluster(str(file))
    except InputError:
        # A file that no question could use is not left behind.
        if before is None:
            file.unlink()
        else:
            write_atomically(file, before)
        raise
    for value in found.values:
        click.echo(f"{value.key} = {value.text}   ({value.evidence})")
    for key, text in stated:
        click.echo(f"{key} = {text}   (stated)")
    for note in found.notes:
        click.echo(f"Note: {note}")
    for each in found.unseen:
        click.echo(f"Not seen: {each}")
    click.echo(f"wrote {file}")
    if os.environ.get("SCALEWISE_CATALOG") is None or output is not None:
        click.echo(f"use it with: SCALEWISE_CATALOG={folder} ... --on {name}", err=True)


def _line(change: str) -> tuple[str, str]:
    """Return key and TOML value of a line."""
    from scalewise.cluster import Cluster
    from scalewise.evidence.files import toml_value

    key, equals, value = (part.strip() for part in change.partition("="))
    known = [name for name in Cluster.__struct_fields__ if name not in ("name", "assumptions")]
    if not equals or not value:
        raise InputError(f"--set {change}: must be KEY=VALUE", hint="scale_out_bandwidth=200Gbit/s")
    if key not in known:
        raise InputError(f"--set {change}: unknown field {key}", hint=did_you_mean(key, known))
    if re.fullmatch(r"\d+", value):
        return key, value
    return key, value if re.fullmatch(r"\d+\.\d+", value) else toml_value(value)
