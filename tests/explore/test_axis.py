import msgspec
import pytest

import scalewise as sw
from scalewise.ask.axes import parse_over
from scalewise.ask.over import OverTask, over, price_question
from scalewise.ask.question import Question
from scalewise.ask.resolve import resolve
from scalewise.errors import InputError
from scalewise.explore.assemble import assemble
from scalewise.explore.axis import THROUGHPUT, Axis, Cell, Series
from scalewise.explore.needed import smallest
from scalewise.explore.points import Curve, InfeasibleSize, Point, join
from scalewise.explore.sizes import parse_sizes
from scalewise.fields import replace
from scalewise.report.figure import Figure
from scalewise.report.over_figure import over_figure
from scalewise.report.over_files import COLUMNS, over_rows

FSDP = Question(gpus=64, strategy="fsdp-mb1", stack="megatron")


def point(rate, *, gpus=8, terms=None, **fields):
    """A point of a step of one second."""
    return Point(
        accelerators=gpus, strategy="fsdp8-mb1", stack="megatron", global_batch=8,
        num_microbatches=1, step_seconds=1.0, terms=terms or {"gemm": 1.0},
        tokens_per_second=rate * gpus, tokens_per_second_per_accelerator=rate, low=0.8 * rate,
        high=1.2 * rate, mfu=0.4, exposed_fraction=0.0, contention_share=0.0, memory_bytes=1e9,
        **fields,
    )  # fmt: skip


def swept(*curves, numbers=(1.0, 2.0, 4.0, 8.0), by="time"):
    """A sweep of curves given by their points; None cannot run."""
    axis = Axis(name="x", label="x", texts=tuple(f"{n:g}" for n in numbers), numbers=tuple(numbers))
    series = [
        Series(
            label=f"s{n}",
            model="m",
            cluster="c",
            cells=tuple(
                Cell(
                    place=(place,), seq_len=1, precision="bf16", point=each,
                    infeasible="memory: full" if each is None else None,
                )
                for place, each in enumerate(curve)
            ),
        )
        for n, curve in enumerate(curves)
    ]  # fmt: skip
    return assemble([axis], series, by=by)


