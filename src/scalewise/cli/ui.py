"""`scalewise ui`: web UI for models, clusters, strategies and numbers of GPUs.

    scalewise ui
    scalewise ui --plan plan.toml                    # with a plan saved in the web UI
    scalewise ui --records records/                  # with your own measured runs in the charts
    scalewise ui --host 0.0.0.0 --expose --no-open   # for other machines, with the token

The server runs on this machine; every request needs the token in the printed URL. Ctrl-C stops it
(exit code 130).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from scalewise.cli.common import light_numpy
from scalewise.errors import INTERRUPTED, InputError

if TYPE_CHECKING:
    from scalewise.evidence.runs import Run

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command(short_help="Open the web UI.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port to listen on. [any free port]",
)
@click.option("--no-open", is_flag=True, help="Print the URL without opening a browser.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDR", help="Address to listen on."
)
@click.option("--expose", is_flag=True, help="Allow a --host that other machines can reach.")
@click.option("--plan", metavar="FILE", help="Plan file (TOML) to open, saved in the web UI.")
@click.option(
    "--records",
    multiple=True,
    metavar="PATH",
    help="Measured runs to show: records of `scalewise measure`, or a table (model, on, gpus, "
    "strategy, seq, batch, tokens_s); repeatable.",
)
def ui(
    *,
    port: int,
    no_open: bool,
    host: str,
    expose: bool,
    plan: str | None,
    records: tuple[str, ...],
) -> int:
    """Open the web UI in a browser.

    Only this machine can reach it, unless --expose is given. Every request needs the token in the
    printed URL.
    """
    if host not in LOOPBACK and not expose:
        raise InputError(
            f"--host {host} needs --expose: other machines can reach it",
            hint=f"--host {host} --expose (the token in the URL is then the only protection)",
        )
    light_numpy()
    from scalewise.ui.server import serve

    query = ""
    if plan is not None:
        query = _query(plan)
    own = _own(records)
    with ExitStack() as until_stopped:

        def ready(address: str) -> None:
            click.echo(address)
            click.echo("Ctrl-C stops the server", err=True)
            if not no_open:
                _browse(address, until_stopped)

        try:
            serve(
                host="127.0.0.1" if host == "localhost" else host,
                port=port,
                ready=ready,
                exposed=expose and host not in LOOPBACK,
                query=query,
                own=own,
            )
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
    # A server ends only when it is interrupted.
    return INTERRUPTED


def _browse(address: str, until_stopped: ExitStack) -> None:
    """Open the browser at a private file that leads to the address.

    The address has the token, and every user of the machine reads the command line of a browser.
    """
    import tempfile
    import webbrowser
    from pathlib import Path

    from scalewise.ui.page import forward

    # mkdtemp: only this user may enter (0700).
    folder = until_stopped.enter_context(
        tempfile.TemporaryDirectory(prefix="scalewise-ui-", ignore_cleanup_errors=True)
    )
    file = Path(folder) / "open.html"
    file.touch(0o600)
    file.write_text(forward(address), encoding="utf-8")
    webbrowser.open(file.as_uri())


def _query(path: str) -> str:
    """Return a plan file as the part of an address, with its limits as the page spells them."""
    from scalewise.ask.limits import days_of, dollars_of
    from scalewise.ask.state import read_plan, to_query

    plan = read_plan(path)
    query = to_query(plan)
    if plan.deadline is not None:
        query += f"&deadline={days_of(plan.deadline):g}"
    if plan.budget is not None:
        query += f"&budget={dollars_of(plan.budget):.0f}"
    return query


def _own(paths: tuple[str, ...]) -> list[Run]:
    """Return the runs of --records.

    Raises:
        InputError: If a path cannot be read, or has no training run.
    """
    if not paths:
        return []
    from scalewise.evidence.runs import Run
    from scalewise.study.overlays import read_overlays

    found = [run for run in read_overlays(paths) if isinstance(run, Run)]
    if not found:
        raise InputError(
            f"--records {' '.join(paths)}: no training run",
            hint="scalewise measure train MODEL -o records/",
        )
    return found
