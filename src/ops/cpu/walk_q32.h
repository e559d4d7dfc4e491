/* Blocks of 32 of a group's rows, unpacked: written once for the registers of avx2.h and of
 * avx512.h, one of which is included before.
 *
 * Codes are taken as the file has them, so too high by a type's offset, or as v_signed has them;
 * that is taken out of the integer sum again by way of the activation's own sums. */
#ifndef PN_OPS_CPU_WALK_Q32_H
#define PN_OPS_CPU_WALK_Q32_H

/* One block of a group's rows. */
struct block {
    vi w[8]; /* codes, four a dword */
    vf d;
    vf m; /* minimum; or the scale of the second half */
};

/* What a block is used for: `b` is its number in the row. */
typedef void (*emit_fn)(void *user, uint64_t b, const struct block *x);

typedef void (*walk_fn)(const struct pn_walk *k, emit_fn emit, void *user);

/* Four nibbles a dword, more than nibbles where a table or fifth bits say so. */
INLINE void codes_q4(const vi t[4], bool table, vi w[8]) {
    pn__nibbles(t, w);
    if (!table) return;
    for (int i = 0; i < 8; i++)
        w[i] = v_lookup(pn__table_iq4(), w[i]);
}

/* Bit 4k + j of `high` is the fifth of byte j of w[k]. */
INLINE void codes_q5(const vi t[4], vi high, vi w[8]) {
    pn__nibbles(t, w);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        char c = (char)(k / 2), c4 = (char)(4 + c), c8 = (char)(8 + c), c12 = (char)(12 + c);
        vi x = v_shuffle(
            high, _mm_setr_epi8(c, c, c, c, c4, c4, c4, c4, c8, c8, c8, c8, c12, c12, c12, c12));
        w[k] = v_add_where(w[k], x, v_set32((int)(k % 2 ? 0x80402010u : 0x08040201u)), v_set8(16));
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
        vi t[36];
        struct block x;
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            int at = 9 * pair;
            vf d[2];
            vi s[4];
            pn__ahead(k, b * 18, 144, 2 * pair, 8);
            if (pair == 0) pn__dwords4(p, rs, t);
            pn__dwords8(p + 16 + 32 * pair, rs, t + 4 + 8 * pair);
            pn__halves_of(t[at], t[at + 4], &d[0], &d[1]);
            pn__from_half(t + at, 4, s);
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
        vi t[4];
        struct block x;
        pn__dwords4(p + 2, rs, t);
        codes_q4(t, table, x.w);
        x.d = pn__halves(p, rs);
        emit(user, b, &x);
    }
}

INLINE void walk_q4_0(const struct pn_walk *k, emit_fn emit, void *user) {
    walk_nibbles(k, emit, user, false);
}

INLINE void walk_iq4_nl(const struct pn_walk *k, emit_fn emit, void *user) {
    walk_nibbles(k, emit, user, true);
}

INLINE void signed_codes(vi w[8]) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        w[i] = v_signed(w[i]);
}

/* Eight blocks are 272 bytes, seventeen chunks. */
INLINE void walk_q8_0(const struct pn_walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 8 <= k->block_n; b += 8, p += 272) {
        vi t[68];
        struct block x;
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            int at = 17 * pair;
            vf d[2];
            pn__ahead(k, b * 34, 272, 4 * pair, 16);
            if (pair == 0) pn__dwords4(p, rs, t);
            pn__dwords8(p + 16 + 64 * pair, rs, t + 4 + 16 * pair);
            pn__halves_of(t[at], t[at + 8], &d[0], &d[1]);
            pn__from_half(t + at, 8, x.w);
            signed_codes(x.w);
            pn__ahead(k, b * 34, 272, 4 * pair + 1, 16);
            x.d = d[0];
            emit(user, b + 2 * (uint64_t)pair, &x);
            pn__ahead(k, b * 34, 272, 4 * pair + 2, 16);
            pn__dwords8(p + 48 + 64 * pair, rs, t + 12 + 16 * pair);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                x.w[i] = t[at + 9 + i];
            signed_codes(x.w);
            pn__ahead(k, b * 34, 272, 4 * pair + 3, 16);
            x.d = d[1];
            emit(user, b + 2 * (uint64_t)pair + 1, &x);
        }
    }
    for (; b < k->block_n; b++, p += 34) {
        struct block x;
        pn__dwords8(p + 2, rs, x.w);
        signed_codes(x.w);
        x.d = pn__halves(p, rs);
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
        vi t[20];
        struct block x;
        pn__dwords4(p, rs, t);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            pn__ahead(k, b * 20, 80, i, 4);
            pn__dwords4(p + 16 + 16 * i, rs, t + 4 + 4 * i);
            pn__nibbles(t + 5 * i + 1, x.w);
            pn__halves_of(t[5 * i], t[5 * i], &x.d, &x.m);
            emit(user, b + (uint64_t)i, &x);
        }
    }
    for (; b < k->block_n; b++, p += 20) {
        vi t[4];
        struct block x;
        pn__dwords4(p + 4, rs, t);
        pn__nibbles(t, x.w);
        x.d = pn__halves(p, rs);
        x.m = pn__halves(p + 2, rs);
        emit(user, b, &x);
    }
}

