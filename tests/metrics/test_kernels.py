"""Classification of kernels, and their short names."""

import pytest

from lmsweep.analysis.metrics.kernels import short_name


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxOps<float>, 4> >(int)",
         "reduce MaxOps"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
         "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4> >()",
         "multi_tensor_apply FusedAdamMathFunctor"),
        ("nvjet_sm90_tst_96x128_64x6_2x1_v_bz_NNN", "nvjet_sm90_tst_96x128_64x6_2x1_v_bz_NNN"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel",
         "sm90_xmma_gemm_f32f...32_tn_n_128x128x32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4>(Params)",
         "cutlass_80_tensorop...x64_16x6_nt_align4"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("(x)", "(x)"),
    ],
)  # fmt: skip
def test_names_of_kernels_are_short_enough_for_a_table(kernel: str, short: str):
    assert short_name(kernel) == short and len(short) <= 40