@pytest.mark.parametrize(
    ("text", "texts", "numbers", "unit"),
    [
        ("network=25..100Gbit/s", ("25Gbit/s", "50Gbit/s", "100Gbit/s"), (25, 50, 100), "Gbit/s"),
        ("network=8x100..400G-ib", ("8x100G-ib", "8x200G-ib", "8x400G-ib"), (800, 1600, 3200),
         "Gbit/s"),
        ("cluster.network=50,25GbE", ("25GbE", "50GbE"), (25, 50), "Gbit/s"),
        ("network=1.6..3.2GB/s-tcp", ("1.6GB/s-tcp", "3.2GB/s-tcp"), (1.6, 3.2), "GB/s"),
        ("network=100GbE,400G-ib", ("100GbE", "400G-ib"), None, ""),
        ("seq=4k..20k", ("4000", "8000", "16000", "20000"), (4000, 8000, 16000, 20000), ""),
        ("batch=1..4Mtok", ("1000000tok", "2000000tok", "4000000tok"), (1e6, 2e6, 4e6), "tokens"),
        ("gpus=8,32", ("8", "32"), (8, 32), "GPUs"),
        ("price=$1..4/h", ("$1/h", "$2/h", "$4/h"), (1, 2, 4), "$/h"),
        ("power-cap=400..500W+50", ("400W", "450W", "500W"), (400, 450, 500), "W"),
        ("pue=1.1..1.25+0.1", ("1.1", "1.2", "1.25"), (1.1, 1.2, 1.25), ""),
        ("pf=0..2+1", ("0", "1", "2"), (0, 1, 2), ""),
        ("cluster.scale_out_bandwidth=50Gbit/s..0.1Tbit/s", ("50Gbit/s", "100Gbit/s"), (50, 100),
         "Gbit/s"),
        ("accelerator.peak_flops.bf16=1..2PFLOP/s", ("1PFLOP/s", "2PFLOP/s"), (1, 2), "PFLOP/s"),
        ("model.moe.experts=8..16", ("8", "16"), (8, 16), ""),
        ("ac=none,acfull,op", ("none", "full", "op"), None, ""),
        ("optimizer=adamw,lion", ("adamw", "lion"), None, ""),
    ],
)  # fmt: skip
def test_values_are_read(text, texts, numbers, unit):
    axis = parse_over(text).axis
    assert axis.texts == texts
    assert axis.numbers == (None if numbers is None else tuple(map(float, numbers)))
    assert axis.unit == unit


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("stack.gemm=nan", "--over stack.gemm=nan: `nan` is not a number", "for example 1.5"),
        ("sequence=1", "--over sequence: unknown quantity", "`seq`"),
        ("clustr.pue=1", "there is no `clustr` to change", "`cluster`"),
        ("cluster.puee=1", "--over cluster.puee: Cluster has no field `puee`", "`pue`"),
        ("network=25..800Gbits", "`25Gbits` is not a network of a node", "100GbE"),
        ("power-cap=1TB..2TB", "`1TB` is not a value in watts", "700W"),
        ("seq=4k..", "the range has no upper end", "A..B"),
        ("seq=8..4", "the range ends at or below its start", "4..8"),
        ("pf=0..4", "a range that doubles starts above 0", "0..8+1"),
        ("seq=1..1000+1", "more than 64 values", "larger step"),
        ("seq=8,8", "8 is given twice", "give it once"),
        ("seq", "not of the form NAME=VALUES", "for example network="),
        ("loss=full..fused", "is a range of words", "list them"),
        ("strategy=fsdp", "--over strategy: no quantity", "--strategy fsdp,hsdp64"),
        ("seq=4k,,8k", "a value is missing", "for example"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(text, message, hint):
    with pytest.raises(InputError) as refused:
        parse_over(text)
    assert message in str(refused.value)
    assert hint in (refused.value.hint or "")
    assert refused.value.exit_code == 2


def test_elasticity_is_of_logarithms_and_skips_what_cannot_run():
    cells = swept((point(100), point(150), None, point(300))).series[0].cells
    assert [cell.previous for cell in cells] == [None, 0, None, 1]
    assert cells[1].elasticity == pytest.approx(0.5849625)
    assert cells[1].per_doubling == pytest.approx(0.5)
    assert cells[3].elasticity == pytest.approx(0.5)
    assert cells[3].per_doubling == pytest.approx(0.4142136)


def test_throughput_of_all_gpus_counts():
    rates = (point(100, gpus=8), point(90, gpus=16), point(80, gpus=32))
    cells = swept(rates, numbers=(8.0, 16.0, 32.0)).series[0].cells
    assert cells[1].per_doubling == pytest.approx(0.8)
    assert cells[2].per_doubling == pytest.approx(7 / 9)


def test_knee_is_where_a_doubling_gains_below_half_of_the_largest_gain():
    sweep = swept((point(100), point(180), point(260), point(277)))
    (knee,) = sweep.knees(0.5)
    assert (knee.place, knee.previous) == (3, 2)
    assert knee.largest == pytest.approx(0.8)
    assert knee.per_doubling == pytest.approx(277 / 260 - 1)
    assert sweep.knees(0.05) == ()
    assert sweep.knees(0.9)[0].place == 2
    assert swept((point(100), point(101), point(101), point(101))).knees() == ()
    assert swept((point(100), point(80), point(60), point(50))).knees() == ()


def test_best_and_the_first_value_near_it():
    sweep = swept((point(100), point(190), point(196), point(200)))
    series = sweep.series[0]
    assert sweep.best(series).place == (3,)
    assert sweep.near(series).place == (1,)
    assert sweep.near(series, 0.97).place == (2,)


def test_the_metric_is_one_that_depends_on_the_quantity():
    costs = [point(100, usd_per_million_tokens=cost) for cost in (1.0, 2.0, 4.0, 8.0)]
    sweep = swept(costs)
    assert sweep.metric == "usd_per_million_tokens"
    assert sweep.best(sweep.series[0]).place == (0,)
    assert sweep.series[0].cells[1].per_doubling == pytest.approx(1.0)
    assert swept((point(100), point(200), point(300), point(400))).metric == THROUGHPUT


def test_crossovers_name_the_first_value_at_which_the_other_leads():
    first = [point(rate) for rate in (100, 110, 120, 130)]
    second = [point(rate) for rate in (90, 110, 125, 120)]
    found = swept(first, second).crossovers
    assert [(x.place, x.previous, x.winner, x.loser) for x in found] == [(2, 1, 1, 0), (3, 2, 0, 1)]
    assert found[0].gain == pytest.approx(125 / 120 - 1)
    assert 0.5 < found[0].chance < 1.0


def test_cause_is_the_term_that_changes_most_in_either_direction():
    slow = point(100, terms={"gemm": 0.5, "tensor_parallel": 0.5})
    fast = point(200, terms={"gemm": 0.95, "tensor_parallel": 0.05})
    down = swept((fast, slow), numbers=(1.0, 2.0)).series[0].cells[1].cause
    up = swept((slow, fast), numbers=(1.0, 2.0)).series[0].cells[1].cause
    assert (down.term, up.term) == ("tensor_parallel", "tensor_parallel")
    assert (down.loss, up.loss) == (pytest.approx(0.5), pytest.approx(-1.0))
    assert up.name == "exposed TP"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("network=100..400Gbit/s", [{"network": f"{n}Gbit/s"} for n in (100, 200, 400)]),
        ("seq=2048..8192", [{"seq": n} for n in (2048, 4096, 8192)]),
        ("batch=64..128", [{"batch": n} for n in (64, 128)]),
        ("gpus=32,128", [{"gpus": n} for n in (32, 128)]),
        ("node=4,8", [{"node": n} for n in (4, 8)]),
        ("pue=1.1..1.3+0.1", [{"pue": n} for n in (1.1, 1.2, 1.3)]),
        ("power-cap=400W,700W", [{"power_cap": "400W"}, {"power_cap": "700W"}]),
        ("price=1,2", [{"price": 1.0}, {"price": 2.0}]),
        ("precision=bf16,fp8", [{"precision": "bf16"}, {"precision": "fp8"}]),
        ("ga=1..4", [{"strategy": f"fsdp-mb1-ga{n}"} for n in (1, 2, 4)]),
        ("tp=1,2", [{"strategy": "fsdp-mb1"}, {"strategy": "fsdp-mb1-tp2"}]),
        ("ac=none,full", [{"strategy": "fsdp-mb1"}, {"strategy": "fsdp-mb1-acfull"}]),
        ("hsdp=8,32", [{"strategy": "hsdp8-mb1"}, {"strategy": "hsdp32-mb1"}]),
        ("cluster.pue=1.1,1.3", [{"sets": ("cluster.pue=1.1",)}, {"sets": ("cluster.pue=1.3",)}]),
        ("stack.contention=0.1,0.3",
         [{"sets": ("stack.contention=0.1",)}, {"sets": ("stack.contention=0.3",)}]),
    ],
)  # fmt: skip
def test_digits_are_those_of_an_estimate_of_the_same_words(text, words):
    cells = over(FSDP, [text]).sweep.series[0].cells
    assert len(cells) == len(words)
    for cell, changed in zip(cells, words, strict=True):
        e = resolve(msgspec.structs.replace(FSDP, **changed)).estimate()
        assert cell.point.strategy == str(e.strategy)
        assert cell.point.step_seconds == e.step_seconds
        assert cell.point.tokens_per_second == e.tokens_per_second
        assert cell.point.usd_per_million_tokens == e.usd_per_million_tokens
        assert cell.point.tokens_per_joule == e.tokens_per_joule
        assert cell.point.memory_bytes == e.memory_bytes
        assert cell.point.global_batch == e.workload.global_batch
        assert cell.point.terms == e.terms


