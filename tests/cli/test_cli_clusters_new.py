"""`scalewise clusters new`: files of tools, a base with a changed line, and wrong usage."""

GPUS = """\
name, memory.total [MiB], power.limit [W], clocks.max.sm [MHz]
NVIDIA A100-SXM4-80GB, 81920 MiB, 400.00 W, 1410 MHz
NVIDIA A100-SXM4-80GB, 81920 MiB, 400.00 W, 1410 MHz
"""


def test_from_files(run, tmp_path):
    (tmp_path / "gpus.csv").write_text(GPUS)
    here = {"SCALEWISE_CATALOG": str(tmp_path / "own")}
    done = run("clusters", "new", "my-pod", "--from", str(tmp_path / "gpus.csv"), **here)
    assert done.exit_code == 0, done.stderr
    assert 'accelerator = "a100-sxm-80gb"' in done.stdout
    assert "Not seen: NVLink domain" in done.stdout
    assert run("clusters", "my-pod", **here).stdout.startswith("my-pod: 2 x a100-sxm-80gb")
    again = run("clusters", "new", "my-pod", "--from", str(tmp_path / "gpus.csv"), **here)
    assert again.exit_code == 2
    assert "add --replace" in again.stderr


def test_a_base_with_a_changed_line(run, tmp_path):
    here = {"SCALEWISE_CATALOG": str(tmp_path)}
    done = run("clusters", "new", "slow-pod", "--base", "dgx-h100", "--set",
               "scale_out_bandwidth=200Gbit/s", **here)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    shown = run("clusters", "slow-pod", **here).stdout
    assert "200 Gbit/s one way per GPU" in shown
    assert "450 GB/s one way per GPU" in shown
    bad = run("clusters", "new", "bad", "--base", "dgx-h100", "--set", "scale_out_bandwidth=fast",
              **here)  # fmt: skip
    assert bad.exit_code == 2
    assert not (tmp_path / "clusters" / "bad.toml").exists()


def test_wrong_usage(run, tmp_path):
    result = run("clusters", "new", "x", "--base", "dgx-h1000", "--set", "pue=1.2")
    assert result.exit_code == 2
    assert "unknown cluster dgx-h1000" in result.stderr
    result = run("clusters", "new", "x", "--base", "dgx-h100", "--set", "pu=1.2")
    assert "unknown field pu" in result.stderr
    assert run("clusters", "new", "--help").stdout.startswith("Usage: scalewise clusters new")


def test_tools_of_this_machine(run, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "gpus.csv").write_text(GPUS)
    script = tools / "nvidia-smi"
    script.write_text(
        f'#!/bin/sh\ncase "$1" in --query*) cat {tools}/gpus.csv;; *) exit 3;; esac\n'
    )
    script.chmod(0o755)
    here = {"SCALEWISE_CATALOG": str(tmp_path), "PATH": f"{tools}:/bin:/usr/bin"}
    done = run("clusters", "new", "here", "--base", "dgx-a100", **here)
    assert done.exit_code == 0, done.stderr
    assert "not run: nvidia-smi topo -m: no output" in done.stderr
    assert 'accelerator = "a100-sxm-80gb"   (nvidia-smi --query-gpu=' in done.stdout
