"""Headers of batch scripts, and what sbatch is told; sbatch is a script of the test."""

import msgspec
import pytest

from scalewise.errors import InputError, ScalewiseError
from scalewise.slurm.script import check_positive, header, minutes, submit


def test_options_become_a_header():
    options = {"job_name": "x", "nodes": 2, "exclusive": True, "partition": None, "array": "0-3%2"}
    assert header(options, ["a note"]) == [
        "#!/bin/bash",
        "# a note",
        "#SBATCH --job-name=x",
        "#SBATCH --nodes=2",
        "#SBATCH --exclusive",
        "#SBATCH --array=0-3%2",
    ]


def test_time_limits_are_whole_minutes():
    assert [minutes(s) for s in (1.0, 60.0, 61.0, 3600.0)] == [1, 1, 2, 60]


def test_options_must_be_positive():
    class Options(msgspec.Struct):
        nodes: int
        cpus: int | None = None

    check_positive(Options(nodes=1), "nodes", "cpus")
    with pytest.raises(InputError, match="nodes = 0 must be positive"):
        check_positive(Options(nodes=0), "nodes", "cpus")


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """Let a script of ours be sbatch, and the only program there is."""

    def make(lines):
        file = tmp_path / "bin" / "sbatch"
        file.parent.mkdir()
        file.write_text(f"#!/bin/sh\n{lines}\n")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{file.parent}:/usr/bin:/bin")

    return make


@pytest.mark.parametrize(
    ("array", "logs"), [("", "%j"), ("#SBATCH --array=0-1%1\n", "%A_%a")], ids=["one", "array"]
)
def test_a_script_is_piped_to_sbatch(sbatch, tmp_path, array, logs):
    sbatch(f'echo "$@" > {tmp_path}/args; cat > {tmp_path}/script; echo "71;cluster"')
    text = f"#!/bin/bash\n{array}srun hostname\n"
    assert submit(text, tmp_path, what="sweep", hint="") == "71"
    assert (tmp_path / "script").read_text() == text
    assert (tmp_path / "args").read_text() == (
        f"--parsable --output={tmp_path}/{logs}.out --error={tmp_path}/{logs}.err\n"
    )


def test_a_refusal_is_one_sentence(sbatch, tmp_path):
    sbatch('echo "sbatch: error: one" >&2; echo "sbatch: error: no such partition" >&2; exit 1')
    with pytest.raises(ScalewiseError) as caught:
        submit("#!/bin/bash\n", tmp_path, what="sweep", hint="check --partition")
    assert str(caught.value) == "sbatch refused the sweep: sbatch: error: no such partition"
    assert caught.value.hint == "check --partition"
