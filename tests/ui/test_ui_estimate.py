"""What the views show is what the library says."""

import math

import pytest

from scalewise.ask.question import Question
from scalewise.catalog import load_cluster
from scalewise.explore.points import knee
from scalewise.explore.scale import scale as draw_curves
from scalewise.explore.search import search as search_all
from scalewise.explore.sizes import Rule, parse_sizes
from scalewise.explore.space import Limits
from scalewise.model import load_model
from scalewise.ui import assumptions, nearest, scale, search, timeline
from scalewise.ui.estimate import estimate_answer, explain_answer, fits_answer
from scalewise.ui.inputs import resolve
from scalewise.ui.page import early, render
from scalewise.ui.requests import ScaleRequest, SearchRequest

PINNED = Question(gpus="256", batch="1024", strategy="fsdp256-mb2")


@pytest.fixture(scope="module")
def answer():
    return estimate_answer(PINNED)


def test_the_waterfall_adds_to_the_whole_step(answer):
    assert math.fsum(t["share"] for t in answer["waterfall"]) == pytest.approx(1.0, abs=1e-12)
    assert math.fsum(t["seconds"] for t in answer["waterfall"]) == pytest.approx(
        answer["headline"]["step_seconds"][0]
    )


def test_memory_adds_to_the_total(answer):
    total = math.fsum(part["bytes"] for part in answer["memory"])
    assert total == pytest.approx(answer["headline"]["memory_bytes"][0])


def test_intervals_are_those_of_throughput(answer):
    head = answer["headline"]
    rate, low, high = head["rate"]
    for key in ("step_seconds", "days", "usd", "joules"):
        value, minimum, maximum = head[key]
        if key != "step_seconds":
            # The range of goodput widens that of a whole run.
            assert minimum / value == pytest.approx(rate / high, rel=1e-4)
            assert maximum / value == pytest.approx(rate / low, rel=1e-3)
            continue
        assert minimum / value == pytest.approx(rate / high)
        assert maximum / value == pytest.approx(rate / low)
        assert minimum < value < maximum


def test_run_totals_follow_from_the_rates(answer):
    head = answer["headline"]
    steps = head["tokens"] / head["tokens_per_second"][0] / 86400
    goodput = answer["estimate"]["goodput"]["fraction"]
    assert goodput == pytest.approx(0.9921, abs=1e-4)
    assert head["days"][0] == pytest.approx(steps / goodput)
    assert head["goodput"].startswith("goodput 99.2% [98.2-99.5], checkpoint every ")
    hours = head["days"][0] * 24
    assert head["usd"][0] == pytest.approx(hours * head["usd_per_hour"])
    assert head["price"] == "market 2026-05"
    assert head["joules"][0] == pytest.approx(hours * 3600 * head["facility_watts"])


def test_hidden_and_exposed_make_up_the_load(answer):
    for each in answer["hidden"]:
        assert each["hidden"] + each["exposed"] == pytest.approx(each["seconds"])


def test_the_takeaway_is_where_kernels_and_network_take_the_same_time(answer):
    have = answer["takeaway"]
    assert have["per"] == "micro-batch"
    assert have["tokens"] == 2 * 4096
    assert have["communication"] == pytest.approx(math.fsum(h["seconds"] for h in answer["hidden"]))
    # With as many sequences per micro-batch as come nearest to the limit, it is about even.
    near = max(round(have["limit"] / 4096), 1)
    asked = Question(gpus="256", batch=str(256 * near), strategy=f"fsdp256-mb{near}")
    again = estimate_answer(asked)["takeaway"]
    ratio = again["communication"] / again["compute"]
    assert ratio == pytest.approx(have["limit"] / (4096 * near), rel=0.1)
    assert again["limit"] == pytest.approx(have["limit"], rel=0.1)


def test_what_travels_once_per_step_is_counted_by_step():
    have = estimate_answer(Question(gpus="64", batch="512", strategy="zero1x64-mb2"))["takeaway"]
    assert have["per"] == "step"
    assert have["tokens"] == 512 * 4096 / 64
    assert estimate_answer(Question(gpus="1", batch="8", model="gpt3-125m"))["takeaway"] is None


def test_modules_of_charts_come_early_and_the_library_does_not():
    for module in ("charts", "sketch", "scale"):
        assert f'rel="modulepreload" href="/static/{module}.js"' in early("n=64&view=scale")
    assert "plotly" not in render("n=64&view=scale")
    for query in ("", "view=estimate", "view=</script>"):
        assert early(query) == ""


