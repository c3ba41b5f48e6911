"""What files of published measurements have of a kernel: the same problem and no other one, the fastest, and of which device."""

import gzip

import pytest

from gpucomp import targets
from gpucomp.errors import UsageError
from gpucomp.kernel_bench.published import figures, nearest, source, tables
from gpucomp.kernel_bench.specs import spec_of

GEMMS = """# source: example.org/gemms @1 (MIT); y=x@W^T (F.linear), bf16; us
system,framework,dtype,m,n,k,us
h100_sxm,trtllm,bfloat16,512,4096,1024,35.0
h100_sxm,vllm,bfloat16,512,4096,1024,33.0
a100_sxm,vllm,bfloat16,512,4096,1024,70.0
h100_sxm,vllm,bfloat16,4096,512,1024,31.0
nonesuch,vllm,bfloat16,512,4096,1024,1.0
"""
CONVS = """# MIOpen's find-db
db,c,h,w,r,s,k,oh,ow,n,ph,pw,sh,sw,dh,dw,layout,dtype,groups,solvers_ms
gfx90878,64,56,48,3,3,96,28,24,8,1,1,2,2,1,1,NCHW,FP32,1,Slow:0.5;Fast:0.2
gfx90878,64,56,48,3,3,96,28,24,8,1,1,2,2,1,1,NHWC,FP32,1,Other:0.3
gfx90878,64,56,48,3,3,96,28,24,8,1,1,2,2,1,1,NCHW,FP32,32,Grouped:0.1
"""
VECTORS = """op,device,split,us,rows,cols
add,Tesla P4,train,900.0,4000,3000
powu,Tesla P4,train,700.0,4000,3000
pow,Tesla P4,train,800.0,4000,3000
ln,Tesla P4,train,910.0,4000,3000
softmax,Tesla P4,train,199.0,4000,3000
"""
ATTENTION = "# bf16; us\nsystem,batch,tokens,heads,head_dim,us\nl40s,2,512,16,64,60.0\n"
LOGIC = """arch,layout,types,m,n,batch,k,kernel,value
vega20,Ailk_Bljk,SB,1024,2048,1,512,3,9000.0
arcturus,Ailk_Bljk,SB,1024,2048,1,512,3,80.0
"""
CLBLAST = """# CLBlast Xgemm f32 1024x512x256, NVIDIA GeForce RTX 2080 Ti, full; us
GEMMK,MWG,NWG,KWG,MDIMC,NDIMC,MDIMA,NDIMB,KWI,VWM,VWN,STRM,STRN,SA,SB,KREG,us
0,64,64,16,16,16,8,8,2,1,1,0,0,1,1,0,90.0
0,128,64,16,16,16,8,8,2,1,1,0,0,0,0,0,60.0
"""
TENSILE = """# resnext3d
layout,m,n,k,batch,mt_i,mt_j,depth,mi,tt,wg,gsu,gflops,us
Ailk_Bjlk,101,512,64,1,64,64,8,32x32x2x1,,,1,53.0,15.6
Ailk_Bjlk,101,512,64,1,64,32,8,32x32x2x1,,,1,53.0,14.5
"""


@pytest.fixture
def published(tmp_path):
    """The device, time and number of measurements of each figure that a file has of some kernels."""

    def look(text, *specs, target=None):
        (tmp_path / "file.csv").write_text(text)
        found = figures([spec_of(one) for one in specs], tables([tmp_path / "file.csv"]), target)
        return [(str(one.spec), one.device, one.us, one.rows) for one in found]

    return look


GEMM = "gemm:m=512,n=4096,k=1024,dtype=bf16"


def test_the_fastest_of_each_device_that_is_known(published):
    assert published(GEMMS, GEMM) == [(GEMM, "a100_sxm", 70.0, 1), (GEMM, "h100_sxm", 33.0, 2)]


def test_bias_and_activation_are_left_out_and_each_kernel_has_its_own_rows(published):
    other, wide = "gemm:m=512,n=4096,k=1024,bias,act=relu,dtype=bf16", "gemm:m=4096,n=512,k=1024,dtype=bf16"

    found = published(GEMMS, wide, other, GEMM)

    assert [(spec, us) for spec, _, us, _ in found] == [
        (wide, 31.0),
        (other, 70.0),
        (other, 33.0),
        (GEMM, 70.0),
        (GEMM, 33.0),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "gemm:m=512,n=4096,k=1024",  # f32
        "gemm:m=512,n=4096,k=1023,dtype=bf16",
        "batched_gemm:batch=2,m=512,n=4096,k=1024,dtype=bf16",
        "nbits_gemm:m=512,n=4096,k=1024",
    ],
)
def test_another_problem_is_not_published(published, text):
    assert published(GEMMS, text) == []


@pytest.mark.parametrize(("name", "device"), [("cuda:sm_90a", "h100_sxm"), ("cuda:sm_80", "a100_sxm")])
def test_only_devices_of_the_target_are_told_if_there_is_one(published, name, device):
    assert [one[1] for one in published(GEMMS, GEMM, target=targets.resolve(name))] == [device]


