"""What logs, scripts and configuration files of frameworks say, as words of a question.

`data/frameworks/megatron-0.19.2.log` is the block that the parser of megatron-core 0.19.2 prints
after its own `validate_args`.
"""

import json
from pathlib import Path

import pytest

from scalewise.ask.question import Question
from scalewise.ask.resolve import resolve
from scalewise.errors import InputError
from scalewise.frameworks import read
from scalewise.frameworks.yaml import parse_yaml, write_yaml

DATA = Path(__file__).parent.parent / "data" / "frameworks"
BLOCK = (DATA / "megatron-0.19.2.log").read_text()

SCRIPT = r"""#!/bin/bash
#SBATCH --nodes=16
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NNODES:-16}
CHECKPOINT_PATH=$1 # a path
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96   # 128 wide
    --seq-length 2048
    --max-position-embeddings 2048
    --vocab-size 50257
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size $((12 * 128)) --bf16 --lr 6.0e-5)
MODEL_PARALLEL_ARGS=(
	--tensor-model-parallel-size 8
	--sequence-parallel
	--pipeline-model-parallel-size 16
	--use-distributed-optimizer
	--overlap-grad-reduce
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${MODEL_PARALLEL_ARGS[@]} --save $CHECKPOINT_PATH
"""

ACCELERATE = """compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_activation_checkpointing: true
  fsdp_sharding_strategy: HYBRID_SHARD
  fsdp_offload_params: false
mixed_precision: bf16
num_machines: 4
num_processes: 32
tpu_env: []
"""

