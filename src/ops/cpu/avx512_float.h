/* Matmul of F32, F16 and BF16 weights for AVX-512, read straight from the file's rows: the part
 * that files of different instruction sets share.
 *
 * Here a register holds sixteen values of one row, and a dot is sixteen partial sums until its end:
 * lane order (kernels.h) as it stands, so that nothing is transposed or packed.
 *
 * BF16 goes through 32 elements in two steps, lane j taking element 2j + 1, then 2j, and counts
 * tiny values as zeros. With both sides in their natural order that is what vdpbf16ps does; where a
 * processor has none, two fused multiply-adds in flush-to-zero mode give its bits. So this level
 * prepares BF16 inputs its own way. */
#ifndef PN_OPS_CPU_AVX512_FLOAT_H
#define PN_OPS_CPU_AVX512_FLOAT_H

#include "ops/cpu/avx512.h"

/* Whether this file's processors multiply bfloat16 themselves. */
#ifdef __AVX512BF16__
#define NATIVE_BF16 1
#else
#define NATIVE_BF16 0
#endif

enum kind { KIND_F32, KIND_F16, KIND_BF16 };
#define LINE_BYTES 64 /* of a weight row: the unit of prefetching */

INLINE uint32_t kind_bytes(enum kind kind) {
    return kind == KIND_F32 ? 4 : 2;
}

/* Elements that one register of inputs holds. */
INLINE uint32_t kind_step(enum kind kind) {
    return kind == KIND_BF16 ? 32 : 16;
}

INLINE __mmask16 first_of_16(uint32_t n) {
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffffu);
}

/* A row's length in `bf`. */
INLINE uint64_t wide(uint32_t col_n) {
    return ((uint64_t)col_n + 31) / 32 * 32;
}

/* ---- a tile of dots ---- */

/* What a tile works on; a pointer repeats the last one where rows or columns run out. */
#define TILE_ROWS 8
#define TILE_COLS 6
struct tile {
    const uint8_t *w[TILE_ROWS];
    const uint8_t *x[TILE_COLS]; /* floats, or bfloat16 for BF16 weights */
    const uint8_t *next;         /* what to prefetch, a line for each line used; NULL: nothing */
};

INLINE __m512 load_w(const uint8_t *p, enum kind kind) {
    if (kind == KIND_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_loadu_ps(p);
}

/* n elements, then zeros. */
INLINE __m512 load_w_part(const uint8_t *p, uint32_t n, enum kind kind) {
    if (kind == KIND_F32) return _mm512_maskz_loadu_ps(first_of_16(n), p);
    if (kind == KIND_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_of_16(n), p));
    return _mm512_castsi512_ps(
        _mm512_maskz_loadu_epi16(n < 32 ? (__mmask32)((1u << n) - 1) : 0xffffffffu, p));
}

/* BF16 inputs have zeros behind. */
INLINE __m512 load_x_part(const uint8_t *p, uint32_t n, enum kind kind) {
    return kind == KIND_BF16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first_of_16(n), p);
}

/* Odd and even elements of 32 bfloat16 as floats. */
INLINE __m512 bf_odd(__m512 v) {
    return _mm512_and_ps(v, _mm512_castsi512_ps(_mm512_set1_epi32((int)0xffff0000u)));
}

INLINE __m512 bf_even(__m512 v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 16));
}

INLINE __m512 take(__m512 f, __m512 w, __m512 x, enum kind kind) {
    if (kind != KIND_BF16) return _mm512_fmadd_ps(w, x, f);
#if NATIVE_BF16
    return _mm512_dpbf16_ps(f, (__m512bh)w, (__m512bh)x);
#else
    f = _mm512_fmadd_ps(bf_odd(w), bf_odd(x), f);
    return _mm512_fmadd_ps(bf_even(w), bf_even(x), f);
#endif
}

/* Elements [from, to) of row_n x col_n dots; row_n, col_n and kind are constants where this is
 * inlined. `from` is a multiple of a line's elements; so is `to`, or it is the row's end. */
