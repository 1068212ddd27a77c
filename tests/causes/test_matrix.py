"""Names of kernels as real traces have them, and what they tell of the arithmetic."""

import pytest

from unstall.causes.kernels._matrix import (
    AMPERE,
    CDNA,
    CDNA3,
    GEFORCE,
    VOLTA,
    Math,
    has_tensor_cores,
    math_of,
    units_of,
)
from unstall.model.device import Kernels
from unstall.model.ledger import Device

FULL = [
    "ampere_sgemm_32x32_sliced1x4_tn",
    "volta_sgemm_128x64_nt",
    "maxwell_sgemm_128x64_tn",
    "cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
    "cudnn_infer_volta_scudnn_128x64_stridedB_interior_nn_v1",
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
    "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>(int, int)",
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)",
    "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int)",
    "void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sgemm_128x64_8x5_nn_align1::Params)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x",
    "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN_LDSB0",
    "Cijk_Ailk_Bjlk_S_B_Bias_HA_S_SAV_UserArgs_MT64x16x16_MI16x16x1_SN",
    "igemm_fwd_gtcx_nchw_fp32_bx0_ex1_bt128x128x16_wt64x32x1",
]
REDUCED = [
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>(cutlass_80_tensorop_s1688gemm_256x64::Params)",
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_tensor16x8x8",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(...)",
    "void cutlass::Kernel<cutlass_70_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_tn_align8>(...)",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT",
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN",
    "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128_MI16x16x1_SN",
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x16_wt16x16x4",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1",
]
NONE = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >",
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float, float, float)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(...)",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(...)",
    "void gemmk1_kernel<float, 256, 5, false, false, false, false>(...)",
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(...)",
    "volta_fp16_sgemm_fp16_128x64_nn",  # half precision on the general units: another fault
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(...)",
    "triton_tem_fused_mm_0",
    "attn_fwd",
]


@pytest.mark.parametrize("name", FULL)
def test_float32_in_full_is_told_by_the_name(name):
    assert math_of(name) is Math.FULL


@pytest.mark.parametrize("name", REDUCED)
def test_products_on_units_for_matrices_are_told_by_the_name(name):
    assert math_of(name) is Math.REDUCED


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_product_or_tells_nothing_is_left_alone(name):
    assert math_of(name) is Math.NONE


@pytest.mark.parametrize(
    "name", ["volta_dgemm_64x64_nn", "cutlass_80_tensorop_d884gemm_64x64_16x4_nn", "Cijk_Ailk_Bljk_DB_MT64x32x8_SN"]
)
def test_double_precision_is_another_matter(name):
    assert math_of(name) is Math.DOUBLE


def test_complex_products_count_only_within_a_convolution():
    assert math_of("volta_gcgemm_32x32_nt", "aten::cudnn_convolution") is Math.FULL
    assert math_of("volta_gcgemm_32x32_nt", "aten::mm") is Math.NONE


def kernel(name):
    return Kernels(name, Device.COMPUTE, 1, 1000, 1000)


@pytest.mark.parametrize(
    ("device", "compute", "units"),
    [
        ("NVIDIA A100-SXM4-80GB", "8.0", AMPERE),
        ("NVIDIA H100 80GB HBM3", "9.0", AMPERE),
        ("Tesla V100-SXM2-32GB", "7.0", VOLTA),
        ("AMD Instinct MI210", "9.0", CDNA),
        ("AMD Instinct MI300X", "9.4", CDNA3),
        ("AMD Radeon Graphics", "9.0", CDNA),
        ("NVIDIA GeForce RTX 3090", "8.6", GEFORCE),
        ("Tesla P100-PCIE-16GB", "6.0", None),
        ("ARTEMIS", "", None),
    ],
)
def test_the_device_is_told_by_its_name_and_capability(device, compute, units):
    assert units_of(device, compute, ()) is units


def test_the_device_is_told_by_its_kernels_where_it_is_not_recorded():
    assert units_of("", "", [kernel("volta_sgemm_128x64_nt")]) is VOLTA
    assert units_of("", "", [kernel("ampere_sgemm_32x32_tn")]) is AMPERE
    assert units_of("", "", [kernel("maxwell_sgemm_128x64_tn")]) is None
    assert units_of("", "9.4", [kernel("Cijk_Alik_Bljk_BBS_BH_MT256x32x64")]) is CDNA


def test_units_for_matrices_are_known_where_a_kernel_used_them():
    assert has_tensor_cores(None, [kernel("cutlass_80_tensorop_s1688gemm")]) is True
    assert has_tensor_cores(None, [kernel("volta_sgemm_128x64_nt")]) is None
    assert has_tensor_cores(False, [kernel("cutlass_80_tensorop_s1688gemm")]) is False
