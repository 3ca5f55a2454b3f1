"""Check names against the sources of packages that need accelerators to be imported.

MaxText 0.2.5: keys against base.yml and configs/models. Megatron-Bridge 0.6.2: recipes, and
attributes against the fields of its configuration classes and those of megatron-core.
"""

import ast
import glob
import os

import yaml
from answering import answer

STATIC = os.path.join(os.environ["FRAMEWORK_PACKAGES"], "static")
BRIDGE = os.path.join(STATIC, "megatron", "bridge")
CORE = os.path.join(os.path.dirname(yaml.__file__), "..", "megatron", "core")


def fields():
    """Annotated names of every class in the configuration sources."""
    found = set()
    for root in (BRIDGE, CORE, os.path.join(CORE, "..", "training")):
        for path in glob.glob(os.path.join(root, "**", "*.py"), recursive=True):
            if (
                "config" not in os.path.basename(path)
                and "provider" not in path
                and ("comm_overlap" not in path and "mixed_precision" not in path)
            ):
                continue
            with open(path, encoding="utf-8") as file:
                tree = ast.parse(file.read())
            for node in ast.walk(tree):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found.add(node.target.id)
    return found


with open(os.path.join(STATIC, "maxtext", "configs", "base.yml"), encoding="utf-8") as source:
    BASE = yaml.safe_load(source)
FIELDS = fields()


def check(job):
    """Return nothing where every name is known."""
    if "yaml" in job:
        keys = yaml.safe_load(job["yaml"])
        unknown = set(keys) - set(BASE) - {"base_config"}
        assert not unknown, f"unknown keys {unknown}"
        model = os.path.join(STATIC, "maxtext", "configs", "models", f"{keys['model_name']}.yml")
        assert os.path.exists(model), model
        ici, dcn = 1, 1
        for key, value in keys.items():
            ici *= value if key.startswith("ici_") else 1
            dcn *= value if key.startswith("dcn_") else 1
        assert ici * dcn == job["world"], f"{ici} x {dcn} of {job['world']}"
        return keys
    tree = ast.parse(job["python"])
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and ".recipes." in node.module:
            path = os.path.join(BRIDGE, *node.module.split(".")[2:], "__init__.py")
            with open(path, encoding="utf-8") as file:
                assert node.names[0].name in file.read(), node.names[0].name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            assert node.attr in FIELDS, f"unknown field {node.attr}"
        elif isinstance(node, ast.keyword) and node.arg not in ("config", "forward_step_func"):
            assert node.arg in FIELDS, f"unknown field {node.arg}"
    return None


answer(check)