def test_an_open_strategy_is_the_best_of_each_value():
    question = Question(gpus=64, batch=512)
    found = over(question, ["seq=2048,16384"])
    for cell in found.sweep.series[0].cells:
        texts = {"seq": found.sweep.axes[0].texts[cell.place[0]]}
        e = resolve(msgspec.structs.replace(question, **texts)).estimate()
        assert cell.point.strategy == str(e.strategy)
        assert cell.point.evaluated > 100
    assert found.sweep.series[0].label == "best"
    held = over(Question(gpus=8, batch=64), ["tp=2,4"]).sweep.series[0]
    assert all(f"-tp{n}" in cell.point.strategy for n, cell in zip((2, 4), held.cells, strict=True))


def test_network_rate_in_literal_numbers():
    cells = over(FSDP, ["network=100..400Gbit/s"]).sweep.series[0].cells
    rates = [cell.point.tokens_per_second_per_accelerator for cell in cells]
    assert rates == pytest.approx([922.348, 1823.91, 3567.42], rel=1e-5)
    assert [cell.elasticity for cell in cells[1:]] == pytest.approx([0.98366, 0.96785], rel=1e-4)
    assert cells[1].cause.name == "exposed reduce-scatter (network bandwidth)"


def test_two_quantities_are_a_map_in_rows_of_the_second():
    sweep = over(FSDP, ["seq=2048,4096", "tp=1,2,16"]).sweep
    series = sweep.series[0]
    assert [cell.place for cell in series.cells] == [
        (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2),
    ]  # fmt: skip
    assert [cell.place for cell in series.row(1)] == [(0, 1), (1, 1)]
    assert [cell.previous for cell in series.cells] == [None, 0, None, 0, None, 0]
    assert sweep.knees() == ()
    figure = over_figure(sweep)
    assert isinstance(figure, Figure)
    (panel,) = figure.panels
    assert panel.kind == "map"
    assert panel.frame == (4096, 1)
    assert [trace.name for trace in panel.traces] == ["1", "2", "16"]