def test_the_first_paint_waits_for_no_second_file():
    page = render("n=64")
    assert 'rel="stylesheet"' not in page
    assert "<style>/* Colors" in page
    assert '"near_tie":0.0' in page


def test_suggestions_are_estimated_before_they_are_shown():
    answer = estimate_answer(Question(gpus="2048", batch="4096", strategy="fsdp2048-mb1"))
    first = answer["suggestions"]["found"][0]
    again = estimate_answer(Question(gpus="2048", batch="4096", strategy=first["strategy"]))
    old, new = answer["headline"], again["headline"]
    assert first["gain"] == pytest.approx(new["rate"][0] / old["rate"][0] - 1)
    assert first["seconds"] == pytest.approx(old["step_seconds"][0] - new["step_seconds"][0])
    assert first["usd"] == pytest.approx(old["usd"][0] - new["usd"][0])
    assert first["joules"] == pytest.approx(old["joules"][0] - new["joules"][0])


def test_infeasible_says_the_smallest_change_that_works():
    answer = estimate_answer(Question(model="llama-3-70b", gpus="8"))
    assert not answer["headline"]["feasible"]
    first = answer["fixes"][0]
    gpus = first["change"].pop("gpus")
    assert first["words"].startswith(f"fits from {gpus} GPUs")
    assert first["change"] == {"strategy": None}
    again = estimate_answer(Question(model="llama-3-70b", gpus=gpus))
    assert again["headline"]["feasible"]
    half = estimate_answer(Question(model="llama-3-70b", gpus=str(int(gpus) // 2)))
    assert not half["headline"]["feasible"]


def test_a_pinned_plan_that_does_not_fit_is_offered_another_on_the_same_accelerators():
    answer = estimate_answer(Question(gpus="8", batch="64", strategy="ddp8"))
    assert answer["fixes"][0]["change"] == {"strategy": None}


def test_what_fits_next_is_where_it_stops():
    answer = fits_answer(PINNED)
    strategy = f"fsdp256-mb{answer['micro_batch']}"
    batch = str(256 * answer["micro_batch"])
    last = resolve(Question(gpus="256", batch=batch, strategy=strategy)).estimate
    more = f"fsdp256-mb{answer['micro_batch'] + 1}"
    batch = str(256 * (answer["micro_batch"] + 1))
    over = resolve(Question(gpus="256", batch=batch, strategy=more)).estimate
    assert last.fit >= 0.9 > over.fit
    assert answer["accelerators"] == 2


def test_every_term_can_be_explained(answer):
    explained = {each["key"] for each in explain_answer(PINNED)["explained"]}
    assert {term["key"] for term in answer["waterfall"]} <= explained


def test_curves_of_given_strategies_are_those_of_the_library():
    request = ScaleRequest(question=PINNED, sizes="8..64", templates=("fsdp", "hsdp8"), knee=0.9)
    answer = scale.scale_answer(request)
    rule = Rule(kind="strong", batch=1024, seq_len=4096, precision="bf16",
                tokens=20.0 * load_model("llama-2-7b").parameters)  # fmt: skip
    cluster = load_cluster("dgx-h100", accelerators=64)
    same = draw_curves(
        load_model("llama-2-7b"), cluster, rule, ["fsdp", "hsdp8"], parse_sizes("8..64")
    )
    for mine, theirs in zip(answer["curves"], same.curves, strict=True):
        assert [p["step_seconds"] for p in mine["points"]] == [
            p.step_seconds for p in theirs.points
        ]
        assert [p["strategy"] for p in mine["points"]] == [p.strategy for p in theirs.points]
    found_knees = [each for each in map(lambda c: knee(c, 0.9), same.curves) if each]
    assert len(answer["knees"]) == len(found_knees)


def test_a_weak_curve_grows_its_batch():
    answer = scale.scale_answer(ScaleRequest(question=PINNED, sizes="8,16", kind="weak"))
    assert [p["global_batch"] for p in answer["curves"][0]["points"]] == [32, 64]
    assert answer["batch"] == 4.0


def test_best_of_a_curve_is_the_strategy_of_the_estimate():
    answer = scale.scale_answer(ScaleRequest(sizes="64,256", templates=("best",)))
    for point in answer["curves"][0]["points"]:
        one = estimate_answer(Question(gpus=str(point["accelerators"])))
        assert one["question"]["strategy"] == point["strategy"]
        assert one["headline"]["step_seconds"][0] == point["step_seconds"]


def test_sizes_at_which_nothing_runs_say_why():
    asked = Question(model="llama-3-70b")
    answer = scale.scale_answer(ScaleRequest(question=asked, sizes="4..32", templates=("best",)))
    missing = {each["accelerators"]: each["reason"] for each in answer["curves"][0]["missing"]}
    points = {point["accelerators"] for point in answer["curves"][0]["points"]}
    assert {4, 8} <= set(missing) == {4, 8, 16, 32} - points
    assert 32 in points
    assert "fits" in missing[8]


def test_the_search_view_is_the_search():
    asked = Question(gpus="32", batch="64", strategy="fsdp32-mb1")
    answer = search.search_answer(SearchRequest(question=asked, top=5))
    q = resolve(asked).asked
    same = search_all(q.model, q.cluster, q.workload, limits=Limits(overlap=(True,)), top=5)
    assert [row["strategy"] for row in answer["rows"]] == [str(e.strategy) for e in same.strategies]
    assert answer["evaluated"] == same.evaluated
    assert sum(answer["infeasible"].values()) + answer["feasible"] == answer["evaluated"]
    assert answer["rows"][0]["gap"] == 0.0
    assert answer["current"]["strategy"] == "fsdp32-mb1"
    assert answer["current"]["gap"] >= 0.0
    assert len({(row["tp"], row["pp"]) for row in answer["map"]}) == len(answer["map"])


def test_assumptions_move_what_they_say():
    answer = assumptions.assumptions_answer(PINNED)
    rows = {row["key"]: row for row in answer["rows"]}
    assert rows["cluster.usd_per_hour"]["usd"][0] == pytest.approx(0.1)
    assert rows["cluster.usd_per_hour"]["time"] == [0.0, 0.0]
    assert rows["cluster.usd_per_hour"]["range"] == "$1.99 to $5.00 (2026-05)"
    assert rows["cluster.usd_per_hour"]["source"].startswith("market 2026-05: aimultiple.com")
    assert rows["cluster.pue"]["joules"][0] == pytest.approx(0.1)
    peak = rows["accelerator.peak_flops.bf16"]
    changed = Question(gpus="256", batch="1024", strategy="fsdp256-mb2",
                       sets=(f"accelerator.peak_flops.bf16={1.1 * peak['value']}",))  # fmt: skip
    old, new = resolve(PINNED).estimate, resolve(changed).estimate
    assert peak["time"][0] == pytest.approx(new.step_seconds / old.step_seconds - 1)
    assert all(row["source"] for row in answer["rows"])


def test_every_assumption_can_be_written_back_as_it_is_shown():
    for row in assumptions.assumptions_answer(PINNED)["rows"]:
        resolve(Question(gpus="256", batch="1024", sets=(f"{row['key']}={row['shown']}",)))


def test_changed_assumptions_are_flagged():
    asked = Question(sets=("cluster.pue=1.4",))
    answer = assumptions.assumptions_answer(asked)
    assert [row["key"] for row in answer["rows"] if row["changed"]] == ["cluster.pue"]
    assert answer["changes"] == ["cluster.pue = 1.4 (was 1.15)"]


@pytest.fixture(scope="module")
def index():
    return nearest.Index(nearest.places())


def test_a_measured_run_is_inside_the_evidence(index):
    place = next(p for p in index.places if p.stack == "llm-foundry" and p.accelerators == 256)
    run = nearest.runs()[place.row]
    from scalewise.evidence.table import completed_plan
    from scalewise.step.estimate import estimate

    plan, stack = completed_plan(run)
    e = estimate(plan.model, plan.cluster, plan.workload, plan.strategy, stack=stack)
    answer = nearest.nearest(index, e)
    assert answer["grade"] == "inside"
    assert answer["runs"][0]["distance"] == 0.0
    assert len({(r["source"], r["model"], r["accelerators"]) for r in answer["runs"]}) == 3


@pytest.mark.parametrize(
    ("question", "grade"),
    [
        (Question(), "inside"),
        (Question(gpus="32768", batch="32768"), "outside"),
        (Question(on="mi250x", model="llama-2-7b"), "outside"),
    ],
)
def test_grades(index, question, grade):
    assert nearest.nearest(index, resolve(question).estimate)["grade"] == grade


def test_models_with_experts_are_compared_with_such_models(index):
    kinds = {place.model: place.experts for place in index.places}
    for model, experts in (("mixtral-8x7b", True), ("llama-2-70b", False)):
        e = resolve(Question(model=model, gpus="64")).estimate
        near = nearest.nearest(index, e)["runs"]
        assert len(near) == 3
        assert {kinds[run["model"]] for run in near} == {experts}
        dots = nearest.overlay(index, e)["runs"]
        assert {kinds[run["model"]] for run in dots} <= {experts}


def test_measured_dots_belong_to_the_chip_and_the_size(index):
    answer = nearest.overlay(index, resolve(Question()).estimate)
    assert answer["runs"]
    assert {run["accelerators"] for run in answer["runs"]} >= {8, 256}
    assert all(run["measured"] > 0 and 0 < run["mfu"] < 1 for run in answer["runs"])


def test_runs_that_no_fit_has_used_are_marked():
    rows = {run.id: run for run in nearest.runs()}
    held = [row for row in map(nearest.evidence_row, few_of(rows.values())) if row["held_out"]]
    assert held
    for row in held:
        assert rows[row["id"]].quality not in ("ok", "vendor-expected")
        assert not row["judged"]
        assert row["error"] is not None


def few_of(runs):
    """Some of each source and grade."""
    seen = {}
    for run in runs:
        seen.setdefault((run.source, run.quality), []).append(run)
    return [run for group in seen.values() for run in group[:3]]


def test_defaults_have_a_reason():
    rows = assumptions.assumptions_answer(PINNED)["defaults"]
    assert [row["flag"] for row in rows] == [
        "--seq", "--precision", "--goodput", "--stack", "--tokens",
    ]  # fmt: skip
    assert rows[-1]["why"] == "20 per parameter, compute-optimal by Chinchilla"
    assert all(row["value"] and row["why"] for row in rows)


PLANS = [
    PINNED,
    Question(gpus="64", batch="128", strategy="zero1x64-mb1"),
    Question(model="llama-3-70b", gpus="64", batch="64", strategy="tp8-pp8-mb1"),
    Question(model="llama-3-8b", gpus="16", batch="16", seq="32768", strategy="fsdp4-tp2-cp2-mb1"),
    Question(model="mixtral-8x7b", gpus="32", batch="64", strategy="zero1x32-ep8-mb1"),
]


@pytest.mark.parametrize("question", PLANS, ids=lambda q: q.strategy)
def test_every_bar_names_terms_and_every_term_has_bars(question):
    import msgspec

    from scalewise.terms import TERMS

    answer = msgspec.json.decode(timeline.timeline_json(question))
    assert all(set(terms) <= set(TERMS) for terms in answer["links"])
    bars = [
        (row["name"], bar) for p in answer["panels"] for row in p["rows"] for bar in row["bars"]
    ]
    assert [bar for _, bar in bars if not answer["links"][bar[5]]] == []
    reached = {term for _, bar in bars for term in answer["links"][bar[5]]} | set(timeline.IDLE)
    shown = {term["key"] for term in estimate_answer(question)["waterfall"]}
    assert shown - reached == set()


def test_all_stages_are_shown_or_it_is_said(monkeypatch):
    import msgspec

    answer = msgspec.json.decode(timeline.timeline_json(PLANS[2]))
    assert (answer["stages"], answer["stages_shown"]) == (8, 8)
    assert answer["panels"][0]["name"] == "The whole step, all 8 stages"
    monkeypatch.setattr(timeline, "MAX_ROWS", 3)
    answer = msgspec.json.decode(timeline.timeline_json(PLANS[2]))
    assert (answer["stages"], answer["stages_shown"]) == (8, 3)
    assert answer["panels"][0]["name"] == "The whole step, 3 of 8 stages"
    assert len(answer["panels"][0]["rows"]) == 3


def test_the_timeline_ends_with_the_step():
    import msgspec

    answer = msgspec.json.decode(timeline.timeline_json(PINNED))
    first = answer["panels"][0]
    assert first["high"] == pytest.approx(answer["step_seconds"])
    assert answer["step_seconds"] == pytest.approx(answer["estimate_seconds"], rel=0.02)
    for panel in answer["panels"]:
        for row in panel["rows"]:
            assert all(panel["low"] <= bar[0] <= bar[1] <= panel["high"] * (1 + 1e-9)
                       for bar in row["bars"])  # fmt: skip


def test_thin_bars_are_joined_until_few_are_left():
    from scalewise.report.timeline_figure import Bar

    bars = [Bar(i * 1e-4, i * 1e-4 + 0.9e-4, "forward", "x") for i in range(10_000)]
    kept = timeline.thinned(bars, 1.0)
    assert len(kept) <= timeline.MAX_BARS
    assert (kept[0].start, kept[-1].end) == (bars[0].start, bars[-1].end)
