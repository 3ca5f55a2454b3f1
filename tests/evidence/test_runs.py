"""Reading runs: what a cell says, what a blank leaves open, and what a row becomes."""

import pytest

from scalewise.errors import InputError
from scalewise.evidence.runs import Run, UnsupportedError, read_runs
from scalewise.evidence.table import RunTable, completed_plan
from scalewise.evidence.validate import JUDGED_QUALITIES, judge

# Llama-2-7B's shape on one board of eight.
ROW = {
    "id": "mine", "source": "me", "accelerator": "h100-sxm-80gb", "accelerators": "8",
    "layers": "32", "hidden": "4096", "heads": "32", "ffn_hidden": "11008", "gated_mlp": "true",
    "vocab": "32000", "seq_len": "4096", "global_batch": "64", "micro_batch": "1",
    "dp_shard": "8", "sharding": "zero3", "recompute": "full",
    "tokens_per_second_per_accelerator": "9000",
}  # fmt: skip


def row(**changes):
    """The plain row with some cells changed; an empty text blanks a cell."""
    return Run({**ROW, **changes}, 7)


def written(tmp_path, text):
    path = tmp_path / "runs.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


class TestCells:
    def test_a_blank_is_none_and_a_zero_is_zero(self):
        run = row(memory_gb="", watts_per_accelerator="0", tied_embeddings="", gated_mlp="0")
        assert run.number("memory_gb") is None
        assert run.memory_bytes is None
        assert run.number("watts_per_accelerator") == 0.0
        assert run.flag("tied_embeddings") is None
        assert run.flag("gated_mlp") is False
        assert run.number("no_such_column") is None

    def test_spaces_are_blank(self):
        assert row(vocab="   ").count("vocab") is None

    @pytest.mark.parametrize("text", ["8", "8.0", " 8 ", "8e0"])
    def test_whole_numbers_may_look_like_floats(self, text):
        value = row(accelerators=text).count("accelerators")
        assert value == 8
        assert isinstance(value, int)

    @pytest.mark.parametrize("text", ["9,000", "fast", "nan", "inf", "-inf", "1e999", "8 GPUs"])
    def test_a_wrong_number_names_line_and_column(self, text):
        with pytest.raises(InputError, match="line 7: step_seconds = ") as caught:
            row(step_seconds=text).number("step_seconds")
        assert repr(text) in str(caught.value)
        assert "blank means not stated" in caught.value.hint

    def test_a_fraction_is_no_count(self):
        with pytest.raises(InputError, match=r"line 7: tp = 1\.5 is not a whole number"):
            row(tp="1.5").count("tp")

    @pytest.mark.parametrize(
        ("text", "said"),
        [("true", True), ("True", True), ("yes", True), ("1", True), ("false", False), ("", None)],
    )
    def test_flags(self, text, said):
        assert row(compiled=text).flag("compiled") is said

    def test_who_and_how_good(self):
        bare = Run({"accelerator": "h100", "accelerators": "8"}, 12)
        assert (bare.id, bare.source, bare.framework, bare.quality) == (
            "line-12", "unnamed", None, "ok",
        )  # fmt: skip
        assert row().id == "mine"
        assert row(quality="incomplete").quality == "incomplete"

    @pytest.mark.parametrize(
        ("cells", "dense"),
        [
            ({}, True),
            ({"attention": "sliding-5of6"}, True),
            ({"experts": "8"}, False),
            ({"attention": "mla"}, False),
            ({"attention": "hybrid-mamba"}, False),
        ],
    )
    def test_dense(self, cells, dense):
        assert row(**cells).dense is dense


