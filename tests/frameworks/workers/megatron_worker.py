"""Parse flags with Megatron-LM's own parser and validate_args (megatron-core 0.19.2).

With "judge", also its own counts: FLOPs of a step, bytes of weights, optimizer and activations.
"""

import os
import sys
import types
import warnings

import stand_ins
from answering import answer

warnings.simplefilter("ignore")
stand_ins.install()

import torch
from megatron.core import utils
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.transformer import transformer_config
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.training import arguments
from packaging.version import Version

# Transformer Engine is part of a run, and its version is asked for.
for module in (arguments, transformer_config, utils):
    if hasattr(module, "is_te_min_version"):
        module.is_te_min_version = lambda *each, **more: True
rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb_thd = object()
utils.get_te_version = lambda: Version("2.9.0")

NAME = "CUDA_DEVICE_MAX_CONNECTIONS"
# What a plan leaves to whoever starts the run.
OWN = ["--mock-data", "--tokenizer-type", "NullTokenizer", "--lr", "3e-4", "--train-iters", "10"]


def check(job):
    """Return the block of arguments that Megatron-LM prints after validation."""
    import contextlib
    import io

    major = job.get("architecture", 9)
    arguments.get_device_arch_version = lambda: major
    # A GPU of that generation, where some checks look for one themselves.
    torch.cuda.get_device_properties = lambda *each: types.SimpleNamespace(major=major, minor=0)
    torch.cuda.get_device_capability = lambda *each: (major, 0)
    os.environ.pop(NAME, None)
    os.environ.update(job.get("environment", {}))
    os.environ["RANK"], os.environ["WORLD_SIZE"] = "0", str(job["world"])
    own = OWN if "--train-samples" not in job["words"] else OWN[:-2]
    sys.argv = ["pretrain_gpt.py", *own, *job["words"]]
    args = arguments.parse_args()
    args.rank, args.world_size = 0, job["world"]
    arguments.validate_args(args)
    if not args.multi_latent_attention:
        arguments.core_transformer_config_from_args(args, TransformerConfig)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        arguments._print_args("arguments", args)
    found = {"block": said.getvalue()}
    return found | ({"judge": judge(args)} if job.get("judge") else {})


def judge(args):
    """Return Megatron-LM's own numbers."""
    from megatron.training.theoretical_memory_usage import (
        compute_activation_memory,
        compute_weight_and_optimizer_memory,
    )
    from megatron.training.training import num_floating_point_operations

    args.padded_vocab_size = args.vocab_size
    steps = args.global_batch_size // (args.micro_batch_size * args.data_parallel_size)
    return {
        "flops": num_floating_point_operations(args, args.global_batch_size),
        "weights": compute_weight_and_optimizer_memory(args, verbose=False),
        "activations": compute_activation_memory(args, num_microbatches=steps, verbose=False),
    }


answer(check)