INLINE void dots(const struct tile *t, uint64_t from, uint64_t to, uint32_t row_n, uint32_t col_n,
                 enum kind kind, __m512 f[TILE_ROWS][TILE_COLS]) {
    const uint32_t w_bytes = kind_bytes(kind);
    const uint32_t x_bytes = kind == KIND_BF16 ? 2 : 4;
    const uint32_t step = kind_step(kind);
    const uint32_t line = LINE_BYTES / w_bytes;
    const uint8_t *next = t->next;
    uint64_t k = from;
#pragma GCC unroll 1
    for (; k + line <= to; k += line) {
        if (next) {
            pn__prefetch_lines(next, (int)row_n);
            next += LINE_BYTES * row_n;
        }
#pragma GCC unroll 2
        for (uint32_t i = 0; i < line; i += step) {
            __m512 w[TILE_ROWS];
#pragma GCC unroll 8
            for (uint32_t r = 0; r < row_n; r++)
                w[r] = load_w(t->w[r] + (k + i) * w_bytes, kind);
#pragma GCC unroll 8
            for (uint32_t c = 0; c < col_n; c++) {
                __m512 x = _mm512_loadu_ps(t->x[c] + (k + i) * x_bytes);
#pragma GCC unroll 8
                for (uint32_t r = 0; r < row_n; r++)
                    f[r][c] = take(f[r][c], w[r], x, kind);
            }
        }
    }
#pragma GCC unroll 1
    for (; k < to; k += step) {
        uint32_t n = to - k < step ? (uint32_t)(to - k) : step;
#pragma GCC unroll 8
        for (uint32_t r = 0; r < row_n; r++) {
            __m512 w = load_w_part(t->w[r] + k * w_bytes, n, kind);
#pragma GCC unroll 8
            for (uint32_t c = 0; c < col_n; c++)
                f[r][c] = take(f[r][c], w, load_x_part(t->x[c] + k * x_bytes, n, kind), kind);
        }
    }
}

/* The sums of a tile, at this point of the program: arithmetic on them stays before or behind it.
 */
INLINE void pin(__m512 f[TILE_ROWS][TILE_COLS], uint32_t row_n, uint32_t col_n) {
#pragma GCC unroll 8
    for (uint32_t r = 0; r < row_n; r++)
#pragma GCC unroll 8
        for (uint32_t c = 0; c < col_n; c++)
            __asm__ volatile("" : "+v"(f[r][c]));
}

#define FLUSH_TINY 0x8040u /* of the control register: subnormal results and inputs are zeros */

/* `dots` as the kind wants subnormal numbers treated. */
INLINE void dots_of(const struct tile *t, uint64_t from, uint64_t to, uint32_t row_n,
                    uint32_t col_n, enum kind kind, __m512 f[TILE_ROWS][TILE_COLS]) {
    if (kind != KIND_BF16 || NATIVE_BF16) {
        dots(t, from, to, row_n, col_n, kind, f);
        return;
    }
    unsigned mode = _mm_getcsr();
    pin(f, row_n, col_n);
    _mm_setcsr(mode | FLUSH_TINY);
    pin(f, row_n, col_n);
    dots(t, from, to, row_n, col_n, kind, f);
    pin(f, row_n, col_n);
    _mm_setcsr(mode);
    pin(f, row_n, col_n);
}

/* The trees of four sums: lane j takes j + 8, + 4, + 2, + 1. */
INLINE __m128 sum4(__m512 a, __m512 b, __m512 c, __m512 d) {
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 f =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    f = _mm512_add_ps(f, _mm512_permute_ps(f, 0x4e));
    f = _mm512_add_ps(f, _mm512_permute_ps(f, 0xb1));
    return _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, f));
}

/* Finished dots of up to four rows for one column. */
INLINE void put4(const struct pn_mm *mm, uint32_t m, uint32_t row, uint32_t hi, __m128 f) {
    __mmask8 ours = (__mmask8)(hi - row < 4 ? (1u << (hi - row)) - 1 : 15u);
    f = _mm_mul_ps(f, _mm_set1_ps(mm->w->scale));
    if (mm->bias) f = _mm_add_ps(f, _mm_maskz_loadu_ps(ours, mm->bias + row));
    _mm_mask_storeu_ps(mm->out.data + (uint64_t)m * mm->out.stride + row, ours, f);
}

/* What a tile's place in a matmul is. */
struct place {
    uint32_t row; /* first of row_n rows, as far as they are below hi */
    uint32_t hi;
    uint32_t m; /* first of col_n inputs, as far as there are any */
    /* Elements [from, to) of the dots. What is not a dot's end leaves its sums in `sums`, from
     * where what is not a dot's start takes them. */
    uint64_t from;
    uint64_t to;
    __m512 *sums;
    uint32_t ahead; /* rows from the first to what is prefetched; 0: nothing */
    uint32_t end;   /* of the thread's rows */
};

/* What to prefetch while a tile is read: rows of this thread's, then of its next matrix. */
INLINE const uint8_t *next_of(const struct pn_mm *mm, const struct place *at, enum kind kind) {
    if (at->ahead == 0) return NULL;
    uint64_t off = at->from * kind_bytes(kind);
    uint32_t left = at->end - at->row;
    if (at->ahead < left)
        return mm->w->data + (uint64_t)(at->row + at->ahead) * mm->w->row_bytes + off;
    return mm->next ? mm->next + (uint64_t)(at->ahead - left) * mm->w->row_bytes + off : NULL;
}

