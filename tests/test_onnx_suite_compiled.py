"""ONNX's node tests on compiled code: what the interpreter passes, native CPU code passes, and OpenCL a spread of it."""

import pytest
from onnx_cases import cases, passing, verdict

from gpucomp.backend import Backend


class OpenclBackend(Backend):
    @classmethod
    def prepare(cls, model, device="OPENCL", **kwargs):
        return super().prepare(model, device, **kwargs)


# one an operator family, and what the C dialects spell in their own way: types that only store, shifts, powers
_SPREAD = """
    abs add_uint8 and_bcast3v1d argmax_keepdims_example attention_4d_causal
    averagepool_2d_pads_count_include_pad batchnorm_example bitshift_left_int32_overflow bitshift_right_int64
    bitwise_and_i32_2d cast_FLOAT_to_FLOAT8E4M3FN cast_FLOAT8E5M2FNUZ_to_FLOAT cast_INT4_to_FLOAT
    cast_FLOAT_to_UINT4 cast_DOUBLE_to_FLOAT16 cast_FLOAT_to_BFLOAT16 celu clip_example compress_0
    concat_2d_axis_1 conv_with_strides_padding convtranspose_pads cumsum_1d_exclusive
    depthtospace_crd_mode_example dequantizelinear_axis dft einsum_batch_matmul erf expand_dim_changed
    eyelike_with_dtype gather_1 gather_elements_1 gathernd_example_float32 gelu_tanh_1 gemm_all_attributes
    globalaveragepool gridsample_bilinear group_normalization_example gru_defaults hardmax_axis_1
    instancenorm_example layer_normalization_2d_axis0 logsoftmax_axis_1 lrn lstm_defaults matmul_2d
    matmulinteger maxpool_2d_dilations maxunpool_export_with_output_shape mod_mixed_sign_int8 onehot_with_axis
    pow_types_int64_float32 prelu_broadcast qlinearconv quantizelinear_axis
    reduce_log_sum_exp_keepdims_example reduce_sum_empty_set_non_reduced_axis_zero
    resize_upsample_scales_linear reversesequence_batch roialign_aligned_true scatternd_add slice_neg_steps
    softmax_axis_1 split_equal_parts_2d tile top_k transpose_all_permutations_3 tril_zero where_example
"""
OPENCL_SPREAD = [f"test_{name}" for name in _SPREAD.split()]


@pytest.mark.parametrize("name", sorted(passing()))
def test_native_code_passes_what_the_interpreter_passes(name):
    assert not verdict(cases()[name], Backend)


@pytest.mark.parametrize("name", OPENCL_SPREAD)
def test_an_opencl_device_passes_a_case_of_every_family(name):
    assert not verdict(cases()[name], OpenclBackend)


def test_the_spread_names_only_passing_cases_once():
    assert set(OPENCL_SPREAD) <= passing()
    assert len(set(OPENCL_SPREAD)) == len(OPENCL_SPREAD)
