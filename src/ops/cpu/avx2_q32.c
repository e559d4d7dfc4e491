/* Matmul of weights in blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and IQ4_NL. One fused
 * multiply-add a block, two with a minimum.
 *
 * Codes are taken as the file has them, so too high by a type's offset; that is taken out of the
 * integer sum again by way of the activation's own sums. */
#include "ops/cpu/avx2.h"

/* One block of eight rows. */
struct block8 {
    __m256i w[8]; /* codes, four a dword */
    __m256 d;
    __m256 m; /* minimum; types with has_min */
};

/* What a block is used for: `b` is its number in the row. */
typedef void (*emit_fn)(void *user, uint64_t b, const struct block8 *x);

typedef void (*walk_fn)(const struct pn_walk *k, emit_fn emit, void *user);

/* ---- unpacking ---- */

/* n dwords that begin in the middle of t[0]. */
INLINE void from_half(const __m256i *t, int n, __m256i *out) {
    const __m128i swap = _mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    __m256i low = pn__shuffle(t[0], swap);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        __m256i high = pn__shuffle(t[i + 1], swap);
        out[i] = _mm256_blend_epi16(low, high, 0xaa);
        low = high;
    }
}

/* Four nibbles a dword, more than nibbles where a table or fifth bits say so. */
INLINE void codes_q4(const __m256i t[4], bool table, __m256i w[8]) {
    pn__nibbles(t, w);
    if (!table) return;
    const __m256i values = _mm256_broadcastsi128_si256(pn__table_iq4());
    for (int i = 0; i < 8; i++)
        w[i] = _mm256_shuffle_epi8(values, w[i]);
}

/* Bit 4k + j of `high` is the fifth of byte j of w[k]. */
INLINE void codes_q5(const __m256i t[4], __m256i high, __m256i w[8]) {
    const __m256i sixteen = _mm256_set1_epi8(16);
    pn__nibbles(t, w);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        char c = (char)(k / 2);
        const __m256i bits = _mm256_set1_epi32((int)(k % 2 ? 0x80402010u : 0x08040201u));
        __m256i x =
            pn__shuffle(high, _mm_setr_epi8(c, c, c, c, (char)(4 + c), (char)(4 + c), (char)(4 + c),
                                            (char)(4 + c), (char)(8 + c), (char)(8 + c),
                                            (char)(8 + c), (char)(8 + c), (char)(12 + c),
                                            (char)(12 + c), (char)(12 + c), (char)(12 + c)));
        x = _mm256_cmpeq_epi8(_mm256_and_si256(x, bits), bits);
        w[k] = _mm256_or_si256(w[k], _mm256_and_si256(x, sixteen));
    }
}

/* Eight blocks of 18 bytes are nine chunks of 16, in which the scales come along: blocks 2i start
 * on a dword, blocks 2i + 1 half a dword later. */
INLINE void walk_nibbles(const struct pn_walk *k, emit_fn emit, void *user, bool table) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 8 <= k->block_n; b += 8, p += 144) {
        __m256i t[36];
        struct block8 x;
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            int at = 9 * pair;
            __m256 d[2];
            __m256i s[4];
            pn__ahead(k, b * 18, 144, 2 * pair, 8);
            if (pair == 0) pn__dwords4(p, rs, t);
            pn__dwords8(p + 16 + 32 * pair, rs, t + 4 + 8 * pair);
            pn__halves_of(_mm256_blend_epi16(t[at], t[at + 4], 0xaa), &d[0], &d[1]);
            from_half(t + at, 4, s);
            codes_q4(s, table, x.w);
            x.d = d[0];
            emit(user, b + 2 * (uint64_t)pair, &x);
            pn__ahead(k, b * 18, 144, 2 * pair + 1, 8);
            codes_q4(t + at + 5, table, x.w);
            x.d = d[1];
            emit(user, b + 2 * (uint64_t)pair + 1, &x);
        }
    }
    for (; b < k->block_n; b++, p += 18) {
        __m256i t[4];
        struct block8 x;
        pn__dwords4(p + 2, rs, t);
        codes_q4(t, table, x.w);
        x.d = pn__halves8(p, rs);
        emit(user, b, &x);
    }
}

INLINE void walk_q4_0(const struct pn_walk *k, emit_fn emit, void *user) {
    walk_nibbles(k, emit, user, false);
}

