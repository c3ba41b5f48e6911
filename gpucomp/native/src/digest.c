/* SHA-256 (FIPS 180-4), by the processor's own instructions where it has them, and the checksum of zip files. */
#include "digest.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#define HAS_SHA_INSTRUCTIONS 1
#endif

#define BLOCK 64

static const uint32_t CONSTANTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void plain_blocks(uint32_t state[8], const uint8_t *data, size_t blocks)
{
    for (; blocks--; data += BLOCK) {
        uint32_t w[64], s[8];
        for (int t = 0; t < 16; t++)
            w[t] = (uint32_t)data[4 * t] << 24 | (uint32_t)data[4 * t + 1] << 16 | (uint32_t)data[4 * t + 2] << 8 |
                   data[4 * t + 3];
        for (int t = 16; t < 64; t++) {
            uint32_t s0 = rotated(w[t - 15], 7) ^ rotated(w[t - 15], 18) ^ w[t - 15] >> 3;
            uint32_t s1 = rotated(w[t - 2], 17) ^ rotated(w[t - 2], 19) ^ w[t - 2] >> 10;
            w[t] = w[t - 16] + s0 + w[t - 7] + s1;
        }
        memcpy(s, state, sizeof s);
        for (int t = 0; t < 64; t++) {
            uint32_t e = s[4], a = s[0];
            uint32_t one = s[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & s[5]) ^ (~e & s[6]));
            one += CONSTANTS[t] + w[t];
            uint32_t two = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
            memmove(s + 1, s, 7 * sizeof *s);
            s[4] += one;
            s[0] = one + two;
        }
        for (int k = 0; k < 8; k++)
            state[k] += s[k];
    }
}

#ifdef HAS_SHA_INSTRUCTIONS
static int has_sha_instructions(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}

/* Two rounds an instruction; Intel, "New Instructions Supporting the Secure Hash Algorithm". The state is kept as ABEF, CDGH. */
__attribute__((target("sha,sse4.1"))) static void fast_blocks(uint32_t state[8], const uint8_t *data, size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; blocks--; data += BLOCK) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int k = 0; k < 4; k++)
            w[k] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * k)), swap);
#pragma GCC unroll 16
        for (int round = 0; round < 16; round++) {
            if (round >= 4) { /* w[t] from w[t-16], w[t-15], w[t-7] and w[t-2] */
                __m128i next = _mm_sha256msg1_epu32(w[round & 3], w[(round + 1) & 3]);
                next = _mm_add_epi32(next, _mm_alignr_epi8(w[(round + 3) & 3], w[(round + 2) & 3], 4));
                w[round & 3] = _mm_sha256msg2_epu32(next, w[(round + 3) & 3]);
            }
            __m128i sum = _mm_add_epi32(w[round & 3], _mm_loadu_si128((const __m128i *)(CONSTANTS + 4 * round)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}
#endif

static void take_blocks(uint32_t state[8], const uint8_t *data, size_t blocks)
{
#ifdef HAS_SHA_INSTRUCTIONS
    if (has_sha_instructions()) {
        fast_blocks(state, data, blocks);
        return;
    }
#endif
    plain_blocks(state, data, blocks);
}

void gcrt_sha256(const uint8_t *data, size_t count, char digits[65])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[2 * BLOCK] = {0};
    size_t whole = count / BLOCK, rest = count % BLOCK, ends = rest < BLOCK - 8 ? 1 : 2;
    take_blocks(state, data, whole);
    if (rest)
        memcpy(last, data + whole * BLOCK, rest);
    last[rest] = 0x80;
    for (int k = 0; k < 8; k++)
        last[ends * BLOCK - 1 - (size_t)k] = (uint8_t)((uint64_t)count << 3 >> 8 * k);
    take_blocks(state, last, ends);
    for (int k = 0; k < 64; k++)
        digits[k] = "0123456789abcdef"[state[k / 8] >> (28 - 4 * (k % 8)) & 15];
    digits[64] = 0;
}

uint32_t gcrt_crc32(const uint8_t *data, size_t count)
{
    uint32_t table[256], crc = 0xffffffffu;
    for (uint32_t byte = 0; byte < 256; byte++) {
        table[byte] = byte;
        for (int bit = 0; bit < 8; bit++)
            table[byte] = table[byte] >> 1 ^ (table[byte] & 1 ? 0xedb88320u : 0);
    }
    for (size_t k = 0; k < count; k++)
        crc = crc >> 8 ^ table[(crc ^ data[k]) & 255];
    return ~crc;
}
