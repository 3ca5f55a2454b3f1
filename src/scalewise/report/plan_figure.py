"""Figure of a plan: days and cost of every row, with its interval, beside the limits.

plan_figure(found)
"""

from __future__ import annotations

from scalewise.explore.plan import Amount, Plan, Row
from scalewise.report import plan_words as words
from scalewise.report.figure import PALETTE, Axis, Figure, Panel, Rule, Trace
from scalewise.report.plan_table import shown_rows
from scalewise.units import grouped, short_dollars


def plan_figure(found: Plan) -> Figure:
    """Return days, cost and emissions as ranges, one row for each plan."""
    rows = [row for row in shown_rows(found) if row.days is not None]
    names = [_name(row, found) for row in rows]
    panels = []
    for place, (field, label, limit) in enumerate(
        (
            ("days", "wall time (days)", found.wanted.days),
            ("usd", "cost ($)", found.wanted.usd),
            ("tonnes", "emissions (t CO2)", None),
        )
    ):
        amounts = [(name, getattr(row, field)) for name, row in zip(names, rows, strict=True)]
        known = [(name, each) for name, each in amounts if each is not None]
        if not known:
            continue
        text = short_dollars if field == "usd" else grouped
        rules = () if limit is None else (
            Rule(value=limit, name=f"{words.LIMITS[field]} {text(limit)}"),
        )  # fmt: skip
        panels.append(
            Panel(
                kind="ranges",
                x=Axis(values=names),
                y=Axis(label=label, log=_wide([each for _, each in known])),
                traces=[
                    Trace(
                        name="",
                        xs=[name for name, _ in known],
                        ys=[each.value for _, each in known],
                        low=[each.low for _, each in known],
                        high=[each.high for _, each in known],
                        hover=[
                            f"{name}<br>{text(each.value)} [{text(each.low)}-{text(each.high)}]"
                            for name, each in known
                        ],
                        color=PALETTE[place],
                    )
                ],
                rules=rules,
                sideways=True,
            )
        )
    return Figure(
        name="plan",
        panels=panels,
        title=words.title(found),
        lead=" ".join(words.answer_lines(found)),
        notes=[*found.notes, *words.break_even_lines(found), words.carbon_line(found)],
    )


def _name(row: Row, found: Plan) -> str:
    several = len({each.model for each in found.rows}) > 1
    return f"{row.model + ' ' if several else ''}{words.size_words(row)}"


def _wide(amounts: list[Amount]) -> bool:
    """Whether numbers span so much that only a logarithmic axis shows all of them."""
    return max(each.high for each in amounts) > 20.0 * min(each.low for each in amounts)
