"""Specifications of kernels: how they are read, what is wrong with others, and how much work they are."""

import math

import pytest

from gpucomp.errors import UsageError
from gpucomp.kernel_bench.reference import in_f64, operands
from gpucomp.kernel_bench.specs import KINDS, elements, nbytes, operations, shipped, spec_of, specs_in
from tests.kernel_bench.kernels import SMALL


@pytest.mark.parametrize("text", SMALL)
def test_a_spec_is_printed_as_it_is_read(text):
    spec = spec_of(text)

    assert spec_of(str(spec)) == spec
    assert set(str(spec).partition(":")[2].split(",")) == set(text.partition(":")[2].split(","))


def test_each_kind_is_among_those_that_are_tested():
    assert {text.partition(":")[0] for text in SMALL} == set(KINDS)


def test_bytes_of_weights_of_few_bits():
    spec = spec_of("nbits_gemm:m=3,n=5,k=70,block=32")  # three blocks of 16 bytes, the last one half empty

    assert nbytes(spec) == 4 * (3 * 70 + 3 * 5 + 5 * 3) + 5 * 3 * 16
    assert {name: array.nbytes for name, array in operands(spec).items()} == {"a": 840, "b": 240, "scale": 60}
    assert operations(spec) == 2 * 3 * 5 * 70


def test_parameters_have_defaults():
    spec = spec_of("conv:c=3,h=8,w=9,k=4,r=3,s=2")

    assert str(spec_of("transpose:shape=9x9,perm=1x0")) == "transpose:shape=9x9,perm=1x0"
    assert (spec.n, spec.stride, spec.pad, spec.groups, spec.bias, spec.dtype) == (
        1,
        (1, 1),
        (0, 0, 0, 0),
        1,
        False,
        "f32",
    )
    assert spec_of("conv:c=3,h=8,w=9,k=4,r=3,s=2,pad=1,bias=0").pad == (1, 1, 1, 1)
    assert not hasattr(spec, "heads")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gem:m=1,n=1,k=1", "no kind 'gem'"),
        ("", "no kind ''"),
        ("gemm:m=1,n=1", "gemm needs k"),
        ("gemm", "gemm needs m, n, k"),
        ("gemm:m=1,n=1,k=0", "k is '0': a whole number of at least 1 expected"),
        ("gemm:m=1,n=1,k=-3", "k is '-3'"),
        ("gemm:m=1,n=1,k=²", "k is '²'"),
        ("gemm:m=1,n=1,k=12345678901234567890", "k is '12345678901234567890'"),
        ("gemm:m=1,n=1,k=1,q=2", "gemm has no parameter 'q'"),
        ("gemm:m=1,n=1,k=1,m=2", "'m' is given twice"),
        ("gemm:m=1,n=1,k=1,dtype=f8", "dtype is 'f8': f32 or f16 or bf16 or i8 expected"),
        ("gemm:m=1,n=1,k=1,bias=yes", "bias is 'yes': nothing, 0 or 1 expected"),
        ("gemm:m=1,n=1,k=1,dtype=i8,act=relu", "products of bytes have no act"),
        ("gemm:m=1,n=1,k=1,dtype=i8,bias", "products of bytes have no bias"),
        ("gemm:m=99999999,n=99999999,k=1", "a tensor of more than"),
        ("conv:c=3,h=8,w=9,k=4,r=3,s=3,groups=2", "2 groups"),
        ("conv:c=3,h=2,w=9,k=4,r=3,s=3", "a window of 3 x 3 does not fit an image of 2 x 9"),
        ("conv:c=3,h=8,w=9,k=4,r=3,s=3,stride=0", "stride is '0'"),
        ("conv:c=3,h=8,w=9,k=4,r=3,s=3,stride=1x2x3", "stride is '1x2x3'"),
        ("attention:heads=6,kv_heads=4,q=3,d=8", "4 kv_heads do not divide 6 heads"),
        ("attention:heads=6,q=3,kv=4,d=8,causal", "causal attention has as many keys as queries"),
        ("group_norm:c=6,h=3,w=3,groups=4", "4 groups do not divide 6 channels"),
        ("max_pool:c=1,h=8,w=8,r=3,s=3,pad=2", "pad is at most half a window"),
        ("conv:c=3,h=8,w=9,k=4,r=3,s=3,pad=1x2x3", "pad is '1x2x3': a number, HEIGHTxWIDTH or TOPxLEFT"),
        ("nbits_gemm:m=1,n=1,k=64,block=24", "block is a power of two"),
        ("nbits_gemm:m=1,n=1,k=64,bits=3", "bits is '3': 4 or 2 or 8 expected"),
        ("avg_pool:c=1,h=8,w=8,r=3,s=3,dilation=2", "avg_pool has no dilation"),
        ("transpose:shape=2x3,perm=0x0", "perm names each of 2 axes once"),
        ("transpose:shape=2x,perm=0x1", "shape is '2x'"),
        ("reduce:op=sum,shape=2x3,axes=2", "axes are different ones of 0 to 1"),
        ("reduce:op=sum,shape=2x3,axes=1x1", "axes are different ones"),
        ("softmax:rows=1,cols=" + 2000 * "1", "no kind 'softmax'"),
    ],
)
def test_what_is_wrong_with_a_spec_is_told(text, why):
    with pytest.raises(UsageError, match="kernel ") as caught:
        spec_of(text)

    assert caught.value.code == "GPC2055"
    assert why in caught.value.message or text.startswith("softmax")


