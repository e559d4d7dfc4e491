/* Activations prepared, and the matmul of every weight type. */
#include <stddef.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- preparation ---- */

static void prepare_blocks(const struct pn_acts *a, uint32_t block_n, uint32_t lo, uint32_t hi) {
    uint32_t sum_n = block_n / PN_ACT_SUM_LEN;
    for (uint32_t m = lo; m < hi; m++) {
        const float *x = a->x + m * a->x_stride;
        for (uint32_t b = 0; b < a->col_n / block_n; b++) {
            uint64_t at = pn__act_at(a, a->col_n / block_n, b, m);
            int8_t *q = a->q + at * block_n;
            a->d[at] = pn__quant_block(x + (uint64_t)b * block_n, q, block_n);
            for (uint32_t s = 0; s < sum_n; s++) {
                int32_t sum = 0;
                for (uint32_t i = 0; i < PN_ACT_SUM_LEN; i++)
                    sum += q[s * PN_ACT_SUM_LEN + i];
                a->sums[at * sum_n + s] = (int16_t)sum;
            }
        }
    }
}

static void prepare_q32(const struct pn_acts *a, uint32_t lo, uint32_t hi) {
    prepare_blocks(a, 32, lo, hi);
}

static void prepare_q256(const struct pn_acts *a, uint32_t lo, uint32_t hi) {
    prepare_blocks(a, 256, lo, hi);
}

static uint16_t bf_flush(uint16_t h) {
    return (h & 0x7f80u) ? h : h & 0x8000u;
}

static uint32_t up_to_32(uint32_t n) {
    return (n + 31) & ~31u;
}

/* Where element k of a row stands when each 32 are split into odd and even ones. */
static uint32_t bf_place(uint32_t k) {
    return (k & ~31u) + ((k & 1) ? 0 : 16) + ((k & 31) >> 1);
}

static void prepare_bf16(const struct pn_acts *a, uint32_t lo, uint32_t hi) {
    uint32_t wide_n = up_to_32(a->col_n);
    for (uint32_t m = lo; m < hi; m++) {
        const float *x = a->x + m * a->x_stride;
        uint16_t *to = a->bf + (uint64_t)m * wide_n;
        for (uint32_t k = 0; k < wide_n; k++)
            to[bf_place(k)] = k < a->col_n ? bf_flush(pn__f32_to_bf16(x[k])) : 0;
    }
}

/* ---- float weights: F32, F16, BF16 ---- */

/* Where a finished dot goes. */
static void put(const struct pn_mm *mm, uint32_t m, uint32_t row, float f) {
    f *= mm->w->scale;
    if (mm->bias) f += mm->bias[row];
    mm->out.data[m * mm->out.stride + row] = f;
}

/* lanes[r][j] takes rows[r][j] * x[j]. */
INLINE void rows_fma(float lanes[PN_MM_ROWS][PN_LANES], const float *rows, uint64_t row_stride,
                     uint32_t row_n, const float *x) {
    for (uint32_t r = 0; r < row_n; r++) {
        const float *w = rows + r * row_stride;
        for (int j = 0; j < PN_LANES; j++)
            lanes[r][j] = fmaf(w[j], x[j], lanes[r][j]);
    }
}

/* `row_n` widened rows, constant where this is inlined, against every input row. */
INLINE void float_rows(const struct pn_mm *mm, uint32_t row_i, uint32_t row_n, const float *rows,
                       uint64_t row_stride) {
    const struct pn_acts *a = mm->acts;
    uint32_t whole_n = a->col_n / PN_LANES * PN_LANES;
    for (uint32_t m = 0; m < a->row_n; m++) {
        const float *x = a->x + m * a->x_stride;
        float lanes[PN_MM_ROWS][PN_LANES] = {{0}};
        for (uint32_t k = 0; k < whole_n; k += PN_LANES)
            rows_fma(lanes, rows + k, row_stride, row_n, x + k);
        if (whole_n < a->col_n) {
            float tail[PN_LANES] = {0};
            memcpy(tail, x + whole_n, (a->col_n - whole_n) * sizeof *x);
            rows_fma(lanes, rows + whole_n, row_stride, row_n, tail);
        }
        for (uint32_t r = 0; r < row_n; r++)
            put(mm, m, row_i + r, pn__lanes_sum(lanes[r]));
    }
}

/* Widens a row and puts zeros up to a multiple of 32. */
typedef void (*widen_fn)(const uint8_t *restrict src, float *restrict dst, uint32_t n);

static void widen_f32(const uint8_t *restrict src, float *restrict dst, uint32_t n) {
    memcpy(dst, src, (size_t)n * sizeof *dst);
    memset(dst + n, 0, (up_to_32(n) - n) * sizeof *dst);
}

static void widen_f16(const uint8_t *restrict src, float *restrict dst, uint32_t n) {
    pn__widen_f16(src, dst, n);
    memset(dst + n, 0, (up_to_32(n) - n) * sizeof *dst);
}