class TestReading:
    def test_lines_are_counted_from_the_header(self, tmp_path):
        path = written(tmp_path, "accelerator,accelerators,id\nh100,8,a\nh100,16,\n")
        first, second = read_runs(path)
        assert (first.id, first.count("accelerators"), first.line) == ("a", 8, 2)
        assert (second.id, second.line) == ("line-3", 3)

    def test_surplus_and_missing_cells_lose_nothing(self, tmp_path):
        path = written(tmp_path, "accelerator,accelerators,id\nh100,8,a,stray,cells\nh100\n")
        first, second = read_runs(path)
        assert first.row == {"accelerator": "h100", "accelerators": "8", "id": "a"}
        assert second.row == {"accelerator": "h100"}

    def test_lines_are_those_an_editor_shows(self, tmp_path):
        path = written(tmp_path, 'accelerator,accelerators,notes\n\nh100,8,"two\nlines"\nh100,x,\n')
        assert read_runs(path)[-1].line == 5

    def test_a_byte_order_mark_is_no_part_of_a_name(self, tmp_path):
        (run,) = read_runs(written(tmp_path, "\ufeffaccelerator,accelerators\nh100,8\n"))
        assert run.text("accelerator") == "h100"

    @pytest.mark.parametrize("column", ["accelerator", "accelerators"])
    def test_a_missing_required_column_is_named(self, tmp_path, column):
        header = {"accelerator": "accelerators,id", "accelerators": "accelerator,id"}[column]
        with pytest.raises(InputError, match=f"runs.csv has no column '{column}'"):
            read_runs(written(tmp_path, f"{header}\n8,a\n"))

    def test_an_empty_file_has_no_columns(self, tmp_path):
        with pytest.raises(InputError, match="has no column 'accelerator'"):
            read_runs(written(tmp_path, b""))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (bytes(range(256)), r"it is not UTF-8 text \(byte 128\)"),
            (
                b"accelerator,accelerators,notes\nh100,8,caf\xe9\n",
                r"it is not UTF-8 text \(byte 41\)",
            ),
            (
                b'accelerator,accelerators,notes\nh100,8,"' + b"x" * 200_000 + b"\n",
                "line 2 is not CSV",
            ),
        ],
        ids=["binary", "latin-1", "unclosed quote"],
    )
    def test_a_corrupt_file_is_refused_in_one_sentence(self, tmp_path, content, reason):
        with pytest.raises(InputError, match=f"runs.csv cannot be read: {reason}"):
            read_runs(written(tmp_path, content))

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(InputError, match=r"nowhere\.csv cannot be read: no such file"):
            read_runs(tmp_path / "nowhere.csv")

    def test_a_folder_is_no_table(self, tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_runs(tmp_path)

    def test_a_header_alone_is_an_empty_table(self, tmp_path):
        assert read_runs(written(tmp_path, "accelerator,accelerators\n")) == []


class TestMeasured:
    def test_stated_wins(self):
        assert row(step_seconds="1").tokens_per_second == 9000.0

    def test_from_step_time(self):
        # 64 sequences of 4096 tokens in 4 s on 8 accelerators.
        run = row(tokens_per_second_per_accelerator="", step_seconds="4")
        assert run.tokens_per_second == 8192.0

    # Causal: 6 x 6,607,077,376 matmul parameters (32 layers of 4 x 4096^2 + 3 x 4096 x 11008, and
    # the head) + 6 x 32 x 4096 x 4096. Full: 6 x all 6,738,415,616 + 12 x 32 x 4096 x 4096.
    @pytest.mark.parametrize(
        ("basis", "flops"),
        [("model-causal", 42_863_689_728), ("model-full", 46_872_944_640)],
    )
    def test_from_flops_on_a_stated_basis(self, basis, flops):
        run = row(
            tokens_per_second_per_accelerator="", tflops_per_accelerator="400", tflops_basis=basis
        )
        assert run.tokens_per_second == pytest.approx(400e12 / flops, rel=1e-9)

    @pytest.mark.parametrize("basis", ["", "model", "hardware"])
    def test_flops_of_unknown_basis_say_nothing(self, basis):
        run = row(
            tokens_per_second_per_accelerator="", tflops_per_accelerator="400", tflops_basis=basis
        )
        assert run.tokens_per_second is None

    def test_a_zero_is_no_measurement(self):
        assert row(tokens_per_second_per_accelerator="0").tokens_per_second is None

    def test_a_shipped_row_in_flops(self):
        # 156 TFLOP/s; 48 layers of 4 x 6144^2 + 2 x 6144 x 24576, the head, causal attention.
        (run,) = [run for run in read_runs() if run.id == "mx-22b-v4-64c"]
        assert run.tokens_per_second == pytest.approx(156e12 / 135_291_469_824, rel=1e-9)

    def test_memory(self):
        assert row(memory_gb="36.7").memory_bytes == pytest.approx(36.7e9)


class TestStrategy:
    def chosen(self, **cells):
        defaults = []
        return row(**cells).strategy(defaults), defaults

    @pytest.mark.parametrize("kind", ["hsdp", "fsdp", "zero3"])
    def test_fully_sharded_names_are_one(self, kind):
        strategy, defaults = self.chosen(sharding=kind, dp_replicate="2", dp_shard="4")
        assert (strategy.sharding, strategy.dp_replicate, strategy.dp_shard) == ("zero3", 2, 4)
        assert strategy.reshard_after_forward is True
        assert defaults == []

    @pytest.mark.parametrize("framework", ["llm-foundry", "composer", "torchtitan"])
    def test_zero2_of_fsdp_gathers_once(self, framework):
        strategy, _ = self.chosen(sharding="zero2", framework=framework)
        assert (strategy.sharding, strategy.reshard_after_forward, strategy.dp_shard) == (
            "zero3",
            False,
            8,
        )

    def test_zero2_elsewhere_is_zero2(self):
        strategy, _ = self.chosen(sharding="zero2", framework="nemo")
        assert (strategy.sharding, strategy.reshard_after_forward) == ("zero2", True)

    def test_ddp_replicates_all_ranks(self):
        strategy, _ = self.chosen(sharding="ddp", dp_replicate="2", dp_shard="4")
        assert (strategy.sharding, strategy.dp_replicate, strategy.dp_shard) == ("ddp", 8, 1)

    @pytest.mark.parametrize(("kind", "ranks"), [("ddp", (4, 1)), ("zero1", (1, 4))])
    def test_ranks_are_derived_from_the_rest(self, kind, ranks):
        strategy, defaults = self.chosen(sharding=kind, dp_shard="", tp="2")
        assert (strategy.dp_replicate, strategy.dp_shard) == ranks
        assert "4 data-parallel ranks (derived)" in defaults

    @pytest.mark.parametrize(
        ("framework", "kind", "ranks"), [("nemo", "zero1", (1, 8)), ("mine", "zero1", (1, 8))]
    )
    def test_unstated_sharding(self, framework, kind, ranks):
        strategy, defaults = self.chosen(sharding="", framework=framework)
        assert (strategy.sharding, strategy.dp_replicate, strategy.dp_shard) == (kind, *ranks)
        assert defaults == [f"sharding {kind} (not stated)"]

    def test_unstated_micro_batch_is_one_and_said(self):
        strategy, defaults = self.chosen(micro_batch="")
        assert strategy.micro_batch == 1
        assert defaults == ["micro-batch 1 (not stated)"]

    def test_chunks_need_a_pipeline(self):
        assert self.chosen(virtual_stages="4")[0].virtual_stages == 1
        strategy, _ = self.chosen(virtual_stages="4", pp="2", dp_shard="4")
        assert (strategy.virtual_stages, strategy.schedule) == (4, "interleaved")

    def test_sequence_parallelism_is_assumed_aloud(self):
        strategy, defaults = self.chosen(tp="2", dp_shard="4")
        assert strategy.sequence_parallel
        assert defaults == ["sequence parallelism on (not stated)"]
        assert not self.chosen(tp="2", dp_shard="4", sequence_parallel="false")[0].sequence_parallel

    def test_pure_precision_of_the_notes(self):
        assert self.chosen(notes="MP-mode PURE")[0].reduce_precision == "bf16"
        assert self.chosen(notes="MP-mode DEFAULT")[0].reduce_precision is None

    def test_what_the_notes_say_of_eight_bits(self):
        strategy, _ = self.chosen(notes="float8 tensorwise via torchao; float8 all-gather")
        assert (strategy.gather_precision, strategy.attention_precision) == ("fp8", None)
        strategy, _ = self.chosen(notes="fp8 attention")
        assert (strategy.gather_precision, strategy.attention_precision) == (None, "fp8")


class TestPlan:
    @pytest.mark.parametrize(
        ("stated", "notes", "precision"),
        [
            ("fp8", "", "fp8"),
            ("fp8", "fp8 tensorwise; vanilla TP", "fp8"),
            ("fp8", "calls its rowwise fp8 TP figures low; fp8 rowwise; async TP", "fp8row"),
            ("fp8", "float8 blockwise", "fp8block"),
            ("bf16", "slower than fp8 rowwise", "bf16"),
        ],
    )
    def test_scales_of_the_notes(self, stated, notes, precision):
        assert row(precision=stated, notes=notes).plan().workload.precision == precision

    def test_the_optimizer_of_the_notes(self):
        assert row(notes="optimizer muonh; vocab derived").plan().workload.optimizer == "muon"
        assert row(notes="optimizer adamw").plan().workload.optimizer == "adamw"
        tuned = row(notes="strategy fsdp8, optimizer sgd, tuning lora8-qv").plan().workload
        assert (tuned.optimizer, tuned.tuning) == ("sgd", "lora8-qv")

    def test_a_complete_row_chooses_nothing(self):
        plan = row().plan()
        assert plan.defaults == ()
        assert plan.model.parameters == 6_738_415_616
        assert (plan.workload.seq_len, plan.workload.global_batch) == (4096, 64)
        assert plan.cluster.accelerators == 8

    def test_every_default_is_listed(self):
        run = row(vocab="", micro_batch="", dp_shard="", sharding="", accelerators="16")
        assert run.plan().defaults == (
            "vocab 32000 (not stated)",
            "network rate typical of the accelerator (not stated)",
            "micro-batch 1 (not stated)",
            "16 data-parallel ranks (derived)",
            "sharding zero1 (not stated)",
        )

    def test_a_stated_network_is_used(self):
        plan = row(accelerators="16", dp_shard="16", scaleout_gbps="100").plan()
        assert plan.cluster.scale_out_bandwidth == 12.5e9
        assert plan.defaults == ()

    @pytest.mark.parametrize("column", ["layers", "hidden", "heads", "ffn_hidden", "seq_len",
                                        "global_batch", "accelerators", "accelerator"])  # fmt: skip
    def test_what_a_prediction_needs_is_named(self, column):
        with pytest.raises(UnsupportedError, match=f"^{column} is not stated$"):
            row(**{column: ""}).plan()

    def test_a_mesh_that_does_not_fit_is_refused(self):
        with pytest.raises(InputError, match="= 4 GPUs, but the cluster has 8"):
            row(dp_shard="4").plan()

    def test_windows(self):
        model = row(attention="sliding-5of6", layers="36").plan().model
        assert (model.window, model.windowed_layers) == (1024, 30)

    def test_a_zero_head_count_is_refused_like_any_other(self):
        verdict = judge(row(heads="0"))
        assert (verdict.status, "heads" in verdict.reason) == ("unsupported", True)


class TestVerdicts:
    """Rows of a user's own table."""

    def test_unknown_framework_takes_the_nearest_family(self):
        assert judge(row(framework="in-house")).stack == "pytorch"
        assert judge(row(framework="in-house", compiled="true")).stack == "pytorch-compiled"
        assert judge(row(framework="in-house", sharding="zero1")).stack == "megatron-lm"
        assert judge(row(framework="nemo")).stack == "megatron"

    @pytest.mark.parametrize(
        ("cells", "reason"),
        [
            ({"precision": "int8"}, "unknown precision int8"),
            ({"sharding": "banana"}, "unknown sharding banana"),
            ({"layers": "many"}, "line 7: layers = 'many' is not a number"),
            ({"attention": "hybrid-mamba"}, "hybrid Mamba layers are not modeled"),
            ({"global_batch": ""}, "global_batch is not stated"),
        ],
    )
    def test_what_cannot_be_said_has_a_reason(self, cells, reason):
        verdict = judge(row(**cells))
        assert (verdict.status, verdict.reason) == ("unsupported", reason)
        assert verdict.predicted_tokens_per_second is None
        assert verdict.error is None

    @pytest.mark.parametrize(
        ("cells", "note"),
        [
            ({"accelerator": "h100-sxm-94gb"},
             "accelerator h100-sxm-94gb is not in the catalog: h100-sxm-80gb assumed"),
            ({"fabric": "string"}, "fabric like any RDMA network (string is not known)"),
        ],
    )  # fmt: skip
    def test_no_name_is_refused(self, cells, note):
        verdict = judge(row(**cells))
        assert (verdict.status, verdict.defaults) == ("ok", (note,))

    def test_mixtures_of_experts(self):
        verdict = judge(row(experts="8", experts_per_token="2", model="my-moe"))
        assert (verdict.status, verdict.dense, verdict.experts) == ("ok", False, True)
        assert "balanced routing (not stated)" in verdict.defaults
        # Software that no recipe states is taken as usual for the stack.
        assert verdict.basis.experts == "usual"

    def test_without_a_micro_batch_it_is_predicted(self):
        verdict = judge(row(micro_batch=""))
        assert verdict.status == "ok"
        assert verdict.defaults == ("micro-batch 1 (not stated)",)
        assert (
            verdict.predicted_tokens_per_second
            == judge(row(micro_batch="1")).predicted_tokens_per_second
        )

    def test_without_a_measurement_it_is_predicted(self):
        verdict = judge(row(tokens_per_second_per_accelerator=""))
        assert (verdict.status, verdict.error) == ("unmeasured", None)
        assert verdict.predicted_tokens_per_second > 0

    def test_too_large_is_infeasible_with_the_memory_it_needs(self):
        verdict = judge(row(sharding="ddp"))
        assert verdict.status == "infeasible"
        assert verdict.reason.startswith("memory: needs ")
        # 16 bytes of state per parameter alone.
        assert verdict.memory_gb_predicted > 16 * 6.738


def test_the_least_recomputation_that_fits_is_taken():
    plan, _ = completed_plan(row(recompute="", micro_batch="1"))
    assert plan.strategy.recompute == "none"
    assert plan.defaults == ("recompute none (not stated; the least that fits)",)
    plan, _ = completed_plan(row(recompute="unknown", micro_batch="8"))
    blocks, of = map(int, plan.strategy.recompute.split("of"))
    assert (0 < blocks < of, of) == (True, 32)
    assert plan.defaults == (f"recompute {blocks}of32 (not stated; the least that fits)",)
    plan, _ = completed_plan(row(recompute="none", micro_batch="8"))
    assert plan.strategy.recompute == "none"
    assert plan.defaults == ()


def test_every_good_dense_row_of_the_shipped_table_is_expressible():
    runs = [run for run in read_runs() if run.dense and run.quality in JUDGED_QUALITIES]
    assert len(runs) >= 1700
    table = RunTable.of(runs)
    assert [(run.id, reason) for run, reason in table.rejected] == []
    assert len(table) == len(runs)


def test_shipped_ids_are_unique():
    ids = [run.text("id") for run in read_runs()]
    assert None not in ids
    assert len(set(ids)) == len(ids)
