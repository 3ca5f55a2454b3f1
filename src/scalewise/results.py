"""Views of every result: a line at a prompt, a block in a notebook, a data frame, a figure.

    sw.search("llama-3-70b", on="dgx-h100", gpus=64).to_frame()
    sw.scale("llama-2-7b", on="dgx-h100", gpus="8..2048").plot()

Results are data; what they look like is the business of `report.views`, imported when it is asked.
"""

from __future__ import annotations

from typing import Any


class Result:
    """What a verb returns."""

    def to_frame(self) -> Any:
        """Return its rows as a polars or pandas DataFrame, whichever is installed.

        Raises:
            MissingExtraError: If neither is.
        """
        from scalewise.report.views import to_frame

        return to_frame(self)

    def plot(self) -> Any:
        """Return its figure, a `plotly.graph_objects.Figure`.

        Raises:
            MissingExtraError: If plotly is not installed.
        """
        from scalewise.report.views import plot

        return plot(self)

    def __repr__(self) -> str:
        from scalewise.report.views import line

        return line(self)

    def _repr_html_(self) -> str:
        from scalewise.report.views import html

        return html(self)
