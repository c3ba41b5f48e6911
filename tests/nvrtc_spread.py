"""Compiles one kernel of each CUDA engine for each architecture, with the first NVRTC of Python's path; run by a test.

Prints JSON lines: the compiler's version, then what became of each kernel.
"""

from __future__ import annotations

import json

from bench.gpu.candidates import default, rendered
from bench.gpu.cases import cases, engines_on
from gpucomp.errors import GpucompError
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.targets import cuda


def main() -> None:
    print(json.dumps({"compiler": cuda.compiler_version()}))
    kernels = cases()
    for number, arch in enumerate(cuda.ARCHITECTURES):
        target = cuda.manifest(arch)
        named: dict[str, list[str]] = {}
        for name, kernel in kernels.items():
            for family in engines_on(kernel, target):
                named.setdefault(family.title, []).append(name)
        for title, names in named.items():
            family = FAMILIES[title]
            name = names[number * len(names) // len(cuda.ARCHITECTURES)]  # another one for each architecture
            entry: dict[str, object] = {"arch": arch, "engine": title, "case": name}
            try:
                source, _ = rendered(kernels[name], default(kernels[name], family, target.limits), target, "k0")
                cubin, log = cuda.compile_source(source, target)
            except GpucompError as error:
                entry["fault"] = str(error)
            else:
                used = cuda.resources(log)["k0"]
                entry |= {"cubin": cubin[:4].hex(), "registers": used.registers, "spilt": used.spilt}
            print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    main()