/* Split into odd and even elements, as the activations are. */
static void widen_bf16(const uint8_t *restrict src, float *restrict dst, uint32_t n) {
    for (uint32_t k = 0; k < up_to_32(n); k++) {
        uint16_t h = 0;
        if (k < n) memcpy(&h, src + 2 * (size_t)k, sizeof h);
        dst[bf_place(k)] = pn__bits_float((uint32_t)bf_flush(h) << 16);
    }
}

static const uint8_t *weight_row(const struct pn_weight *w, uint32_t row) {
    return w->data + (uint64_t)row * w->row_bytes;
}

INLINE void matmul_float(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                         const struct pn_thread_scratch *scratch, widen_fn widen) {
    uint64_t stride = up_to_32(mm->w->col_n);
    for (uint32_t row = lo; row < hi; row += PN_MM_ROWS) {
        uint32_t row_n = hi - row < PN_MM_ROWS ? hi - row : PN_MM_ROWS;
        for (uint32_t r = 0; r < row_n; r++)
            widen(weight_row(mm->w, row + r), scratch->rows + r * stride, mm->w->col_n);
        if (row_n == PN_MM_ROWS) {
            float_rows(mm, row, PN_MM_ROWS, scratch->rows, stride);
        } else {
            for (uint32_t r = 0; r < row_n; r++)
                float_rows(mm, row + r, 1, scratch->rows + r * stride, stride);
        }
    }
}

static void matmul_f32(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                       const struct pn_thread_scratch *scratch) {
    matmul_float(mm, lo, hi, scratch, widen_f32);
}

static void matmul_f16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                       const struct pn_thread_scratch *scratch) {
    matmul_float(mm, lo, hi, scratch, widen_f16);
}

/* vdpbf16ps calls a sum tiny by what it would be with any exponent: found by looking at the same
 * sum 2^24 times as large. */
static void bf_lanes(float lanes[restrict PN_LANES], const float *restrict w,
                     const uint16_t *restrict x) {
    for (int j = 0; j < PN_LANES; j++) {
        float y = pn__bits_float((uint32_t)x[j] << 16);
        float f = fmaf(w[j], y, lanes[j]);
        float large = fmaf(w[j] * 0x1p24f, y, lanes[j] * 0x1p24f);
        uint32_t sign = pn__float_bits(f) & 0x80000000u;
        lanes[j] = fabsf(large) < 0x1p-102f ? pn__bits_float(sign) : f;
    }
}

static void matmul_bf16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                        const struct pn_thread_scratch *scratch) {
    const struct pn_acts *a = mm->acts;
    uint32_t wide_n = up_to_32(a->col_n);
    for (uint32_t row = lo; row < hi; row++) {
        widen_bf16(weight_row(mm->w, row), scratch->rows, a->col_n);
        for (uint32_t m = 0; m < a->row_n; m++) {
            const uint16_t *x = a->bf + (uint64_t)m * wide_n;
            float lanes[PN_LANES] = {0};
            for (uint32_t k = 0; k < wide_n; k += PN_LANES)
                bf_lanes(lanes, scratch->rows + k, x + k);
            put(mm, m, row, pn__lanes_sum(lanes));
        }
    }
}

/* ---- block types, through the integer form of quant.h ---- */

/* A unit with its sub-scales multiplied into the codes: |scale * code| <= 8192 by the bounds of
 * quant/unit.c. So a unit's integer sum is one dot product, whatever its runs. */
struct wide_unit {
    PN_ALIGNED(64) int16_t codes[PN_UNIT_MAX];
    int16_t mins[PN_UNIT_MAX / PN_ACT_SUM_LEN]; /* for each 16 values */
    float d;
    float dmin;
};

/* By runs of 16, which divide every type's own. `n` is a constant where this is inlined. */
INLINE void widen_unit(const struct pn_unit *restrict u, struct pn_unit_shape shape, uint32_t n,
                       struct wide_unit *restrict out) {
    for (uint32_t s = 0; s < n / PN_ACT_SUM_LEN; s++) {
        uint32_t sub = s * PN_ACT_SUM_LEN / shape.sub_len;
        const int8_t *codes = u->codes + s * PN_ACT_SUM_LEN;
        int16_t *to = out->codes + s * PN_ACT_SUM_LEN;
        int16_t scale = u->scales[sub];
        for (uint32_t i = 0; i < PN_ACT_SUM_LEN; i++)
            to[i] = (int16_t)(codes[i] * scale);
        if (shape.has_min) out->mins[s] = u->mins[sub];
    }
    out->d = u->d;
    out->dmin = u->dmin;
}

/* Unit against the codes of all input rows (q_stride apart): f[m][r] takes its share. `n`, row_n
 * and has_min are constants where this is inlined. */
