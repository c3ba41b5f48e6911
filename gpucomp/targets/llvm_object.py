"""LLVM IR to one ELF object. As a program, it does so for another process, which has something else to do meanwhile.

It imports nothing of gpucomp, so that a helper starts in a tenth of a second. Frames on stdin are a text, each preceded by
its length in 8 bytes; for each one, stdout gets its object as a frame, or an empty frame if LLVM refuses it. The arguments
are triple, processor and features.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import BinaryIO

import llvmlite.binding as llvm

OPTIMIZATION = 2  # of instruction selection
MAX_FRAME = 1 << 28  # bytes
AS_WRITTEN = "!gpucomp.addresses.as.written = !{}"  # in a module: its loops need no strength reduction

FEW_PASSES = "!gpucomp.few.passes = !{}"  # in a module: what LLVM would move out of its loops is not there

_option = threading.Lock()  # LLVM's options are those of the process


@cache
def start_llvm() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def machine_of(triple: str, processor: str, features: str) -> llvm.TargetMachine:
    """A new machine for one module: modules that share a machine crash LLVM."""
    start_llvm()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor, features=features, opt=OPTIMIZATION, reloc=_relocations(triple), codemodel="small"
    )


def _relocations(triple: str) -> str:
    """Code that lies where the linker puts it, where nothing else is usual: without a system, and in WebAssembly."""
    return "static" if triple.startswith(("thumb", "wasm")) else "pic"


def optimised(text: str, triple: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """The module of ``text``, after the passes that generated code gains from. Raises ``RuntimeError`` with LLVM's reason.

    Emitters write vectors, and unroll loops where it pays. The first passes turn stack slots into registers and join blocks,
    which leaves half of the instructions; the others are LLVM's for a function at level 1. LLVM's list for whole modules at
    level 2 takes twice as long, and its code is not faster. NewGVN is not among them: it computes wrong results. A module with
    ``FEW_PASSES`` has the first passes but InstCombine, and two that cost little.
    """
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.verify()
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    first = llvm.create_new_module_pass_manager()
    first.add_always_inliner_pass()
    first.add_global_dead_code_eliminate_pass()  # an internal function that nobody calls may need a C library
    first.add_simplify_cfg_pass()
    first.add_sroa_pass()
    few = FEW_PASSES in text
    if few:
        first.add_simplify_cfg_pass()
        first.add_sccp_pass()
    else:
        first.add_instruction_combine_pass()
    first.add_simplify_cfg_pass()
    if few:
        first.add_loop_rotate_pass()  # gives loops the form that strength reduction wants
    first.run(module, builder)
    if few:
        return module
    others = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            others.run(function, builder)
    return module


@contextmanager
def selecting(text: str) -> Iterator[None]:
    """Emit code of the module of ``text`` in this block. What others compile meanwhile is right, with slower loops at worst."""
    if AS_WRITTEN not in text:
        yield
        return
    with _option:
        llvm.set_option("", "-disable-lsr=true")
        try:
            yield
        finally:
            llvm.set_option("", "-disable-lsr=false")


def object_of(text: str, triple: str, processor: str, features: str) -> bytes:
    """The object. Raises ``RuntimeError`` with LLVM's reason."""
    machine = machine_of(triple, processor, features)
    module = optimised(text, triple, machine)
    with selecting(text):
        made: bytes = machine.emit_object(module)
    return made


def linked_object(texts: Sequence[tuple[str, Mapping[str, str]]], triple: str, processor: str, features: str) -> bytes:
    """One object of several texts, whose functions are compiled as ``object_of`` compiles them alone, but for ``AS_WRITTEN``.

    Each text comes with the functions that the object exports, by what they are called there. They are hidden, so a library that
    they are linked into does not export them. Everything else is local. Raises ``RuntimeError`` with LLVM's reason.
    """
    whole = None
    for text, exported in texts:
        module = optimised(text, triple, machine_of(triple, processor, features))
        for value in [*module.functions, *module.global_variables]:
            if value.is_declaration:
                continue
            if value.name in exported:
                value.visibility = "hidden"
                value.name = exported[value.name]
            else:
                value.linkage = "internal"
        if whole is None:
            whole = module
        else:
            whole.link_in(module)
    machine = machine_of(triple, processor, features)
    made: bytes = machine.emit_object(whole if whole is not None else optimised("", triple, machine))
    return made


def read_frame(source: BinaryIO) -> bytes | None:
    """The next frame; ``None`` at the end, which may come within a frame, or if no frame is as long."""
    length = int.from_bytes(head, "little") if len(head := source.read(8)) == 8 else MAX_FRAME + 1
    content = source.read(length) if length <= MAX_FRAME else b""
    return content if len(content) == length else None


def write_frame(sink: BinaryIO, content: bytes) -> None:
    sink.write(len(content).to_bytes(8, "little") + content)
    sink.flush()


def serve(triple: str, processor: str, features: str) -> None:
    """Answer frames until stdin ends."""
    while (text := read_frame(sys.stdin.buffer)) is not None:
        try:
            found = object_of(text.decode(), triple, processor, features)
        except RuntimeError:
            found = b""
        write_frame(sys.stdout.buffer, found)


if __name__ == "__main__":
    serve(*sys.argv[1:])
