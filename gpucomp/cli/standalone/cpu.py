"""Runs the kernel beside it on this processor: LLVM IR, compiled by llvmlite (pip install llvmlite numpy)."""

import ctypes

import common
import llvmlite.binding as llvm
import numpy as np

described, buffers, expected = common.load()
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
module = llvm.parse_assembly((common.HERE / "kernel.ll").read_text())
module.verify()
features = llvm.get_host_cpu_features().flatten()
machine = llvm.Target.from_default_triple().create_target_machine(
    cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True
)
engine = llvm.create_mcjit_compiler(module, machine)
engine.finalize_object()

# the kernels rely on 64-byte alignment
aligned = []
for array in buffers:
    room = np.empty(array.size + 64, np.uint8)
    start = -room.ctypes.data % 64
    view = room[start : start + array.size]
    view[:] = array
    aligned.append(view)
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
for launch in described["launches"]:
    pointers = (ctypes.c_void_p * len(launch["args"]))(*[aligned[k].ctypes.data for k in launch["args"]])
    tasks = int(np.prod(launch["groups"]))
    call(engine.get_function_address(launch["entry"] + ".call"))(ctypes.addressof(pointers), 0, tasks)
common.judge(described, aligned, expected)
