/* Matmul of BF16 weights, read straight from the file's rows, for AVX2.
 *
 * Of each 32 elements lane j takes element 2j + 1, then 2j: the two halves of dword j. Tiny values
 * count as zeros on both sides and after each addition (kernels.h), which is what the processor
 * does by itself in flush-to-zero mode; only the sums at the end are made without it. */
#include "ops/cpu/wide.h"

#include "ops/cpu/fetch.h"

void pn__init_avx2_bf16(struct pn_kernels *k);

#define ROWS_ONE 4 /* rows at once for one column */
#define TILE 2     /* rows and columns at once for more: their sums and what they need fit */
#define STEP 32    /* elements */
#define LINE_BYTES 64
#define PREFETCH_AHEAD_BYTES 20480

/* Weight rows that stay in the second-level cache. */
#define BLOCK_BYTES (512u << 10)
#define BLOCK_ROWS 64

#define FLUSH_TINY 0x8040u /* of the control register: subnormal results and inputs are zeros */

/* ---- preparation ---- */

/* A row's length in `bf`. */
INLINE uint64_t wide_n(uint32_t col_n) {
    return ((uint64_t)col_n + 31) / 32 * 32;
}

/* Eight values rounded to bfloat16, nearest even, subnormal results flushed; in dwords. */
INLINE __m256i to_bf16(__m256 x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i h = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
    __m256i exponent = _mm256_and_si256(h, _mm256_set1_epi32(0x7f80));
    __m256i tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    return _mm256_blendv_epi8(h, _mm256_and_si256(h, _mm256_set1_epi32(0x8000)), tiny);
}

/* In their natural order, as weights are. */
static void prepare_bf16(const struct pn_acts *a, uint32_t lo, uint32_t hi) {
    for (uint32_t m = lo; m < hi; m++) {
        const float *x = a->x + m * a->x_stride;
        uint16_t *to = a->bf + m * wide_n(a->col_n);
        for (uint32_t k = 0; k < wide_n(a->col_n); k += 16) {
            uint32_t left = k < a->col_n ? a->col_n - k : 0;
            struct w16 v = left >= 16 ? w16_load(x + k) : w16_load_n(x + k, left);
            __m256i h = _mm256_packus_epi32(to_bf16(v.v[0]), to_bf16(v.v[1]));
            _mm256_storeu_si256((__m256i *)(void *)(to + k), _mm256_permute4x64_epi64(h, 0xd8));
        }
    }
}

/* ---- a tile of dots ---- */

struct tile {
    const uint8_t *w[ROWS_ONE]; /* repeats the last one where rows run out */
    const uint16_t *x[TILE];
    const uint8_t *next; /* what to prefetch, a line for each line used; NULL: nothing */
};

/* Sixteen elements to the odd and the even ones, as floats. */
INLINE __m256 odd_of(__m256i v) {
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u)));
}

INLINE __m256 even_of(__m256i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

INLINE __m256i load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

/* STEP elements of row_n rows and col_n columns, eight lanes after the other eight. */
INLINE void take(const uint8_t *const *w, const uint16_t *const *x, uint64_t k, uint32_t row_n,
                 uint32_t col_n, struct w16 f[ROWS_ONE][TILE]) {
    for (uint32_t half = 0; half < 2; half++, k += STEP / 2) {
        __m256i in[TILE];
#pragma GCC unroll 2
        for (uint32_t c = 0; c < col_n; c++)
            in[c] = load(x[c] + k);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < row_n; r++) {
            __m256i v = load(w[r] + 2 * k);
#pragma GCC unroll 2
            for (uint32_t c = 0; c < col_n; c++) {
                __m256 sum = _mm256_fmadd_ps(odd_of(v), odd_of(in[c]), f[r][c].v[half]);
                f[r][c].v[half] = _mm256_fmadd_ps(even_of(v), even_of(in[c]), sum);
            }
        }
    }
}

/* The sums at this point of the program: arithmetic on them stays before or behind it. */
INLINE void pin(struct w16 f[ROWS_ONE][TILE], uint32_t row_n, uint32_t col_n) {
#pragma GCC unroll 4
    for (uint32_t r = 0; r < row_n; r++)
#pragma GCC unroll 2
        for (uint32_t c = 0; c < col_n; c++)
            __asm__ volatile("" : "+x"(f[r][c].v[0]), "+x"(f[r][c].v[1]));
}