INLINE void tile_of(const struct pn_mm *mm, const struct place *at, uint32_t row_n, uint32_t col_n,
                    enum kind kind) {
    const struct pn_weight *w = mm->w;
    const struct pn_acts *a = mm->acts;
    struct tile t;
    __m512 f[TILE_ROWS][TILE_COLS];
    for (uint32_t r = 0; r < row_n; r++)
        t.w[r] =
            w->data + (uint64_t)(at->row + r < at->hi ? at->row + r : at->hi - 1) * w->row_bytes;
    for (uint32_t c = 0; c < col_n; c++) {
        uint64_t m = at->m + c < a->row_n ? at->m + c : a->row_n - 1;
        t.x[c] = kind == KIND_BF16 ? (const uint8_t *)(a->bf + m * wide(a->col_n))
                                   : (const uint8_t *)(a->x + m * a->x_stride);
    }
    t.next = next_of(mm, at, kind);
    for (uint32_t r = 0; r < row_n; r++)
        for (uint32_t c = 0; c < col_n; c++)
            f[r][c] = at->from ? at->sums[r * col_n + c] : _mm512_setzero_ps();
    dots_of(&t, at->from, at->to, row_n, col_n, kind, f);
    if (at->to < a->col_n) {
        for (uint32_t r = 0; r < row_n; r++)
            for (uint32_t c = 0; c < col_n; c++)
                at->sums[r * col_n + c] = f[r][c];
        return;
    }
    for (uint32_t c = 0; c < col_n && at->m + c < a->row_n; c++)
        for (uint32_t r = 0; r < row_n && at->row + r < at->hi; r += 4)
            put4(mm, at->m + c, at->row + r, at->hi,
                 sum4(f[r][c], f[r + 1][c], f[r + 2][c], f[r + 3][c]));
}

/* ---- a type's matmul ---- */

/* Weight rows that stay in the second-level cache while the columns pass. */
#define BLOCK_ROWS 64
#define BLOCK_BYTES (512u << 10)
/* Long dots of BF16 are cut, so that six inputs' part stays in the first-level cache: the sums of a
 * block, 24 KiB, go through the panel's scratch, which such rows make larger than that. */
#define CHUNK_BF16 1024
#define WHOLE_BF16 2048

/* Columns of the next tile when `left` are to come: never one alone behind six. BF16 by two steps
 * has registers for four. */
INLINE uint32_t tile_cols(uint32_t left, enum kind kind) {
    if (kind == KIND_BF16 && !NATIVE_BF16) return left > 2 ? 4 : left;
    if (left == 7 || left == 8) return 4;
    return left > 4 ? 6 : left > 2 ? 4 : left;
}

/* A block of rows against one tile of inputs. */
INLINE void block_of(const struct pn_mm *mm, struct place at, uint32_t col_n, enum kind kind) {
    uint64_t k_n = mm->acts->col_n;
    uint64_t chunk = kind == KIND_BF16 && k_n > WHOLE_BF16 ? CHUNK_BF16 : k_n;
    uint32_t row = at.row;
    __m512 *sums = at.sums;
    for (at.from = 0; at.from < k_n; at.from = at.to) {
        at.to = at.from + chunk < k_n ? at.from + chunk : k_n;
        at.sums = sums;
        for (at.row = row; at.row < at.hi; at.row += 4, at.sums += 4 * col_n)
            tile_of(mm, &at, 4, col_n, kind);
    }
}

INLINE void blocks(const struct pn_mm *mm, struct place all, enum kind kind) {
    uint32_t input_n = mm->acts->row_n;
    uint64_t fit_n = BLOCK_BYTES / mm->w->row_bytes / 4 * 4;
    uint32_t row_n = fit_n > BLOCK_ROWS ? BLOCK_ROWS : fit_n > 4 ? (uint32_t)fit_n : 4;
    for (uint32_t row = all.row; row < all.hi; row += row_n) {
        uint32_t col_n;
        for (uint32_t m = 0; m < input_n; m += col_n) {
            struct place at = all;
            at.row = row;
            at.hi = all.hi - row < row_n ? all.hi : row + row_n;
            at.m = m;
            if (m > 0) at.ahead = 0;
            col_n = tile_cols(input_n - m, kind);
            switch (col_n) {
            case 1:
                block_of(mm, at, 1, kind);
                break;
            case 2:
                block_of(mm, at, 2, kind);
                break;
            case 4:
                block_of(mm, at, 4, kind);
                break;
            default:
                block_of(mm, at, 6, kind);
            }
        }
    }
}

INLINE void matmul(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                   const struct pn_thread_scratch *scratch, enum kind kind) {
    uint32_t row_n = mm->acts->row_n == 1 ? TILE_ROWS : 4;
    uint64_t ahead_n = PREFETCH_AHEAD_BYTES / (row_n * mm->w->row_bytes) + 1;
    struct place at = {.row = lo,
                       .hi = hi,
                       .to = mm->acts->col_n,
                       .sums = (__m512 *)(void *)scratch->panel,
                       .ahead = (uint32_t)ahead_n * row_n,
                       .end = hi};
    if (row_n == 4)
        blocks(mm, at, kind);
    else
        for (; at.row < hi; at.row += TILE_ROWS)
            tile_of(mm, &at, TILE_ROWS, 1, kind);
}

#endif