def test_convolutions_with_all_their_attributes(published):
    same = "conv:n=8,c=64,h=56,w=48,k=96,r=3,s=3,stride=2,pad=1"

    assert published(CONVS, same) == [(same, "gfx90878", pytest.approx(200.0), 2)]
    assert published(CONVS, f"{same},groups=32", f"{same},dilation=2", same.replace("pad=1", "pad=1x1x1x0")) == []
    assert len(published(CONVS, same, target=targets.resolve("hip:gfx908"))) == 1
    assert published(CONVS, same, target=targets.resolve("hip:gfx90a")) == []


def test_vectors_by_their_operator_and_rows_by_both_sizes(published):
    add, norm = "elementwise:op=add,shape=12000000", "layer_norm:rows=4000,cols=3000"

    assert published(VECTORS, add, norm) == [(add, "Tesla P4", 900.0, 1), (norm, "Tesla P4", 910.0, 1)]
    assert published(VECTORS, "layer_norm:rows=3000,cols=4000", "elementwise:op=mul,shape=4000x3000") == []
    assert published(VECTORS, "softmax:rows=4000,cols=3000") == []  # an eager call so short is mostly its launch


def test_attention_without_a_mask(published):
    same = "attention:batch=2,heads=16,q=512,d=64,dtype=bf16"

    assert published(ATTENTION, same) == [(same, "l40s", 60.0, 1)]
    assert published(ATTENTION, f"{same},causal", f"{same},kv=256", f"{same},kv_heads=4") == []


def test_a_share_of_a_peak_is_no_published_time(published):
    blas = "gemm:m=2048,n=1024,k=512"

    assert published(LOGIC, blas) == [(blas, "vega20", pytest.approx(2e-3 * 1024 * 2048 * 512 / 9000), 1)]


def test_the_fastest_configuration_of_a_space(published):
    clblast, tensile = "gemm:m=512,n=1024,k=256", "gemm:m=101,n=512,k=64"

    assert published(CLBLAST, clblast) == [(clblast, "GeForce RTX 2080 Ti", 60.0, 2)]
    assert published(TENSILE, tensile) == [(tensile, "MI100", 14.5, 2)]


@pytest.mark.parametrize(
    ("text", "asked", "found"),
    [
        (GEMMS, "gemm:m=500,n=4000,k=1000,dtype=bf16", GEMM),
        (GEMMS, "gemm:m=4000,n=500,k=1000,bias,dtype=bf16", "gemm:m=4096,n=512,k=1024,dtype=bf16"),
        (GEMMS, "gemm:m=500,n=4000,k=1000", None),
        (GEMMS, "softmax:rows=3,cols=4", None),
        (
            CONVS,
            "conv:c=64,h=56,w=56,k=64,r=3,s=3,stride=2,pad=1",
            "conv:n=8,c=64,h=56,w=48,k=96,r=3,s=3,stride=2,pad=1",
        ),
        (ATTENTION, "attention:heads=8,q=300,d=64,dtype=bf16", "attention:batch=2,heads=16,q=512,d=64,dtype=bf16"),
        (VECTORS, "elementwise:op=add,shape=30", "elementwise:op=add,shape=12000000"),
        (VECTORS, "layer_norm:rows=3,cols=4", "layer_norm:rows=4000,cols=3000"),
    ],
)
def test_the_nearest_kernel_that_is_published(tmp_path, text, asked, found):
    (tmp_path / "file.csv").write_text(text)

    assert nearest(spec_of(asked), tables([tmp_path / "file.csv"])) == found


def test_the_nearest_kernel_on_a_device_of_the_target(tmp_path):
    (tmp_path / "file.csv").write_text(GEMMS)
    near = spec_of("gemm:m=4000,n=500,k=1000,dtype=bf16")

    assert nearest(near, tables([tmp_path / "file.csv"]), targets.resolve("cuda:sm_80")) == GEMM
    assert nearest(near, tables([tmp_path / "file.csv"]), targets.resolve("cuda:sm_75")) is None


def test_a_folder_of_files(tmp_path):
    (tmp_path / "gemms.csv.gz").write_bytes(gzip.compress(GEMMS.encode()))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "README.md").write_text("nothing")

    (found,) = tables([tmp_path])

    assert source(found) == "example.org/gemms @1 (MIT)"
    assert len(figures([spec_of(GEMM)], [found])) == 2


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("none.csv", None, "No such file or directory"),
        ("file.csv", b"a,b\n1,2\n", "columns of a known format, which are: "),
        ("file.csv", b"\xff\xfe", "can't decode"),
        ("file.csv.gz", b"\x1f\x8b\x08\x00 no more", ""),
        ("file.csv", GEMMS.replace("35.0", "soon").encode(), "a row has no number where one is expected"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path, name, content, why):
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(UsageError, match="cannot read published figures from ") as caught:
        figures([spec_of(GEMM)], tables([tmp_path / name]))

    assert caught.value.code == "GPC2058"
    assert why in caught.value.message


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"the folder has no|columns of a known format"):
        tables([tmp_path])
