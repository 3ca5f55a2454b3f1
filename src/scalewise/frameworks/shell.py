r"""Launch scripts: the words of the command that starts training, with variables put in.

    launch_command("TP=8\ntorchrun --nproc-per-node 8 train.py --tp $TP").words[-1]     # "8"

A script is read, never run. Assignments, arrays, defaults (${TP:-8}) and products ($((N * 8))) are
resolved; a word with anything else keeps its dollar sign, and whoever needs that word refuses it.
"""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass

from scalewise.errors import InputError
from scalewise.frameworks.table import whole


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command that starts training."""

    words: tuple[str, ...]
    """Its words, launcher included."""
    gpus: int | None
    """Processes it starts, one per GPU; None where it does not say."""


_ARRAY = re.compile(r"^[ \t]*(?:export |local |declare -a )?(\w+)(\+?)=\((.*?)\)[ \t]*$",
                    re.MULTILINE | re.DOTALL)  # fmt: skip
_ASSIGNED = re.compile(r"^[ \t]*(?:export |local |readonly )?(\w+)=(.*)$")
_PRODUCT = re.compile(r"\$\(\(([^()]*)\)\)")
_VARIABLE = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?::?-([^}]*))?\}|\$(\w+)")
_QUOTED_ARRAY = re.compile(r'"(\$\{\w+\[@\]\})"')
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_PROGRAMS = re.compile(r"(?:^|[\s/])(?:torchrun|srun|python3?|mpirun|deepspeed|accelerate)\s")
MAX_ROUNDS = 16
"""Variables inside variables."""

_NO_WORDS = ("&", "&&", "|", "$@", "$*")
"""What is no word of the command, or comes from who starts the script."""

_NODES = ("--nnodes", "--num_machines", "--num_nodes")
_RANKS = ("--nproc-per-node", "--nproc_per_node", "--num_gpus", "--gpus-per-node")


def launch_command(text: str, name: str = "", flag: str = "--") -> Command:
    """Return the command of a script that starts training: the longest that runs a program.

    Args:
        text: A command, or a script.
        name: Of its file, for errors.
        flag: What words of such a command have: flags, or key=value pairs.

    Raises:
        InputError: If nothing in it is one.
    """
    joined = re.sub(r"\\\r?\n", " ", text)
    variables: dict[str, str] = {}

    def keep(match: re.Match[str]) -> str:
        inside = " ".join(_COMMENT.sub("", line) for line in match[3].splitlines())
        before = variables.get(match[1], "") + " " if match[2] else ""
        variables[match[1]] = before + inside
        return ""

    lines = _ARRAY.sub(keep, joined).splitlines()
    commands: list[str] = []
    for line in lines:
        if line.lstrip().startswith("#"):
            continue
        assigned = _ASSIGNED.match(line)
        if assigned and not _runs(assigned[2]):
            variables[assigned[1]] = _value(assigned[2])
        elif line.strip():
            commands.append(line)
    split = [_split(_expand(line, variables)) for line in commands]
    found = max((words for words in split if any(flag in w for w in words)),
                key=len, default=None)  # fmt: skip
    if found is None:
        raise InputError(f"{name or 'the text'} has no command with flags",
                         hint="give the line that starts training")  # fmt: skip
    return Command(words=tuple(found), gpus=_gpus(found, text, variables))


def _runs(value: str) -> bool:
    """Whether what follows an assignment is a command, as in VAR=1 torchrun ..."""
    return " --" in value and not value.startswith(('"', "'")) and bool(_PROGRAMS.search(value))


def _value(text: str) -> str:
    bare = _COMMENT.sub("", text).strip()
    return bare[1:-1] if bare[:1] in "\"'" and bare[-1:] == bare[:1] and len(bare) > 1 else bare


def _expand(text: str, variables: dict[str, str]) -> str:
    """Put variables in, as far as they are known."""

    def of(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        if name in variables:
            return variables[name]
        return match[2] if match[2] is not None else match[0]

    # "${ARGS[@]}" is the words of the array, each as it is.
    text = _QUOTED_ARRAY.sub(r"\1", text)
    for _ in range(MAX_ROUNDS):
        before = text
        text = _PRODUCT.sub(_product, _VARIABLE.sub(of, text))
        if text == before or len(text) > 10**6:
            break
    return text


def _product(match: re.Match[str]) -> str:
    """The value of $((8 * 4)), or the text where it has more than numbers."""
    try:
        tree = ast.parse(match[1].strip(), mode="eval").body
        return str(_arithmetic(tree))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return match[0]


def _arithmetic(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 10**12:
        return int(node.value)
    if isinstance(node, ast.BinOp):
        left, right = _arithmetic(node.left), _arithmetic(node.right)
        if max(abs(left), abs(right)) < 10**12:
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Div | ast.FloorDiv):
                return left // right
    raise ValueError


def _split(line: str) -> list[str]:
    try:
        return [word for word in shlex.split(line, comments=True) if word not in _NO_WORDS]
    except ValueError:
        return []


def _gpus(words: list[str], text: str, variables: dict[str, str]) -> int | None:
    """Processes of a launcher: nodes times processes per node, or WORLD_SIZE."""
    nodes, ranks = _number(words, _NODES), _number(words, _RANKS)
    slurm = dict(re.findall(r"^#SBATCH\s+(--[\w-]+|-N)[= ](\d+)", text, re.MULTILINE))
    if nodes is None and (found := slurm.get("--nodes") or slurm.get("-N")):
        nodes = whole(found)
    if ranks is None and (found := slurm.get("--gpus-per-node")):
        ranks = whole(found)
    if ranks is not None and (nodes is not None or not slurm):
        return ranks * (nodes or 1)
    if (processes := _number(words, ("--num_processes",))) is not None:
        return processes
    world = _expand(variables.get("WORLD_SIZE", ""), variables)
    return (whole(world) or None) if world.isdecimal() else None


def _number(words: list[str], names: tuple[str, ...]) -> int | None:
    """The value of the first of some flags, if it is a number."""
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in names:
            value = value if equals else (words[place + 1] if place + 1 < len(words) else "")
            return whole(value) if value.isdecimal() else None
    return None
