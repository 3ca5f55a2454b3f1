"""Every fact of a plan is written, warned of or refused, and what is written is read back."""

import re
from pathlib import Path

import pytest

from framework_plans import plans
from scalewise.ask.question import Question, question_fields
from scalewise.ask.resolve import resolve
from scalewise.errors import InputError
from scalewise.frameworks import read
from scalewise.frameworks.export import QUESTION, SCRIPT, TARGETS, export
from scalewise.frameworks.facts import FACTS, configuration, facts_of
from scalewise.frameworks.table import fields_of, keys_of, read_rows, write_rows

DATA = Path(__file__).parent.parent / "data" / "frameworks"
GOLDEN = {
    "megatron": ("llama-3-8b", "zero1x64-tp2-pp4-v2-mb2-acfull", "megatron-lm"),
    "torchtitan": ("llama-3-8b", "hsdp4x64-tp2-mb2-acop-compiled", "torchtitan"),
    "torchtitan-0.2": ("llama-3-70b", "fsdp64-tp8-mb1-ac1of2", "torchtitan"),
    "deepspeed": ("llama-3-8b", "fsdp512-mb2-acfull-hpz8-qwz", "deepspeed"),
    "accelerate": ("llama-3-8b", "hsdp4x128-mb2-acfull", "accelerate"),
    "maxtext": ("llama-3-8b", "hsdp4x64-tp2-mb2-acfull", "maxtext"),
    "megatron-bridge": ("qwen3-30b-a3b", "zero1x32-tp4-pp4-ep8-mb1-reducebf16", "megatron-bridge"),
}  # fmt: skip
CONFIGS = {
    "megatron": SCRIPT, "torchtitan": SCRIPT, "torchtitan-0.2": "torchtitan.toml",
    "deepspeed": "ds_config.json", "accelerate": "accelerate.yaml", "maxtext": "maxtext.yml",
    "megatron-bridge": "recipe.py",
}  # fmt: skip
OPEN = {
    "deepspeed": ("model", "seq", "optimizer"),
    "accelerate": ("model", "seq", "batch", "optimizer"),
}
"""Words that a configuration leaves to the program or the launcher."""
PER_TARGET = 200


def golden(target):
    model, strategy, stack = GOLDEN[target]
    words = {"model": model, "on": "dgx-h100", "gpus": 512, "seq": 8192, "batch": 1024}
    return resolve(Question(strategy=strategy, stack=stack, **words))


def random_plans(target, count=PER_TARGET):
    return plans(target.removesuffix("-0.2"), count)


@pytest.mark.parametrize("target", TARGETS)
def test_golden_files(target):
    found = export(golden(target), target)
    assert found.refused == ()
    assert CONFIGS[target] in found.files
    for name, text in found.files.items():
        path = DATA / target / f"{name}.txt"
        assert text == path.read_text(), f"{path} differs"


@pytest.mark.parametrize("target", TARGETS)
def test_every_fact_has_a_row(target):
    # `node` is where a group lands, which the script says.
    assert set(FACTS) - {"node"} - set(fields_of(TARGETS[target].rows)) == set()
    assert set(fields_of(TARGETS[target].rows)) - set(FACTS) == set()


def test_every_field_of_a_question_goes_somewhere():
    assert set(QUESTION) == set(question_fields())


OTHER = {
    "tp": 3, "cp": 3, "pp": 3, "dp_replicate": 3, "dp_shard": 3, "sequence_parallel": False,
    "sharding": "zero2", "reshard_after_forward": False, "prefetch": 3, "cp_method": "allgather",
    "virtual_stages": 4, "schedule": "gpipe", "first_stage_layers": 5, "last_stage_layers": 5,
    "ep": 4, "etp": 4, "micro_batch": 4, "recompute": "1of2", "recompute_modules": "norm",
    "mlp_tiles": 2, "offload": "act", "precision": "fp8row", "attention_precision": "fp8",
    "gather_precision": "int8", "compiled": False, "reduce_precision": "int4",
    "backward_shard": 8, "replica_sync": "once", "hierarchical_gather": True, "reduce_each": None,
    "bucket_mb": 7, "overlap_dp": False, "overlap_tp": False, "overlap_pp": False,
    "overlap_ep": False, "tokens": 1e12, "imbalance": 2.0, "capacity": 1.25,
    "optimizer": "shampoo", "loss": "chunked", "weights": "bf16", "tuning": "lora16",
    "lengths": "600", "batching": "padded", "seq_len": 1024, "global_batch": 4096, "gpus": 4096,
}  # fmt: skip
"""Another value of every fact."""
FOLLOWS = {"num_microbatches", "model", "node"}


def test_other_values_are_of_all_facts():
    assert set(OTHER) | FOLLOWS == set(FACTS)


