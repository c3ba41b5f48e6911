/* SHA-256 (FIPS 180-4) and the checksum of zip files. */
#ifndef GCRT_DIGEST_H
#define GCRT_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* The digest of `count` bytes as 64 hexadecimal digits and a zero byte. */
void gcrt_sha256(const uint8_t *data, size_t count, char digits[65]);

/* CRC-32 as zip and zlib have it. */
uint32_t gcrt_crc32(const uint8_t *data, size_t count);
#endif
