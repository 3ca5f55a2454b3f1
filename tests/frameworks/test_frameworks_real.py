"""Exports against the frameworks themselves, without a GPU: 200 random plans for each.

    sh scripts/framework_packages /tmp/frameworks
    FRAMEWORK_PACKAGES=/tmp/frameworks pytest -n 0 -m frameworks

The frameworks have an environment of their own, and `workers` run in it. A plan is accepted by the
framework's own parser and checks, or was refused by the export before.
"""

import json
from functools import cache

import pytest

from framework_plans import plans
from framework_workers import PACKAGES, WORKER, ask, job
from scalewise.frameworks import read
from scalewise.frameworks.export import SCRIPT, TARGETS, export
from waiting import NEEDS

pytestmark = pytest.mark.skipif(not PACKAGES, reason=f"{NEEDS} FRAMEWORK_PACKAGES")
COUNT = 200


@cache
def exports(target):
    """Random plans with their exports, those that are written."""
    both = [(asked, export(asked, target)) for asked in plans(target.removesuffix("-0.2"), COUNT)]
    return [(asked, out) for asked, out in both if not out.refused]


@cache
def answers(target):
    return ask(WORKER[target], [job(*each) for each in exports(target)])


@pytest.mark.parametrize("target", TARGETS)
def test_every_written_plan_is_accepted(target):
    wrong = [
        f"{asked.model.name} {asked.strategy} {asked.workload.precision}: {answer['error']}"
        for (asked, _), answer in zip(exports(target), answers(target), strict=True)
        if "error" in answer
    ]
    print(f"{target}: {len(exports(target))} of {COUNT} written, {len(wrong)} not accepted")
    assert wrong == []


@pytest.mark.parametrize("target", ["megatron", "torchtitan", "deepspeed", "accelerate"])
def test_what_the_framework_parsed_is_read_as_the_same_words(target):
    for (_, out), answer in zip(exports(target), answers(target), strict=True):
        if "error" in answer:
            continue
        (name,) = {SCRIPT} if set(out.files) == {SCRIPT} else set(out.files) - {SCRIPT}
        parsed = answer["ok"]
        text = parsed["block"] if target == "megatron" else json.dumps(parsed)
        found, wanted = read(text).words, read(out.files[name], name).words
        # A parsed configuration has defaults, such as the steps of torchtitan.
        for word in ("tokens", "gpus") if target in ("torchtitan", "deepspeed") else ("tokens",):
            found.pop(word, None), wanted.pop(word, None)
        assert found == wanted


@pytest.mark.parametrize(
    ("target", "before", "after"),
    [
        ("megatron", "--tensor-model-parallel-size", "--tensor-model-parallel-sise"),
        ("torchtitan", "--parallelism.tensor_parallel_degree",
         "--parallelism.tensor_parallel_size"),
        ("torchtitan-0.2", "data_parallel_shard_degree", "data_parallel_shard_size"),
        ("deepspeed", "zero_optimization", "zero_optimisation"),
        ("deepspeed", '"stage"', '"stages"'),
        ("accelerate", "fsdp_version", "fsdp_versions"),
        ("accelerate", "num_processes", "num_process"),
        ("maxtext", "remat_policy", "remat_polcy"),
        ("megatron-bridge", "micro_batch_size", "micro_batchsize"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_noticed(target, before, after):
    jobs = [json.dumps(job(*each)) for each in exports(target)]
    escaped = json.dumps(before)[1:-1]
    changed = [json.loads(each.replace(escaped, json.dumps(after)[1:-1])) for each in jobs
               if escaped in each][:3]  # fmt: skip
    assert changed
    assert all("error" in answer for answer in ask(WORKER[target], changed))


@pytest.mark.parametrize("target", ["megatron", "torchtitan", "torchtitan-0.2", "deepspeed",
                                    "accelerate", "maxtext"])  # fmt: skip
def test_a_changed_world_is_noticed(target):
    # One GPU more fits no layout of more than one GPU.
    jobs = [job(asked, out) for asked, out in exports(target)
            if asked.strategy.tp * asked.strategy.pp > 1][:5]  # fmt: skip
    changed = [each | {"world": each["world"] + 1, "ranks": each.get("ranks", 1) + 1}
               for each in jobs]  # fmt: skip
    assert all("error" in answer for answer in ask(WORKER[target], changed))
