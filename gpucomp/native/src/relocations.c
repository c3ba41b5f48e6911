/* ELF relocations: those that LLVM emits for code without a C library. As gpucomp/artifact/relocations.py.
 *
 * Sources: System V ABI, AMD64 Architecture Processor Supplement, section 4.4; ELF for the Arm 64-bit Architecture (AAELF64),
 * section 5.7. S is the address of the symbol, A the addend, P the place that is changed. */
#include "elf.h"

#define X86 62
#define ARM 183

enum how { ABSOLUTE, ABSOLUTE_32, ABSOLUTE_S32, ABSOLUTE_ARM32, RELATIVE, LOW_BITS, BRANCH, PAGES, NEAR };

static const struct relocation {
    unsigned machine, type;
    uint8_t how, bytes;
    uint8_t one, two; /* LOW_BITS: log2 of the unit. BRANCH: bits, and the lowest of them */
    bool got;
} RELOCATIONS[] = {
    {X86, 1, ABSOLUTE, 8, 0, 0, false},      {X86, 10, ABSOLUTE_32, 4, 0, 0, false}, {X86, 11, ABSOLUTE_S32, 4, 0, 0, false},
    {X86, 2, RELATIVE, 4, 0, 0, false},      {X86, 4, RELATIVE, 4, 0, 0, false},     {X86, 9, RELATIVE, 4, 0, 0, true},
    {X86, 41, RELATIVE, 4, 0, 0, true},      {X86, 42, RELATIVE, 4, 0, 0, true},     {X86, 24, RELATIVE, 8, 0, 0, false},
    {ARM, 257, ABSOLUTE, 8, 0, 0, false},    {ARM, 258, ABSOLUTE_ARM32, 4, 0, 0, false},
    {ARM, 260, RELATIVE, 8, 0, 0, false},    {ARM, 261, RELATIVE, 4, 0, 0, false},   {ARM, 275, PAGES, 4, 0, 0, false},
    {ARM, 276, PAGES, 4, 0, 0, false},       {ARM, 311, PAGES, 4, 0, 0, true},       {ARM, 274, NEAR, 4, 0, 0, false},
    {ARM, 277, LOW_BITS, 4, 0, 0, false},    {ARM, 278, LOW_BITS, 4, 0, 0, false},   {ARM, 284, LOW_BITS, 4, 1, 0, false},
    {ARM, 285, LOW_BITS, 4, 2, 0, false},    {ARM, 286, LOW_BITS, 4, 3, 0, false},   {ARM, 299, LOW_BITS, 4, 4, 0, false},
    {ARM, 312, LOW_BITS, 4, 3, 0, true},     {ARM, 282, BRANCH, 4, 26, 0, false},    {ARM, 283, BRANCH, 4, 26, 0, false},
    {ARM, 280, BRANCH, 4, 19, 5, false},     {ARM, 279, BRANCH, 4, 14, 5, false},
};

static const struct relocation *relocation_of(unsigned machine, uint32_t type)
{
    for (size_t k = 0; k < sizeof RELOCATIONS / sizeof *RELOCATIONS; k++)
        if (RELOCATIONS[k].machine == machine && RELOCATIONS[k].type == type)
            return RELOCATIONS + k;
    return NULL;
}

int gcrt_relocation_bytes(unsigned machine, uint32_t type, bool *got)
{
    const struct relocation *relocation = relocation_of(machine, type);
    *got = relocation && relocation->got;
    return relocation ? relocation->bytes : 0;
}

static bool fits(int64_t value, int bits) { return value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1); }

static uint64_t put(uint64_t current, uint64_t value, int bits, int at)
{
    uint64_t mask = (((uint64_t)1 << bits) - 1) << at;
    return (current & ~mask) | (value << at & mask);
}

bool gcrt_relocated(unsigned machine, uint32_t type, uint64_t current, uint64_t value, uint64_t place, uint64_t *found)
{
    const struct relocation *relocation = relocation_of(machine, type);
    int64_t distance = (int64_t)(value - place);
    int bits = relocation->bytes * 8;
    *found = value;
    switch ((enum how)relocation->how) {
    case ABSOLUTE: return true;
    case ABSOLUTE_32: return value >> 32 == 0;
    case ABSOLUTE_S32: return fits((int64_t)value, 32);
    case ABSOLUTE_ARM32: return (int64_t)value >= -((int64_t)1 << 31) && (int64_t)value < (int64_t)1 << 32;
    case RELATIVE:
        *found = (uint64_t)distance;
        return bits == 64 || fits(distance, bits);
    case LOW_BITS:
        *found = put(current, (value & 0xfff) >> relocation->one, 12, 10);
        return ((value & 0xfff) & (((uint64_t)1 << relocation->one) - 1)) == 0;
    case BRANCH:
        *found = put(current, (uint64_t)(distance / 4), relocation->one, relocation->two);
        return distance % 4 == 0 && fits(distance / 4, relocation->one);
    case PAGES: distance = (int64_t)((value >> 12) - (place >> 12)); break; /* of 4 KiB, whatever the system's pages are */
    case NEAR: break;
    }
    *found = put(put(current, (uint64_t)distance & 3, 2, 29), (uint64_t)distance >> 2, 19, 5);
    return fits(distance, 21);
}
