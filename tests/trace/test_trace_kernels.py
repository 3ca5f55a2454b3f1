"""Kinds of kernels by the names that libraries give them."""

import pytest

from scalewise.trace.kernels import kernel_kind


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("gemm", (
            "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
            "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16>",
            "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64",
            "triton_tem_fused_addmm_3", "triton_tem_fused_mm_12", "up, down backward",
        )),
        ("attention", (
            "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<...>>>",
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x64x128",
            "fmha_cutlassB_bf16_aligned_64x64_k128_sm80(PyTorchMemEffAttention)",
            "triton_tem_fused_flex_attention_1", "attention backward",
        )),
        ("other", (
            "triton_poi_fused__scaled_dot_product_flash_attention_0", "triton_red_fused_mm_mul_4",
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>",
            "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>",
            "multi_tensor_apply_kernel", "norm, activation",
        )),
    ],
)  # fmt: skip
def test_kinds(kind, names):
    assert {name: kernel_kind(name) for name in names} == dict.fromkeys(names, kind)
