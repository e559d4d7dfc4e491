/* F32 and F16 weights for NEON: four rows of them against one row of input, each sum's sixteen
 * lanes in four registers. */
#include "ops/cpu/neon.h"

struct lanes {
    float32x4_t v[4];
};

/* Sixteen weights from element k on. `half` is a constant where this is inlined. */
INLINE struct lanes weights16(const uint8_t *row, uint64_t k, bool half) {
    struct lanes w;
    for (int i = 0; i < 4; i++) {
        if (half) {
            uint16x4_t h = vreinterpret_u16_u8(vld1_u8(row + 2 * k + 8 * i));
            w.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(h));
        } else {
            w.v[i] = vreinterpretq_f32_u8(vld1q_u8(row + 4 * k + 16 * i));
        }
    }
    return w;
}

/* The last n of a row, then zeros. */
INLINE struct lanes some_weights(const uint8_t *row, uint64_t k, uint32_t n, bool half) {
    uint8_t all[64] = {0};
    size_t size = half ? 2 : 4;
    memcpy(all, row + size * k, size * n);
    return weights16(all, 0, half);
}

INLINE void add_products(struct lanes *sum, struct lanes w, const float *x) {
    for (int i = 0; i < 4; i++)
        sum->v[i] = vfmaq_f32(sum->v[i], w.v[i], vld1q_f32(x + 4 * i));
}

/* Lane j takes j + 8, then j + 4; what is left is added below. */
INLINE float32x4_t quarter(const struct lanes *x) {
    return vaddq_f32(vaddq_f32(x->v[0], x->v[2]), vaddq_f32(x->v[1], x->v[3]));
}

/* Four sums, each by lanes j + j + 2, then + 1. */
INLINE float32x4_t sums_of(const struct lanes x[4]) {
    float32x4_t q[4];
    for (int r = 0; r < 4; r++)
        q[r] = quarter(&x[r]);
    float32x4_t low01 = vcombine_f32(vget_low_f32(q[0]), vget_low_f32(q[1]));
    float32x4_t high01 = vcombine_f32(vget_high_f32(q[0]), vget_high_f32(q[1]));
    float32x4_t low23 = vcombine_f32(vget_low_f32(q[2]), vget_low_f32(q[3]));
    float32x4_t high23 = vcombine_f32(vget_high_f32(q[2]), vget_high_f32(q[3]));
    return vpaddq_f32(vaddq_f32(low01, high01), vaddq_f32(low23, high23));
}

INLINE void matmul(const struct pn_mm *mm, uint32_t lo, uint32_t hi, bool half) {
    const struct pn_acts *a = mm->acts;
    uint32_t whole_n = a->col_n / 16 * 16, rest_n = a->col_n - whole_n;
    for (uint32_t row = lo; row < hi; row += 4) {
        const uint8_t *p[4];
        pn__rows4(mm->w, row, hi, p);
        for (uint32_t m = 0; m < a->row_n; m++) {
            const float *x = a->x + m * a->x_stride;
            struct lanes sum[4];
            memset(sum, 0, sizeof sum);
            for (uint32_t k = 0; k < whole_n; k += 16)
                for (int r = 0; r < 4; r++)
                    add_products(&sum[r], weights16(p[r], k, half), x + k);
            if (rest_n) {
                float tail[16] = {0};
                memcpy(tail, x + whole_n, rest_n * sizeof *x);
                for (int r = 0; r < 4; r++)
                    add_products(&sum[r], some_weights(p[r], whole_n, rest_n, half), tail);
            }
            pn__put4(mm, m, row, hi, sums_of(sum));
        }
    }
}

static void matmul_f32(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                       const struct pn_thread_scratch *scratch) {
    (void)scratch;
    matmul(mm, lo, hi, false);
}

static void matmul_f16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                       const struct pn_thread_scratch *scratch) {
    (void)scratch;
    matmul(mm, lo, hi, true);
}

void pn__init_neon_float(struct pn_kernels *k) {
    k->matmul[PN_TYPE_F32] = matmul_f32;
    k->matmul[PN_TYPE_F16] = matmul_f16;
}
