"""Texts of Megatron-LM: flags of a command, launch scripts, and the arguments in a log.

flags({"bf16": True, "tensor_model_parallel_size": 2})        # [["--bf16"], [...]]
read_arguments(log)            # the block `---- arguments ----`: every argument after validation
read_launch(script)            # flags of a command or a launch script
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from scalewise.errors import InputError
from scalewise.frameworks.facts import Configuration, configuration
from scalewise.frameworks.megatron import NAME, ROWS, dtype
from scalewise.frameworks.shell import Command, launch_command
from scalewise.frameworks.table import Settings, Value, keys_of, read_rows

LAUNCHED = ("world_size",)
"""Settings that torchrun says, not a flag."""

_IRREGULAR: dict[tuple[str, bool], str] = {
    ("add_bias_linear", False): "--disable-bias-linear",
    ("overlap_p2p_comm", False): "--no-overlap-p2p-communication",
    ("torch_fsdp2_reshard_after_forward", False): "--torch-fsdp2-no-reshard-after-forward",
    ("gradient_accumulation_fusion", False): "--no-gradient-accumulation-fusion",
}
"""Flags that turn something off."""

_RENAMED = {"fp8": "--fp8-format", "fp4": "--fp4-format"}

_MORE = (
    "world_size", "data_parallel_size", "virtual_pipeline_model_parallel_size",
    "num_layers_per_virtual_pipeline_stage", "recompute_activations", "use_custom_fsdp",
    "train_iters",
)  # fmt: skip
"""Settings that are read besides those of the table."""

_NOTED = {
    "pipeline_model_parallel_layout": "the layout of pipeline stages has no word here",
    "account_for_embedding_in_pipeline_split": "the embedding counts as a layer of its stage",
    "account_for_loss_in_pipeline_split": "the loss counts as a layer of its stage",
    "rampup_batch_size": "the batch grows at the start: the final one is read",
    "hybrid_layer_pattern": "layers other than attention are not modeled",
    "cpu_offloading_num_layers": "offloaded layers have no word here",
    "fine_grained_activation_offloading": "offloaded modules have no word here",
    "moe_latent_size": "latent experts are not modeled",
}
"""Settings that change a run and have no word, with what is noted."""


def flag(key: str, value: Value = None) -> str:
    """Return the flag of a setting."""
    if isinstance(value, bool) and (key, value) in _IRREGULAR:
        return _IRREGULAR[key, value]
    return _RENAMED.get(key, "--" + key.replace("_", "-"))


def flags(settings: Settings) -> list[list[str]]:
    """Return settings as flags with their values; what torchrun says is left out."""
    found: list[list[str]] = []
    for key, value in settings.items():
        if key in LAUNCHED or value is None:
            continue
        if isinstance(value, bool):
            if (value and key != "add_bias_linear") or (key, value) in _IRREGULAR:
                found.append([flag(key, value)])
        elif isinstance(value, list):
            found.append([flag(key), *map(str, value)])
        else:
            found.append([flag(key), str(value)])
    return found


_BLOCK = re.compile(r"-{5,} arguments -{5,}(.*?)-{5,} end of arguments -{5,}", re.DOTALL)
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*) \.{2,} (.*)$", re.MULTILINE)


def is_log(text: str) -> bool:
    """Whether a text has the block of arguments that Megatron-LM prints."""
    return _BLOCK.search(text) is not None


def read_arguments(text: str) -> Configuration:
    """Read the block `---- arguments ----` of a log: every argument after validation."""
    block = _BLOCK.search(text)
    if block is None:
        raise InputError("the log has no block of arguments", hint="give its beginning too")
    settings = {name: literal(value.strip()) for name, value in _LINE.findall(block[1])}
    return _configured(settings, ())


def literal(text: str) -> Value:
    """Return a value as argparse printed it.

    >>> [literal(text) for text in ("8", "True", "None", "['core_attn']", "torch.bfloat16", "1e-5")]
    [8, True, None, ['core_attn'], 'bf16', 1e-05]
    """
    if text.startswith("torch."):
        return dtype(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def is_launch(words: Iterable[str]) -> bool:
    """Whether words of a command are Megatron-LM's flags."""
    own = {"--tensor-model-parallel-size", "--micro-batch-size", "--num-attention-heads",
           "--pipeline-model-parallel-size", "--use-distributed-optimizer"}  # fmt: skip
    return bool(own & {word.partition("=")[0] for word in words})


def read_launch(text: str, name: str = "") -> Configuration:
    """Read the flags of a command or a launch script.

    Raises:
        InputError: If a flag that counts has a variable that the script does not set.
    """
    command = launch_command(text, name)
    settings = settings_of(command)
    notes = []
    if command.gpus is not None:
        settings.setdefault("world_size", command.gpus)
    else:
        notes.append("the number of GPUs is not in it: give --gpus")
    return _configured(settings, notes)


def settings_of(command: Command) -> Settings:
    """Return the settings of flags.

    Raises:
        InputError: If a value is not resolved.
    """
    spelled = {flag(key): (key, None) for key in (*keys_of(ROWS), *_MORE, *_NOTED)}
    spelled |= {word: (key, value) for (key, value), word in _IRREGULAR.items()}  # type: ignore[misc]
    settings: Settings = {}
    for word, values in flags_of(command.words):
        if word not in spelled:
            continue
        key, off = spelled[word]
        for value in values:
            if "$" in value or "`" in value:
                raise InputError(
                    f"{word} {value}: the script does not set this variable",
                    hint="replace it by its value, or give the log with the arguments",
                )
        if off is not None or not values:
            settings[key] = True if off is None else off
        else:
            found = [literal(each) for each in values]
            many = key in ("recompute_modules", "cp_comm_type") or len(found) > 1
            settings[key] = found if many else found[0]
    return settings


def flags_of(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Split words into flags and the values behind each.

    >>> flags_of(["train.py", "--bf16", "--lr", "-1", "--tp=2"])
    [('--bf16', []), ('--lr', ['-1']), ('--tp', ['2'])]
    """
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            flag_, equals, value = word.partition("=")
            found.append((flag_, [value] if equals else []))
        elif found:
            found[-1][1].append(word)
    return found


def _configured(settings: Settings, notes: Iterable[str]) -> Configuration:
    facts = read_rows(ROWS, settings)
    told = [*notes, *(f"{key}: {why}" for key, why in _NOTED.items() if settings.get(key))]
    if "model" not in facts:
        told.append("the model is not one of the catalog, or its shape is open: give MODEL")
    return configuration(NAME, facts, told)
