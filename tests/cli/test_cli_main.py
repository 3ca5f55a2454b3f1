import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from fuzz_inputs import SEEDS

from scalewise.cli import main
from scalewise.errors import InputError, ScalewiseError

HEAVY = ("numpy", "rich", "msgspec", "plotly", "scipy", "polars", "torch")


def script(*args, **options):
    command = [sys.executable, "-m", "scalewise", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom scalewise.cli.main import main\nsys.argv = ['scalewise', '--help']\n"
        "try:\n    main()\nexcept SystemExit as e:\n    code = e.code\n"
        f"print(code, [m for m in {HEAVY} if m in sys.modules], file=sys.stderr)\n"
        "print([m for m in sys.modules if m.startswith('scalewise.cli.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stderr.strip().splitlines()
    assert first == "0 []"
    assert second == "['scalewise.cli.lazy', 'scalewise.cli.main']"
    for name in main.COMMANDS:
        assert f"\n  {name} " in done.stdout


def test_commands_are_the_promised_ones():
    assert list(main.COMMANDS) == [
        "estimate", "scale", "search", "plan", "sensitivity", "diagnose", "timeline", "program",
        "export", "study", "models", "accelerators", "clusters", "stacks", "validate", "calibrate",
        "compare", "remember", "trace", "measure", "ui", "doctor",
    ]  # fmt: skip


@pytest.mark.parametrize("name", main.COMMANDS)
def test_short_help_of_a_command_is_the_listed_one(name):
    command = main.cli.get_command(click.Context(main.cli), name)
    assert command.name == name
    assert command.short_help == main.COMMANDS[name].help


def commands(group, path="scalewise"):
    """Yield every command below a group, with its path."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


@pytest.mark.parametrize(("path", "command"), list(commands(main.cli)))
def test_every_option_has_help(path, command):
    for option in command.params:
        if isinstance(option, click.Option):
            text = option.help or ""
            assert text[:1].isupper() or text.startswith("."), (path, option.name)
            assert text.endswith((".", "]", ")")), (path, option.name)


def test_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, "scalewise 0.1.0\n")


def test_unknown_command_is_wrong_usage_with_a_hint(run):
    result = run("estimat")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == ("error: unknown command estimat\nhint: did you mean `estimate`?\n")


def test_unknown_option_is_wrong_usage(run):
    result = run("estimate", "llama-2-7b", "--onn", "dgx-h100")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no such option '--onn'")
    assert "hint: scalewise estimate --help\n" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ScalewiseError("it broke", hint="mend it"), 1, "error: it broke\nhint: mend it\n"),
        (InputError("wrong"), 2, "error: wrong\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (click.Abort(), 130, "interrupted\n"),
        (OSError(28, "No space left on device", "x.json"), 1,
         "error: x.json: No space left on device\n"),
        (PermissionError(13, "Permission denied", "x"), 1, "error: x: Permission denied\n"),
        (BrokenPipeError(), 141, ""),
    ],
)  # fmt: skip
def test_failures_are_sentences_and_codes(error, code, said, capsys):
    def fail():
        raise error

    assert main._guarded(fail) == code
    captured = capsys.readouterr()
    assert captured.err == said
    assert captured.out == ""


def test_a_bug_is_not_hidden():
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        main._guarded(fail)
    assert "scalewise doctor" in caught.value.__notes__[0]


def test_a_closed_pipe_is_quiet():
    command = f"{sys.executable} -m scalewise models | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "scalewise", "models", "gpt2"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


def test_python_m_is_the_same_program():
    done = script("--version")
    assert (done.returncode, done.stdout) == (0, "scalewise 0.1.0\n")


def test_what_is_no_unicode_is_one_sentence_and_is_written_out():
    found = script("study", "show", "no\udcff")
    assert (found.returncode, found.stderr.count("\n")) == (2, 2)
    found = script("study", "run", "what-to-buy", "--slurm-script", "--partition", "a\udcff")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("error: --partition")
    found = script("models", "no\udcff", env={**os.environ, "PYTHONUTF8": "1"})
    assert found.returncode == 2
    assert "Traceback" not in found.stderr


def test_an_option_without_its_value_is_a_sentence_with_a_hint():
    found = script("diagnose", "--measured")
    assert found.returncode == 2
    assert found.stderr == (
        "error: option '--measured' requires an argument\nhint: scalewise --help\n"
    )


PRICED = ("llama-2-7b", "--on", "dgx-h100", "--gpus", "8")


@pytest.mark.parametrize(
    "args",
    [
        ("estimate", *PRICED), ("estimate", *PRICED, "--strategy", "best-tp2"),
        ("scale", *PRICED), ("scale", *PRICED, "--over", "seq=1k,2k"),
        ("scale", *PRICED, "--store", "points.db"), ("search", *PRICED), ("plan", *PRICED),
        ("sensitivity", *PRICED), ("sensitivity", *PRICED, "--reoptimize"), ("timeline", *PRICED),
        ("diagnose", *PRICED, "--measured", "864 ms"), ("export", *PRICED, "--to", "megatron"),
        ("study", "run", "what-to-buy", "--quick"), ("validate",), ("validate", "runs.csv"),
        ("remember", "mine", "--from", "runs.csv"), ("calibrate", "mine", "--from", "runs.csv"),
        ("plan", "--queue", "queue.toml"),
        ("program", "--on", "h100", "--from", "capture.json", "--model", "tiny.json"),
    ],
)  # fmt: skip
def test_what_is_interrupted_ends_with_130(args, tmp_path, monkeypatch, capfd):
    def stop(*_):
        raise KeyboardInterrupt

    for name in ("tables/runs.csv", "queue.toml", "capture.json", "tiny.json"):
        (tmp_path / Path(name).name).write_bytes((SEEDS / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    # Every price of a step passes here.
    monkeypatch.setattr("scalewise.step.estimate.compose", stop)
    monkeypatch.setattr("scalewise.step.estimate.lay_out", stop)
    with pytest.raises(SystemExit) as ended:
        main.cli.main(list(args))
    said = capfd.readouterr().err
    assert (ended.value.code, "Traceback" in said) == (130, False), said
