import msgspec
import pytest

from measure_jobs import MOE, SMALL, TIED, job
from scalewise.errors import InputError
from scalewise.measure.check import check_job
from scalewise.model import Moe, load_model
from scalewise.records.job import check_precision, check_routing, inputs_of, job_of

SIX = msgspec.structs.replace(MOE, name="six", moe=Moe(experts=6, experts_per_token=2, ffn=32))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (job("cp2-mb8"), "cp = 2 cannot be measured on CPUs"),
        (job("fsdp2-ep2-mb4"), "ep = 2 needs experts, but small is dense"),
        (job("fsdp4-ep4-mb2", model=SIX), "ep = 4 does not divide moe.experts = 6 of six"),
        (job("ddp2-ep4-mb4", model=MOE),
         "ep x etp = 4 does not divide dp_shard x cp x tp x dp_replicate = 2 of ddp2-ep4-mb4"),
        (job("hsdp2x2-ep4-mb2", model=MOE), "ep x etp = 4 does not divide dp_shard x cp x tp = 2"),
        (job("zero1x2-ep2-mb4", model=MOE), "ep = 2 cannot be measured together with ZeRO-1"),
        (job("tp2-nosp-mb8", model=MOE), "tp = 2 with experts cannot be measured without sequence"),
        (job("ddp1-mb8", model=MOE, compile=True), "moe has experts, whose routing cannot be comp"),
        (job("zero2x2-mb4"), "zero2 cannot be measured"),
        (job("zero1x2-tp2-mb4"), "ZeRO-1 optimizer works with plain data parallelism"),
        (job("fsdp2-mb4-fp8"), "precision fp8 of the strategy cannot be measured here"),
        (job("fsdp2-mb4-fp8attn"), "fp8attn cannot be measured here"),
        (job("fsdp2-mb4-gatherfp8"), "gatherfp8 cannot be measured here"),
        (job("ddp2-mb4-reducebf16"), "reducebf16 with ddp cannot be measured on CPUs"),
        (job("tp3-mb8"), "tp = 3 does not divide heads = 4 of small"),
        (job("tp4-mb8"), "tp = 4 does not divide kv_heads = 2 of small"),
        (job("tp2-mb8", seq_len=33), "tp = 2 does not divide seq_len = 33"),
        (job("pp8-mb1"), r"8 pipeline stages \(pp 8 x 1 chunks\) are more than the 4 layers"),
        (job("pp4-zbv-mb1"), r"8 pipeline stages \(pp 4 x 2 chunks\)"),
        (job("pp2-mb2", model=TIED), "tied ties head and embedding"),
        (job("pp2-mb8"), "1 micro-batches are fewer than 2 pipeline stages"),
        (job("pp2-v2-gpipe-mb2"), "schedule gpipe has one chunk per rank, not 2"),
        (job("pp2-v2-mb1", global_batch=5), "5 micro-batches do not fall into 2 equal rounds"),
        (job("pp2-zbv-mb2", compile=True), "schedule zbv cannot be compiled"),
        (job("fsdp2-pp2-zbv-mb1"), "schedule zbv cannot be measured with FSDP that frees"),
        (job("ddp2-mb3"), "global_batch = 8 is not a multiple of micro_batch 3"),
        (job("ddp1", model=load_model("deepseek-v3")), "deepseek-v3 has latent attention"),
        (job("ddp1", model=load_model("bloom-7b1")), "bloom-7b1 has ALiBi positions"),
        (job("ddp1", model=msgspec.structs.replace(SMALL, mtp_layers=1)),
         "small has multi-token prediction"),
        (job("ddp1-mb8", model=load_model("mistral-7b-v0.1"), seq_len=8192),
         "attends within a window of 4096, shorter than the sequence of 8192"),
        (job("ddp1-mb8", model=load_model("gpt2"), seq_len=2048), "has 1024 learned positions"),
        (job("tp2-mb8", model=load_model("qwen3-8b")), "which the tensor-parallel plan does not"),
        (job("ddp1-mb8", text="/no/such/file"), "there is no text file /no/such/file"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_in_a_sentence(case, said):
    with pytest.raises(InputError, match=said):
        check_job(case, "cpu")


def test_gpus_can_do_more_and_less():
    check_job(job("cp2-mb8"), "cuda")
    with pytest.raises(InputError, match="ep = 2 cannot be measured together with cp"):
        check_job(job("fsdp2-cp2-ep2-mb4", model=MOE), "cuda")
    check_job(job("ddp2-mb4-reducebf16"), "cuda")
    check_job(job("fsdp2-mb4-nodpoverlap"), "cpu")
    with pytest.raises(InputError, match="FSDP on GPUs always prefetches"):
        check_job(job("fsdp2-mb4-nodpoverlap"), "cuda")
    with pytest.raises(InputError, match="cp = 2 can be measured with fsdp alone"):
        check_job(job("ddp2-cp2-mb4"), "cuda")


def test_warmup_must_leave_a_step():
    with pytest.raises(InputError, match="warmup = 4 leaves none of 4 steps"):
        job("ddp1-mb8", warmup=4)


def test_routing_is_one_of_two():
    assert check_routing("TopK") == "topk"
    with pytest.raises(InputError, match="unknown routing top2"):
        check_routing("top2")


def test_precision_is_one_of_two():
    assert check_precision("BF16") == "bf16"
    with pytest.raises(InputError, match="precision 'fp8' cannot be measured here"):
        check_precision("fp8")


def test_a_job_survives_its_record():
    original = job("hsdp2x2-tp2-mb1-acsel-noreshard", seed=7, trace_steps=2)
    plain = inputs_of(original)
    assert plain["strategy"] == "hsdp2x2-tp2-mb1-acsel-noreshard"
    through_a_file = msgspec.json.decode(msgspec.json.encode(plain))
    assert job_of(through_a_file) == original


def test_unreadable_inputs_are_refused():
    with pytest.raises(InputError, match="the inputs of a record cannot be read"):
        job_of({"strategy": "ddp2", "model": {"name": "x"}})


def test_derived_sizes():
    case = job("fsdp2-pp2-v2-mb1", model=SMALL)
    assert (case.ranks, case.num_microbatches, case.tokens_per_step, case.chunks) == (4, 4, 256, 2)
    assert job("pp2-zbv-mb2").chunks == 2
