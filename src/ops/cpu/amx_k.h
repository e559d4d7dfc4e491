/* Matmul of weights in blocks of 256 for AMX.
 *
 * A block is runs of 16 or 32 codes under an integer scale each. Packing multiplies every code by
 * its run's scale, so that a block's sum is one exact chain of dots,
 *     I = sum of (scale * code) * q,
 * without a stop at each run. Where a product does not fit into a byte it is cut in two, and so is
 * the sum, I = L + (H << cut):
 *   - unsigned codes: the scale is cut, into its low `cut` bits and the rest. A multiplication of
 *     words then does two bytes at once.
 *   - signed codes: the product is, at 7 bits.
 *
 * Four sums are made at once: two tiles of input times the two parts of a group, or times two
 * groups where one will do. While the next block's are made, the last one's are finished. */
#ifndef PN_OPS_CPU_AMX_K_H
#define PN_OPS_CPU_AMX_K_H

#include "ops/cpu/amx.h"

#include "ops/cpu/walk_k.h"

struct form {
    int run_n;
    bool has_min;
    bool is_signed; /* codes too high by `offset`; else as they are */
    int offset;
    uint8_t cut; /* 0: products fit into a byte */
    bool turned; /* products with their sign turned */
};

/* ---- packing ---- */

/* A block of sixteen rows, registers of 64 bytes: the products' low parts, DWORDS; the high ones;
 * d; where there are minima dmin and the pairs. */
#define PART_BYTES (64 * (uint64_t)DWORDS)
_Static_assert(2 * PART_BYTES + 64 * 6 <= AMX_STREAM_BYTES, "a block of Q5_K");
_Static_assert(2 * PART_BYTES + 64 * 6 <= PN_AMX_GROUP_BYTES(LEN), "a panel holds two groups");

INLINE uint64_t tail_at(const struct form *form) {
    return (form->cut ? 2 : 1) * PART_BYTES;
}

INLINE uint64_t record_bytes(const struct form *form) {
    return tail_at(form) + 64 * (uint64_t)(form->has_min ? 2 + form->run_n / 2 : 1);
}

struct packing {
    uint8_t *to;
    struct form form;
};

