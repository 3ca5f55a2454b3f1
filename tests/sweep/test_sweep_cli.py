"""The flags of sweeps, on a small command of our own."""

import sys
import time

import click
import pytest
from click.testing import CliRunner
from sweep_tasks import Number, Square, calls, refuse_three, square

from scalewise.cli import sweeping
from scalewise.cli.sweeping import Bar, jobs_of, sweep_options
from scalewise.errors import InputError
from scalewise.sweep.store import Store
from waiting import until


@click.command()
@click.argument("log")
@sweep_options
@click.option("--count", type=int, default=3)
def squares(log, *, count, runner):
    """Print squares in order."""
    tasks = [Number(x, log=log) for x in range(count)]
    for _, one in sorted(runner(tasks, square, Square), key=lambda pair: pair[0]):
        click.echo(one.y)


@pytest.fixture
def call(tmp_path):
    def invoke(*args):
        return CliRunner().invoke(squares, [str(tmp_path / "log"), *args])

    return invoke


def test_without_flags_it_just_computes(call, tmp_path):
    result = call()
    assert (result.exit_code, result.stdout, result.stderr) == (0, "0\n1\n4\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_jobs_and_store(call, tmp_path):
    path = tmp_path / "sweep.db"
    assert call("--jobs", "2", "--store", str(path)).stdout == "0\n1\n4\n"
    assert call("--jobs", "all", "--store", str(path), "--count", "4").stdout == "0\n1\n4\n9\n"
    assert sorted(calls(tmp_path / "log")) == [0, 1, 2, 3]
    with Store(path) as store:
        assert len(store) == 4


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["--jobs", "many"], "--jobs many must be a whole number or all",
         "--jobs 4, or --jobs all"),
        (["--jobs", "-2"], "--jobs -2 must be a whole number or all", "--jobs 4, or --jobs all"),
        (["--partition", "cpu"], "--partition cpu needs --slurm", "add --slurm"),
        (["--nodes", "3"], "--nodes 3 needs --slurm", "add --slurm"),
        (["--time", "2h"], "--time 2h needs --slurm", "add --slurm"),
        (["--slurm"], "--slurm needs --store",
         "add --store sweep.db"),
        (["--slurm", "--store", "x.db", "--jobs", "all"],
         "--jobs all: --slurm needs a number of cores per job",
         "--jobs 16"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(call, args, message, hint):
    error = call(*args).exception
    assert isinstance(error, InputError)
    assert (str(error), error.hint) == (message, hint)


def test_the_script_is_printed_and_nothing_computed(cluster, call, tmp_path):
    path = str(tmp_path / "sweep.db")
    result = call("--slurm-script", "--store", path, "--partition", "all", "--time", "30min")
    assert result.exit_code == 0
    assert "#SBATCH --partition=all\n" in result.stdout
    assert "#SBATCH --time=30\n" in result.stdout
    assert "#SBATCH --array=0-2%3\n" in result.stdout
    assert calls(tmp_path / "log") == []


def test_slurm_from_the_command_line(cluster, call, tmp_path, monkeypatch):
    result = call("--slurm", "--store", str(tmp_path / "sweep.db"), "--nodes", "1", "--jobs", "2")
    assert result.stdout == "0\n1\n4\n"
    assert sorted(calls(tmp_path / "log")) == [0, 1, 2]


def test_jobs_as_people_write_them():
    assert [jobs_of(text) for text in ("1", "16", "0", "all", "ALL")] == [1, 16, 0, 0, 0]


def test_failures_come_through(tmp_path):
    @click.command()
    @sweep_options
    def command(*, runner):
        list(runner([Number(3)], refuse_three, Square))

    result = CliRunner().invoke(command, [])
    assert "x = 3 is not allowed" in str(result.exception)


def test_progress_in_a_file_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(sweeping, "LINE_SECONDS", 0.0)
    with Bar(40) as bar:
        time.sleep(0.01)
        bar(12, 40)
    monkeypatch.setattr(sweeping, "LINE_SECONDS", 1000.0)
    with Bar(40) as bar:
        bar(13, 40)
        bar.say("a sentence")
    assert capsys.readouterr().err == "12 of 40 points\na sentence\n"


def test_on_a_terminal_a_bar_appears_before_the_first_result(monkeypatch, capsys):
    monkeypatch.setattr(sweeping, "PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with Bar(40) as bar:
        until(lambda: bar._progress is not None, "the bar")
        bar(12, 40)
        bar._progress.refresh()
        bar.say("a [sentence]")
    said = capsys.readouterr().err
    assert "0/40" in said
    assert "12/40" in said
    assert "a [sentence]" in said
