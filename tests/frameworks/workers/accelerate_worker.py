"""Load YAML with accelerate 1.15, as its launcher does, and build its ParallelismConfig."""

import os
import tempfile

from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from answering import answer

OPTIONS = {
    option[2:] for action in launch_command_parser()._actions for option in action.option_strings
}


def check(job):
    """Return the configuration that was loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "accelerate.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(job["text"])
        config = load_config_from_file(path)
        args = launch_command_parser().parse_args(["--config_file", path, "train.py"])
        args, _, _ = _validate_launch_command(args)
    loaded = config.to_dict()
    for part in ("fsdp_config", "parallelism_config"):
        # accelerate accepts any key inside.
        unknown = set(loaded.get(part) or {}) - OPTIONS
        assert not unknown, f"unknown keys {unknown}"
    sizes = loaded.get("parallelism_config")
    if sizes:
        names = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size")
        built = ParallelismConfig(**{n: sizes[f"parallelism_config_{n}"] for n in names})
        assert built.total_size == job["world"], f"{built.total_size} of {job['world']}"
    assert args.num_processes == job["world"]
    return {key: str(getattr(each, "value", each)) if key == "distributed_type" else each
            for key, each in loaded.items()}  # fmt: skip


answer(check)
