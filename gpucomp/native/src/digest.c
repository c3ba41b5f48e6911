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
        for (size_t t = 0; t < 16; t++)
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
bool gcrt_has_sha(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}

/* The state as the instructions have it. */
struct lane {
    __m128i abef, cdgh, abef_before, cdgh_before, w[4];
    const uint8_t *data;
};

#define OF_SHA __attribute__((target("sha,sse4.1")))
#define INLINE OF_SHA __attribute__((always_inline)) static inline

INLINE void load_state(struct lane *lane, const uint32_t state[8], const uint8_t *data)
{
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    lane->abef = _mm_alignr_epi8(low, high, 8);
    lane->cdgh = _mm_blend_epi16(high, low, 0xf0);
    lane->data = data;
}

INLINE void store_state(const struct lane *lane, uint32_t state[8])
{
    __m128i low = _mm_shuffle_epi32(lane->abef, 0x1b), high = _mm_shuffle_epi32(lane->cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

INLINE void begin_block(struct lane *lane)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    lane->abef_before = lane->abef;
    lane->cdgh_before = lane->cdgh;
    for (size_t k = 0; k < 4; k++)
        lane->w[k] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(lane->data + 16 * k)), swap);
    lane->data += BLOCK;
}

/* The next word of four: w[t] from w[t-16], w[t-15], w[t-7] and w[t-2]. Intel, "New Instructions Supporting the Secure Hash
 * Algorithm". */
INLINE void next_words(__m128i w[4], size_t k)
{
    __m128i next = _mm_sha256msg1_epu32(w[k], w[(k + 1) & 3]);
    next = _mm_add_epi32(next, _mm_alignr_epi8(w[(k + 3) & 3], w[(k + 2) & 3], 4));
    w[k] = _mm_sha256msg2_epu32(next, w[(k + 3) & 3]);
}

/* Four rounds, two an instruction. */
INLINE void four_rounds(struct lane *lane, const uint32_t *constants, size_t k)
{
    __m128i sum = _mm_add_epi32(lane->w[k], _mm_loadu_si128((const __m128i *)(constants + 4 * k)));
    lane->cdgh = _mm_sha256rnds2_epu32(lane->cdgh, lane->abef, sum);
    lane->abef = _mm_sha256rnds2_epu32(lane->abef, lane->cdgh, _mm_shuffle_epi32(sum, 0x0e));
}

INLINE void end_block(struct lane *lane)
{
    lane->abef = _mm_add_epi32(lane->abef, lane->abef_before);
    lane->cdgh = _mm_add_epi32(lane->cdgh, lane->cdgh_before);
}

/* Words are in registers only where their numbers are known: compilers that are told to make little code unroll no loop. */
#define FOUR_TIMES(of) of(0) of(1) of(2) of(3)
#define FIRST(k) four_rounds(&one, CONSTANTS, k);
#define LATER(k) next_words(one.w, k), four_rounds(&one, CONSTANTS + number, k);
#define FIRST_OF_BOTH(k) FIRST(k) four_rounds(&two, CONSTANTS, k);
#define LATER_OF_BOTH(k) LATER(k) next_words(two.w, k), four_rounds(&two, CONSTANTS + number, k);

OF_SHA static void fast_blocks(uint32_t state[8], const uint8_t *data, size_t blocks)
{
    struct lane one;
    load_state(&one, state, data);
    while (blocks--) {
        begin_block(&one);
        FOUR_TIMES(FIRST)
        for (size_t number = 16; number < 64; number += 16) {
            FOUR_TIMES(LATER)
        }
        end_block(&one);
    }
    store_state(&one, state);
}

/* Blocks of two messages: each round waits for the one before it, so that two chains take hardly longer than one. */
OF_SHA static void fast_pairs(uint32_t state[8], const uint8_t *data, uint32_t other_state[8], const uint8_t *other,
                              size_t blocks)
{
    struct lane one, two;
    load_state(&one, state, data);
    load_state(&two, other_state, other);
    while (blocks--) {
        begin_block(&one);
        begin_block(&two);
        FOUR_TIMES(FIRST_OF_BOTH)
        for (size_t number = 16; number < 64; number += 16) {
            FOUR_TIMES(LATER_OF_BOTH)
        }
        end_block(&one);
        end_block(&two);
    }
    store_state(&one, state);
    store_state(&two, other_state);
}
#else
#define fast_blocks plain_blocks

static void fast_pairs(uint32_t state[8], const uint8_t *data, uint32_t other_state[8], const uint8_t *other,
                       size_t blocks)
{
    plain_blocks(state, data, blocks);
    plain_blocks(other_state, other, blocks);
}

bool gcrt_has_sha(void) { return false; }
#endif

struct digest gcrt_digest(const uint8_t *data, size_t count, bool fast)
{
    return (struct digest){
        {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
        data, count, count, fast,
    };
}

void gcrt_digest_both(struct digest *one, struct digest *other)
{
    size_t least = one->left < other->left ? one->left : other->left, blocks = least / BLOCK;
    if (!one->fast) /* there is nothing to win */
        return;
    fast_pairs(one->state, one->at, other->state, other->at, blocks);
    one->at += blocks * BLOCK, one->left -= blocks * BLOCK;
    other->at += blocks * BLOCK, other->left -= blocks * BLOCK;
}

void gcrt_digest_end(struct digest *digest, char digits[65])
{
    void (*const take)(uint32_t state[8], const uint8_t *data, size_t blocks) = digest->fast ? fast_blocks : plain_blocks;
    uint8_t last[2 * BLOCK] = {0};
    size_t rest = digest->left % BLOCK, ends = rest < BLOCK - 8 ? 1 : 2;
    take(digest->state, digest->at, digest->left / BLOCK);
    if (rest)
        memcpy(last, digest->at + (digest->left - rest), rest);
    last[rest] = 0x80;
    for (size_t k = 0; k < 8; k++)
        last[ends * BLOCK - 1 - k] = (uint8_t)((uint64_t)digest->count << 3 >> 8 * k);
    take(digest->state, last, ends);
    for (int k = 0; k < 64; k++)
        digits[k] = "0123456789abcdef"[digest->state[k / 8] >> (28 - 4 * (k % 8)) & 15];
    digits[64] = 0;
}

void gcrt_sha256(const uint8_t *data, size_t count, char digits[65])
{
    struct digest digest = gcrt_digest(data, count, gcrt_has_sha());
    gcrt_digest_end(&digest, digits);
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