/* Bytes of a where `mask` is set, else of b. */
INLINE __m512i select_bits(__m512i mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

/* Low and high parts of unsigned codes' products with their run's scale. */
INLINE void unsigned_parts(__m512i codes, __m512i scale, const struct form *form, __m512i *low,
                           __m512i *high) {
    __m512i low_scale = scale;
    if (form->cut) {
        low_scale = _mm512_and_si512(scale, _mm512_set1_epi16((short)((1 << form->cut) - 1)));
        *high = _mm512_mullo_epi16(codes, _mm512_srli_epi16(scale, form->cut));
    }
    *low = _mm512_mullo_epi16(codes, low_scale);
}

INLINE void signed_parts(__m512i codes, __m512i scale, const struct form *form, __m512i *low,
                         __m512i *high) {
    const __m512i evens = _mm512_set1_epi16(255);
    codes = v_sub8(codes, form->offset);
    __m512i even = _mm512_mullo_epi16(v_words_signed(codes), scale);
    __m512i odd = _mm512_mullo_epi16(_mm512_srai_epi16(codes, 8), scale);
    *low = select_bits(evens, even, _mm512_slli_epi16(odd, 8));
    if (!form->cut) return;
    *low = _mm512_and_si512(*low, _mm512_set1_epi8(127));
    *high = select_bits(evens, _mm512_srli_epi16(even, 7), _mm512_slli_epi16(odd, 1));
}

INLINE void pack_run(void *user, uint64_t b, int run, const __m512i *w, __m512i scale) {
    struct packing *c = user;
    int dword_n = DWORDS / c->form.run_n;
    uint8_t *to = c->to + b * record_bytes(&c->form) + 64 * (uint64_t)(run * dword_n);
    scale = _mm512_mask_blend_epi16(0xaaaaaaaa, scale, _mm512_slli_epi32(scale, 16));
    if (c->form.turned) scale = _mm512_sub_epi16(_mm512_setzero_si512(), scale);
#pragma GCC unroll 8
    for (int i = 0; i < dword_n; i++) {
        __m512i low, high;
        if (c->form.is_signed)
            signed_parts(w[i], scale, &c->form, &low, &high);
        else
            unsigned_parts(w[i], scale, &c->form, &low, &high);
        _mm512_store_si512(to + 64 * i, low);
        if (c->form.cut) _mm512_store_si512(to + PART_BYTES + 64 * i, high);
    }
}

INLINE void pack_end(void *user, uint64_t b, const struct tail *t) {
    struct packing *c = user;
    uint8_t *to = c->to + b * record_bytes(&c->form) + tail_at(&c->form);
    _mm512_store_ps(to, t->d);
    if (!c->form.has_min) return;
    _mm512_store_ps(to + 64, t->dmin);
#pragma GCC unroll 8
    for (int i = 0; i < c->form.run_n / 2; i++)
        _mm512_store_si512(to + 128 + 64 * i, t->pair[i]);
}

INLINE void pack_k(const struct pn_walk *k, walk_fn walk, struct form form, uint8_t *to) {
    struct packing c = {to, form};
    walk(k, pack_run, pack_end, &c);
    PN_AMX_FENCE();
}

/* ---- finishing a block ---- */

/* The sums of one block, by tile register. */
struct sums {
    _Alignas(64) int32_t of[4][AMX_VALUES];
};

/* A block of one group and one tile of input. */
struct block_at {
    const uint8_t *tail; /* of the group's record */
    const float *d;      /* of the tile's rows */
    const int16_t *sums;
    const int32_t *low; /* [AMX_ROWS][ROWS] */
    const int32_t *high;
    float *f;
};

/* Input rows that are finished at a time. */
#define FINISH_ROWS 4

/* Their sums of q, for two runs each: int16 in dwords. Row r's number i is at sums_at(run_n, r, i).
 */
INLINE void sums_of_rows(const int16_t *sums, int run_n, int32_t out[FINISH_ROWS * RUN_MAX / 2]) {
    const __m512i one = _mm512_set1_epi16(1);
    __m512i a = v_load(sums), b = v_load(sums + 2 * RUN_MAX);
    if (run_n == RUN_MAX) {
        _mm512_store_si512(out, a);
        _mm512_store_si512(out + RUN_MAX, b);
    } else {
        _mm512_store_si512(
            out, _mm512_packs_epi32(_mm512_madd_epi16(a, one), _mm512_madd_epi16(b, one)));
    }
}

INLINE uint32_t sums_at(int run_n, uint32_t r, uint32_t i) {
    if (run_n == RUN_MAX) return r * RUN_MAX / 2 + i;
    return r % 2 * 8 + r / 2 * 2 + i / 2 * 4 + i % 2; /* as the quarters of a register are packed */
}

/* FINISH_ROWS rows of the tile from `lo` on, of which row_n are there. */
INLINE void finish(const struct block_at *x, struct form form, uint32_t lo, uint32_t row_n) {
    _Alignas(64) int32_t sums[FINISH_ROWS * RUN_MAX / 2];
    __m512i pairs[RUN_MAX / 2];
    __m512 wd = _mm512_load_ps(x->tail), wmin = wd;
    if (form.turned) wd = v_negated(wd);
    if (form.has_min) {
        wmin = _mm512_load_ps(x->tail + 64);
        for (int i = 0; i < form.run_n / 2; i++)
            pairs[i] = _mm512_load_si512(x->tail + 128 + 64 * i);
        sums_of_rows(x->sums + RUN_MAX * lo, form.run_n, sums);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < row_n; r++) {
        uint32_t m = lo + r;
        __m512 dx = _mm512_set1_ps(x->d[m]);
        __m512i sum = _mm512_load_si512(x->low + m * ROWS);
        if (form.cut)
            sum = _mm512_add_epi32(
                sum, _mm512_slli_epi32(_mm512_load_si512(x->high + m * ROWS), (unsigned)form.cut));
        __m512 f = _mm512_load_ps(x->f + m * ROWS);
        f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(wd, dx), f);
        if (form.has_min) {
            __m512i min = _mm512_setzero_si512();
#pragma GCC unroll 8
            for (uint32_t i = 0; i < (uint32_t)form.run_n / 2; i++)
                min = _mm512_dpwssd_epi32(min, pairs[i],
                                          _mm512_set1_epi32(sums[sums_at(form.run_n, r, i)]));
            f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(min), _mm512_mul_ps(wmin, dx), f);
        }
        _mm512_store_ps(x->f + m * ROWS, f);
    }
}

/* Where the input of a tile stands: the first block of the part, and from one block to the next. */
struct input_at {
    uint64_t first;
    uint64_t step;
};

/* Rows 4 * quarter and on of each tile: what follows from the sums of block b of the part. */
INLINE void finish_quarter(const struct pn_amx_part *p, struct form form,
                           const struct input_at input[2], const struct sums *sums, uint64_t b,
                           uint32_t quarter) {
    const struct pn_acts *a = p->acts;
    uint32_t lo = FINISH_ROWS * quarter;
    for (uint32_t g = 0; g < p->group_n; g++) {
        const uint8_t *record = p->panel + g * p->group_bytes + b * record_bytes(&form);
        for (uint32_t t = 0; t < 2 && lo < p->row_n[t]; t++) {
            uint64_t at = input[t].first + b * input[t].step;
            struct block_at x = {.tail = record + tail_at(&form),
                                 .d = a->d + at,
                                 .sums = a->sums + at * RUN_MAX,
                                 .low = sums->of[2 * g + t],
                                 .high = sums->of[2 + t],
                                 .f = p->f + (2 * g + t) * AMX_VALUES};
            if (p->row_n[t] - lo >= FINISH_ROWS)
                finish(&x, form, lo, FINISH_ROWS);
            else
                finish(&x, form, lo, p->row_n[t] - lo);
        }
    }
}

