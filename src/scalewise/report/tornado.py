"""How do upgrades look? A tornado: one bar per change, the largest gain on top.

    tornado_html(found)                    # a page that works offline (extra `plot`)
    write_tornado(found, "upgrades.svg")   # or .png, for papers (extra `plot`)

Computing is `explore.sensitivity`; the terminal's view is `report.upgrades`.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewise._version import __version__
from scalewise.errors import require
from scalewise.report.upgrades import MEANS, lead, signed
from scalewise.report.words import title

if TYPE_CHECKING:
    from scalewise.explore.sensitivity import Sensitivities, Sensitivity

# Okabe and Ito, colour-blind-safe. In the order of the legend.
SERIES = (
    ("gain", "elasticity", "tokens/s", "#0072B2"),
    ("energy_gain", "energy_elasticity", "tokens/J", "#E69F00"),
    ("cost_gain", "cost_elasticity", "tokens/$ at the same rent", "#009E73"),
)
GAIN_AXIS = "change by the upgrade, %"
SLOPE_AXIS = "% per 1 % of the quantity, here and now"
THICKNESS = 0.26
"""Of one bar, where the bars of a change share a height of 1."""


def _drawn(found: Sensitivities) -> list[Sensitivity]:
    """The changes that have a bar, the largest gain first."""
    return [row for row in found.rows if row.gain is not None]


def _series(rows: list[Sensitivity]) -> list[tuple[str, str, str, str]]:
    """What is known: power and prices need not be."""
    return [each for each in SERIES if any(getattr(row, each[0]) is not None for row in rows)]


def _label(row: Sensitivity) -> str:
    return f"{row.name}, {row.upgrade} ({MEANS[row.means]})"


def _source(found: Sensitivities) -> str:
    """Where the numbers come from, in one line."""
    e = found.today
    how = "found again after every change" if found.reoptimised else "the same throughout"
    chip = f"datasheet of {e.cluster.accelerator.name}"
    price = e.cluster.accelerator.price_date
    paid = "" if price is None or e.usd_per_hour is None else f", rent of {price}"
    return (
        f"Strategy {how}. Predicted by Scalewise {__version__}: {chip}, stack {e.stack.name}, "
        f"fabric {e.cluster.fabric.name}{paid}."
    )


def tornado_figure(found: Sensitivities) -> Any:
    """Draw finite gains to the left and local elasticities to the right.

    Args:
        found: What to draw; changes without a number are left out.

    Returns:
        A plotly figure; the legend has the order of the bars.
    """
    go: Any = require("plotly.graph_objects", "plot")
    subplots: Any = require("plotly.subplots", "plot")
    rows = _drawn(found)
    labels = [_label(row) for row in rows]
    figure = subplots.make_subplots(
        rows=1, cols=2, shared_yaxes=True, column_widths=[0.6, 0.4], horizontal_spacing=0.04
    )
    for gain, slope, name, colour in _series(rows):
        same: dict[str, Any] = {"orientation": "h", "legendgroup": name}
        same["marker"] = {"color": colour, "line": {"width": 0}}
        figure.add_trace(
            go.Bar(
                x=[_percent(getattr(row, gain)) for row in rows],
                y=labels,
                name=name,
                text=[signed(getattr(row, gain)) for row in rows],
                textposition="none",
                customdata=[row.strategy or "" for row in rows],
                hovertemplate="%{y}<br>%{text} " + name + "<br>%{customdata}<extra></extra>",
                **same,
            ),
            row=1,
            col=1,
        )
        figure.add_trace(
            go.Bar(
                x=[getattr(row, slope) for row in rows],
                y=labels,
                name=name,
                showlegend=False,
                hovertemplate="%{y}<br>%{x:.3f} % " + name + " per 1 %<extra></extra>",
                **same,
            ),
            row=1,
            col=2,
        )
    # The first category of a bar chart is at the bottom, so the axis is turned around.
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(title_text=GAIN_AXIS, zeroline=True, zerolinecolor="#444444", row=1, col=1)
    figure.update_xaxes(title_text=SLOPE_AXIS, zeroline=True, zerolinecolor="#444444", row=1, col=2)
    head = "<br>".join(textwrap.wrap(lead(found), 110))
    figure.update_layout(
        title={"text": f"{title(found.today)}<br><sup>{head}</sup>"},
        template="plotly_white",
        height=240 + 44 * max(len(rows), 1),
        margin={"t": 120, "b": 110},
        legend={"orientation": "h", "x": 1, "y": 1, "xanchor": "right", "yanchor": "bottom"},
    )
    figure.add_annotation(
        text=_source(found), xref="paper", yref="paper", x=0, y=0, yshift=-80, showarrow=False,
        xanchor="left", font={"size": 11, "color": "#666666"},
    )  # fmt: skip
    return figure


def tornado_html(found: Sensitivities) -> str:
    """The figure as a self-contained page."""
    page: str = tornado_figure(found).to_html(include_plotlyjs=True, full_html=True)
    return page


def write_tornado(found: Sensitivities, path: str) -> None:
    """Write the same two panels as a still picture.

    Args:
        found: What to draw.
        path: A file that ends in .svg or .png.

    Raises:
        MissingExtraError: If matplotlib is not installed (the extra `plot`).
    """
    agg: Any = require("matplotlib.backends.backend_agg", "plot")
    figures: Any = require("matplotlib.figure", "plot")
    mpl: Any = require("matplotlib", "plot")
    rows = _drawn(found)
    series = _series(rows)
    # A figure of its own with Agg: no window system, no state shared with the caller's plots.
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "scalewise", "font.size": 9}):
        figure = figures.Figure(figsize=(11, 2.2 + 0.38 * max(len(rows), 1)), layout="constrained")
        agg.FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        for number, (gain, slope, name, colour) in enumerate(series):
            shift = (number - (len(series) - 1) / 2) * THICKNESS
            places = [place + shift for place in range(len(rows))]
            gains = [_percent(getattr(row, gain)) or 0.0 for row in rows]
            left.barh(places, gains, height=THICKNESS, color=colour, label=name)
            slopes = [getattr(row, slope) or 0.0 for row in rows]
            right.barh(places, slopes, height=THICKNESS, color=colour)
        left.set_yticks(range(len(rows)), [_label(row) for row in rows])
        left.invert_yaxis()
        for axes, words in ((left, GAIN_AXIS), (right, SLOPE_AXIS)):
            axes.axvline(0.0, color="#444444", linewidth=0.8)
            axes.set_xlabel(words)
            axes.grid(axis="x", alpha=0.25)
            axes.set_axisbelow(True)
        if series:
            left.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
        told = "\n".join(textwrap.wrap(lead(found), 120))
        figure.suptitle(f"{title(found.today)}\n{told}", x=0.01, ha="left", fontsize=9)
        figure.supxlabel(_source(found), x=0.01, ha="left", fontsize=7, color="#666666")
        still = {"Date": None} if Path(path).suffix.lower() == ".svg" else {}
        figure.savefig(Path(path).expanduser(), dpi=150, metadata=still)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