TITAN_TOML = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
global_batch_size = 512
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 64
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
"""


def words(text, name=""):
    return read(text, name).words


def test_arguments_of_a_megatron_log():
    assert words(BLOCK) == {
        "model": "llama-3-8b",
        "stack": "megatron-lm",
        "gpus": "512",
        "strategy": "zero1x64-tp2-pp4-v2-mb2-acfull",
        "seq": "8192",
        "batch": "1024",
        "precision": "bf16",
        "optimizer": "adamw",
    }
    assert read(BLOCK).notes == ()


@pytest.mark.parametrize(
    ("name", "value", "strategy"),
    [
        ("recompute_granularity", "None", "zero1x64-tp2-pp4-v2-mb2"),
        ("use_distributed_optimizer", "False", "ddp64-tp2-pp4-v2-mb2-acfull"),
        ("sequence_parallel", "False", "zero1x64-tp2-nosp-pp4-v2-mb2-acfull"),
        ("context_parallel_size", "2", "zero1x32-tp2-cp2-pp4-v2-mb2-acfull"),
        ("num_distributed_optimizer_instances", "4", "zero1x4x16-tp2-pp4-v2-mb2-acfull"),
        ("tp_comm_overlap", "False", "zero1x64-tp2-pp4-v2-mb2-acfull-notpoverlap"),
        ("overlap_grad_reduce", "False", "zero1x64-tp2-pp4-v2-mb2-acfull-nodpoverlap"),
        ("grad_reduce_in_bf16", "True", "zero1x64-tp2-pp4-v2-mb2-acfull-reducebf16"),
    ],
)
def test_one_argument_changes_one_token(name, value, strategy):
    assert name in BLOCK
    lines = [
        f"  {name} ...... {value}" if line.split(" ")[2:3] == [name] else line
        for line in BLOCK.splitlines()
    ]
    assert words("\n".join(lines))["strategy"] == strategy


def test_lines_of_a_log_may_carry_the_rank():
    assert words("\n".join(f"0: {line}" for line in BLOCK.splitlines())) == words(BLOCK)


def test_launch_script_with_arrays_variables_and_products():
    found = read(SCRIPT, "train.sh")
    assert found.words == {
        "model": "gpt3-175b",
        "stack": "megatron-lm",
        "gpus": "128",
        "strategy": "zero1x1-tp8-pp16-mb1-notpoverlap",
        "seq": "2048",
        "batch": "1536",
        "precision": "bf16",
        "optimizer": "adamw",
    }


def test_unresolved_variable_of_a_flag_that_counts_is_refused():
    script = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size $TP"
    with pytest.raises(InputError, match=r"--tensor-model-parallel-size \$TP") as caught:
        read(script)
    assert caught.value.hint is not None
    # A path is of no account.
    assert (
        read(script.replace("$TP", "2") + " --save $DIR").words["strategy"].startswith("ddp4-tp2")
    )


def test_without_a_number_of_gpus_the_size_is_open():
    found = read(
        "python pretrain_gpt.py --tensor-model-parallel-size 2 --use-distributed-optimizer "
        "--micro-batch-size 2 --bf16"
    )
    assert found.words["strategy"] == "zero1-tp2-nosp-mb2-nodpoverlap-notpoverlap"
    assert "gpus" not in found.words
    assert found.notes[0] == "the number of GPUs is not in it: give --gpus"


def test_torchtitan_toml_json_log_and_command():
    expected = {
        "model": "llama-3-8b", "stack": "torchtitan", "gpus": "256",
        "strategy": "hsdp2x64-tp2-mb2-ac1of2-notpoverlap", "seq": "8192", "batch": "512",
        "precision": "bf16", "optimizer": "adamw",
    }  # fmt: skip
    assert words(TITAN_TOML, "job.toml") == expected
    table = {
        "model": {"name": "llama3", "flavor": "8B"},
        "training": {"local_batch_size": 2, "global_batch_size": 512, "seq_len": 8192},
        "parallelism": {
            "data_parallel_replicate_degree": 2,
            "data_parallel_shard_degree": 64,
            "tensor_parallel_degree": 2,
        },
        "activation_checkpoint": {"mode": "selective", "selective_ac_option": "2"},
    }
    assert words(json.dumps(table)) == expected
    log = (
        f"[rank0]:[titan] - root - INFO - Running with args: {json.dumps(table, indent=2)}\nstep: 1"
    )
    assert words(log) == expected


def test_torchtitan_3_tells_recompute_by_the_fields_of_its_class():
    table = {
        "model_spec": {"name": "llama3", "flavor": "70B"},
        "training": {"local_batch_size": 8, "global_batch_size": 1024, "seq_len": 8192},
        "parallelism": {"data_parallel_shard_degree": 32, "tensor_parallel_degree": 8},
        "activation_checkpoint": {"preserve_rng_state": True, "debug": False},
        "compile": {"enable": True, "enable_async_tensor_parallel": True},
    }
    text = json.dumps(table)
    assert words(text)["strategy"] == "fsdp32-tp8-mb8-acfull-compiled"
    table["activation_checkpoint"]["force_recompute_mm_shapes_by_fqns"] = []
    assert words(json.dumps(table))["strategy"] == "fsdp32-tp8-mb8-acop-compiled"
    table["activation_checkpoint"] = None
    assert words(json.dumps(table))["strategy"] == "fsdp32-tp8-mb8-compiled"


def test_torchtitan_command():
    found = read(
        "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b "
        "--parallelism.tensor_parallel_degree=2 --training.local_batch_size 2 --compile.enable "
        "activation-checkpoint:full"
    )
    assert found.words["strategy"] == "fsdp4-tp2-mb2-acfull-compiled-notpoverlap"
    assert found.words["gpus"] == "8"
    assert found.notes == (
        "training.seq_len is the registry function's: give --seq",
        "parallelism.pipeline_parallel_degree, parallelism.context_parallel_degree: the registry "
        "function may have a degree above 1",
    )


def test_deepspeed_json():
    text = json.dumps({
        "train_batch_size": 4096, "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8,
                              "offload_optimizer": {"device": "cpu"}},
    })  # fmt: skip
    assert words(text, "ds_config.json") == {
        "stack": "deepspeed", "gpus": "2048", "strategy": "fsdp2048-mb2-offopt-hpz8",
        "batch": "4096", "precision": "bf16",
    }  # fmt: skip


def test_auto_of_deepspeed_is_asked_for():
    found = read('{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", '
                 '"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}')  # fmt: skip
    assert found.words == {"stack": "deepspeed", "strategy": "fsdp"}
    assert 'train_batch_size is "auto": give --batch' in found.notes
    assert 'bf16.enabled is "auto": give --precision' in found.notes
    assert "the number of GPUs is not in it: give --gpus" in found.notes


def test_yaml_reads_what_it_writes():
    value = {"a": {}, "b": [], "c": {"d": "no", "e": {}}, "f": "x: y"}
    assert parse_yaml(write_yaml(value), "y") == value


def test_a_micro_batch_that_is_no_number_is_named():
    text = "torchrun --nproc-per-node=8 pretrain_gpt.py --micro-batch-size x --global-batch-size 8"
    with pytest.raises(InputError, match="micro"):
        read(text)


@pytest.mark.parametrize(
    "line",
    ["", "per_device_batch_size: p", "per_device_batch_size: [1]", "steps: 1" + "0" * 299],
)
def test_numbers_of_maxtext_that_are_none_leave_a_word_open(line):
    text = "base_config: base.yml\nmodel_name: llama2-7b\nmax_target_length: 128\n"
    said = read(f"{text}{line}\n", "m.yml").words
    assert (said["seq"], "batch" in said, "tokens" in said) == ("128", False, False)


@pytest.mark.parametrize("size", ["²", "9" * 5000])
def test_a_size_that_is_no_number_leaves_the_gpus_open(size):
    text = f"export WORLD_SIZE={size}\n#SBATCH --nodes={size}\npretrain_gpt.py --micro-batch-size 1"
    assert "gpus" not in read(text, "run.sh").words


def test_accelerate_yaml_leaves_the_micro_batch_open():
    found = read(ACCELERATE, "default_config.yaml")
    assert found.words == {
        "stack": "accelerate", "gpus": "32", "strategy": "hsdp4x8-acfull",
        "precision": "bf16",
    }  # fmt: skip
    assert any("--batch" in note for note in found.notes)


def test_accelerate_hands_over_to_deepspeed():
    text = ("distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 16\n"
            "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 4\n")  # fmt: skip
    assert words(text, "ds.yaml")["strategy"] == "zero2x16-nodpoverlap"


def test_maxtext_command_and_yaml():
    expected = {
        "model": "llama-2-7b", "stack": "maxtext", "gpus": "32", "strategy": "hsdp2x16-mb4-acfull",
        "seq": "4096", "batch": "128", "precision": "bf16", "optimizer": "adamw",
    }  # fmt: skip
    keys = {"model_name": "llama2-7b", "per_device_batch_size": 4, "ici_fsdp_parallelism": 16,
            "dcn_data_parallelism": 2, "max_target_length": 4096,
            "remat_policy": "full"}  # fmt: skip
    pairs = " ".join(f"{key}={value}" for key, value in keys.items())
    assert words(f"python3 -m MaxText.train configs/base.yml {pairs}") == expected
    text = "".join(f"{key}: {value}  # of base.yml\n" for key, value in keys.items())
    assert words(text, "config.yml") == expected


def test_huggingface_config():
    path = DATA.parent / "hf" / "mixtral-8x7b.json"
    found = read(path.read_text(), "config.json")
    assert found.words == {"model": "mixtral-8x7b"}
    assert found.framework == "huggingface"


@pytest.mark.parametrize(
    "text", ["", "hello", "{}", "a: 1\n", "[x]\ny = 1\n", "torchrun train.py --lr 1"]
)
def test_unknown_text_is_an_error_with_a_hint(text):
    with pytest.raises(InputError) as caught:
        read(text, "x")
    assert caught.value.hint


@pytest.mark.parametrize(("text", "name"), [(BLOCK, ""), (SCRIPT, "t.sh"), (TITAN_TOML, "t.toml")])
def test_words_are_a_question(text, name):
    asked = resolve(Question(on="dgx-h100", **words(text, name)))
    assert asked.estimate().step_seconds > 0
