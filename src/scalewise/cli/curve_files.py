"""How are scaling curves written to files? By the ending of the name.

    save(curves, "scaling.svg", ".svg", share=0.5, chosen=[])

Nothing is computed here, and nothing of a library is imported before its ending is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalewise.cli.common import to_json, write, write_bytes

if TYPE_CHECKING:
    from scalewise.explore.points import Curves


def save(curves: Curves, path: str, ending: str, *, share: float, chosen: Sequence[str]) -> None:
    """Write a file, and say so on stderr.

    Args:
        curves: What was computed.
        path: Where to.
        ending: Of `common.FORMATS`.
        share: Share of the first return that is still enough.
        chosen: What was chosen for the user.
    """
    if ending == ".html":
        from scalewise.report.curves_page import curves_html

        write(path, curves_html(curves, share=share, chosen=chosen))
    elif ending == ".csv":
        from scalewise.report.curves_data import curves_csv

        write(path, curves_csv(curves))
    elif ending == ".json":
        write(path, to_json(as_dict(curves, share=share, chosen=chosen)) + "\n")
    elif ending == ".parquet":
        from scalewise.report.curves_data import curves_parquet

        write_bytes(path, curves_parquet(curves))
    else:
        from scalewise.report.figures import curves_image

        kind = "svg" if ending == ".svg" else "png"
        write_bytes(path, curves_image(curves, kind, share=share))  # type: ignore[arg-type]


def as_dict(curves: Curves, *, share: float, chosen: Sequence[str]) -> dict[str, Any]:
    """Tell everything as plain types: all points, knees and crossovers.

    Args:
        curves: What was computed.
        share: Share of the first return that is still enough.
        chosen: What was chosen for the user.

    Returns:
        The fields of `Curves`, with `version`, `knee_share`, `knees` and `chosen`.
    """
    import msgspec

    from scalewise._version import __version__

    plain: dict[str, Any] = msgspec.to_builtins(curves)
    return {
        "version": __version__,
        **plain,
        "knee_share": share,
        "knees": msgspec.to_builtins(curves.knees(share)),
        "chosen": list(chosen),
    }
