/* SHA-256 (FIPS 180-4) and the checksum of zip files. */
#ifndef GCRT_DIGEST_H
#define GCRT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The digest of `count` bytes as 64 hexadecimal digits and a zero byte. */
void gcrt_sha256(const uint8_t *data, size_t count, char digits[65]);

/* Whether the processor has instructions for SHA-256. It takes a while to ask: on a virtual machine, tens of microseconds. */
bool gcrt_has_sha(void);

/* A digest that is not complete. */
struct digest {
    uint32_t state[8];
    const uint8_t *at;
    size_t left, count;
    bool fast; /* by such instructions */
};

/* Begin a digest, and end it. Between these, two can go on side by side as far as both have data, in about the time of one. */
struct digest gcrt_digest(const uint8_t *data, size_t count, bool fast);
void gcrt_digest_both(struct digest *one, struct digest *other);
void gcrt_digest_end(struct digest *digest, char digits[65]);

/* CRC-32 as zip and zlib have it. */
uint32_t gcrt_crc32(const uint8_t *data, size_t count);
#endif