INLINE void walk_iq4_nl(const struct pn_walk *k, emit_fn emit, void *user) {
    walk_nibbles(k, emit, user, true);
}

/* Eight blocks are 272 bytes, seventeen chunks. */
INLINE void walk_q8_0(const struct pn_walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 8 <= k->block_n; b += 8, p += 272) {
        __m256i t[68];
        struct block8 x;
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            int at = 17 * pair;
            __m256 d[2];
            pn__ahead(k, b * 34, 272, 4 * pair, 16);
            if (pair == 0) pn__dwords4(p, rs, t);
            pn__dwords8(p + 16 + 64 * pair, rs, t + 4 + 16 * pair);
            pn__halves_of(_mm256_blend_epi16(t[at], t[at + 8], 0xaa), &d[0], &d[1]);
            from_half(t + at, 8, x.w);
            pn__ahead(k, b * 34, 272, 4 * pair + 1, 16);
            x.d = d[0];
            emit(user, b + 2 * (uint64_t)pair, &x);
            pn__ahead(k, b * 34, 272, 4 * pair + 2, 16);
            pn__dwords8(p + 48 + 64 * pair, rs, t + 12 + 16 * pair);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                x.w[i] = t[at + 9 + i];
            pn__ahead(k, b * 34, 272, 4 * pair + 3, 16);
            x.d = d[1];
            emit(user, b + 2 * (uint64_t)pair + 1, &x);
        }
    }
    for (; b < k->block_n; b++, p += 34) {
        struct block8 x;
        pn__dwords8(p + 2, rs, x.w);
        x.d = pn__halves8(p, rs);
        emit(user, b, &x);
    }
}

/* Twenty bytes a block: scale and minimum share a dword, the nibbles follow. Four blocks are five
 * chunks. */
INLINE void walk_q4_1(const struct pn_walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 4 <= k->block_n; b += 4, p += 80) {
        __m256i t[20];
        struct block8 x;
        pn__dwords4(p, rs, t);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            pn__ahead(k, b * 20, 80, i, 4);
            pn__dwords4(p + 16 + 16 * i, rs, t + 4 + 4 * i);
            pn__nibbles(t + 5 * i + 1, x.w);
            pn__halves_of(t[5 * i], &x.d, &x.m);
            emit(user, b + (uint64_t)i, &x);
        }
    }
    for (; b < k->block_n; b++, p += 20) {
        __m256i t[4];
        struct block8 x;
        pn__dwords4(p + 4, rs, t);
        pn__nibbles(t, x.w);
        x.d = pn__halves8(p, rs);
        x.m = pn__halves8(p + 2, rs);
        emit(user, b, &x);
    }
}

INLINE __m256i dwords_at(const uint8_t *p, size_t rs) {
    int32_t h[ROWS];
    for (int r = 0; r < ROWS; r++)
        memcpy(&h[r], p + (size_t)r * rs, sizeof h[r]);
    return _mm256_loadu_si256((const __m256i *)(const void *)h);
}

/* Eight blocks are 176 bytes, eleven chunks. */
INLINE void walk_q5_0(const struct pn_walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 8 <= k->block_n; b += 8, p += 176) {
        __m256i t[44];
        struct block8 x;
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            int at = 11 * pair;
            __m256 d[2];
            __m256i s[5];
            pn__ahead(k, b * 22, 176, 2 * pair, 8);
            pn__dwords8(p + 48 * pair, rs, t + 12 * pair);
            if (pair < 3) pn__dwords4(p + 48 * pair + 32, rs, t + 12 * pair + 8);
            pn__halves_of(_mm256_blend_epi16(t[at], t[at + 5], 0xaa), &d[0], &d[1]);
            from_half(t + at, 5, s);
            codes_q5(s + 1, s[0], x.w);
            x.d = d[0];
            emit(user, b + 2 * (uint64_t)pair, &x);
            pn__ahead(k, b * 22, 176, 2 * pair + 1, 8);
            codes_q5(t + at + 7, t[at + 6], x.w);
            x.d = d[1];
            emit(user, b + 2 * (uint64_t)pair + 1, &x);
        }
    }
    for (; b < k->block_n; b++, p += 22) {
        __m256i t[4];
        struct block8 x;
        pn__dwords4(p + 6, rs, t);
        codes_q5(t, dwords_at(p + 2, rs), x.w);
        x.d = pn__halves8(p, rs);
        emit(user, b, &x);
    }
}

