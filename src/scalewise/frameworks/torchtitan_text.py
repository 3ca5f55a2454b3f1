"""Texts of torchtitan: options of a command, TOML, and the JSON that a run saves or prints.

arguments(settings)            # [["--module", "llama3"], ["--config", "llama3_8b"], ...]
read_log(text), read_tables(parse_toml(text, name)), read_launch(script)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from scalewise.errors import InputError
from scalewise.frameworks.facts import Configuration, configuration
from scalewise.frameworks.megatron_text import flags_of, literal
from scalewise.frameworks.shell import launch_command
from scalewise.frameworks.table import Settings, Value, flat, nested, read_rows
from scalewise.frameworks.torchtitan import (
    AC,
    MODEL_KEYS,
    NAME,
    NAMES,
    OLD_ROWS,
    ROWS,
    function,
)
from scalewise.reading import parse_json

LAUNCHED = ("world_size",)
_MOVED = {"compile.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel"}
"""Keys of 0.3.0 that 0.2.2 has elsewhere."""


def arguments(settings: Settings) -> list[list[str]]:
    """Return settings as options of 0.3.0; the recompute is a subcommand, and last."""
    module, flavor = str(settings["model.name"]), str(settings["model.flavor"])
    words = [["--module", module], ["--config", function(module, flavor)]]
    last: list[list[str]] = []
    for key, value in settings.items():
        if key in LAUNCHED or key in MODEL_KEYS:
            continue
        if key == AC:
            last = [[f"activation-checkpoint:{value}"]]
        elif isinstance(value, bool):
            section, _, name = key.rpartition(".")
            words.append([f"--{section}.{name if value else 'no-' + name.replace('_', '-')}"])
        else:
            # Lists are words with commas.
            text = ",".join(value) if isinstance(value, list) else str(value)
            words.append([f"--{key}", text])
    return words + last


def tables(settings: Settings) -> dict[str, Any]:
    """Return settings as the nested tables of 0.2.2."""
    return nested({_MOVED.get(k, k): v for k, v in settings.items() if k not in LAUNCHED})


def is_config(value: Any) -> bool:
    """Whether parsed JSON or TOML is a configuration of torchtitan."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("training"), Mapping)
        and ("parallelism" in value or "model" in value or "model_spec" in value)
        and bool({"local_batch_size", "seq_len", "batch_size"} & set(value["training"]))
    )


_RUNNING = re.compile(r"Running with (?:configs|args): ?(?=\{)")


def is_log(text: str) -> bool:
    """Whether a text has the configuration that torchtitan prints."""
    return _RUNNING.search(text) is not None


def read_log(text: str, name: str = "") -> Configuration:
    """Read the configuration that a log prints (--debug.print_config)."""
    found = _RUNNING.search(text)
    if found is None:
        raise InputError(f"{name or 'the log'} has no line `Running with configs:`",
                         hint="run with --debug.print_config")  # fmt: skip
    try:
        _, end = json.JSONDecoder().raw_decode(text, found.end())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name or 'the log'}: the printed configuration is not whole",
                         hint="give what --debug.save_config_file saved") from error  # fmt: skip
    return read_tables(parse_json(text[found.end() : end], name or "the log"), log=text)


_MESH = re.compile(r"world_size=(\d+)|\bWORLD_SIZE[=: ]+(\d+)")


def read_tables(value: Mapping[str, Any], log: str = "") -> Configuration:
    """Read nested tables: TOML, or the JSON that a run saves."""
    settings = flat(value)
    spec = value.get("model_spec")
    new = isinstance(spec, Mapping)
    if isinstance(spec, Mapping):
        settings |= {"model.name": spec.get("name"), "model.flavor": spec.get("flavor")}
    ac = value.get("activation_checkpoint")
    if AC not in settings and (new or "activation_checkpoint" in value):
        settings[AC] = _policy(ac)
    elif not new:
        settings.setdefault(AC, "selective")
        settings.setdefault("activation_checkpoint.selective_ac_option", "2")
    if (world := _MESH.search(log)) is not None:
        settings["world_size"] = int(world[1] or world[2])
    return _configuration(settings, new=new)


def _policy(value: Any) -> str:
    """Recompute of a saved configuration of 0.3.0: the fields tell the classes apart."""
    if not isinstance(value, Mapping):
        return "none"
    if "force_recompute_mm_shapes_by_fqns" in value:
        return "selective"
    return "memory-budget" if "memory_budget" in value else "full"


def is_launch(words: Iterable[str]) -> bool:
    """Whether words of a command are torchtitan's options."""
    return any(word.startswith(("--parallelism.", "--training.")) for word in words)


def read_launch(text: str, name: str = "") -> Configuration:
    """Read the options of a command or a launch script.

    Raises:
        InputError: If an option has a variable that the script does not set.
    """
    command = launch_command(text, name)
    settings: Settings = {}
    for word, values in flags_of(command.words):
        key = word[2:]
        for place, value in enumerate(values):
            if value.startswith("activation-checkpoint:"):
                settings[AC] = value.partition(":")[2].lower()
                values = values[:place]
                break
        if "." not in key and key not in ("module", "config"):
            continue
        if any("$" in value for value in values):
            raise InputError(f"{word} {values[0]}: the script does not set this variable",
                             hint="replace it by its value")  # fmt: skip
        section, dot, last = key.rpartition(".")
        off = last.startswith(("no-", "no_"))
        key = (section + dot + (last[3:] if off else last)).replace("-", "_")
        settings[key] = literal(values[0]) if values else not off
    new = "module" in settings
    if new:
        module, function_ = str(settings.pop("module")), str(settings.pop("config", ""))
        for spelled in NAMES:
            if spelled[0] == module and function(*spelled) == function_:
                settings |= dict(zip(MODEL_KEYS, spelled, strict=True))
        settings.setdefault(AC, "selective")
    else:
        settings.setdefault(AC, "selective")
        settings.setdefault("activation_checkpoint.selective_ac_option", "2")
    if command.gpus is not None:
        settings["world_size"] = command.gpus
    return _configuration(settings, new=new)


_DEGREES = tuple(
    f"parallelism.{word}_parallel_degree" for word in ("tensor", "pipeline", "context")
)

_DEFAULTS: dict[str, Value] = {"training.seq_len": 2048, "training.local_batch_size": 8}
"""Defaults of 0.2.2; those of 0.3.0 are its registry function's."""


def _configuration(settings: Settings, *, new: bool) -> Configuration:
    given = settings if new else {**_DEFAULTS, **settings}
    facts = read_rows(ROWS if new else OLD_ROWS, given)
    notes = []
    if "gpus" not in facts:
        notes.append("the number of GPUs is not in it (shard degree -1 takes what is left): "
                     "give --gpus")  # fmt: skip
    for name, key in (("seq", "training.seq_len"), ("batch", "training.local_batch_size")):
        if given.get(key) is None:
            notes.append(f"{key} is the registry function's: give --{name}")
    if new and (missing := [key for key in _DEGREES if given.get(key) is None]):
        notes.append(f"{', '.join(missing)}: the registry function may have a degree above 1")
    if "model" not in facts:
        shown = "/".join(str(given.get(key)) for key in MODEL_KEYS)
        notes.append(f"the catalog has no model {shown}: give MODEL")
    if str(given.get(AC)).replace("_", "-") == "memory-budget":
        notes.append("recompute by a memory budget has no word here")
        facts.pop("recompute", None)
    return configuration(NAME, facts, notes)
