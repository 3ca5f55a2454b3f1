"""`scalewise ui`: open a page on which models, clusters, strategies and sizes are explored.

    scalewise ui
    scalewise ui --plan plan.toml                    # with a plan that the page saved
    scalewise ui --records records/                  # with your own measured runs in the charts
    scalewise ui --host 0.0.0.0 --expose --no-open   # for other machines, with the token

The page is served on this machine, to whoever has the token in the printed address. Ctrl-C ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scalewise.cli.common import light_numpy
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.evidence.runs import Run

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command(short_help="Explore it all on a local web page.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port. [any free one]")
@click.option("--no-open", is_flag=True, help="Do not open the browser; only print the address.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--expose", is_flag=True, help="Allow a --host that other machines can reach.")
@click.option("--plan", metavar="FILE", help="Open a plan that the page saved as TOML.")
@click.option(
    "--records",
    multiple=True,
    metavar="PATH",
    help="Show your own runs: records of `scalewise measure`, or a table. Repeatable.",
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
    """Open a page on which models, clusters, strategies and sizes are explored.

    It is served on this machine only, unless --expose says otherwise, and always needs the token
    in the printed address.
    """
    if host not in LOOPBACK and not expose:
        raise InputError(
            f"--host {host} can be reached by other machines",
            hint="add --expose if that is meant; the token is then all that guards the page",
        )
    light_numpy()
    from scalewise.ui.server import serve

    query = ""
    if plan is not None:
        from scalewise.ui.state import read_plan, to_query

        query = to_query(read_plan(plan))
    own = _own(records)

    def ready(address: str) -> None:
        click.echo(address)
        click.echo("Ctrl-C ends it", err=True)
        if not no_open:
            import webbrowser

            webbrowser.open(address)

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
        # That is how it ends.
        click.echo("ended", err=True)
    return 0


def _own(paths: tuple[str, ...]) -> list[Run]:
    """Read the user's runs as a study reads its overlays.

    Raises:
        InputError: If a path cannot be read, or holds no run of a training step.
    """
    if not paths:
        return []
    from scalewise.evidence.runs import Run
    from scalewise.study.overlays import read_overlays

    found = [run for run in read_overlays(paths) if isinstance(run, Run)]
    if not found:
        raise InputError(
            f"--records {' '.join(paths)}: there is no run of a training step in it",
            hint="`scalewise measure train` writes some",
        )
    return found
