"""Read a TOML file into the dataclasses of torchtitan 0.2.2: unknown keys, and literals.

Its own parser needs triton, and only warns of a wrong literal: the dataclasses say both.
"""

import dataclasses
import importlib.util
import logging
import os
import sys
import tomllib
import types
import typing

from answering import answer

for name in ("torchtitan", "torchtitan.tools", "torchtitan.tools.logging"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torchtitan.tools.logging"].logger = logging.getLogger()
PATH = os.path.join(
    os.environ["FRAMEWORK_PACKAGES"], "torchtitan-0.2", "torchtitan", "config", "job_config.py"
)
SPEC = importlib.util.spec_from_file_location("job_config", PATH)
CONFIG = importlib.util.module_from_spec(SPEC)
sys.modules["job_config"] = CONFIG
SPEC.loader.exec_module(CONFIG)


def build(cls, table, path=""):
    """Return an instance of a dataclass with the values of a table."""
    hints, values = typing.get_type_hints(cls), {}
    for key, value in table.items():
        if key not in hints:
            raise KeyError(path + key)
        hint = hints[key]
        if isinstance(value, dict) and dataclasses.is_dataclass(hint):
            value = build(hint, value, f"{path}{key}.")
        elif typing.get_origin(hint) is typing.Literal and value not in typing.get_args(hint):
            raise ValueError(f"{path}{key} = {value}")
        elif hint in (int, bool, str) and type(value) is not hint:
            raise TypeError(f"{path}{key} = {value!r}")
        values[key] = value
    return cls(**values)


def check(job):
    """Return the whole configuration of one job."""
    config = build(CONFIG.JobConfig, tomllib.loads(job["text"]))
    p = config.parallelism
    degrees = (
        p.data_parallel_replicate_degree * p.data_parallel_shard_degree * p.tensor_parallel_degree
        * p.context_parallel_degree * p.pipeline_parallel_degree
    )  # fmt: skip
    assert degrees == job["world"], f"degrees {degrees} of {job['world']}"
    return dataclasses.asdict(config)


answer(check)
