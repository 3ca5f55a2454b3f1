import json

import msgspec
import pytest

import toy_traces as toy
from scalewise.trace.events import (
    Message,
    collective_name,
    dtype_bytes,
    is_communication,
    is_compute,
    message,
    step_number,
)
from scalewise.trace.stream import Event


def as_event(made):
    return msgspec.json.decode(msgspec.json.encode(made), type=Event)


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        (toy.ALL_REDUCE, "all_reduce"),
        (toy.ALL_GATHER, "all_gather"),
        (toy.SEND_RECV, "send_recv"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
         "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "reduce_scatter"),
        ("ncclSymkDevKernel_AllGather_ST(ncclSymkDevWorkArgs)", "all_gather"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "other"),
        ("ncclDevKernel_Broadcast_RING_LL(...)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(...)", "reduce"),
        ("mscclKernel_Sum_float_Simple(...)", "other"),
        ("void c10d::symmetric_memory::two_shot_all_reduce_kernel<c10::BFloat16, 16>(...)",
         "all_reduce"),
        ("void deep_ep::internode::dispatch<false, 8>(int4*)", "all_to_all"),
    ],
)  # fmt: skip
def test_kernels_that_communicate(name, collective):
    assert is_communication(name)
    assert collective_name(name) == collective


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1>(...)",
        "triton_red_fused_native_layer_norm_0",
        "sm90_xmma_gemm_bf16bf16_bf16f32",
        "Memcpy PtoP (Device -> Device)",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float>",
        "void scatter_gather_elementwise_kernel<128>",
    ],
)
def test_kernels_that_do_not(name):
    assert not is_communication(name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("_all_gather_base", "all_gather"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("send", "send"),
        ("recv", "recv"),
        ("gloo:gather", "gather"),
        ("gloo:scatter", "scatter"),
        ("reduce", "reduce"),
        ("something", "other"),
    ],
)
def test_one_name_for_every_spelling(text, name):
    assert collective_name(text) == name


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("BFloat16", 2), ("c10::BFloat16", 2), ("c10::Half", 2), ("Float", 4), ("float", 4),
     ("long int", 8), ("unsigned char", 1), ("Float8_e4m3fn", 1), ("Double", 8), ("qint9", None)],
)  # fmt: skip
def test_bytes_of_an_element(dtype, size):
    assert dtype_bytes(dtype) == size


@pytest.mark.parametrize(
    ("name", "computes"),
    [
        ("aten::mm", True),
        ("fsdp::split_with_sizes_copy", True),
        ("mylib::attention", True),
        ("graph_0_cpp_fused_add_0", True),
        ("autograd::engine::evaluate_function: MmBackward0", False),
        ("torch::autograd::AccumulateGrad", False),
        ("MmBackward0", False),
        ("c10d::allreduce_", False),
        ("_c10d_functional::wait_tensor", False),
    ],
)
def test_operators_that_compute(name, computes):
    assert is_compute(name) is computes


def test_a_kernel_tells_its_message():
    assert message(as_event(toy.nccl(0, 1))) == Message(
        "all_reduce", "mesh_dp", 8, 2 << 20, "BFloat16"
    )
    # The larger of input and output, as nccl-tests counts.
    assert message(as_event(toy.all_gather(0, 1))).bytes == 16 << 20
    named = {"Process Group Description": "undefined", "Process Group Name": "17"}
    assert message(as_event(toy.nccl(0, 1, **named))).group == "17"


def test_a_range_tells_it_by_shapes():
    assert message(as_event(toy.gloo(0, 1, elements=250))) == Message(
        "all_reduce", None, None, 1000, "float"
    )


@pytest.mark.parametrize(
    "args",
    [{}, {"In msg nelems": -1, "dtype": "Float"}, {"dtype": "odd", "In msg nelems": 4},
     {"Input Dims": [[2], "x"], "Input type": ["float", "float"]}, {"Input Dims": 3},
     {"Input Dims": [[[2], [3]]], "Input type": ["TensorList"]}],
)  # fmt: skip
def test_what_is_not_said_is_not_known(args):
    found = message(as_event(toy.kernel(0, 1, toy.ALL_REDUCE, **args)))
    assert (found.collective, found.bytes, found.group) == ("all_reduce", None, None)


def test_numbers_of_steps():
    assert step_number("ProfilerStep#12") == 12
    assert step_number("ProfilerStep#") is None
    assert step_number("ProfilerStep#x") is None


@pytest.mark.parametrize("count", [10**400, "9" * 5000, "9" * 17, -1, "\u00b2", True])
def test_a_count_that_no_message_has_is_unknown(count):
    arguments = {"Group size": 8, "dtype": "float", "In msg nelems": count}
    event = Event(name=toy.ALL_REDUCE, args=json.dumps(arguments).encode())
    assert (message(event).group_size, message(event).bytes) == (8, None)
