/* Blocks of 256 of a group's rows, unpacked: written once for the registers of avx2.h and of
 * avx512.h, one of which is included before.
 *
 * Codes are taken as the file has them, so too high by a type's offset, or as v_signed has them;
 * that comes out through the activation's own sums (`pair`). */
#ifndef PN_OPS_CPU_WALK_K_H
#define PN_OPS_CPU_WALK_K_H

#define LEN 256    /* values a block */
#define DWORDS 64  /* of codes a row in a block */
#define RUN_MAX 16 /* of 16 values; or 8 of 32 */

/* What stands beside a block's runs. */
struct tail {
    vi pair[RUN_MAX / 2]; /* int16 of runs 2i and 2i + 1: minimum, else -offset * scale */
    vf d;
    vf dmin; /* negated; types with has_min */
};

/* What a block is used for, run by run: codes four a dword, the scale as v_scale has it; then the
 * rest. */
typedef void (*run_fn)(void *user, uint64_t b, int run, const vi *w, vi scale);
typedef void (*end_fn)(void *user, uint64_t b, const struct tail *t);
typedef void (*walk_fn)(const struct pn_walk *k, run_fn run, end_fn end, void *user);

/* Bytes 0 and 1 (or 2 and 3) of each dword as unsigned halves. */
INLINE vi low_pair(vi v) {
    return v_shuffle(v, _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
}

INLINE vi high_pair(vi v) {
    return low_pair(v_right(v, 16));
}

/* The same of signed bytes, times -offset. */
INLINE vi low_pair_offset(vi v, int offset) {
    return v_mul16(v_words_signed(low_pair(v)), -offset);
}

/* Bits [2i, 2i + 2) of each byte, moved to bits 4 and 5; the rest is rubbish. */
INLINE vi two_bits_to_4(vi v, int i) {
    return i < 2 ? v_left(v, 4 - 2 * i) : v_right(v, 2 * i - 4);
}

/* Bit `from` of each byte, moved to bit `to`; the rest is rubbish. */
INLINE vi bit_to(vi v, int from, int to) {
    return from < to ? v_left(v, to - from) : v_right(v, from - to);
}

/* Q4_K and Q5_K open with two halves and eight scales and minimums of 6 bits in 12 bytes: h[1] and
 * h[2] hold the first four of each and above them the top bits of the others, h[3] their nibbles.
 */
INLINE void head_of_12(const vi h[4], vi scales[2], struct tail *t) {
    const vi six = v_set8(63), four = v_set8(15);
    const vi top = v_set8(48);
    scales[0] = v_and(h[1], six);
    scales[1] = v_or_masked(v_and(h[3], four), v_right(h[1], 2), top);
    vi m0 = v_and(h[2], six);
    vi m1 = v_or_masked(v_and(v_right(h[3], 4), four), v_right(h[2], 2), top);
    t->pair[0] = low_pair(m0);
    t->pair[1] = high_pair(m0);
    t->pair[2] = low_pair(m1);
    t->pair[3] = high_pair(m1);
    vf dmin;
    pn__halves_of(h[0], h[0], &t->d, &dmin);
    t->dmin = v_negated(dmin);
}

INLINE void walk_q45_k(const struct pn_walk *k, run_fn run, end_fn end, void *user, bool five) {
    const vi four = v_set8(15), fifth = v_set8(16);
    const int bytes = five ? 176 : 144;
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += bytes) {
        vi h[4], high[8], scales[2];
        struct tail t;
        pn__dwords4(p, rs, h);
        head_of_12(h, scales, &t);
        if (five) pn__dwords8(p + 16, rs, high);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const uint8_t *q = p + (five ? 48 : 16) + 32 * j;
            vi raw[8], w[8];
            pn__ahead(k, b * (uint64_t)bytes, bytes, 2 * j, 8);
            pn__dwords8(q, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                w[i] = v_and(raw[i], four);
                if (five) w[i] = v_or_masked(w[i], bit_to(high[i], 2 * j, 4), fifth);
            }
            run(user, b, 2 * j, w, v_scale_byte(scales[j / 2], j % 2 * 2, false));
            pn__ahead(k, b * (uint64_t)bytes, bytes, 2 * j + 1, 8);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                w[i] = v_and(v_right(raw[i], 4), four);
                if (five) w[i] = v_or_masked(w[i], bit_to(high[i], 2 * j + 1, 4), fifth);
            }
            run(user, b, 2 * j + 1, w, v_scale_byte(scales[j / 2], j % 2 * 2 + 1, false));
        }
        end(user, b, &t);
    }
}