INLINE void unit_rows(const struct wide_unit *units, uint32_t row_n, uint32_t n, bool has_min,
                      const int8_t *q, uint32_t q_stride, const float *d, const int16_t *sums,
                      uint32_t m_n, float *f) {
    for (uint32_t m = 0; m < m_n; m++, q += q_stride, f += PN_MM_ROWS) {
        int16_t q16[PN_UNIT_MAX];
        for (uint32_t i = 0; i < n; i++)
            q16[i] = q[i];
        for (uint32_t r = 0; r < row_n; r++) {
            int32_t sum = 0;
            for (uint32_t i = 0; i < n; i++)
                sum += units[r].codes[i] * q16[i];
            f[r] = fmaf((float)sum, units[r].d * d[m], f[r]);
        }
        if (!has_min) continue;
        const int16_t *s16 = sums + (uint64_t)m * (q_stride / PN_ACT_SUM_LEN);
        for (uint32_t r = 0; r < row_n; r++) {
            int32_t sum = 0;
            for (uint32_t i = 0; i < n / PN_ACT_SUM_LEN; i++)
                sum += units[r].mins[i] * s16[i];
            f[r] = fmaf((float)sum, -units[r].dmin * d[m], f[r]);
        }
    }
}

INLINE void unit_rows_min(const struct wide_unit *units, uint32_t row_n, uint32_t n, bool has_min,
                          const struct pn_acts *a, uint64_t col, uint32_t block_n, float *f) {
    for (uint32_t m = 0; m < a->row_n; m += a->tile, f += a->tile * PN_MM_ROWS) {
        uint64_t at = pn__act_at(a, a->col_n / block_n, col / block_n, m);
        const int8_t *q = a->q + at * block_n + col % block_n;
        const int16_t *sums = a->sums + at * (block_n / PN_ACT_SUM_LEN);
        uint32_t m_n = a->row_n - m < a->tile ? a->row_n - m : a->tile;
        if (has_min)
            unit_rows(units, row_n, n, true, q, block_n, a->d + at, sums, m_n, f);
        else
            unit_rows(units, row_n, n, false, q, block_n, a->d + at, sums, m_n, f);
    }
}

/* Rows row … row + row_n - 1 whole. */
INLINE void block_rows(const struct pn_mm *mm, uint32_t row, uint32_t row_n, uint32_t n,
                       uint32_t block_n, float *f) {
    const struct pn_weight *w = mm->w;
    const struct pn_acts *a = mm->acts;
    struct pn_unit_shape shape = pn__unit_shape(w->type);
    pn_unit_fn unpack = pn__unit_fn(w->type);
    struct pn_unit unit;
    struct wide_unit units[PN_MM_ROWS];
    memset(units, 0, sizeof units); /* the compiler can't see that all is filled */

    memset(f, 0, (uint64_t)a->row_n * PN_MM_ROWS * sizeof *f);
    for (uint64_t i = 0; i < w->col_n / n; i++) {
        for (uint32_t r = 0; r < row_n; r++) {
            unpack(weight_row(w, row + r), i, &unit);
            widen_unit(&unit, shape, n, &units[r]);
        }
        unit_rows_min(units, row_n, n, shape.has_min, a, i * n, block_n, f);
    }
    for (uint32_t m = 0; m < a->row_n; m++)
        for (uint32_t r = 0; r < row_n; r++)
            put(mm, m, row + r, f[(uint64_t)m * PN_MM_ROWS + r]);
}

INLINE void matmul_blocks(const struct pn_mm *mm, uint32_t lo, uint32_t hi, uint32_t n,
                          uint32_t block_n, float *f) {
    uint32_t row = lo;
    for (; row + PN_MM_ROWS <= hi; row += PN_MM_ROWS)
        block_rows(mm, row, PN_MM_ROWS, n, block_n, f);
    for (; row < hi; row++)
        block_rows(mm, row, 1, n, block_n, f);
}

static void matmul_unit16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                          const struct pn_thread_scratch *scratch) {
    matmul_blocks(mm, lo, hi, 16, 32, scratch->sums);
}

static void matmul_unit32(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                          const struct pn_thread_scratch *scratch) {
    matmul_blocks(mm, lo, hi, 32, 32, scratch->sums);
}

static void matmul_unit256(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                           const struct pn_thread_scratch *scratch) {
    matmul_blocks(mm, lo, hi, 256, 256, scratch->sums);
}

void PN_K(init_matmul)(struct pn_kernels *k) {
    k->prepare[PN_ACT_BF16] = prepare_bf16;
    k->prepare[PN_ACT_Q32] = prepare_q32;
    k->prepare[PN_ACT_Q256] = prepare_q256;

    /* The general path first: any type with an integer form. */
    for (unsigned t = 0; t < PN_TYPE_N; t++) {
        switch (pn__unit_shape((enum pn_type)t).unit_n) {
        case 16:
            k->matmul[t] = matmul_unit16;
            break;
        case 32:
            k->matmul[t] = matmul_unit32;
            break;
        case 256:
            k->matmul[t] = matmul_unit256;
            break;
        }
    }
    k->matmul[PN_TYPE_F32] = matmul_f32;
    k->matmul[PN_TYPE_F16] = matmul_f16;
    k->matmul[PN_TYPE_BF16] = matmul_bf16;
}