PIPELINED = "hsdp2x16-tp2-cp2{}-pp4-v2-ep2-mb1-{}"
BASES = {
    "megatron": ("zero1x2x16-tp2-cp2-pp4-v2-ep2-mb1-acfull", "fsdp32-tp2-ep2-mb1"),
    "torchtitan": (PIPELINED.format("ag", "acop-compiled"), "fsdp32-tp2-mb1-acop"),
    "torchtitan-0.2": (PIPELINED.format("ag", "acop-compiled"), "fsdp32-tp2-mb1-acop"),
    "deepspeed": ("fsdp32-tp2-nosp-mb1-notpoverlap", "zero2x32-mb1"),
    "accelerate": ("hsdp2x16-tp2-nosp-cp2ag-mb1-acfull-notpoverlap", "ddp32-mb1"),
    "maxtext": ("hsdp2x16-tp2-cp2-ep2-mb1-acfull",),
    "megatron-bridge": ("zero1x2x16-tp2-cp2-pp4-v2-ep2-mb1-acfull", "fsdp32-tp2-ep2-mb1"),
}  # fmt: skip
"""Plans in which every fact counts that a framework has."""
PIPELINE = ("virtual_stages", "schedule", "first_stage_layers", "last_stage_layers", "overlap_pp")
COUNTS_WITH = {**dict.fromkeys(PIPELINE, "pp"), "cp_method": "cp", "overlap_ep": "ep"}
"""Facts that change nothing where another is refused."""


def base(target, strategy):
    """Facts of a plan with experts and gradient accumulation."""
    stack = {"megatron": "megatron-lm"}.get(target, target.removesuffix("-0.2"))
    words = {"model": "qwen3-30b-a3b", "on": "dgx-h100", "seq": 4096, "batch": 512}
    return facts_of(resolve(Question(strategy=strategy, stack=stack, **words)))


def noticed(rows, facts, name):
    """Whether another value of a fact changes a setting, or is named."""
    value = OTHER[name]
    if isinstance(facts.get(name), bool):
        value = not facts[name]
    elif value == facts.get(name):
        value = "gpipe" if name == "schedule" else value * 2
    changed = facts | {name: value}
    if name in ("tp", "cp", "pp", "dp_replicate", "dp_shard"):
        changed["gpus"] = facts["gpus"] // facts[name] * value
    if name == "global_batch":
        changed["num_microbatches"] = facts["num_microbatches"] * value // facts[name]
    before, after = write_rows(rows, facts), write_rows(rows, changed)
    named = {gap.field for gap in [*before.warned, *after.refused, *after.warned]}
    return before.settings != after.settings or name in named


@pytest.mark.parametrize("target", TARGETS)
def test_no_fact_is_dropped_silently(target):
    rows = TARGETS[target].rows
    bases = [base(target, strategy) for strategy in BASES[target]]
    assert all(write_rows(rows, facts).refused == [] for facts in bases)
    silent = {name for name in OTHER if not any(noticed(rows, facts, name) for facts in bases)}
    # Where the whole technique is refused, its details are of no account.
    refused = {with_ for with_ in ("pp", "cp", "ep")
               if write_rows(rows, bases[0] | {with_: 2}).refused}  # fmt: skip
    assert {name for name in silent if COUNTS_WITH.get(name) not in refused} == set()


@pytest.mark.parametrize("target", TARGETS)
def test_plans_come_back_as_the_same_words(target):
    written = refused = 0
    for asked in random_plans(target):
        out = export(asked, target)
        if out.refused:
            refused += 1
            assert out.files == {}
            assert all(gap.why for gap in out.refused)
            continue
        written += 1
        found = read(sized(out, asked), CONFIGS[target])
        warned = {gap.field for gap in out.warned}
        wanted = configuration(found.framework, leave_open(facts_of(asked), warned)).words
        assert same_words(found.words, wanted, target, warned), (
            f"{asked.strategy}: {found.words} is not {wanted}"
        )
    # Neither all nor none.
    assert written >= PER_TARGET * 0.2
    assert refused >= PER_TARGET * 0.05


def sized(out, asked):
    """The configuration, with the number of GPUs where only the script has it."""
    text = out.files[CONFIGS[out.target]]
    if out.target != "megatron-bridge":
        return text
    return f"{text}\ncfg.world.world_size = {asked.cluster.accelerators}\n"


def leave_open(facts, warned):
    """Facts without those that are not said, at what the framework is known to do."""
    return {name: value for name, value in facts.items() if name not in warned}