/* Two blocks are 48 bytes, three chunks; all of them start on a dword. */
INLINE void walk_q5_1(const struct pn_walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 2 <= k->block_n; b += 2, p += 48) {
        __m256i t[12];
        struct block8 x;
        pn__dwords8(p, rs, t);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            pn__ahead(k, b * 24, 48, i, 2);
            if (i == 1) pn__dwords4(p + 32, rs, t + 8);
            codes_q5(t + 6 * i + 2, t[6 * i + 1], x.w);
            pn__halves_of(t[6 * i], &x.d, &x.m);
            emit(user, b + (uint64_t)i, &x);
        }
    }
    if (b < k->block_n) {
        __m256i t[4];
        struct block8 x;
        pn__dwords4(p + 8, rs, t);
        codes_q5(t, dwords_at(p + 4, rs), x.w);
        x.d = pn__halves8(p, rs);
        x.m = pn__halves8(p + 2, rs);
        emit(user, b, &x);
    }
}

/* ---- arithmetic ---- */

/* What a type's integer sums are. */
struct sums {
    struct pn_form form;
    int offset;
    bool has_min;
};

/* A column's two sums of 16 codes times `by`, added. */
INLINE __m256i total(const int16_t *sums, int by) {
    return _mm256_madd_epi16(pn__dword_of(sums), _mm256_set1_epi16((short)by));
}

INLINE __m256i start(const int16_t *sums, struct sums form) {
    return form.offset == 0 ? _mm256_setzero_si256() : total(sums, -form.offset);
}

/* Takes a block's share of one column's dot. */
INLINE __m256 take(__m256 f, __m256i sum, __m256 d, __m256 m, const float *dx, const int16_t *sums,
                   bool has_min) {
    __m256 x = _mm256_set1_ps(*dx);
    f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, x), f);
    if (!has_min) return f;
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(total(sums, 1)), _mm256_mul_ps(m, x), f);
}

/* Up to PN_TILE columns, weights straight from registers. */
struct direct {
    const int8_t *q; /* [block_n][tile][32] */
    const float *d;
    const int16_t *sums;
    uint32_t tile;
    uint32_t col_n; /* constant where this is inlined */
    struct sums form;
    __m256 f[PN_TILE];
};

INLINE void emit_direct(void *user, uint64_t b, const struct block8 *x) {
    struct direct *c = user;
#pragma GCC unroll 4
    for (uint32_t m = 0; m < c->col_n; m++) {
        uint64_t at = b * c->tile + m;
        const int16_t *sums = c->sums + at * 2;
        __m256i sum = pn__dot(start(sums, c->form), x->w, 8, c->q + at * 32, _mm256_set1_epi16(1),
                              c->form.form);
        c->f[m] = take(c->f[m], sum, x->d, x->m, c->d + at, sums, c->form.has_min);
    }
}

INLINE void direct_q32(const struct pn_walk *k, walk_fn walk, struct sums form,
                       const struct pn_acts *a, uint32_t col_n, __m256 f[PN_TILE]) {
    struct direct c = {
        .q = a->q, .d = a->d, .sums = a->sums, .tile = a->tile, .col_n = col_n, .form = form};
    for (uint32_t m = 0; m < col_n; m++)
        c.f[m] = _mm256_setzero_ps();
    walk(k, emit_direct, &c);
    for (uint32_t m = 0; m < col_n; m++)
        f[m] = c.f[m];
}

/* ---- panels ---- */

/* A block of eight rows in a panel: 8 x 32 bytes of codes, 32 of scales, 32 of minima. */
#define RECORD_BYTES 320
struct packing {
    uint8_t *to;
    bool has_min;
};

INLINE void emit_pack(void *user, uint64_t b, const struct block8 *x) {
    struct packing *pack = user;
    uint8_t *to = pack->to + b * RECORD_BYTES;
    for (int i = 0; i < 8; i++)
        _mm256_store_si256((__m256i *)(void *)(to + 32 * i), x->w[i]);
    _mm256_store_ps((float *)(void *)(to + 256), x->d);
    if (pack->has_min) _mm256_store_ps((float *)(void *)(to + 288), x->m);
}

