"""Renderer of figures with plotly: interactive, for pages and the web UI.

plotly_figure(figure)           # needs the extra `plot`
plot(figure)                    # an HTML block; `page` adds the library once
"""

from __future__ import annotations

import math
from html import escape
from typing import Any

from scalewise.errors import require
from scalewise.report.figure import (
    DEEP,
    FRAME,
    INK,
    PALE,
    Axis,
    Figure,
    Marks,
    Panel,
    Rule,
    Trace,
    cells,
    frame_place,
    ink_on,
    thinning,
)

INCH = 96
"""Pixels of an inch of `Panel.height`."""
ROOM = 1.35
"""Length of the axis of bars with text behind them, relative to the longest bar."""

_SYMBOLS: dict[str, dict[str, Any]] = {
    "star": {"symbol": "star", "size": 14, "color": "black",
             "line": {"width": 1, "color": "white"}},
    "cross": {"symbol": "x-thin", "size": 8, "color": "black", "line": {"width": 1.6}},
    "ring": {"symbol": "circle-open", "size": 14, "color": INK, "line": {"width": 1.5}},
    "open-star": {"symbol": "star-open", "size": 14, "color": INK, "line": {"width": 1.5}},
}  # fmt: skip
_BUTTONS: dict[str, Any] = {
    "type": "buttons", "direction": "right", "x": 0.0, "xanchor": "left", "yanchor": "bottom",
    "pad": {"t": 0, "b": 4}, "bgcolor": "#ffffff", "bordercolor": "#bbbbbb",
}  # fmt: skip


def plot(figure: Figure) -> str:
    """Return a figure as a block of HTML that expects plotly on the page."""
    text: str = plotly_figure(figure).to_html(
        include_plotlyjs=False,
        full_html=False,
        div_id=f"plot-{figure.name}",
        config={"displaylogo": False, "responsive": True},
    )
    return text


def plotly_figure(figure: Figure) -> Any:
    """Draw a figure with plotly.

    Raises:
        MissingExtraError: If plotly is not installed.
    """
    subplots: Any = require("plotly.subplots", "plot")
    panels = figure.panels
    columns = min(figure.columns, len(panels), 3 if len(panels) == 3 else 2) or 1
    rows = [panels[first : first + columns] for first in range(0, len(panels), columns)] or [[]]
    heights = [max((p.height for p in row), default=1.0) * INCH + 15 for row in rows]
    tall = sum(heights) + 80.0 * (len(rows) - 1)
    shared = columns > 1 and all(panel.sideways for panel in panels)
    drawing = subplots.make_subplots(
        rows=len(rows),
        cols=columns,
        subplot_titles=[escape(panel.title) for panel in panels],
        row_heights=heights,
        column_widths=[panel.width for panel in rows[0]] or None,
        vertical_spacing=80.0 / tall if len(rows) > 1 else 0.0,
        horizontal_spacing=0.04 if shared else 0.2 / columns,
        shared_yaxes=shared,
    )
    seen: set[str] = set()
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        _Painter(drawing, figure, panel, {"row": row + 1, "col": column + 1}, seen).draw()
    _lay_out(drawing, figure, tall)
    return drawing


