"""What C code asks Linux, seen by a filter of system calls (seccomp) that answers for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export.built import COMPILERS, run

# What ``has_tiles`` says, if arch_prctl(0x1023, 18) is answered with an error, or 0; other calls of arch_prctl are refused.
ASKS = """
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

FUNCTION

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)

int main(int count, char **words)
{
    unsigned answer = SECCOMP_RET_ERRNO | (unsigned)(count > 1 ? atoi(words[1]) : 0);
    struct sock_filter rules[] = {
        LOAD(nr), UNLESS(158, 6), LOAD(args[0]), UNLESS(0x1023, 3), LOAD(args[1]), UNLESS(18, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        printf("no filter\\n");
        return 0;
    }
    printf("%d\\n", (int)has_tiles());
    return 0;
}
"""


def has_tiles(function: str, answer: int, folder: Path) -> bool:
    """What the C function ``has_tiles`` of ``function`` says, if Linux answers the request for tile registers with this error,
    or 0. Skips where the system takes no filter.
    """
    source, program = folder / "asks.c", folder / "asks"
    source.write_text(ASKS.replace("FUNCTION", function))
    run(COMPILERS[0], "-O2", "-Wall", "-Werror", "-D_GNU_SOURCE", source, "-o", program)
    said = run(program, str(answer)).strip()
    if said == "no filter":
        pytest.skip("this system takes no seccomp filter")
    return bool(int(said))