def same_words(found, wanted, target, warned):
    """Whether words agree but for those that are open, and tokens up to a whole step."""
    found, wanted = dict(found), dict(wanted)
    for word in OPEN.get(target, ()):
        found.pop(word, None), wanted.pop(word, None)
    if "tokens" in wanted and "tokens" in found:
        one, other = float(found.pop("tokens")), float(wanted.pop("tokens"))
        assert abs(one / other - 1) < 1e-4
    if "loss" in warned:
        found.pop("loss", None)
    one, other = found.pop("strategy").split("-"), wanted.pop("strategy").split("-")
    if "sharding" in warned:
        one, other = one[1:], [token for token in other[1:] if token != "noreshard"]
    one, other = set(one), set(other)
    named = {"overlap_tp": "notpoverlap", "overlap_pp": "noppoverlap", "overlap_dp": "nodpoverlap",
             "reduce_each": "reduceeach", "compiled": "eager", "prefetch": "pf"}  # fmt: skip
    tokens = tuple(token for name, token in named.items() if name in warned)
    skipped = {t for t in one ^ other if t.startswith(("reduce", "pf", "compiled", *tokens))
               and warned & {"reduce_each", "reduce_precision", "compiled", "prefetch",
                             "overlap_tp", "overlap_dp", "overlap_pp"}}  # fmt: skip
    if "recompute" in warned:
        skipped |= {t for t in one ^ other if t.startswith("ac")}
    if target == "deepspeed":
        skipped |= {t for t in one ^ other if t.startswith("pf")}
    return found == wanted and (one ^ other) - skipped == set()


@pytest.mark.parametrize("target", ["megatron", "torchtitan-0.2", "maxtext"])
def test_what_comes_back_is_predicted_alike(target):
    checked = 0
    for asked in random_plans(target, 60):
        out = export(asked, target)
        if out.refused or {gap.field for gap in out.warned} - {"memory"}:
            continue
        words = read(out.files[CONFIGS[target]], CONFIGS[target]).words
        again = resolve(Question(on=asked.question.on, **words)).estimate()
        assert again.step_seconds == pytest.approx(asked.estimate().step_seconds, rel=1e-12)
        assert again.memory_bytes == pytest.approx(asked.estimate().memory_bytes, rel=1e-12)
        checked += 1
    assert checked >= 10


@pytest.mark.parametrize("target", TARGETS)
def test_a_changed_degree_is_noticed(target):
    said = export(golden(target), target).settings
    rows = TARGETS[target].rows
    facts = read_rows(rows, said)
    degrees = [key for key in keys_of(rows) if isinstance(said.get(key), int)
               and not isinstance(said.get(key), bool)
               and re.search(r"parallel|degree|_size$|processes|stage|virtual", key)
               and not re.search(r"prefetch|divisible|dcn_(tensor|context|expert)|ici_data|"
                                 r"hidden_size|layers|vocab|kv_channels|machines|world", key)
               ]  # fmt: skip
    assert len(degrees) >= 3
    for key in degrees:
        other = 1 if key == "zero_optimization.stage" else said[key] * 2
        changed = read_rows(rows, said | {key: other})
        assert changed != facts, key


def test_unknown_target_is_an_error():
    with pytest.raises(InputError, match="--to megatrn: unknown framework"):
        export(golden("megatron"), "megatrn")


def test_a_refusal_names_field_value_and_what_to_do():
    question = Question(model="llama-3-8b", on="dgx-h100", strategy="fsdp64-mb2-acop", batch=128,
                        stack="megatron-lm")  # fmt: skip
    found = export(resolve(question), "megatron")
    assert [str(gap) for gap in found.refused] == [
        "recompute = op: Megatron-LM recomputes attention (acattn), modules or whole blocks "
        "(acfull)"
    ]
    assert found.files == {}


def test_what_a_question_assumes_of_the_cluster_is_named():
    question = Question(model="llama-3-8b", on="dgx-h100", strategy="zero1x16-tp4-mb2", batch=128,
                        stack="pytorch", power_cap="500W", network="100GbE", algorithm="ring",
                        sets=("cluster.pue=1.2",))  # fmt: skip
    found = export(resolve(question), "megatron")
    assert {gap.field for gap in found.warned} == {"stack", "network", "power_cap", "sets",
                                                   "compiled"}  # fmt: skip
    assert "export NCCL_ALGO=Ring" in found.files[SCRIPT]


@pytest.mark.parametrize(
    ("on", "strategy", "line"),
    [
        ("dgx-h100", "zero1x32-tp2-mb2", "export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ("dgx-b200", "zero1x32-tp2-mb2", None),
        ("dgx-h100", "zero1x64-mb2", None),
        ("dgx-h100", "fsdp64-mb2", "unset CUDA_DEVICE_MAX_CONNECTIONS"),
        ("dgx-b200", "fsdp64-mb2", "unset CUDA_DEVICE_MAX_CONNECTIONS"),
    ],
)
def test_connections_of_a_device(on, strategy, line):
    question = Question(
        model="llama-3-8b", on=on, strategy=strategy, batch=256, stack="megatron-lm"
    )
    text = export(resolve(question), "megatron").files[SCRIPT]
    lines = [each for each in text.splitlines() if "CUDA_DEVICE_MAX_CONNECTIONS" in each]
    assert lines == ([] if line is None else [line])


def test_script_says_where_groups_land():
    text = export(golden("megatron"), "megatron").files[SCRIPT]
    assert "# tp: 2 ranks, neighbors: inside one node" in text
    assert "# dp_shard: 64 ranks, every 2: across the fabric, 4 ranks per node" in text
    assert "# pp: 4 ranks, every 128: across the fabric, one rank per node" in text
    assert "#SBATCH --nodes=64" in text
    assert "NCCL_ALGO" not in text