def _lay_out(drawing: Any, figure: Figure, tall: float) -> None:
    """Set sizes, the legend above the panels, and the buttons of views."""
    names, views, panels = figure.legend, figure.views, figure.panels
    # A letter of a name takes 7 pixels.
    lines = 1 + sum(7 * len(name) + 55 for name in names) // 950 if names else 0
    above = (26 if any(panel.title for panel in panels) else 0) + (34 if views else 0)
    top = 40 + 21 * lines + above
    floating = any(trace.base for panel in panels for trace in panel.traces)
    stacked = any(panel.stacked for panel in panels)
    drawing.update_layout(
        template="plotly_white", height=top + tall + 60, showlegend=bool(names), bargap=0.2,
        barmode="stack" if stacked else "overlay" if floating else "group",
        scattermode="group" if any(panel.kind == "ranges" for panel in panels) else "overlay",
        margin={"t": top, "l": 70, "r": 20, "b": 60},
        font={"family": "system-ui, sans-serif", "size": 12, "color": INK},
        uniformtext={"mode": "hide", "minsize": 8},
        legend={"orientation": "h", "x": 0.0, "xanchor": "left", "yanchor": "bottom",
                "y": 1.0 + (above + 8) / tall, "traceorder": "normal"},
    )  # fmt: skip
    if views:
        of = [trace.meta for trace in drawing.data]
        buttons = [
            {"label": v, "method": "restyle", "args": [{"visible": [m in (None, v) for m in of]}]}
            for v in views
        ]
        drawing.update_layout(updatemenus=[_BUTTONS | {"y": 1.0 + 4 / tall, "buttons": buttons}])