def test_what_cannot_run_has_its_reason():
    question = msgspec.structs.replace(FSDP, strategy="fsdp", batch=512)
    cells = over(question, ["tp=8,64,128"]).sweep.series[0].cells
    assert cells[0].infeasible is None
    assert "heads" in cells[1].infeasible
    assert "128" in cells[2].infeasible
    assert cells[2].point is None
    full = over(question, ["mb=1,8"]).sweep.series[0].cells[1]
    assert full.infeasible.startswith("memory: needs")
    assert full.point.memory_bytes > 80e9


def test_several_strategies_are_several_series():
    sweep = over(
        msgspec.structs.replace(FSDP, strategy="fsdp-mb1,hsdp8-mb1"), ["network=50..200Gbit/s"]
    ).sweep
    assert [each.label for each in sweep.series] == ["fsdp-mb1", "hsdp8-mb1"]
    assert [sweep.name(each) for each in sweep.series] == ["fsdp-mb1", "hsdp8-mb1"]


@pytest.mark.parametrize(
    ("question", "texts", "message"),
    [
        (FSDP, ["seq=4k", "seq=8k"], "--over seq is given twice"),
        (FSDP, ["a=1", "b=2", "c=3"], "--over is given 3 times"),
        (Question(gpus=64), ["ga=1..4"], "--over ga: the strategy is open"),
        (Question(gpus="8..64"), ["seq=4k"], "--gpus 8..64: one value"),
        (FSDP, ["optimizer=adamw,adamm"], "--over optimizer=adamm: "),
        (FSDP, ["ac=none,foo"], "--over ac=foo: "),
        (FSDP, ["imbalance=0.5,2"], "--over imbalance=0.5: "),
        (Question(model="lama-2-7b"), ["seq=4k,8k"], "lama-2-7b"),
        (Question(strategy="ddp"), ["hsdp=8,16"], "has a data-parallel part of its own"),
        (FSDP, ["pue=1..3+0.05", "price=1..3+0.05"], "1,681 points"),
    ],
)
def test_wrong_usage_is_refused(question, texts, message, monkeypatch):
    monkeypatch.setattr("scalewise.ask.over.MAX_POINTS", 1000)
    with pytest.raises(InputError) as refused:
        over(question, texts)
    assert message in str(refused.value)


