from dataclasses import replace

from scalewise.cli.common import drawn
from scalewise.report.tables import print_breakdown, print_estimate


def text_of(e, **options):
    return drawn(lambda out: print_estimate(e, out, **options))


def test_terms_are_shown_with_share_and_bar_and_add_up(literal):
    text = drawn(lambda out: print_breakdown(literal, out))
    assert text.split("\n\n")[0].splitlines() == [
        "Where the step goes",
        "  matrix products                  500.0 ms   50.0 %  " + "\u2588" * 12,
        "  attention                        100.0 ms   10.0 %  " + "\u2588" * 2 + "\u258d",
        "  contention with communication    250.0 ms   25.0 %  " + "\u2588" * 6,
        "  stragglers                       150.0 ms   15.0 %  " + "\u2588" * 3 + "\u258b",
        "  step                           1,000.0 ms  100.0 %",
    ]


def test_communication_and_memory(literal):
    _, communication, memory = drawn(lambda out: print_breakdown(literal, out)).split("\n\n")
    assert communication.splitlines()[1:] == [
        "                     load  exposed  of the step",
        "  data parallel  800.0 ms  20.0 ms        2.0 %",
    ]
    assert memory.splitlines()[1:] == [
        "  logits       10.0 GiB   25.0 %  " + "\u2588" * 6,
        "  activations  30.0 GiB   75.0 %  " + "\u2588" * 18,
        "  peak         40.0 GiB  100.0 %",
    ]


def test_ascii_terminals_get_ascii(literal):
    text = drawn(lambda out: print_breakdown(literal, out), encoding="ascii")
    assert text.isascii()
    assert "############" in text


def test_nothing_to_say_is_not_said(literal):
    alone = replace(literal, load=dict.fromkeys(literal.load, 0.0), warnings=(), defaults=())
    text = text_of(alone)
    for heading in ("Communication", "Warnings", "Chosen for you", "Changed with --set"):
        assert heading not in text


def test_what_was_chosen_is_listed(literal):
    e = replace(literal, defaults=("software stack x",), warnings=("beware",))
    text = text_of(e, chosen=("a (--b)",), changed=("c = d",), notes=("odd",))
    assert "Chosen for you\n  a (--b)\n  software stack x\n" in text
    assert "Changed with --set\n  c = d\n" in text
    assert "Warnings\n  odd\n  beware\n" in text


def test_infeasible_is_said_before_anything_else(literal):
    e = replace(literal, infeasible="memory: needs 91.2 GiB of 80.0 GiB")
    assert text_of(e).splitlines()[1] == "Does not fit. memory: needs 91.2 GiB of 80.0 GiB"
