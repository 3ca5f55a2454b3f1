import json

import pytest

from scalewise.catalog import names
from scalewise.cli.pages import cut
from scalewise.fields import field_docs
from scalewise.stack import Stack


@pytest.mark.parametrize("kind", ["models", "accelerators", "clusters", "stacks"])
def test_lists_name_everything(run, kind):
    result = run(kind, COLUMNS="200")
    assert result.exit_code == 0
    listed = {line.split()[0] for line in result.stdout.splitlines()}
    assert set(names(kind)) <= listed
    data = json.loads(run(kind, "--json").stdout)
    assert {row["name"] for row in data} == set(names(kind))


@pytest.mark.parametrize("kind", ["models", "accelerators", "clusters", "stacks"])
@pytest.mark.parametrize("columns", [80, 120])
def test_lists_fit_the_width_and_cut_no_name(run, kind, columns):
    for line in run(kind, COLUMNS=str(columns)).stdout.splitlines():
        assert len(line) <= columns
        assert "\u2026" not in line


def test_a_word_filters(run):
    lines = run("models", "llama-2-").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "llama-2-1b", "llama-2-7b", "llama-2-13b", "llama-2-70b",
    ]  # fmt: skip


def test_a_model_in_detail(run):
    result = run("models", "llama-2-7b")
    assert result.stdout.startswith("llama-2-7b: 6,738,415,616 parameters\n")
    assert "mlp         4,328,521,728   64.2%" in result.stdout
    assert "causal    42.9 GFLOP" in result.stdout
    data = json.loads(run("models", "llama-2-7b", "--json").stdout)
    assert data["parameters"] == 6738415616
    assert sum(data["parameter_parts"].values()) == 6738415616
    assert data["training_flops_per_token"]["6n"] == 6 * 6738415616
    assert 3 * sum(data["forward_flops_per_token"].values()) == pytest.approx(
        data["training_flops_per_token"]["causal"]
    )


def test_an_alias_and_a_file_show_details(run, config):
    assert run("models", "llama2-7b").stdout.startswith("llama-2-7b: ")
    assert "6,738,415,616 parameters" in run("models", str(config)).stdout.splitlines()[0]


def test_a_mixture_of_experts_says_what_is_active(run):
    first = run("models", "deepseek-v3").stdout.splitlines()[0]
    assert "active" in first


def test_kinds_of_layers_in_detail(run):
    out = run("models", "deepseek-v3-mtp").stdout
    assert "dense layers            3, first\n" in out
    assert "multi-token prediction  1 layer, 11.6B parameters beside the model's\n" in out
    data = json.loads(run("models", "deepseek-v3-mtp", "--json").stdout)
    assert (data["parameters"], data["mtp_parameters"]) == (671_026_404_352, 11_610_067_968)
    assert "dense layers  24, alternating\n" in run("models", "llama-4-maverick").stdout
    assert "dense layers" not in run("models", "mixtral-8x7b").stdout


def test_an_accelerator_in_detail(run):
    out = run("accelerators", "h100").stdout
    assert out.startswith("h100-sxm-80gb: NVIDIA hopper, 2022-03\n")
    assert "bf16   989 TFLOP/s" in out
    assert "79.6 GiB at 3.35 TB/s" in out
    assert json.loads(run("accelerators", "h100", "--json").stdout)["calibrated"] is True
    rare = run("accelerators", "gaudi3").stdout
    assert "NOT calibrated" in rare
    assert json.loads(run("accelerators", "gaudi3", "--json").stdout)["calibrated"] is False


def test_a_cluster_in_detail(run):
    out = run("clusters", "dgx-h100").stdout
    assert "400 Gbit/s one way per GPU" in out
    assert "infiniband" in out
    assert "docs.nvidia.com/dgx-basepod" in out


def test_a_stack_in_detail_has_meanings(run):
    out = run("stacks", "megatron", COLUMNS="140").stdout
    assert "Slow-down of compute per second of overlapped communication." in out
    assert "Fitted on" in out
    data = json.loads(run("stacks", "megatron", "--json").stdout)
    assert data["constants"]["contention"]["value"] == data["contention"]
    assert data["constants"]["contention"]["meaning"].startswith("Slow-down of compute")


def test_every_constant_of_a_stack_has_a_meaning():
    assert set(field_docs(Stack)) == set(Stack.__struct_fields__)


def test_no_match_is_wrong_usage(run):
    result = run("models", "lama-9")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no model matches lama-9\nhint: ")


def test_a_broken_file_hides_nothing_else(run, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "mine.toml").write_text("layers = ")
    (folder / "tiny.toml").write_text(
        "layers = 2\nhidden = 64\nheads = 4\nffn = 256\nvocab = 1000\n"
    )
    result = run("models", SCALEWISE_CATALOG=str(tmp_path))
    assert result.exit_code == 0
    assert "llama-2-7b" in result.stdout
    assert "tiny" in result.stdout
    assert result.stderr.startswith("skipped mine: ")
    assert run("models", "mine", SCALEWISE_CATALOG=str(tmp_path)).exit_code == 2


def test_cut_shortens_to_one_line():
    assert cut("one  two\nthree", 20) == "one two three"
    assert cut("abcdefghij", 8) == "abcde..."


def test_a_word_that_is_no_name_is_reported(run):
    result = run("accelerators", "h10")
    assert "h100-sxm-80gb" in result.stdout
    assert result.stderr == "no accelerator named h10; showing names that contain it\n"
    assert run("accelerators", "h100").stderr == ""
    assert run("accelerators").stderr == ""


@pytest.mark.parametrize(
    ("framework", "stack"),
    [
        ("megatron-lm", "megatron-lm"),
        ("Megatron-Core", "megatron-lm"),
        ("Megatron-DeepSpeed", "megatron-deepspeed"),
        ("torchtitan", "pytorch"),
    ],
)
def test_a_framework_shows_its_stack(run, framework, stack):
    result = run("stacks", framework, "--json")
    assert (json.loads(result.stdout)["name"], result.stderr) == (stack, "")


def test_a_framework_with_several_stacks_lists_them(run):
    rows = json.loads(run("stacks", "maxtext", "--json").stdout)
    assert [row["name"] for row in rows] == ["maxtext-gpu", "maxtext-tpu"]
