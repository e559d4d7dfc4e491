/* Types whose codes are indices into grids, or too small for a walk of their own. A row's unit is
 * 32 codes a register; `pdep` spreads a grid entry's digits over bytes, and what digits stand for
 * is one lookup. Layouts are those of src/quant (iquants.c, ternary.c, fp4.c), which stay the
 * definition: tests/ops compares the two on any bits. */
#include "ops/cpu/x86_units.h"

#include <immintrin.h>

#include "quant/bits.h"
#include "quant/iq_tables.h"

#define INLINE static inline __attribute__((always_inline))

INLINE void store32(int8_t *to, __m256i codes) {
    _mm256_storeu_si256((__m256i *)(void *)to, codes);
}

INLINE __m256i load32(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE uint64_t load_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The same table of sixteen in both halves. */
INLINE __m256i lookup(__m128i table, __m256i index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
}

/* Byte k has all bits where bit k of `bits` is set. */
INLINE __m256i mask_of(uint32_t bits) {
    const __m256i from = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                          2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i one = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)bits), from);
    return _mm256_cmpeq_epi8(_mm256_and_si256(x, one), one);
}

/* Values negated where their bit of `signs` is set. */
INLINE __m256i with_signs(__m256i values, uint32_t signs) {
    __m256i minus = mask_of(signs);
    return _mm256_sub_epi8(_mm256_xor_si256(values, minus), minus);
}

/* Four times seven signs to four bytes, the eighth making the number of each byte even. */
INLINE uint32_t even_signs4(uint32_t seven4) {
    uint32_t x = _pdep_u32(seven4, 0x7f7f7f7f);
    uint32_t odd = x ^ x >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return x | (odd & 0x01010101) << 7;
}

/* Scales 2 l + 1 of sixteen nibbles, low before high. */
INLINE void nibble_scales(const uint8_t *from, int n, int16_t *scales) {
    __m128i bytes = _mm_cvtsi64_si128((int64_t)(n == 16 ? load_u64(from) : pn__load_u32(from)));
    __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
    __m256i l = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(low, high));
    l = _mm256_add_epi16(_mm256_add_epi16(l, l), _mm256_set1_epi16(1));
    if (n == 16)
        _mm256_storeu_si256((__m256i *)(void *)scales, l);
    else
        _mm_storeu_si128((__m128i *)(void *)scales, _mm256_castsi256_si128(l));
}

INLINE int16_t odd_scale(uint32_t l) {
    return (int16_t)(2 * l + 1);
}

/* ---- IQ1 and IQ2: entries of eight 2-bit digits ---- */

INLINE __m256i digits2(uint16_t a, uint16_t b, uint16_t c, uint16_t d) {
    const uint64_t each = PN_BYTES(3);
    return _mm256_setr_epi64x((int64_t)_pdep_u64(a, each), (int64_t)_pdep_u64(b, each),
                              (int64_t)_pdep_u64(c, each), (int64_t)_pdep_u64(d, each));
}

INLINE __m256i values_iq2(__m256i digits) {
    return lookup(_mm_setr_epi8(8, 25, 43, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), digits);
}

/* Eight times digit - 1, and one more. */
INLINE __m256i values_iq1(__m256i digits) {
    return lookup(_mm_setr_epi8(-7, 1, 9, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), digits);
}

static void unit_iq1_s(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 50);
    out->d = pn__load_f16(b) * 0.125f;
    for (int run = 0; run < 8; run++) {
        const uint8_t *q = b + 2 + 4 * run;
        uint32_t high = pn__load_u16(b + 34 + 2 * run);
        const uint16_t *grid = pn__iq1_grid;
        __m256i v = digits2(grid[q[0] | (high & 7) << 8], grid[q[1] | (high >> 3 & 7) << 8],
                            grid[q[2] | (high >> 6 & 7) << 8], grid[q[3] | (high >> 9 & 7) << 8]);
        out->scales[run] = odd_scale(high >> 12 & 7);
        v = _mm256_sub_epi8(values_iq1(v), _mm256_set1_epi8((char)(high >> 15 << 1)));
        store32(out->codes + 32 * run, v);
    }
}

static void unit_iq1_m(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 56);
    const uint16_t *grid = pn__iq1_grid;
    uint64_t words = load_u64(b + 48);
    for (int k = 0; k < 16; k++)
        out->scales[k] = odd_scale((uint32_t)(words >> (k / 4 * 16 + k % 4 * 3)) & 7);
    out->d = pn__half_widen((uint16_t)_pext_u64(words, 0xf000f000f000f000u)) * 0.125f;
    for (int k = 0; k < 8; k++) {
        const uint8_t *q = b + 4 * k;
        uint32_t high = pn__load_u16(b + 32 + 2 * k);
        __m256i v = digits2(grid[q[0] | (high & 7) << 8], grid[q[1] | (high >> 4 & 7) << 8],
                            grid[q[2] | (high >> 8 & 7) << 8], grid[q[3] | (high >> 12 & 7) << 8]);
        /* Bit 3 of a nibble: 2 less for its eight values. */
        uint32_t less = _pext_u32(high, 0x8888);
        __m256i two =
            _mm256_and_si256(mask_of(_pdep_u32(less, 0x01010101) * 255), _mm256_set1_epi8(2));
        store32(out->codes + 32 * k, _mm256_sub_epi8(values_iq1(v), two));
    }
}

