"""Load JSON with DeepSpeedConfig of DeepSpeed 0.19.8, and look for keys that it would pass over."""

import json
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")

import deepspeed.comm
import deepspeed.runtime.constants as constants
from answering import answer
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.zero.config import ZERO_OPTIMIZATION

deepspeed.comm.get_rank = lambda group=None: 0
KNOWN = {value for name, value in vars(constants).items() if isinstance(value, str)} | {
    ZERO_OPTIMIZATION, "bf16", "fp16", "tensor_parallel",
}  # fmt: skip


class World:
    """A data-parallel world without processes."""

    def __init__(self, size):
        self.size = size

    def get_data_parallel_world_size(self):
        return self.size


def check(job):
    """Return what was loaded, as a configuration again."""
    table = json.loads(job["text"])
    unknown = set(table) - KNOWN
    # DeepSpeed accepts any key at the top.
    assert not unknown, f"unknown keys {unknown}"
    config = DeepSpeedConfig(dict(table), mpu=World(job["ranks"]))
    zero = config.zero_config
    found = {
        "train_batch_size": config.train_batch_size,
        "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "bf16": {"enabled": config.bfloat16_config.enabled},
        "fp16": {"enabled": config.float16_config.enabled},
        "zero_optimization": {
            "stage": int(zero.stage),
            "overlap_comm": zero.overlap_comm,
            "zero_hpz_partition_size": zero.zero_hpz_partition_size,
            "zero_quantized_weights": zero.zero_quantized_weights,
            "zero_quantized_gradients": zero.zero_quantized_gradients,
        },
        "tensor_parallel": {"autotp_size": config.tensor_parallel_config.autotp_size},
        "communication_data_type": table.get("communication_data_type"),
    }
    if "reduce_bucket_size" in table["zero_optimization"]:
        found["zero_optimization"]["reduce_bucket_size"] = zero.reduce_bucket_size
    for key in ("offload_optimizer", "offload_param"):
        part = getattr(zero, key)
        if part is not None:
            found["zero_optimization"][key] = {
                "device": str(getattr(part.device, "value", part.device))
            }
    if found["tensor_parallel"]["autotp_size"] in (0, None):
        del found["tensor_parallel"]
    return found


answer(check)