@pytest.mark.parametrize("text", ["pad=1", "pad=1x2", "pad=0x1x2x3"])
def test_pads_are_of_one_to_four_sides(text):
    spec = spec_of(f"conv:c=3,h=8,w=9,k=4,r=3,s=3,{text}")

    assert str(spec).endswith(text)
    assert len(spec.pad) == 4


@pytest.mark.parametrize("text", [text for text in SMALL if "dtype" not in text and "nbits" not in text])
def test_bytes_are_those_of_the_large_operands_and_the_result(text):
    spec = spec_of(text)
    arrays = operands(spec)
    large = [array for name, array in arrays.items() if name not in ("bias", "scale", "mean", "var")]

    assert elements(spec) == [*(array.size for array in large), in_f64(spec, arrays).size]
    assert nbytes(spec) == 4 * sum(elements(spec))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("gemm:m=3,n=5,k=7", 2 * 3 * 5 * 7),
        ("batched_gemm:batch=2,m=3,n=5,k=7", 4 * 3 * 5 * 7),
        ("conv:n=2,c=4,h=5,w=6,k=8,r=3,s=3,groups=2", 2 * 2 * 8 * (3 * 4) * 2 * 9),
        ("depthwise:c=4,h=5,w=6,r=3,s=3,multiplier=2", 2 * 8 * (3 * 4) * 9),
        ("attention:heads=3,q=5,kv=7,d=8", 4 * 3 * 5 * 7 * 8),
        ("attention:heads=3,q=5,d=8,causal", 4 * 3 * (5 + 4 + 3 + 2 + 1) * 8),
        ("softmax:rows=3,cols=4", None),
    ],
)
def test_a_multiply_add_counts_as_two_operations(text, count):
    assert operations(spec_of(text)) == count


@pytest.mark.parametrize("name", shipped())
def test_the_lists_that_are_shipped(name):
    found = specs_in(name)

    assert len({str(spec) for spec in found}) == len(found) >= 14
    assert [spec_of(str(spec)) for spec in found] == found
    assert all(math.prod(elements(spec)) > 0 for spec in found)


def test_a_file_of_kernels(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("# mine\n\n gemm:m=1,n=2,k=3  # a small one\nsoftmax:rows=2,cols=3\n")

    assert [spec.kind for spec in specs_in(file)] == ["gemm", "softmax"]


@pytest.mark.parametrize(
    ("content", "code"), [(b"", "GPC2056"), (b"\xff", "GPC2056"), (b"gemm:m=1\n", "GPC2055"), (None, "GPC2056")]
)
def test_a_file_without_kernels(tmp_path, content, code):
    file = tmp_path / "mine.txt"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(UsageError) as caught:
        specs_in(file)

    assert caught.value.code == code