INLINE vi dwords_at(const uint8_t *p, size_t rs) {
    int32_t h[ROWS];
    for (int r = 0; r < ROWS; r++)
        memcpy(&h[r], p + (size_t)r * rs, sizeof h[r]);
    return v_load(h);
}

/* Eight blocks are 176 bytes, eleven chunks. */
INLINE void walk_q5_0(const struct pn_walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 8 <= k->block_n; b += 8, p += 176) {
        vi t[44];
        struct block x;
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            int at = 11 * pair;
            vf d[2];
            vi s[5];
            pn__ahead(k, b * 22, 176, 2 * pair, 8);
            pn__dwords8(p + 48 * pair, rs, t + 12 * pair);
            if (pair < 3) pn__dwords4(p + 48 * pair + 32, rs, t + 12 * pair + 8);
            pn__halves_of(t[at], t[at + 5], &d[0], &d[1]);
            pn__from_half(t + at, 5, s);
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
        vi t[4];
        struct block x;
        pn__dwords4(p + 6, rs, t);
        codes_q5(t, dwords_at(p + 2, rs), x.w);
        x.d = pn__halves(p, rs);
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
        vi t[12];
        struct block x;
        pn__dwords8(p, rs, t);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            pn__ahead(k, b * 24, 48, i, 2);
            if (i == 1) pn__dwords4(p + 32, rs, t + 8);
            codes_q5(t + 6 * i + 2, t[6 * i + 1], x.w);
            pn__halves_of(t[6 * i], t[6 * i], &x.d, &x.m);
            emit(user, b + (uint64_t)i, &x);
        }
    }
    if (b < k->block_n) {
        vi t[4];
        struct block x;
        pn__dwords4(p + 8, rs, t);
        codes_q5(t, dwords_at(p + 4, rs), x.w);
        x.d = pn__halves(p, rs);
        x.m = pn__halves(p + 2, rs);
        emit(user, b, &x);
    }
}

/* ---- types that are unpacked row by row ---- */

/* Units of 32: MXFP4, Q1_0, Q2_0. */
INLINE void walk_unit32(const struct pn_walk *k, emit_fn emit, void *user) {
    struct pn_unit units[ROWS];
    float d[ROWS];
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++) {
        struct block x;
        pn__unpack_rows(k, b, units);
        for (int r = 0; r < ROWS; r++)
            d[r] = units[r].d;
        pn__dwords8((const uint8_t *)units[0].codes, sizeof *units, x.w);
        signed_codes(x.w);
        x.d = v_load_floats(d);
        emit(user, b, &x);
    }
}

/* Units of 16, two a block: NVFP4. */
INLINE void walk_unit16(const struct pn_walk *k, emit_fn emit, void *user) {
    struct pn_unit units[2][ROWS];
    float d[2][ROWS];
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++) {
        struct block x;
        for (int half = 0; half < 2; half++) {
            pn__unpack_rows(k, 2 * b + (uint64_t)half, units[half]);
            for (int r = 0; r < ROWS; r++)
                d[half][r] = units[half][r].d;
            pn__dwords4((const uint8_t *)units[half][0].codes, sizeof **units, x.w + 4 * half);
        }
        signed_codes(x.w);
        x.d = v_load_floats(d[0]);
        x.m = v_load_floats(d[1]);
        emit(user, b, &x);
    }
}

#endif