static void unit_iq2_xxs(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 66);
    const uint16_t *grid = pn__iq2_xxs_grid;
    out->d = pn__load_f16(b) * 0.125f;
    for (int run = 0; run < 8; run++) {
        const uint8_t *q = b + 2 + 8 * run;
        uint32_t signs = pn__load_u32(q + 4);
        __m256i v = values_iq2(digits2(grid[q[0]], grid[q[1]], grid[q[2]], grid[q[3]]));
        out->scales[run] = odd_scale(signs >> 28);
        store32(out->codes + 32 * run, with_signs(v, even_signs4(signs & 0xfffffff)));
    }
}

static void unit_iq2_xs(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 74);
    const uint16_t *grid = pn__iq2_xs_grid;
    out->d = pn__load_f16(b) * 0.125f;
    nibble_scales(b + 66, 16, out->scales);
    for (int k = 0; k < 8; k++) {
        uint64_t words = load_u64(b + 2 + 8 * k);
        __m256i v = digits2(grid[words & 511], grid[words >> 16 & 511], grid[words >> 32 & 511],
                            grid[words >> 48 & 511]);
        uint32_t signs = even_signs4((uint32_t)_pext_u64(words, 0xfe00fe00fe00fe00u));
        store32(out->codes + 32 * k, with_signs(values_iq2(v), signs));
    }
}

static void unit_iq2_s(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 82);
    const uint16_t *grid = pn__iq2_s_grid;
    out->d = pn__load_f16(b) * 0.125f;
    nibble_scales(b + 74, 16, out->scales);
    for (int k = 0; k < 8; k++) {
        const uint8_t *q = b + 2 + 4 * k;
        uint32_t high = b[66 + k];
        __m256i v = digits2(grid[q[0] | (high & 3) << 8], grid[q[1] | (high >> 2 & 3) << 8],
                            grid[q[2] | (high >> 4 & 3) << 8], grid[q[3] | (high >> 6 & 3) << 8]);
        store32(out->codes + 32 * k, with_signs(values_iq2(v), pn__load_u32(b + 34 + 4 * k)));
    }
}

/* ---- IQ3: entries of four 3-bit digits ---- */

INLINE int64_t digits3(const uint16_t *grid, uint32_t first, uint32_t second) {
    return (int64_t)_pdep_u64(grid[first] | (uint64_t)grid[second] << 12, PN_BYTES(7));
}

static void unit_iq3_xxs(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 98);
    const uint16_t *grid = pn__iq3_xxs_grid;
    const __m128i values = _mm_setr_epi8(4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0);
    out->d = pn__load_f16(b) * 0.25f;
    for (int run = 0; run < 8; run++) {
        const uint8_t *q = b + 2 + 8 * run;
        uint32_t signs = pn__load_u32(b + 66 + 4 * run);
        __m256i v = _mm256_setr_epi64x(digits3(grid, q[0], q[1]), digits3(grid, q[2], q[3]),
                                       digits3(grid, q[4], q[5]), digits3(grid, q[6], q[7]));
        out->scales[run] = odd_scale(signs >> 28);
        store32(out->codes + 32 * run,
                with_signs(lookup(values, v), even_signs4(signs & 0xfffffff)));
    }
}

static void unit_iq3_s(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 110);
    const uint16_t *grid = pn__iq3_s_grid;
    out->d = pn__load_f16(b);
    nibble_scales(b + 106, 8, out->scales);
    for (int run = 0; run < 8; run++) {
        const uint8_t *q = b + 2 + 8 * run;
        uint32_t high = (uint32_t)b[66 + run] << 8; /* bit k: the ninth of index k */
        int64_t d[4];
        for (int k = 0; k < 4; k++)
            d[k] = digits3(grid, q[2 * k] | (high >> (2 * k) & 256),
                           q[2 * k + 1] | (high >> (2 * k + 1) & 256));
        __m256i v = _mm256_setr_epi64x(d[0], d[1], d[2], d[3]);
        v = _mm256_add_epi8(_mm256_add_epi8(v, v), _mm256_set1_epi8(1));
        store32(out->codes + 32 * run, with_signs(v, pn__load_u32(b + 74 + 4 * run)));
    }
}

