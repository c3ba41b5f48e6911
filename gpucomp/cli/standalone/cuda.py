"""Runs the kernel beside it on the first CUDA GPU (pip install cupy-cuda13x numpy)."""

import common
import cupy

described, buffers, expected = common.load()
if any(launch["tensor_maps"] for launch in described["launches"]):
    raise SystemExit("this kernel takes tensor maps, which need the driver's encoder: use `gpucomp run kernel.gpuc`")
memory = [cupy.asarray(b) for b in buffers]
for launch in described["launches"]:
    text = (common.HERE / launch["source"]).read_text()
    kernel = cupy.RawModule(code=text, backend="nvrtc", options=tuple(launch["flags"])).get_function(launch["entry"])
    kernel.max_dynamic_shared_size_bytes = launch["shared"]
    arguments = tuple(memory[k] for k in launch["args"])
    kernel(tuple(launch["groups"]), tuple(launch["items"]), arguments, shared_mem=launch["shared"])
cupy.cuda.runtime.deviceSynchronize()
common.judge(described, [cupy.asnumpy(b) for b in memory], expected)
