import subprocess
import sys

import pytest

import scalewise


@pytest.mark.parametrize("name", scalewise.__all__)
def test_every_public_name_resolves(name):
    assert getattr(scalewise, name) is not None
    assert name in dir(scalewise)


def test_public_names_are_the_promised_ones():
    promised = {
        "Model", "load_model", "Accelerator", "Fabric", "Cluster", "load_accelerator",
        "load_cluster", "Workload", "Strategy", "parse_strategy", "Strategies", "Stack",
        "load_stack", "estimate", "Estimate", "Estimates", "ScalewiseError", "InputError",
        "__version__", "search", "scale", "sensitivity", "timeline", "validate", "read_trace",
            "diagnose", "export",
    }  # fmt: skip
    assert set(scalewise.__all__) == promised


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = scalewise.nothing


def test_import_loads_no_library():
    code = (
        "import sys, scalewise; scalewise.InputError; "
        "print([m for m in ('numpy', 'rich', 'click', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_work_together():
    model = scalewise.load_model("llama-2-7b")
    cluster = scalewise.load_cluster("dgx-h100", 64)
    workload = scalewise.Workload(seq_len=4096, global_batch=128)
    e = scalewise.estimate(model, cluster, workload, scalewise.parse_strategy("fsdp64-mb2"))
    assert isinstance(e, scalewise.Estimate)
    assert e.num_microbatches == 1
