"""Workers that run the frameworks' own parsers, and the jobs they get.

    ask("megatron", [job(asked, out)])      # [{"ok": ...}] or [{"error": ...}]

`scripts/framework_packages DIR` installs the frameworks; FRAMEWORK_PACKAGES names the folder.
"""

import json
import os
import subprocess
from pathlib import Path

from scalewise.frameworks.export import SCRIPT, connections
from scalewise.frameworks.megatron_text import flags
from scalewise.frameworks.torchtitan_text import arguments

PACKAGES = os.environ.get("FRAMEWORK_PACKAGES", "")
WORKERS = Path(__file__).parent / "frameworks" / "workers"


WORKER = {
    "megatron": "megatron", "torchtitan": "torchtitan", "torchtitan-0.2": "torchtitan_old",
    "deepspeed": "deepspeed", "accelerate": "accelerate", "maxtext": "static",
    "megatron-bridge": "static",
}  # fmt: skip


def ask(worker, jobs):
    """Answers of a worker to a list of jobs."""
    done = subprocess.run(
        [f"{PACKAGES}/bin/python", str(WORKERS / f"{worker}_worker.py")],
        input=json.dumps(jobs), capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def job(asked, out):
    """What a worker gets."""
    world = asked.cluster.accelerators
    if out.target == "megatron":
        lines = [line.split() for line in connections(asked, out.settings)]
        variables = dict(line[1].split("=") for line in lines if line[0] == "export")
        architecture = 10 if asked.cluster.accelerator.architecture == "blackwell" else 9
        words = [word for each in flags(out.settings) for word in each]
        return {"words": words, "world": world, "environment": variables,
                "architecture": architecture}  # fmt: skip
    if out.target == "torchtitan":
        words = [word for each in arguments(out.settings) for word in each]
        return {"words": words, "world": world}
    if out.target == "maxtext":
        return {"yaml": out.files["maxtext.yml"], "world": world}
    if out.target == "megatron-bridge":
        return {"python": out.files["recipe.py"]}
    (name,) = set(out.files) - {SCRIPT}
    return {"text": out.files[name], "world": world, "ranks": asked.strategy.data_parallel}