/* row_n x col_n dots of k_n elements; all but k_n are constants where this is inlined. */
INLINE void dots(const struct tile *t, uint32_t k_n, uint32_t row_n, uint32_t col_n,
                 struct w16 f[ROWS_ONE][TILE]) {
    const uint8_t *next = t->next;
    uint32_t k = 0;
#pragma GCC unroll 1
    for (; k + STEP <= k_n; k += STEP) {
        if (next) {
            pn__prefetch_lines(next, (int)row_n);
            next += LINE_BYTES * row_n;
        }
        take(t->w, t->x, k, row_n, col_n, f);
    }
    if (k == k_n) return;
    uint8_t last[ROWS_ONE][2 * STEP] = {{0}};
    const uint8_t *w_at[ROWS_ONE];
    const uint16_t *x_at[TILE];
    for (uint32_t r = 0; r < row_n; r++) {
        memcpy(last[r], t->w[r] + 2 * (uint64_t)k, 2 * (size_t)(k_n - k));
        w_at[r] = last[r];
    }
    for (uint32_t c = 0; c < col_n; c++)
        x_at[c] = t->x[c] + k; /* with zeros behind */
    take(w_at, x_at, 0, row_n, col_n, f);
}

/* row_n rows from `row` on, as far as they are below hi, for col_n inputs from m on. */
INLINE void tile_of(const struct pn_mm *mm, const uint8_t *next, uint32_t row, uint32_t hi,
                    uint32_t m, uint32_t row_n, uint32_t col_n) {
    const struct pn_acts *a = mm->acts;
    struct tile t = {.next = next};
    struct w16 f[ROWS_ONE][TILE];
    for (uint32_t r = 0; r < row_n; r++) {
        uint64_t at = row + r < hi ? row + r : hi - 1;
        t.w[r] = mm->w->data + at * mm->w->row_bytes;
    }
    for (uint32_t c = 0; c < col_n; c++)
        t.x[c] = a->bf + (m + c) * wide_n(a->col_n);
    for (uint32_t r = 0; r < row_n; r++)
        for (uint32_t c = 0; c < col_n; c++)
            f[r][c] = w16_set(0);
    unsigned mode = _mm_getcsr();
    pin(f, row_n, col_n);
    _mm_setcsr(mode | FLUSH_TINY);
    pin(f, row_n, col_n);
    dots(&t, a->col_n, row_n, col_n, f);
    pin(f, row_n, col_n);
    _mm_setcsr(mode);
    pin(f, row_n, col_n);
    for (uint32_t c = 0; c < col_n; c++)
        for (uint32_t r = 0; r < row_n && row + r < hi; r++) {
            float sum = w16_sum(f[r][c]) * mm->w->scale;
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

/* Rows [lo, hi), a block, against all inputs. What comes ahead of it is prefetched while the first
 * inputs pass; `end` is that of the thread's rows. */
static void block(const struct pn_mm *mm, uint32_t lo, uint32_t hi, uint32_t end) {
    for (uint32_t m = 0; m < mm->acts->row_n; m += TILE)
        for (uint32_t row = lo; row < hi; row += TILE) {
            const uint8_t *next = m == 0 ? next_of(mm, row, end, TILE) : NULL;
            if (mm->acts->row_n - m == 1)
                tile_of(mm, next, row, hi, m, TILE, 1);
            else
                tile_of(mm, next, row, hi, m, TILE, TILE);
        }
}

static void matmul_bf16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                        const struct pn_thread_scratch *scratch) {
    (void)scratch;
    if (mm->acts->row_n == 1) {
        for (uint32_t row = lo; row < hi; row += ROWS_ONE)
            tile_of(mm, next_of(mm, row, hi, ROWS_ONE), row, hi, 0, ROWS_ONE, 1);
        return;
    }
    uint64_t fit_n = BLOCK_BYTES / mm->w->row_bytes / TILE * TILE;
    uint32_t row_n = fit_n > BLOCK_ROWS ? BLOCK_ROWS : fit_n > TILE ? (uint32_t)fit_n : TILE;
    for (uint32_t row = lo; row < hi; row += row_n)
        block(mm, row, hi - row < row_n ? hi : row + row_n, hi);
}

void pn__init_avx2_bf16(struct pn_kernels *k) {
    k->prepare[PN_ACT_BF16] = prepare_bf16;
    k->matmul[PN_TYPE_BF16] = matmul_bf16;
    /* The reference's narrow matmul knows another layout of inputs. */
    k->matmul_narrow[PN_TYPE_BF16] = matmul_bf16;
}