/* ---- ternary and the like ---- */

INLINE void scales_of_one(struct pn_unit *out) {
    _mm_storeu_si128((__m128i *)(void *)out->scales, _mm_set1_epi16(1));
}

/* The first base-3 digit of a fraction of 256, less one: 86 and 171 are the least whose threefold
 * passes 256 and 512. */
INLINE __m256i trits(__m256i x) {
    const __m256i one = _mm256_set1_epi8(86), two = _mm256_set1_epi8((char)171);
    __m256i digit = _mm256_add_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(x, one), x),
                                    _mm256_cmpeq_epi8(_mm256_max_epu8(x, two), x));
    return _mm256_sub_epi8(_mm256_set1_epi8(-1), digit);
}

/* Bytes times 3, modulo 256: the next digit comes to the front. */
INLINE __m256i times3(__m256i x) {
    return _mm256_add_epi8(_mm256_add_epi8(x, x), x);
}

static void unit_tq1_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 54);
    out->d = pn__load_f16(b + 52);
    scales_of_one(out);
    __m256i x = load32(b);
    __m256i y = _mm256_castsi128_si256(
        _mm_loadu_si128((const __m128i *)(const void *)(b + 32))); /* the high half is not used */
    uint32_t last = pn__load_u32(b + 48);
    __m256i z = _mm256_castsi128_si256(_mm_cvtsi32_si128((int32_t)last));
    for (int n = 0; n < 5; n++) {
        store32(out->codes + 32 * n, trits(x));
        _mm_storeu_si128((__m128i *)(void *)(out->codes + 160 + 16 * n),
                         _mm256_castsi256_si128(trits(y)));
        int32_t four = _mm_cvtsi128_si32(_mm256_castsi256_si128(trits(z)));
        if (n < 4) memcpy(out->codes + 240 + 4 * n, &four, sizeof four);
        x = times3(x);
        y = times3(y);
        z = times3(z);
    }
}

static void unit_tq2_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 66);
    const __m256i two = _mm256_set1_epi8(3), one = _mm256_set1_epi8(1);
    out->d = pn__load_f16(b + 64);
    scales_of_one(out);
    for (int half = 0; half < 2; half++) {
        __m256i x = load32(b + 32 * half);
        for (int plane = 0; plane < 4; plane++, x = _mm256_srli_epi16(x, 2))
            store32(out->codes + 128 * half + 32 * plane,
                    _mm256_sub_epi8(_mm256_and_si256(x, two), one));
    }
}

static void unit_q1_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i / 4, 18);
    __m256i set = mask_of(pn__load_u32(b + 2 + unit_i % 4 * 4));
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    /* 1 or -1: -1, plus 2 where the bit is set. */
    store32(out->codes,
            _mm256_sub_epi8(_mm256_and_si256(set, _mm256_set1_epi8(2)), _mm256_set1_epi8(1)));
}

static void unit_q2_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i / 2, 18);
    uint64_t q = load_u64(b + 2 + unit_i % 2 * 8);
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    __m256i v = digits2((uint16_t)q, (uint16_t)(q >> 16), (uint16_t)(q >> 32), (uint16_t)(q >> 48));
    store32(out->codes, _mm256_sub_epi8(v, _mm256_set1_epi8(1)));
}

/* ---- four-bit floats ---- */

INLINE __m128i e2m1_doubled(void) {
    return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
}

static void unit_mxfp4(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 17);
    uint32_t e = b[0];
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(b + 1));
    __m256i nibbles =
        _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(x, 4), x), _mm256_set1_epi8(15));
    out->d = pn__f32_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    out->scales[0] = 1;
    store32(out->codes, lookup(e2m1_doubled(), nibbles));
}

pn_unit_fn pn__unit_fn_x86(enum pn_type type) {
    switch (type) {
    case PN_TYPE_IQ1_S:
        return unit_iq1_s;
    case PN_TYPE_IQ1_M:
        return unit_iq1_m;
    case PN_TYPE_IQ2_XXS:
        return unit_iq2_xxs;
    case PN_TYPE_IQ2_XS:
        return unit_iq2_xs;
    case PN_TYPE_IQ2_S:
        return unit_iq2_s;
    case PN_TYPE_IQ3_XXS:
        return unit_iq3_xxs;
    case PN_TYPE_IQ3_S:
        return unit_iq3_s;
    case PN_TYPE_TQ1_0:
        return unit_tq1_0;
    case PN_TYPE_TQ2_0:
        return unit_tq2_0;
    case PN_TYPE_Q1_0:
        return unit_q1_0;
    case PN_TYPE_Q2_0:
        return unit_q2_0;
    case PN_TYPE_MXFP4:
        return unit_mxfp4;
    default:
        return pn__unit_fn(type);
    }
}
