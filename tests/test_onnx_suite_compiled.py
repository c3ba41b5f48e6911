"""ONNX's node tests on compiled code: what the interpreter passes, native CPU code passes, and OpenCL a spread of it."""

import pytest
from onnx_cases import cases, passing, verdict

from gpucomp.backend import Backend


class OpenclBackend(Backend):
    @classmethod
    def prepare(cls, model, device="OPENCL", **kwargs):
        return super().prepare(model, device, **kwargs)


# one an operator family, and what the C dialects spell in their own way: types that only store, shifts, powers
OPENCL_SPREAD = ["test_abs", "test_add_uint8", "test_and_bcast3v1d", "test_argmax_keepdims_example", "test_attention_4d_causal", "test_averagepool_2d_pads_count_include_pad", "test_batchnorm_example", "test_bitshift_left_int32_overflow", "test_bitshift_right_int64", "test_bitwise_and_i32_2d", "test_cast_FLOAT_to_FLOAT8E4M3FN", "test_cast_FLOAT8E5M2FNUZ_to_FLOAT", "test_cast_INT4_to_FLOAT", "test_cast_FLOAT_to_UINT4", "test_cast_DOUBLE_to_FLOAT16", "test_cast_FLOAT_to_BFLOAT16", "test_celu", "test_clip_example", "test_compress_0", "test_concat_2d_axis_1", "test_conv_with_strides_padding", "test_convtranspose_pads", "test_cumsum_1d_exclusive", "test_depthtospace_crd_mode_example", "test_dequantizelinear_axis", "test_dft", "test_einsum_batch_matmul", "test_erf", "test_expand_dim_changed", "test_eyelike_with_dtype", "test_gather_1", "test_gather_elements_1", "test_gathernd_example_float32", "test_gelu_tanh_1", "test_gemm_all_attributes", "test_globalaveragepool", "test_gridsample_bilinear", "test_group_normalization_example", "test_gru_defaults", "test_hardmax_axis_1", "test_instancenorm_example", "test_layer_normalization_2d_axis0", "test_logsoftmax_axis_1", "test_lrn", "test_lstm_defaults", "test_matmul_2d", "test_matmulinteger", "test_maxpool_2d_dilations", "test_maxunpool_export_with_output_shape", "test_mod_mixed_sign_int8", "test_onehot_with_axis", "test_pow_types_int64_float32", "test_prelu_broadcast", "test_qlinearconv", "test_quantizelinear_axis", "test_reduce_log_sum_exp_keepdims_example", "test_reduce_sum_empty_set_non_reduced_axis_zero", "test_resize_upsample_scales_linear", "test_reversesequence_batch", "test_roialign_aligned_true", "test_scatternd_add", "test_slice_neg_steps", "test_softmax_axis_1", "test_split_equal_parts_2d", "test_tile", "test_top_k", "test_transpose_all_permutations_3", "test_tril_zero", "test_where_example"]


@pytest.mark.parametrize("name", sorted(passing()))
def test_native_code_passes_what_the_interpreter_passes(name):
    assert not verdict(cases()[name], Backend)


@pytest.mark.parametrize("name", OPENCL_SPREAD)
def test_an_opencl_device_passes_a_case_of_every_family(name):
    assert not verdict(cases()[name], OpenclBackend)


def test_the_spread_names_only_passing_cases_once():
    assert set(OPENCL_SPREAD) <= passing()
    assert len(set(OPENCL_SPREAD)) == len(OPENCL_SPREAD)
