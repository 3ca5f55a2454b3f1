"""How do the bubble and the sends of a pipeline come about?

pipeline_bubble(work(e)).formula         # by schedule
"""

from __future__ import annotations

from scalewise.report.explain_communication import links_source
from scalewise.report.explained import Explained, Letter, plain
from scalewise.report.worked import Worked, number
from scalewise.step.groups import stages_cross_domains
from scalewise.step.pipeline import last_saves, message_seconds, posted_ahead
from scalewise.units import format_bytes, format_seconds


def pipeline_bubble(w: Worked) -> Explained:
    """Explain the idle time while the pipeline fills and drains."""
    s, v, pp = w.e.strategy, w.field("chunks"), w.field("pp")
    wave = w.work.wave
    whole = number(wave.forward + wave.backward)
    formula, letters = (
        "T = (A - M) / v",
        [
            Letter("A", format_seconds(whole), "one micro batch over all stages"),
            Letter(
                "M",
                format_seconds(number(wave.own_forward + wave.own_backward)),
                "its part on the slowest stage",
            ),
            Letter("v", plain(v), "virtual stages per stage"),
        ],
    )
    if w.field("schedule") >= 2.0:
        hops = max(pp - 1.0, 1.0)
        f = number(wave.forward - wave.own_forward)
        i = number(wave.backward - wave.own_backward)
        later = Letter("W", format_seconds(number(wave.weights)), "gradients of weights, can wait")
        if s.schedule == "zbh1":
            formula = (
                "T = max(F + I - min(a - 1, n) W, max(F, I) + max(pp - a, 0) / n min(F, I)) / v,  "
                "n = pp - 1"
            )
            letters = [
                Letter("F", format_seconds(f), "one micro batch forward on the other stages"),
                Letter("I", format_seconds(i), "gradients of its inputs there"),
                later,
                letters[-1],
            ]
        else:
            formula = (
                "T = max(n max(F / 2, I / 2) - a D, n I - min(a, n) W - a D, "
                "A + W / 2 + (a - 1) P - a S, 0),  n = pp - 1"
            )
            turn = 0.5 * number(wave.own_forward + wave.own_backward + wave.head)
            pace = max(f / hops, i / hops, turn if number(wave.head) > 0.0 else 0.0)
            letters = [
                Letter("F", format_seconds(f / hops), "forward of a stage beside the slowest"),
                Letter("I", format_seconds(i / hops), "gradients of its inputs"),
                later,
                Letter(
                    "D", format_seconds(number(wave.ahead)), "by which the head slows its stage"
                ),
                Letter("A", format_seconds(whole), "F and I over all stages"),
                Letter("P", format_seconds(pace), "longest pass, or both around the head"),
                Letter("S", format_seconds(w.slowest), "one micro batch on the slowest stage"),
            ]
        letters += [
            Letter("pp", plain(pp), "stages"),
            Letter("a", plain(w.steps), "micro steps"),
        ]
    if w.send_waiting > 0.0:
        formula += " + Z"
        told = "messages between other stages while the pipeline fills and drains"
        letters.append(Letter("Z", format_seconds(w.send_waiting), told))
    if v > 1.0 and w.steps < pp and w.field("schedule") < 3.0:
        formula += " + (1 - 1 / v) (1 - a / pp) A"
        known = {letter.letter for letter in letters}
        more = (
            Letter("A", format_seconds(whole), "one micro batch over all stages"),
            Letter("pp", plain(pp), "stages"),
            Letter("a", plain(w.steps), "micro steps, fewer than stages: chunks wait for them"),
        )
        letters += [letter for letter in more if letter.letter not in known]
    return Explained(
        key="bubble",
        title="Pipeline bubble",
        formula=formula,
        letters=tuple(letters),
        working=(
            f"{s.pp} stages, {plain(w.steps)} micro steps, {plain(w.layers)} layers on the slowest"
            + (" (with the head)" if w.on_last else ""),
        ),
        result=w.bubble,
        source="arXiv 2104.04473 and (zero bubble) 2401.10241; layer times as above",
    )


def pipeline_send(w: Worked) -> Explained:
    """Explain the sends between stages that nothing hides."""
    load, exposed, pp = w.send_load, w.send_exposed, w.field("pp")
    shard = w.field("tp") if w.field("sequence_parallel") > 0 else 1.0
    message = 2.0 * w.tokens * w.field("hidden") / shard
    crosses = number(stages_cross_domains(w.case))
    one = number(message_seconds(w.case))
    last = w.on_last and bool(number(last_saves(w.case)))
    per_micro = 2.0 if pp <= 2 or last else 4.0
    hidden = bool(number(posted_ahead(w.case)))
    return Explained(
        key="pipeline_send",
        title="Exposed sends between pipeline stages",
        formula="T = n t" if hidden else "T = n v a t",
        letters=(
            Letter("t", format_seconds(one), f"one message of {format_bytes(message)}"),
            Letter(
                "n",
                plain(per_micro),
                "messages per micro step and chunk" + (" of the last stage" if last else ""),
            ),
            Letter("v", plain(w.field("chunks")), "virtual stages per stage"),
            Letter("a", plain(w.steps), "micro steps"),
        ),
        working=(
            "stages are in " + ("different domains" if crosses else "the same domain"),
            f"load {format_seconds(load)}"
            + (", hidden but for filling and draining" if hidden else ", the stages wait for it"),
        ),
        result=exposed,
        source=links_source(w),
    )