def test_verb_takes_objects_and_gives_frames():
    pytest.importorskip("polars")
    model = replace(sw.load_model("llama-2-7b"), layers=16)
    sweep = sw.scale(model, on="dgx-h100", gpus=8, strategy="fsdp", over="seq=1024,2048")
    named = sw.scale("llama-2-7b", on="dgx-h100", gpus=8, strategy="fsdp", over=["seq=1024,2048"])
    assert sweep.series[0].parameters < 0.6 * named.series[0].parameters
    frame = sweep.to_frame()
    assert frame.columns == list(COLUMNS)
    assert frame["value"].to_list() == ["1024", "2048"]
    assert repr(sweep).startswith("<Sweep: over sequence length 1,024-2,048. Best at ")
    with pytest.raises(InputError, match="ranges of gpus"):
        sw.scale(model, on="dgx-h100", gpus=8, over="seq=1024", weak=True)


def test_rows_have_both_quantities_and_reasons():
    rows = over_rows(over(FSDP, ["seq=2048,4096", "tp=1,128"]).sweep)
    assert [(row["over"], row["value"], row["over_2"], row["value_2"]) for row in rows] == [
        ("seq", "2048", "tp", "1"), ("seq", "4096", "tp", "1"),
        ("seq", "2048", "tp", "128"), ("seq", "4096", "tp", "128"),
    ]  # fmt: skip
    assert rows[0]["infeasible"] is None
    assert rows[2]["tokens_per_second"] is None
    assert rows[2]["infeasible"]


def test_a_task_answers_alone_and_tells_files_apart(tmp_path):
    answer = price_question(OverTask(question=FSDP))
    assert answer.point.strategy == "fsdp64-mb1"
    assert price_question(OverTask(question=Question(gpus=7, strategy="fsdp-tp2"))).point is None
    assert msgspec.json.decode(msgspec.json.encode(OverTask(question=FSDP)), type=OverTask)


def curve(*rows):
    """A scaling curve of (GPUs, days, chance to fit); None days for a size without a point."""
    points = [point(100, gpus=n, days=days, fit=fit) for n, days, fit in rows if days is not None]
    gaps = [InfeasibleSize(accelerators=n, reason="memory: full") for n, days, _ in rows
            if days is None]  # fmt: skip
    return Curve(
        label="best", model="m", cluster="c", seq_len=1, stack="s", precision="bf16",
        points=join(points), missing=tuple(gaps),
    )  # fmt: skip


def test_smallest_size_fits_and_meets_the_deadline():
    one = curve((8, None, None), (16, 90.0, 0.6), (32, 46.0, 0.95), (64, 24.0, 0.99))
    found = smallest(one, fit=0.9)
    assert (found.point.accelerators, found.before) == (32, 16)
    assert smallest(one).point.accelerators == 16
    found = smallest(one, days=30.0, fit=0.9)
    assert (found.point.accelerators, found.before) == (64, 32)
    late = smallest(one, days=20.0, fit=0.9)
    assert (late.point, late.last.accelerators) == (None, 64)


def test_sizes_are_added_with_a_step():
    assert parse_sizes("64..160+32,512") == (64, 96, 128, 160, 512)
    assert parse_sizes("64..100+32") == (64, 96)
    for text in ("64..128+", "64+32", "8..100000+1"):
        with pytest.raises(InputError):
            parse_sizes(text)
