"""How is a search written to a file? By the ending of the name.

    save(found, "strategies.html", ".html", chosen=[])

Nothing is computed here, and nothing of a library is imported before its ending is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from scalewise.cli.common import to_json, write, write_bytes

if TYPE_CHECKING:
    from scalewise.explore.search import Search


def save(found: Search, path: str, ending: str, *, chosen: Sequence[str] = ()) -> None:
    """Write a file, and say so on stderr.

    Args:
        found: What was found.
        path: Where to.
        ending: Of `common.FORMATS`.
        chosen: What was chosen for the user.
    """
    if ending == ".html":
        from scalewise.report.ranking_page import ranking_html

        write(path, ranking_html(found, chosen=chosen))
    elif ending == ".csv":
        from scalewise.report.ranking_data import ranking_csv

        write(path, ranking_csv(found))
    elif ending == ".json":
        from scalewise.cli.search import as_dict

        write(path, to_json(as_dict(found, tuple(chosen))) + "\n")
    elif ending == ".parquet":
        from scalewise.report.ranking_data import ranking_parquet

        write_bytes(path, ranking_parquet(found))
    else:
        _save_image(found, path, ending)


def _save_image(found: Search, path: str, ending: str) -> None:
    """Draw the best strategies; where nothing fits there is none, which the terminal explains."""
    if found.best is None:
        click.echo(f"no strategy fits: nothing to draw in {path}", err=True)
        return
    from scalewise.report.ranking_figure import ranking_image

    write_bytes(path, ranking_image(found, "svg" if ending == ".svg" else "png"))
