"""Modules of the web UI that need no browser, run in Node."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from scalewise.ask.names import score
from scalewise.ui.catalog import tables
from scalewise.ui.page import STATIC, STYLES
from waiting import PATIENCE, path_of

ROOT = Path(__file__).resolve().parents[2]


def evaluate(module, expression):
    """Value of a JavaScript expression in which `m` is a module of the web UI."""
    first = json.dumps(json.dumps({"tables": tables()}))
    script = f"""
        globalThis.document = {{ getElementById: () => ({{ textContent: {first} }}) }};
        const m = await import({json.dumps((STATIC / module).as_uri())});
        console.log(JSON.stringify({expression}));
    """
    command = [path_of("node"), "--input-type=module", "--eval", script]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


FORMATS = {
    "m.seconds(0.8637)": "864 ms",
    "m.seconds(0.0012)": "1.20 ms",
    "m.seconds(0.99999)": "1.00 s",
    "m.seconds(45000)": "12.5 h",
    "m.days(2.5)": "2.50 days",
    "m.percent(0.411)": "41.1%",
    "m.percent(null)": "\u2013",
    "m.signed(0.18, 0)": "+18%",
    "m.signed(-0.0354)": "\u22123.5%",
    "m.signed(-0.0001)": "0.0%",
    "m.grouped(9487.2)": "9,490",
    "m.grouped(196.04)": "196",
    "m.short(19.44e6)": "19.4M",
    "m.short(2048)": "2,048",
    "m.amount(300e9)": "300B",
    "m.trimmed(3)": "3",
    "m.gib(40.7e9)": "37.9 GiB",
    "m.dollars(0.08644)": "$0.0864",
    "m.dollars(6042.4)": "$6,042",
    "m.dollars(1.234e7)": "$12.3M",
    "m.energy(3.6e9)": "1.00 MWh",
    "m.watts(624)": "624 W",
    "m.range(m.gib, 34.1e9, 46.7e9)": "31.8\u201343.5 GiB",
    "m.seconds(0)": "0 s",
    "m.joules(0.1311)": "131 mJ",
    "m.range(m.seconds, 0.92, 2.4)": "0.920\u20132.40 s",
    "m.range(m.days, 1.68, 3.83)": "1.68\u20133.83 days",
    "m.range(m.percent, 0.4, 0.5)": "40.0%\u201350.0%",
    "m.read('1,024')": 1024,
    "m.read('300B')": 300e9,
    "m.read('4k')": 4000,
}


def test_numbers_are_formatted_as_on_the_command_line():
    assert evaluate("format.js", f"[{', '.join(FORMATS)}]") == list(FORMATS.values())


@pytest.mark.parametrize("typed", ["llama 2 7b", "l2-7b", "gpt3", "dgx", "LLAMA-2", "qwen 72b"])
def test_names_are_scored_as_on_the_server(typed):
    names = ["llama-2-7b", "llama-2-70b", "gpt3-175b", "dgx-h100", "qwen2-72b"]
    found = evaluate("names.js", f"{json.dumps(names)}.map((n) => m.score({typed!r}, n))")
    # The web UI also lists names that contain the text, with a low score.
    assert [0 if each == 5 else each for each in found] == [score(typed, name) for name in names]


def test_letters_of_a_formula_are_replaced_by_their_values():
    letters = [{"name": "n", "value": "4"}, {"name": "Gf", "value": "2.52 ms"}]
    formulas = {"n * (Gf + 1e6)": "4 \u00d7 (2.52 ms + 1e6)", "max(n, Gf)": "max(4, 2.52 ms)"}
    # One letter is its own value, and a name without a value is no formula.
    formulas |= {"n": None, "n * L": None}
    for formula, expected in formulas.items():
        example = json.dumps({"formula": formula, "letters": letters})
        assert evaluate("explain.js", f"m.substituted({example})") == expected


POINTS = json.dumps(
    [
        {"accelerators": 8, "days": 8.0, "usd": 100.0, "infeasible": None},
        {"accelerators": 16, "days": 5.0, "usd": 120.0, "infeasible": None},
        {"accelerators": 32, "days": 3.0, "usd": 160.0, "infeasible": None},
        {"accelerators": 64, "days": 0.0, "usd": 0.0, "infeasible": "memory"},
    ]
)


@pytest.mark.parametrize(
    ("limits", "fine", "why"),
    [
        ({"deadline": 5, "budget": None}, [16, 32], None),
        ({"deadline": 5, "budget": 130}, [16], None),
        ({"deadline": 1, "budget": None}, [], "the fastest, 32, takes 3.00 days"),
        ({"deadline": None, "budget": 50}, [], "the cheapest, 8, costs $100.00"),
        (
            {"deadline": 4, "budget": 110},
            [],
            "the deadline needs at least 32 ($160.00); the budget allows up to 8 (8.00 days)",
        ),
    ],
)
def test_sizes_that_meet_deadline_and_budget(limits, fine, why):
    found = evaluate("limits.js", f"m.meets({POINTS}, {json.dumps(limits)})")
    assert (found["fine"], found.get("why")) == (fine, why)


def test_every_style_sheet_is_part_of_the_page():
    assert sorted(STYLES) == sorted(path.stem for path in STATIC.glob("*.css"))


def test_scripts_stay_small():
    assert sum(len(gzip.compress(f.read_bytes())) for f in STATIC.glob("*.js")) < 100_000