/* ---- dots ---- */

/* 64 codes of a block: q0 and q1 of the two tiles of input, w0 and w1 of two parts or groups.
 * two: there is a second tile; four: second weights. Operands of instructions have to be literal.
 */
#define DOTS(instruction, q0, q1, w0, w1, two, four) \
    do {                                             \
        _tile_loadd(4, q0, LEN);                     \
        _tile_loadd(6, w0, 64);                      \
        instruction(0, 4, 6);                        \
        if (two) {                                   \
            _tile_loadd(5, q1, LEN);                 \
            instruction(1, 5, 6);                    \
        }                                            \
        if (four) {                                  \
            _tile_loadd(7, w1, 64);                  \
            instruction(2, 4, 7);                    \
            if (two) instruction(3, 5, 7);           \
        }                                            \
    } while (0)
#define SIGNED_DOTS(...) DOTS(_tile_dpbssd, __VA_ARGS__)
#define UNSIGNED_DOTS(...) DOTS(_tile_dpbsud, __VA_ARGS__)

INLINE void store_sums(struct sums *sums, bool two, bool four) {
    _tile_stored(0, sums->of[0], 64);
    if (two) _tile_stored(1, sums->of[1], 64);
    if (four) _tile_stored(2, sums->of[2], 64);
    if (four && two) _tile_stored(3, sums->of[3], 64);
}

/* two, four: as above. Constants where this is inlined. */
INLINE void dot_blocks(const struct pn_amx_part *p, struct form form, bool two, bool four) {
    const struct pn_acts *a = p->acts;
    uint64_t second = form.cut ? PART_BYTES : p->group_bytes;
    struct sums sums[2];
    struct input_at input[2] = {{0}};
    for (uint32_t t = 0; t < (two ? 2 : 1); t++) {
        uint32_t row = (p->tile_i + t) * AMX_ROWS;
        input[t].first = pn__act_at(a, a->col_n / LEN, p->block_i, row);
        input[t].step = pn__act_step(a, row);
    }
    for (uint64_t b = 0; b < p->block_n; b++) {
        const int8_t *q[2];
        for (uint32_t t = 0; t < 2; t++)
            q[t] = a->q + LEN * (input[two ? t : 0].first + b * input[two ? t : 0].step);
        const uint8_t *w = p->panel + b * record_bytes(&form);
        pn__feed(p->feed);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
#pragma GCC unroll 1
        for (uint32_t i = 0; i < 4; i++) {
            const uint8_t *w0 = w + 1024 * i, *w1 = w0 + second;
            if (form.is_signed)
                SIGNED_DOTS(q[0] + 64 * i, q[1] + 64 * i, w0, w1, two, four);
            else
                UNSIGNED_DOTS(q[0] + 64 * i, q[1] + 64 * i, w0, w1, two, four);
            if (b > 0) finish_quarter(p, form, input, &sums[(b - 1) % 2], b - 1, i);
        }
        store_sums(&sums[b % 2], two, four);
    }
    for (uint32_t i = 0; i < 4; i++)
        finish_quarter(p, form, input, &sums[(p->block_n - 1) % 2], p->block_n - 1, i);
}

INLINE void dot_k(const struct pn_amx_part *p, struct form form) {
    bool two = p->row_n[1] > 0, four = form.cut || p->group_n == 2;
    if (two && four)
        dot_blocks(p, form, true, true);
    else if (four)
        dot_blocks(p, form, false, true);
    else
        dot_blocks(p, form, two, false);
}

/* ---- the types ---- */

#define K_TYPE(name, ...)                                                                         \
    static void pack_##name(const struct pn_walk *k, uint8_t *to) {                               \
        pack_k(k, walk_##name, (struct form){__VA_ARGS__}, to);                                   \
    }                                                                                             \
    static void dot_##name(const struct pn_amx_part *p) {                                         \
        dot_k(p, (struct form){__VA_ARGS__});                                                     \
    }                                                                                             \
    static void matmul_##name(const struct pn_mm *mm, uint32_t lo, uint32_t hi,                   \
                              const struct pn_thread_scratch *scratch) {                          \
        const struct form form = {__VA_ARGS__};                                                   \
        const struct pn_amx_type type = {{LEN, record_bytes(&form)}, 64, 2, form.cut ? 1 : 2, 1}; \
        pn__matmul_amx(mm, lo, hi, scratch, type, pack_##name, dot_##name);                       \
    }

#endif
