from scalewise.ask.defaults import Default
from scalewise.cli.common import drawn
from scalewise.report.terminal import print_defaults, print_title, put, say, table


def text_of(draw, columns="80", monkeypatch=None):
    if monkeypatch is not None:
        monkeypatch.setenv("COLUMNS", columns)
    return drawn(draw).splitlines()


def test_labels_have_hanging_lines(monkeypatch):
    lines = text_of(lambda out: say(out, "Cause", "word " * 20), "60", monkeypatch)
    assert lines[0].startswith("Cause: word word")
    assert lines[1].startswith("       word")
    assert max(map(len, lines)) <= 60


def test_lines_never_break_inside_a_strategy(monkeypatch):
    name = "zero1x16-tp4-cp2-pp8-v12-mb3-acsel"
    lines = text_of(lambda out: put(out, f"{'x' * 70} {name}"), "80", monkeypatch)
    assert lines == ["x" * 70, name]


def test_changes_stand_in_the_first_line_or_the_second(monkeypatch):
    changes = ("--power-cap 500W", "cluster.pue = 1.3 (was 1.15)")
    short = text_of(lambda out: print_title(out, "model | cluster", changes), "100", monkeypatch)
    assert short == ["model | cluster | --power-cap 500W, cluster.pue = 1.3 (was 1.15)"]
    long = text_of(lambda out: print_title(out, "m" * 60, changes), "80", monkeypatch)
    assert long == ["m" * 60, "  with --power-cap 500W, cluster.pue = 1.3 (was 1.15)"]


def test_defaults_have_flag_value_and_reason(monkeypatch):
    found = (
        Default(flag="--seq", value="4096", why="usual for pre-training"),
        Default(flag="--batch", value="1024", why="4.19M tokens per step"),
    )
    assert text_of(lambda out: print_defaults(out, found), "50", monkeypatch) == [
        "Defaults: --seq 4096 (usual for pre-training),",
        "          --batch 1024 (4.19M tokens per step)",
    ]
    assert text_of(lambda out: print_defaults(out, ())) == []


def test_narrow_tables_drop_spare_columns(monkeypatch):
    heads, rows = ("name", "first", "second", "empty"), [("a", "1", "2" * 9, ""), ("... (3 more)",)]

    def draw(out):
        table(out, heads, rows, spare=("first",))

    assert text_of(draw, "80", monkeypatch) == [
        "  name  first     second", "  a         1  222222222", "  ... (3 more)",
    ]  # fmt: skip
    assert text_of(draw, "20", monkeypatch) == [
        "  name     second", "  a     222222222", "  ... (3 more)",
    ]  # fmt: skip
