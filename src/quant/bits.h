/* Loads from packed blocks, and eight codes at a time in the bytes of a 64-bit word.
 *
 * Blocks have no alignment, so every load is a memcpy. Byte k of a word is value k: the engine runs
 * on little-endian machines only, as GGUF files are read in place. */
#ifndef PN_QUANT_BITS_H
#define PN_QUANT_BITS_H

#include <stdint.h>
#include <string.h>

#include "quant/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are read in place");

#define PN_BYTES(b) (0x0101010101010101u * (uint64_t)(b)) /* b in each of eight bytes */

static inline uint16_t pn__load_u16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t pn__load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float pn__load_f16(const uint8_t *p) {
    return pn__half_widen(pn__load_u16(p));
}

static inline void pn__store_codes(int8_t *to, uint64_t codes) {
    memcpy(to, &codes, sizeof codes);
}

/* Block `i` of a row whose blocks have `bytes` bytes. */
static inline const uint8_t *pn__block_at(const void *row, uint64_t i, uint32_t bytes) {
    return (const uint8_t *)row + i * bytes;
}

/* Bit k to byte k, as 0 or 1. */
static inline uint64_t pn__spread1(uint8_t bits) {
    /* Byte k keeps bit k only; + 0x7f sets its top bit when that is not 0, without a carry. */
    uint64_t one_each = PN_BYTES(bits) & 0x8040201008040201u;
    return ((one_each + PN_BYTES(0x7f)) >> 7) & PN_BYTES(1);
}

/* Eight 2-bit values, the first in the lowest bits, to eight bytes. */
static inline uint64_t pn__spread2(uint16_t pairs) {
    uint64_t x = pairs;
    x = (x | x << 24) & 0x000000ff000000ffu;
    x = (x | x << 12) & 0x000f000f000f000fu;
    return (x | x << 6) & 0x0303030303030303u;
}

/* Four 3-bit values to four bytes. */
static inline uint32_t pn__spread3(uint16_t triples) {
    uint32_t x = triples;
    x = (x & 0x3fu) | (x & 0xfc0u) << 10;
    return (x & 0x00070007u) | (x & 0x00380038u) << 5;
}

/* Byte k minus `by`, as int8: bytes at most 127, by at most 128. The offset of 128 keeps every byte
 * from borrowing of the next. */
static inline uint64_t pn__bytes_sub(uint64_t bytes, unsigned by) {
    return (bytes + PN_BYTES(0x80u - by)) ^ PN_BYTES(0x80);
}

/* Byte k negated where bit k of `signs` is set; bytes 1..127 (a 0 would carry). */
static inline uint64_t pn__bytes_sign(uint64_t bytes, uint8_t signs) {
    uint64_t ones = pn__spread1(signs);
    return (bytes ^ ((ones << 8) - ones)) + ones;
}

#endif