class _Painter:
    """Adds one panel to a drawing; names that were seen are not in the legend again."""

    def __init__(
        self, drawing: Any, figure: Figure, panel: Panel, where: dict[str, int], seen: set[str]
    ) -> None:
        self.drawing, self.panel, self.where, self.seen = drawing, panel, where, seen
        self.view = figure.views[0] if figure.views else ""
        self.names = {} if panel.kind == "lines" else dict(
            zip(panel.x.values, map(_spaced, panel.x.texts), strict=True)
        )  # fmt: skip
        self.go: Any = require("plotly.graph_objects", "plot")

    def draw(self) -> None:
        """Add everything."""
        panel = self.panel
        if panel.kind == "map":
            self.map()
            return
        add = {"bars": self.bars, "ranges": self.ranges, "lines": self.line}[panel.kind]
        for place, trace in enumerate(panel.traces):
            add(trace, thinning(place, len(panel.traces)), self.common(trace))
        for marks in panel.marks:
            self.marks(marks)
        for rule in panel.rules:
            self.rule(rule)
        self.key_axis()
        self.value_axis()

    def common(self, trace: Trace) -> dict[str, Any]:
        """Return what traces of every kind have: legend, view, what the pointer shows."""
        shown = bool(trace.name) and trace.name not in self.seen
        self.seen.add(trace.name)
        hover: dict[str, Any] = {"hoverinfo": "skip"}
        if trace.hover:
            hover = {"hovertext": list(trace.hover), "hovertemplate": "%{hovertext}<extra></extra>"}
        return {
            "name": escape(trace.name), "legendgroup": trace.name, "showlegend": shown,
            "visible": trace.view in ("", self.view), "meta": trace.view or None, **hover,
        }  # fmt: skip

    def line(self, trace: Trace, thin: float, common: dict[str, Any]) -> None:
        """Add a line, points, or an area."""
        if trace.low:
            named = common["showlegend"] and trace.mode == "area"
            band = common | {"showlegend": named, "hovertext": None, "hovertemplate": None}
            self.add(
                self.go.Scatter(
                    x=[*trace.xs, *reversed(trace.xs)], y=[*trace.high, *reversed(trace.low)],
                    fill="toself", fillcolor=trace.color, opacity=0.14, mode="lines",
                    line={"width": 0}, **band | {"hoverinfo": "skip"},
                )
            )  # fmt: skip
            if trace.mode == "area":
                return
        joined = trace.mode == "line"
        mode = ("lines+markers" if trace.marker else "lines") if joined else "markers"
        self.add(
            self.go.Scatter(
                x=list(trace.xs), y=list(trace.ys), mode=mode, opacity=1.0 if joined else 0.8,
                line={"color": trace.color, "dash": trace.dash, "width": 1.8 * thin,
                      "shape": "hv" if trace.steps else "linear"},
                marker={"symbol": trace.marker or "circle", "size": 6 * (thin if joined else 1.1),
                        "color": trace.color}, **common,
            )
        )  # fmt: skip

    def bars(self, trace: Trace, _: float, common: dict[str, Any]) -> None:
        """Add the bars of one color."""
        sideways, keys = self.panel.sideways, [self.names[x] for x in trace.xs]
        x, y = (list(trace.ys), keys) if sideways else (keys, list(trace.ys))
        edge = 0.5 if self.panel.stacked or trace.base else 0.0
        self.add(
            self.go.Bar(
                x=x, y=y, base=list(trace.base) or None, orientation="h" if sideways else "v",
                width=0.84 if trace.base else None,
                marker={"color": trace.color, "line": {"color": "#ffffff", "width": edge}},
                text=list(trace.texts) or None, textangle=0, insidetextanchor="middle",
                textposition="none" if not trace.texts else "inside" if sideways else "auto",
                insidetextfont={"color": ink_on(trace.color)}, **common,
            )
        )  # fmt: skip

    def ranges(self, trace: Trace, _: float, common: dict[str, Any]) -> None:
        """Add dots with their intervals."""
        ys = [y or 0.0 for y in trace.ys]
        self.add(
            self.go.Scatter(
                x=ys, y=[self.names[x] for x in trace.xs], mode="markers", orientation="h",
                offsetgroup=trace.name,
                marker={"color": trace.color, "symbol": trace.marker, "size": 9},
                error_x={"type": "data", "symmetric": False, "thickness": 2.5, "width": 4,
                         "array": [high - y for y, high in zip(ys, trace.high, strict=True)],
                         "arrayminus": [y - low for y, low in zip(ys, trace.low, strict=True)]},
                **common,
            )
        )  # fmt: skip

    def marks(self, marks: Marks) -> None:
        """Add marks, with their labels above them."""
        shown = bool(marks.name) and marks.name not in self.seen
        self.seen.add(marks.name)
        self.add(
            self.go.Scatter(
                x=[self.names.get(x, x) for x in marks.xs], y=list(marks.ys),
                mode="markers+text" if marks.labels else "markers", name=escape(marks.name),
                text=list(marks.labels) or None, textposition="top center", textfont={"size": 11},
                legendgroup=marks.name, showlegend=shown, marker=_SYMBOLS[marks.symbol],
                hovertext=list(marks.hover),
                hovertemplate="%{y:,.4g}<br>%{hovertext}<extra></extra>",
            )
        )  # fmt: skip

    def rule(self, rule: Rule) -> None:
        """Add a reference line or a span, across the axis of values."""
        drawing, sideways = self.drawing, self.panel.sideways
        text = {} if sideways or not rule.name else {
            "annotation_text": escape(rule.name), "annotation_position": "top right",
        }  # fmt: skip
        if rule.high is not None:
            letter = "x" if sideways else "y"
            ends = {f"{letter}0": rule.value, f"{letter}1": rule.high}
            add = drawing.add_vrect if sideways else drawing.add_hrect
            style = {"fillcolor": rule.color, "opacity": 0.12, "line_width": 0, "layer": "below"}
            add(**ends, **style, **text, **self.where)
            return
        line = {"color": rule.color, "width": 1, "dash": rule.dash}
        if sideways:
            drawing.add_vline(x=rule.value, line=line, **self.where)
        else:
            drawing.add_hline(y=rule.value, line=line, **text, **self.where)

    def key_axis(self) -> None:
        """Name the categories, or the values of x."""
        x, drawing, where = self.panel.x, self.drawing, self.where
        names = list(self.names.values())
        order = {"type": "category", "categoryorder": "array"}
        if self.panel.sideways:
            ends = {"range": [len(names) - 0.4, -0.6], "automargin": True, "ticks": ""}
            drawing.update_yaxes(**order, categoryarray=names, **ends, **where)
            for name, text, at in zip(names, self.panel.ends, self.ends(), strict=False):
                style = {"xanchor": "left", "align": "left", "xshift": 5, "showarrow": False}
                words = escape(text).replace("\n", "<br>")
                drawing.add_annotation(x=at, y=name, text=words, font_size=11, **style, **where)
        elif names or x.is_category:
            array = {"categoryarray": names or x.texts}
            drawing.update_xaxes(**order, **array, title_text=x.label, **where)
        elif x.log and x.values:
            numbers = [float(value) for value in x.values]
            span = [math.log10(min(numbers) / 1.2), math.log10(max(numbers) * 1.2)]
            ticks = {"tickvals": numbers, "ticktext": x.texts, "range": span}
            drawing.update_xaxes(type="log", title_text=x.label, **ticks, **where)
        else:
            drawing.update_xaxes(title_text=x.label, **_scale(x), **where)

    def ends(self) -> list[float]:
        """Return where the text behind the bars of each category begins."""
        ends = {x: {"": 0.0} for x in self.panel.x.values}
        for trace in self.panel.traces:
            for place, (x, y) in enumerate(zip(trace.xs, trace.ys, strict=True)):
                start = trace.base[place] if trace.base else ends[x].get(trace.view, 0.0)
                ends[x][trace.view] = max(start, start + (y or 0.0))
        first = max((rule.value for rule in self.panel.rules), default=0.0)
        return [max(first, *by_view.values()) for by_view in ends.values()]

    def value_axis(self) -> None:
        """Scale and name the axis of values."""
        panel, y = self.panel, self.panel.y
        update = self.drawing.update_xaxes if panel.sideways else self.drawing.update_yaxes
        fields: dict[str, Any] = _scale(y)
        if not y.log:
            fields["tickformat"] = "~s" if any(abs(v) >= 1e6 for v in panel.values) else ","
            fields["rangemode"] = "tozero" if y.zero else "normal"
        if panel.ends:
            fields["range"] = [0.0, ROOM * max(self.ends(), default=1.0)]
        label = y.label if panel.sideways else y.label.replace(" (% of", "<br>(% of")
        update(title_text=label, zerolinecolor="#888888", **fields, **self.where)

    def map(self) -> None:
        """Add cells with their text."""
        panel, drawing, where = self.panel, self.drawing, self.where
        grid = cells(panel)
        values, texts, hovers = ([[cell[n] for cell in row] for row in grid] for n in range(3))
        texts = [[str(text).replace("\n", "<br>") for text in row] for row in texts]
        self.add(
            self.go.Heatmap(
                z=values, x=panel.x.texts, y=panel.y.texts, text=texts, texttemplate="%{text}",
                hovertext=hovers, hovertemplate="%{hovertext}<extra></extra>", hoverongaps=False,
                xgap=2, ygap=2, colorscale=[[0.0, PALE], [1.0, DEEP]], showscale=where["col"] == 1,
                colorbar={"title": {"text": panel.scale, "side": "right"}, "thickness": 14},
            )
        )  # fmt: skip
        if panel.frame is not None:
            right, up = frame_place(panel)
            box = {"x0": right - 0.49, "x1": right + 0.49, "y0": up - 0.48, "y1": up + 0.48}
            drawing.add_shape(type="rect", line={"color": FRAME, "width": 3}, **box, **where)
        drawing.update_xaxes(type="category", title_text=panel.x.label, showgrid=False, **where)
        drawing.update_yaxes(type="category", title_text=panel.y.label, showgrid=False, **where)

    def add(self, trace: Any) -> None:
        """Add a trace of plotly."""
        self.drawing.add_trace(trace, **self.where)


def _scale(axis: Axis) -> dict[str, Any]:
    """Return type and range of an axis of numbers."""
    span = axis.span
    if not axis.log:
        return {"range": list(span)} if span else {}
    ends = {"range": [math.log10(end) for end in span]} if span else {}
    return {"type": "log", "dtick": "D2", "tickformat": ",", "minor": {"showgrid": True}, **ends}


def _spaced(label: str) -> str:
    """Return a text with its spaces: plotly joins spaces in a row unless they do not break."""
    return escape(label).replace("  ", "\u00a0\u00a0")
