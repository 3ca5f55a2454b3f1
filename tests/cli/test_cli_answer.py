"""Answers of commands: a file, JSON, CSV or a table, and only what is asked for."""

import click
import pytest
from click.testing import CliRunner

from scalewise.cli.answer import answer_options
from scalewise.errors import InputError


@click.command()
@click.argument("word")
@answer_options(csv="Print CSV.")
def command(word, *, answer):
    answer.give(
        file=lambda ending: f"{word} as {ending}\n".encode(),
        data=lambda: {"word": word},
        table=lambda console: console.print(f"table of {word}"),
    )


def run(*words):
    return CliRunner().invoke(command, list(words), standalone_mode=False)


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ((), "table of x\n"),
        (("--csv",), "x as .csv\n"),
        (("--json",), '{\n  "word": "x"\n}\n'),
    ],
)
def test_one_thing_is_printed(flags, printed):
    assert run("x", *flags).stdout == printed


def test_a_file_replaces_the_table_but_neither_json_nor_csv(tmp_path):
    path = tmp_path / "x.html"
    assert run("x", "-o", str(path)).stdout == ""
    assert path.read_text() == "x as .html\n"
    assert run("x", "-o", str(path), "--csv").stdout == "x as .csv\n"


@pytest.mark.parametrize(
    ("flags", "words"),
    [(("--json", "--csv"), "exclude each other"), (("-o", "x.pdf"), "unsupported file type .pdf")],
)
def test_what_is_asked_for_is_checked_first(flags, words):
    refused = run("x", *flags).exception
    assert isinstance(refused, InputError)
    assert words in str(refused)
