"""Wrong choices in the terminal."""

from rich.console import Console

from scalewise.evidence.choices import Choice, Layout, Suspect
from scalewise.evidence.sweeps import Sweep
from scalewise.report.validate_choices import blame, difference, print_choices, summary


def layout(strategy, measured, predicted):
    return Layout(strategy=strategy, measured=measured, predicted=predicted, inside=True, terms={})


def suspect(term, factor):
    return Suspect(term=term, factor=factor, picked="ddp4-tp2", regret=0.012)


def choice(*suspects, picked=1100.0):
    return Choice(
        source="me", model="toy", accelerators=8, layouts=9, regret=0.2, median_error=0.25,
        picked=layout("ddp8", 800.0, picked), best=layout("ddp4-tp2", 1000.0, 1000.0),
        differences={"tensor_parallel": -0.16, "head": 0.004, "dp_grad_reduce": 0.07},
        suspects=suspects,
    )  # fmt: skip


SWEEPS = [
    Sweep(source="me", model="toy", accelerators=size, count=9, rank_correlation=0.9,
          regret=regret, picked="ddp8", best="ddp4-tp2")
    for size, regret in ((8, 0.2), (16, 0.0), (512, 0.5))
]  # fmt: skip


def test_what_the_model_says_of_the_two():
    assert difference(choice()) == (
        "Predicted: picked is 10.0% faster: exposed TP -16.0%, exposed reduce-scatter +7.0% of the "
        "step."
    )
    assert "1.0% slower, a tie but simpler" in difference(choice(picked=990.0))


def test_who_is_to_blame():
    one = blame(choice(suspect("tensor_parallel", 0.5), suspect("head", 3.0)))
    assert one == (
        "Misled by exposed TP, too large: scaled by 0.50, it picks ddp4-tp2 with a regret of 1.2%. "
        "Less likely: LM head and loss x 3.00."
    )
    two = blame(choice(suspect("tensor_parallel", 0.5), suspect("head", 2.05)))
    assert ", or by LM head and loss, too small: scaled by 2.05" in two
    assert "Less likely" not in two


def test_nobody_is_to_blame():
    assert blame(choice()) == (
        "No single term misled it: the picked run took 1.4 times its predicted time, the median of "
        "the sweep 1.2 times."
    )


def test_the_summary():
    assert summary(SWEEPS, [choice()]) == (
        "Mean regret up to 256 GPUs: 10.0%. 1 of 3 sweeps have a regret above 5%."
    )
    assert summary(SWEEPS[2:], []) == "0 of 1 sweeps have a regret above 5%."


def test_the_page():
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    print_choices(SWEEPS, [choice(suspect("tensor_parallel", 0.5))], console)
    text = console.export_text()
    assert "toy x8 (me, 9 strategies): regret 20.0%" in text
    assert "picked         ddp8           800      1,100    +37.5" in text
    assert "Factors: 1/4 to 4." in text
    print_choices([], [], console)
    assert "No sweep of strategies" in console.export_text()
