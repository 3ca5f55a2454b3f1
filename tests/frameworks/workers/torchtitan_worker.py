"""Parse options with the ConfigManager of torchtitan 0.3.0."""

import json
import os
import sys
import warnings

import stand_ins
from answering import answer

warnings.simplefilter("ignore")
sys.path.insert(0, os.path.join(os.environ["FRAMEWORK_PACKAGES"], "torchtitan-0.3"))
stand_ins.install()

from torchtitan.config import ConfigManager
from torchtitan.distributed.parallel_dims import ParallelDims


def check(job):
    """Return the parsed configuration of one job, after torchtitan's own checks."""
    config = ConfigManager().parse_args(job["words"])
    dims = ParallelDims.from_config(config.parallelism, job["world"])
    batch = config.training.local_batch_size * dims.dp_replicate * dims.dp_shard
    # What its Trainer checks once processes run.
    assert config.training.global_batch_size % batch == 0, "global batch"
    return json.loads(json.dumps(config.to_dict(), default=str))


answer(check)
