"""How wrong choices read."""

from rich.console import Console

from scalewise.evidence.choices import Choice, Layout, Suspect
from scalewise.evidence.validate import Sweep
from scalewise.report.choices import blame, difference, print_choices, summary


def layout(strategy, measured, predicted):
    return Layout(strategy=strategy, measured=measured, predicted=predicted, inside=True, terms={})


def suspect(term, factor):
    return Suspect(term=term, factor=factor, picked="ddp4-tp2", regret=0.012)


def choice(*suspects, picked=1100.0):
    return Choice(
        source="me", model="toy", accelerators=8, layouts=9, regret=0.2, median_error=0.25,
        picked=layout("ddp8", 800.0, picked), best=layout("ddp4-tp2", 1000.0, 1000.0),
        differences={"tensor_parallel": -0.16, "head": 0.004, "data_parallel_reduce": 0.07},
        suspects=suspects,
    )  # fmt: skip


SWEEPS = [
    Sweep(source="me", model="toy", accelerators=size, count=9, rank_correlation=0.9,
          regret=regret, picked="ddp8", best="ddp4-tp2")
    for size, regret in ((8, 0.2), (16, 0.0), (512, 0.5))
]  # fmt: skip


def test_what_the_model_says_of_the_two():
    assert difference(choice()) == (
        "Predicted, the picked one is 10.0 % ahead: exposed tensor parallel -16.0 %, "
        "exposed gradient reduction +7.0 % of the step."
    )
    assert "1.0 % behind, a near-tie that is simpler" in difference(choice(picked=990.0))


def test_who_is_to_blame():
    one = blame(choice(suspect("tensor_parallel", 0.5), suspect("head", 3.0)))
    assert one == (
        "Misled by exposed tensor parallel, too large: times 0.50 it picks ddp4-tp2, which loses "
        "1.2 %. Less likely: output head and loss times 3.00."
    )
    two = blame(choice(suspect("tensor_parallel", 0.5), suspect("head", 2.05)))
    assert ", or by output head and loss, too small: times 2.05" in two
    assert "Less likely" not in two


def test_nobody_is_to_blame():
    assert blame(choice()) == (
        "No single term misled it: the picked run took 1.4 times its predicted time, the median of "
        "the sweep 1.2 times."
    )


def test_the_summary():
    assert summary(SWEEPS, [choice()]) == (
        "Up to 256 accelerators the picked layout loses 10.0 % on average. 1 of 3 sweeps lose more "
        "than 5 %:"
    )
    assert summary(SWEEPS[2:], []) == "0 of 1 sweeps lose more than 5 %."


def test_the_page():
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    print_choices(SWEEPS, [choice(suspect("tensor_parallel", 0.5))], console)
    text = console.export_text()
    assert "toy x8 (me, 9 layouts): loses 20.0 %" in text
    assert "picked         ddp8           800      1,100  +37.5 %" in text
    assert "smallest factor. Tried: 1/4 to 4." in text
    print_choices([], [], console)
    assert "No sweep of layouts" in console.export_text()
