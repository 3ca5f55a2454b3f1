"""Options of the benchmarks: `--help` works, and no benchmark reads an option that it lacks."""

import argparse
import ast
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if "parse_args" in path.read_text())
PARSES = ".parse_args"


def options_read(source: str) -> set[str]:
    """The attributes that a script reads of what `parse_args` returned."""
    tree = ast.parse(source)
    names = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(PARSES + "()")
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            (isinstance(node.value, ast.Name) and node.value.id in names)
            or (isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith(PARSES))
        )
    }


def test_options_that_do_not_exist_are_found():
    source = "given = parser.parse_args()\nprint(given.steps, given.seq_len, other.thing)\n"
    assert options_read(source) == {"steps", "seq_len"}
    assert options_read("print(parser.parse_args().named)") == {"named"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_benchmarks_read_only_options_that_they_have(script, monkeypatch, capsys):
    parsers = []
    parse = argparse.ArgumentParser.parse_args

    def watched(self, *args, **kwargs):
        parsers.append(self)
        return parse(self, *args, **kwargs)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", watched)
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(str(FOLDER))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out
    (parser,) = parsers
    known = {action.dest for action in parser._actions}
    read = options_read(script.read_text())
    assert read, "no option is read: the name of the parsed options is not recognized"
    assert read <= known