INLINE void pack_q32(const struct pn_walk *k, walk_fn walk, bool has_min, uint8_t *to) {
    struct packing pack = {to, has_min};
    walk(k, emit_pack, &pack);
}

INLINE void panel_q32(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,
                      struct sums form, const struct pn_acts *a, uint32_t tile_i,
                      struct pn_feed *feed, __m256 f[PANEL_PAIR][PN_TILE]) {
    uint64_t block_n = a->col_n / 32, from = (uint64_t)tile_i * block_n * PN_TILE;
    const int8_t *q = a->q + from * 32;
    const float *d = a->d + from;
    const int16_t *sums = a->sums + from * 2;
    const __m256i ones[PANEL_PAIR] = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    for (uint32_t g = 0; g < group_n; g++)
        for (int m = 0; m < PN_TILE; m++)
            f[g][m] = _mm256_setzero_ps();
#pragma GCC unroll 1
    for (uint64_t b = 0; b < block_n; b++) {
        const uint8_t *w = panel + b * RECORD_BYTES;
        pn__feed(feed);
        __m256i sum[PANEL_PAIR][PN_TILE];
#pragma GCC unroll 4
        for (int m = 0; m < PN_TILE; m++) {
            __m256i first = start(sums + 2 * m, form);
            for (uint32_t g = 0; g < group_n; g++)
                sum[g][m] = first;
        }
        pn__dot_panel(w, group_bytes, group_n, 8, q, 32, ones, form.form, sum);
        for (uint32_t g = 0; g < group_n; g++) {
            const float *scales = (const float *)(const void *)(w + g * group_bytes + 256);
            __m256 wd = _mm256_load_ps(scales);
            __m256 wm = form.has_min ? _mm256_load_ps(scales + ROWS) : wd;
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++)
                f[g][m] = take(f[g][m], sum[g][m], wd, wm, d + m, sums + 2 * m, form.has_min);
        }
        q += 32 * PN_TILE;
        d += PN_TILE;
        sums += 2 * PN_TILE;
    }
}

/* ---- the types ---- */

#define Q32_DIRECT(name, col_n, ...) \
    PN_DIRECT8(name, col_n, direct_q32(k, walk_##name, (struct sums){__VA_ARGS__}, a, col_n, f))
#define Q32_PANEL(name, group_n, ...) \
    PN_PANEL8(                        \
        name, group_n,                \
        panel_q32(panel, group_bytes, group_n, (struct sums){__VA_ARGS__}, a, tile_i, feed, f))
#define Q32_TYPE(name, type_form, offset, has_min)        \
    Q32_DIRECT(name, 1, type_form, offset, has_min)       \
    Q32_DIRECT(name, 2, type_form, offset, has_min)       \
    Q32_DIRECT(name, 3, type_form, offset, has_min)       \
    Q32_DIRECT(name, 4, type_form, offset, has_min)       \
    PN_PACK8(name, pack_q32(k, walk_##name, has_min, to)) \
    Q32_PANEL(name, 1, type_form, offset, has_min)        \
    Q32_PANEL(name, 2, type_form, offset, has_min)        \
    PN_MATMUL8(name, 32, RECORD_BYTES, 32)

Q32_TYPE(q4_0, FORM_U4, 8, false)
Q32_TYPE(q4_1, FORM_U4, 0, true)
Q32_TYPE(q5_0, FORM_U5, 16, false)
Q32_TYPE(q5_1, FORM_U5, 0, true)
Q32_TYPE(q8_0, FORM_S8, 0, false)
Q32_TYPE(iq4_nl, FORM_S8, 0, false)

void pn__init_avx2_q32(struct pn_kernels *k) {
    k->matmul[PN_TYPE_Q4_0] = matmul_q4_0;
    k->matmul[PN_TYPE_Q4_1] = matmul_q4_1;
    k->matmul[PN_TYPE_Q5_0] = matmul_q5_0;
    k->matmul[PN_TYPE_Q5_1] = matmul_q5_1;
    k->matmul[PN_TYPE_Q8_0] = matmul_q8_0;
    k->matmul[PN_TYPE_IQ4_NL] = matmul_iq4_nl;
}