INLINE void walk_q4_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    walk_q45_k(k, run, end, user, false);
}

INLINE void walk_q5_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    walk_q45_k(k, run, end, user, true);
}

/* 32 bytes of low nibbles are planes `plane` and plane + 2 of a half, four runs. */
INLINE void planes_q6_k(const struct pn_walk *k, const uint8_t *low, const vi high[8], run_fn run,
                        void *user, uint64_t b, int half, int plane, const vi scales[4]) {
    const vi four = v_set8(15), top = v_set8(48);
    vi l[8], w[4];
    pn__dwords8(low, k->rs, l);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        int at = plane + i / 2 * 2, c = i % 2, r = 8 * half + 2 * at + c;
        pn__ahead(k, b * 210, 210, 8 * half + 4 * plane + i, 16);
#pragma GCC unroll 4
        for (int n = 4 * c; n < 4 * c + 4; n++) {
            vi x = v_and(v_right(l[n], i / 2 * 4), four);
            w[n % 4] = v_or_masked(x, two_bits_to_4(high[n], at), top);
        }
        run(user, b, r, w, v_scale_byte(scales[r / 4], r % 4, true));
    }
}

INLINE void walk_q6_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 210) {
        vi scales[4], last[4], high[8];
        vf before;
        struct tail t;
        pn__dwords4(p + 192, rs, scales);
        pn__dwords4(p + 194, rs, last);
        pn__halves_of(last[3], last[3], &before, &t.d);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            t.pair[2 * i] = low_pair_offset(scales[i], 32);
            t.pair[2 * i + 1] = low_pair_offset(v_right(scales[i], 16), 32);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            pn__dwords8(p + 128 + 32 * half, rs, high);
            planes_q6_k(k, p + 64 * half, high, run, user, b, half, 0, scales);
            planes_q6_k(k, p + 64 * half + 32, high, run, user, b, half, 1, scales);
        }
        end(user, b, &t);
    }
}

/* Scales and minimums are nibbles, low and high; d and dmin end the block. */
INLINE void walk_q2_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const vi two = v_set8(3), four = v_set8(15);
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 84) {
        vi head[4], last[4], raw[8], w[4];
        vf dmin;
        struct tail t;
        pn__dwords4(p, rs, head);
        pn__dwords4(p + 68, rs, last);
        pn__halves_of(last[3], last[3], &t.d, &dmin);
        t.dmin = v_negated(dmin);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            vi mins = v_and(v_right(head[i], 4), four);
            t.pair[2 * i] = low_pair(mins);
            t.pair[2 * i + 1] = high_pair(mins);
            head[i] = v_and(head[i], four);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            pn__dwords8(p + 16 + 32 * half, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                int r = 8 * half + i;
                if (i % 2 == 0) pn__ahead(k, b * 84, 84, r / 2, 8);
#pragma GCC unroll 4
                for (int n = 0; n < 4; n++)
                    w[n] = v_and(v_right(raw[i % 2 * 4 + n], i / 2 * 2), two);
                run(user, b, r, w, v_scale_byte(head[r / 4], r % 4, false));
            }
        }
        end(user, b, &t);
    }
}

/* Q3_K's sixteen scales from the twelve bytes behind t[0]'s first two. */
INLINE void scales_q3_k(const vi t[4], vi scales[4]) {
    const vi four = v_set8(15), top = v_set8(48);
    vi bits[3];
    pn__from_half(t, 3, bits);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        vi low = v_and(v_right(bits[i % 2], i / 2 * 4), four);
        scales[i] = v_sub8(v_or_masked(low, two_bits_to_4(bits[2], i), top), 32);
    }
}

