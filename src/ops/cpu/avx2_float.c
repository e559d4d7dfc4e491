/* Matmul of F32 and F16 weights, read straight from the file's rows.
 *
 * Two registers hold the sixteen partial sums of a dot: lane order (kernels.h) as it stands, so
 * that nothing is transposed or packed. F16 is widened where it is used: widening a block of rows
 * once for all columns was measured to be slower, for 5 columns as for 256. */
#include "ops/cpu/avx2.h"

enum kind { KIND_F32, KIND_F16 };

#define TILE_ROWS 4
#define TILE_COLS 3
#define LINE_BYTES 64 /* of a weight row: the unit of prefetching */

/* Weight rows that stay in the second-level cache. */
#define BLOCK_BYTES (512u << 10)
#define BLOCK_ROWS 64

INLINE uint32_t kind_bytes(enum kind kind) {
    return kind == KIND_F32 ? 4 : 2;
}

/* Sixteen lanes. */
struct lanes {
    __m256 half[2];
};

INLINE __m256 widened(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m256 load_w(const uint8_t *p, enum kind kind) {
    return kind == KIND_F16 ? widened(p) : _mm256_loadu_ps((const float *)(const void *)p);
}

/* The tree: lane j takes j + 8, + 4, + 2, + 1. */
INLINE float sum_of(struct lanes f) {
    __m256 eight = _mm256_add_ps(f.half[0], f.half[1]);
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

/* What a tile works on; a pointer repeats the last one where rows or columns run out. */
struct tile {
    const uint8_t *w[TILE_ROWS];
    const float *x[TILE_COLS];
    const uint8_t *next; /* what to prefetch, a line for each line used; NULL: nothing */
};

/* f takes sixteen elements of row_n rows w for col_n inputs x, one half after the other: 2 x 3 sums
 * and what they need are all the registers there are. */
INLINE void take(const uint8_t *const *w, const float *const *x, uint64_t k, uint32_t row_n,
                 uint32_t col_n, enum kind kind, struct lanes f[TILE_ROWS][TILE_COLS]) {
    for (uint32_t half = 0; half < 2; half++, k += 8) {
        __m256 wide[TILE_ROWS];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < row_n; r++)
            wide[r] = load_w(w[r] + k * kind_bytes(kind), kind);
#pragma GCC unroll 3
        for (uint32_t c = 0; c < col_n; c++) {
            __m256 in = _mm256_loadu_ps(x[c] + k);
#pragma GCC unroll 4
            for (uint32_t r = 0; r < row_n; r++)
                f[r][c].half[half] = _mm256_fmadd_ps(wide[r], in, f[r][c].half[half]);
        }
    }
}

/* The n < 16 last elements of a dot, from k on: the others count as zeros. */
INLINE void take_tail(const struct tile *t, uint32_t k, uint32_t n, uint32_t row_n, uint32_t col_n,
                      enum kind kind, struct lanes f[TILE_ROWS][TILE_COLS]) {
    uint8_t w[TILE_ROWS][4 * PN_LANES] = {{0}};
    float x[TILE_COLS][PN_LANES] = {{0}};
    const uint8_t *w_at[TILE_ROWS];
    const float *x_at[TILE_COLS];
    for (uint32_t r = 0; r < row_n; r++) {
        memcpy(w[r], t->w[r] + (uint64_t)k * kind_bytes(kind), (size_t)n * kind_bytes(kind));
        w_at[r] = w[r];
    }
    for (uint32_t c = 0; c < col_n; c++) {
        memcpy(x[c], t->x[c] + k, n * sizeof **x);
        x_at[c] = x[c];
    }
    take(w_at, x_at, 0, row_n, col_n, kind, f);
}

/* row_n x col_n dots of k_n elements; all but k_n are constants where this is inlined. */
INLINE void dots(const struct tile *t, uint32_t k_n, uint32_t row_n, uint32_t col_n, enum kind kind,
                 struct lanes f[TILE_ROWS][TILE_COLS]) {
    const uint8_t *next = t->next;
    uint32_t k = 0;
    for (uint32_t r = 0; r < row_n; r++)
        for (uint32_t c = 0; c < col_n; c++)
            f[r][c] = (struct lanes){{_mm256_setzero_ps(), _mm256_setzero_ps()}};
#pragma GCC unroll 1
    for (; k + PN_LANES <= k_n; k += PN_LANES) {
        if (next && k * kind_bytes(kind) % LINE_BYTES == 0) {
            pn__prefetch_lines(next, (int)row_n);
            next += LINE_BYTES * row_n;
        }
        take(t->w, t->x, k, row_n, col_n, kind, f);
    }
    if (k < k_n) take_tail(t, k, k_n - k, row_n, col_n, kind, f);
}

/* row_n rows from `row` on, as far as they are below hi, for col_n inputs from m on. */
INLINE void tile_of(const struct pn_mm *mm, const uint8_t *next, uint32_t row, uint32_t hi,
                    uint32_t m, uint32_t row_n, uint32_t col_n, enum kind kind) {
    const struct pn_acts *a = mm->acts;
    struct tile t = {.next = next};
    struct lanes f[TILE_ROWS][TILE_COLS];
    for (uint32_t r = 0; r < row_n; r++) {
        uint64_t at = row + r < hi ? row + r : hi - 1;
        t.w[r] = mm->w->data + at * mm->w->row_bytes;
    }
    for (uint32_t c = 0; c < col_n; c++)
        t.x[c] = a->x + (uint64_t)(m + c) * a->x_stride;
    dots(&t, a->col_n, row_n, col_n, kind, f);
    for (uint32_t c = 0; c < col_n; c++)
        for (uint32_t r = 0; r < row_n && row + r < hi; r++) {
            float sum = sum_of(f[r][c]) * mm->w->scale;
            if (mm->bias) sum += mm->bias[row + r];
            mm->out.data[(uint64_t)(m + c) * mm->out.stride + row + r] = sum;
        }
}

/* What a tile of row_n rows from `row` on prefetches: rows of this thread's, then of its next
 * matrix. */
INLINE const uint8_t *next_of(const struct pn_mm *mm, uint32_t row, uint32_t hi, uint32_t row_n) {
    const struct pn_weight *w = mm->w;
    uint32_t ahead = (uint32_t)(PREFETCH_AHEAD_BYTES / (row_n * w->row_bytes) + 1) * row_n;
    if (hi - row > ahead) return w->data + (uint64_t)(row + ahead) * w->row_bytes;
    return mm->next ? mm->next + (uint64_t)(row + ahead - hi) * w->row_bytes : NULL;
}

INLINE void one_column(const struct pn_mm *mm, uint32_t lo, uint32_t hi, enum kind kind) {
    for (uint32_t row = lo; row < hi; row += TILE_ROWS)
        tile_of(mm, next_of(mm, row, hi, TILE_ROWS), row, hi, 0, TILE_ROWS, 1, kind);
}

/* Rows [lo, hi), a block, against all inputs. What comes ahead of it is prefetched while the first
 * inputs pass; `end` is that of the thread's rows. */
INLINE void block(const struct pn_mm *mm, uint32_t lo, uint32_t hi, uint32_t end, enum kind kind) {
    uint32_t col_n;
    for (uint32_t m = 0; m < mm->acts->row_n; m += col_n) {
        uint32_t left_n = mm->acts->row_n - m;
        col_n = left_n == 4 ? 2 : left_n < TILE_COLS ? left_n : TILE_COLS;
        for (uint32_t row = lo; row < hi; row += 2) {
            const uint8_t *next = m == 0 ? next_of(mm, row, end, 2) : NULL;
            if (col_n == 1)
                tile_of(mm, next, row, hi, m, 2, 1, kind);
            else if (col_n == 2)
                tile_of(mm, next, row, hi, m, 2, 2, kind);
            else
                tile_of(mm, next, row, hi, m, 2, 3, kind);
        }
    }
}

INLINE void blocks(const struct pn_mm *mm, uint32_t lo, uint32_t hi, enum kind kind) {
    uint64_t fit_n = BLOCK_BYTES / mm->w->row_bytes / 2 * 2;
    uint32_t row_n = fit_n > BLOCK_ROWS ? BLOCK_ROWS : fit_n > 2 ? (uint32_t)fit_n : 2;
    for (uint32_t row = lo; row < hi; row += row_n)
        block(mm, row, hi - row < row_n ? hi : row + row_n, hi, kind);
}

INLINE void matmul(const struct pn_mm *mm, uint32_t lo, uint32_t hi, enum kind kind) {
    if (mm->acts->row_n == 1)
        one_column(mm, lo, hi, kind);
    else
        blocks(mm, lo, hi, kind);
}

static void matmul_f32(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                       const struct pn_thread_scratch *scratch) {
    (void)scratch;
    matmul(mm, lo, hi, KIND_F32);
}

static void matmul_f16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                       const struct pn_thread_scratch *scratch) {
    (void)scratch;
    matmul(mm, lo, hi, KIND_F16);
}

void pn__init_avx2_float(struct pn_kernels *k) {
    k->matmul[PN_TYPE_F32] = matmul_f32;
    k->matmul[PN_TYPE_F16] = matmul_f16;
}
