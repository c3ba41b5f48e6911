"""Runs the kernel beside it on the first OpenCL device (pip install pyopencl numpy; PYOPENCL_CTX picks another)."""

import common
import pyopencl as cl

described, buffers, expected = common.load()
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
memory = [cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=b) for b in buffers]
for launch in described["launches"]:
    text = (common.HERE / launch["source"]).read_text()
    program = cl.Program(context, text).build(launch["flags"])
    size = tuple(g * n for g, n in zip(launch["groups"], launch["items"], strict=True))
    kernel = cl.Kernel(program, launch["entry"])
    kernel(queue, size, tuple(launch["items"]), *[memory[k] for k in launch["args"]])
for array, buffer in zip(buffers, memory, strict=True):
    cl.enqueue_copy(queue, array, buffer)
queue.finish()
common.judge(described, buffers, expected)