/* Codes of 0 to 7, 4 too high. */
INLINE void walk_q3_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const vi two = v_set8(3), third = v_set8(4);
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 110) {
        vi scales[4], last[4], high[8], raw[8], w[4];
        vf before;
        struct tail t;
        pn__dwords8(p, rs, high);
        pn__dwords4(p + 94, rs, last);
        scales_q3_k(last, scales);
        pn__halves_of(last[3], last[3], &before, &t.d);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            t.pair[2 * i] = low_pair_offset(scales[i], 4);
            t.pair[2 * i + 1] = low_pair_offset(v_right(scales[i], 16), 4);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            pn__dwords8(p + 32 + 32 * half, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                int r = 8 * half + i;
                if (i % 2 == 0) pn__ahead(k, b * 110, 110, r / 2, 8);
#pragma GCC unroll 4
                for (int n = 0; n < 4; n++) {
                    vi h = bit_to(high[i % 2 * 4 + n], r / 2, 2);
                    w[n] = v_right(raw[i % 2 * 4 + n], i / 2 * 2);
                    w[n] = v_or_masked(v_and(w[n], two), h, third);
                }
                run(user, b, r, w, v_scale_byte(scales[r / 4], r % 4, true));
            }
        }
        end(user, b, &t);
    }
}

/* Run r's scale, int32: nibble r of `low`, above it bits 16 + 2r and 17 + 2r of `head`; 32 too
 * high. */
INLINE vi scale_iq4_xs(vi head, vi low, int r) {
    vi x = v_and(v_right(low, 4 * r), v_set32(15));
    x = v_or_masked(x, v_right(head, 12 + 2 * r), v_set32(48));
    return v_sub32(x, 32);
}

/* Nibbles through a table of values. */
INLINE void walk_iq4_xs(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 136) {
        vi head[4], raw[8], w[8], scale[2];
        vf after;
        struct tail t;
        pn__dwords4(p, rs, head);
        pn__halves_of(head[0], head[0], &t.d, &after);
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++) {
            pn__ahead(k, b * 136, 136, r, 8);
            if (r % 2 == 0) pn__dwords8(p + 8 + 16 * r, rs, raw);
            pn__nibbles(raw + r % 2 * 4, w);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                w[i] = v_lookup(pn__table_iq4(), w[i]);
            scale[r % 2] = scale_iq4_xs(head[0], head[1], r);
            run(user, b, r, w, v_scale(scale[r % 2]));
            if (r % 2 == 0 || !SIGNED_OFFSET) continue;
            vi both = v_or_masked(v_left(scale[1], 16), scale[0], v_set32(0xffff));
            t.pair[r / 2] = v_mul16(both, -SIGNED_OFFSET);
        }
        end(user, b, &t);
    }
}

/* ---- types that are unpacked row by row ---- */

/* Units of 256 in run_n runs, a constant where this is inlined; signed codes. */
INLINE void walk_units(const struct pn_walk *k, run_fn run, end_fn end, void *user, int run_n) {
    const int dword_n = DWORDS / run_n;
    struct pn_unit units[ROWS];
    float d[ROWS];
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++) {
        vi pairs[RUN_MAX / 2], w[8];
        struct tail t;
        pn__unpack_rows(k, b, units);
        for (int i = 0; i < run_n / 2; i += 4)
            pn__dwords4((const uint8_t *)(units[0].scales + 2 * i), sizeof *units, pairs + i);
        for (int r = 0; r < ROWS; r++)
            d[r] = units[r].d;
#pragma GCC unroll 16
        for (int r = 0; r < run_n; r++) {
            const uint8_t *codes = (const uint8_t *)units[0].codes + 4 * dword_n * r;
            if (dword_n == 8)
                pn__dwords8(codes, sizeof *units, w);
            else
                pn__dwords4(codes, sizeof *units, w);
#pragma GCC unroll 8
            for (int i = 0; i < dword_n; i++)
                w[i] = v_signed(w[i]);
            run(user, b, r, w, v_scale_word(pairs[r / 2], r % 2));
        }
        if (SIGNED_OFFSET)
            for (int i = 0; i < run_n / 2; i++)
                t.pair[i] = v_mul16(pairs[i], -SIGNED_OFFSET);
        t.d = v_load_floats(d);
        end(user, b, &t);
    }
}

INLINE void walk_unit8(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    walk_units(k, run, end, user, 8);
}

INLINE void walk_unit16(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    walk_units(k, run, end, user, 16);
}

#endif
