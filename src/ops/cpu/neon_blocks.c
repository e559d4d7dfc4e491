/* Every block type for NEON, by its integer form (quant.h): units of four weight rows, unpacked
 * once, against all rows of input. Compiled twice, with the dot product instructions of ARMv8.2 and
 * without (PN_LEVEL neondot, neon); the sums are integers, so both give the same. */
#include "ops/cpu/neon.h"
#include "quant/bits.h"

#define ROWS 4

/* ---- unpacking: the types that most files hold; the others by quant/ ---- */

INLINE void store_codes(int8_t *to, uint8x16_t codes, int8_t offset) {
    vst1q_s8(to, vsubq_s8(vreinterpretq_s8_u8(codes), vdupq_n_s8(offset)));
}

INLINE uint8x16_t low4(uint8x16_t x) {
    return vandq_u8(x, vdupq_n_u8(15));
}

static void unit_q4_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 18);
    uint8x16_t q = vld1q_u8(b + 2);
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    store_codes(out->codes, low4(q), 8);
    store_codes(out->codes + 16, vshrq_n_u8(q, 4), 8);
}

static void unit_q4_k(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 144);
    out->d = pn__load_f16(b);
    out->dmin = pn__load_f16(b + 2);
    /* Six bits each: scale and minimum of runs 0 … 3 in bytes 0 … 3 and 4 … 7, whose upper two bits
     * belong to runs 4 … 7, the lower four of which are in bytes 8 … 11. */
    uint32_t s = pn__load_u32(b + 4), m = pn__load_u32(b + 8), both = pn__load_u32(b + 12);
    uint64_t scales = (s & 0x3f3f3f3fu) | (uint64_t)((both & 0x0f0f0f0fu) | (s >> 2 & 0x30303030u))
                                              << 32;
    uint64_t mins =
        (m & 0x3f3f3f3fu) | (uint64_t)((both >> 4 & 0x0f0f0f0fu) | (m >> 2 & 0x30303030u)) << 32;
    vst1q_s16(out->scales, vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(scales))));
    vst1q_s16(out->mins, vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(mins))));
    for (int i = 0; i < 8; i++) {
        uint8x16_t q = vld1q_u8(b + 16 + 16 * i);
        int8_t *to = out->codes + i / 2 * 64 + i % 2 * 16;
        store_codes(to, low4(q), 0);
        store_codes(to + 32, vshrq_n_u8(q, 4), 0);
    }
}

static void unit_q6_k(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 210);
    int8x16_t scales = vreinterpretq_s8_u8(vld1q_u8(b + 192));
    out->d = pn__load_f16(b + 208);
    vst1q_s16(out->scales, vmovl_s8(vget_low_s8(scales)));
    vst1q_s16(out->scales + 8, vmovl_high_s8(scales));
    const uint8x16_t top = vdupq_n_u8(0x30);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 2; i++) {
            const uint8_t *low = b + 64 * half + 16 * i;
            uint8x16_t x = vld1q_u8(low), y = vld1q_u8(low + 32);
            uint8x16_t high = vld1q_u8(b + 128 + 32 * half + 16 * i);
            int8_t *to = out->codes + 128 * half + 16 * i;
            store_codes(to, vorrq_u8(low4(x), vandq_u8(vshlq_n_u8(high, 4), top)), 32);
            store_codes(to + 32, vorrq_u8(low4(y), vandq_u8(vshlq_n_u8(high, 2), top)), 32);
            store_codes(to + 64, vorrq_u8(vshrq_n_u8(x, 4), vandq_u8(high, top)), 32);
            store_codes(to + 96, vorrq_u8(vshrq_n_u8(y, 4), vandq_u8(vshrq_n_u8(high, 2), top)),
                        32);
        }
}

static pn_unit_fn unit_fn(enum pn_type type) {
    switch (type) {
    case PN_TYPE_Q4_0:
        return unit_q4_0;
    case PN_TYPE_Q4_K:
        return unit_q4_k;
    case PN_TYPE_Q6_K:
        return unit_q6_k;
    default:
        return pn__unit_fn(type);
    }
}

/* ---- products ---- */

/* Sixteen products of codes, added up by fours or otherwise: the lanes' sum is what counts. */
INLINE int32x4_t dot16(int32x4_t sum, int8x16_t w, int8x16_t q) {
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, w, q);
#else
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(q));
    return vpadalq_s16(vpadalq_s16(sum, low), vmull_high_s8(w, q));
#endif
}

/* What is a constant where it is inlined. */
struct form {
    uint32_t unit_n;
    uint32_t sub_len;
    uint32_t block_n; /* of the input's codes */
    bool has_min;
};

/* Lanes whose sum is that of scale * code * q over a unit. */
INLINE int32x4_t unit_lanes(const struct pn_unit *u, struct form form, const int8_t *q) {
    int32x4_t sum = vdupq_n_s32(0);
    for (uint32_t s = 0; s < form.unit_n / form.sub_len; s++) {
        int32x4_t run = vdupq_n_s32(0);
        for (uint32_t i = s * form.sub_len; i < (s + 1) * form.sub_len; i += 16)
            run = dot16(run, vld1q_s8(u->codes + i), vld1q_s8(q + i));
        if (form.sub_len == form.unit_n) return run; /* no sub-scales */
        sum = vmlaq_n_s32(sum, run, u->scales[s]);
    }
    return sum;
}

/* Lanes whose sum is that of min * q. */
INLINE int32x4_t min_lanes(const struct pn_unit *u, struct form form, const int16_t *sums) {
    if (form.unit_n == 32)
        return vsetq_lane_s32(u->mins[0] * (sums[0] + sums[1]), vdupq_n_s32(0), 0);
    int16x8_t first = vld1q_s16(sums), second = vld1q_s16(sums + 8);
    int16x8_t mins = vld1q_s16(u->mins);
    int32x4_t sum = vdupq_n_s32(0);
    if (form.sub_len == 32) { /* 32 codes' sum still fits */
        int16x8_t pairs = vpaddq_s16(first, second);
        sum = vmlal_s16(sum, vget_low_s16(mins), vget_low_s16(pairs));
        return vmlal_high_s16(sum, mins, pairs);
    }
    sum = vmlal_s16(sum, vget_low_s16(mins), vget_low_s16(first));
    sum = vmlal_high_s16(sum, mins, first);
    mins = vld1q_s16(u->mins + 8);
    sum = vmlal_s16(sum, vget_low_s16(mins), vget_low_s16(second));
    return vmlal_high_s16(sum, mins, second);
}

/* Four rows' lanes to four sums. */
INLINE float32x4_t fold(const int32x4_t x[ROWS]) {
    return vcvtq_f32_s32(vpaddq_s32(vpaddq_s32(x[0], x[1]), vpaddq_s32(x[2], x[3])));
}

/* Unit `i` of four rows against every row of input; f: [row_n][ROWS]. */
INLINE void unit_rows(const struct pn_unit u[ROWS], struct form form, const struct pn_acts *a,
                      uint64_t i, float *f) {
    const float d4[ROWS] = {u[0].d, u[1].d, u[2].d, u[3].d};
    const float32x4_t d = vld1q_f32(d4);
    float32x4_t dmin = vdupq_n_f32(0);
    if (form.has_min) {
        const float dmin4[ROWS] = {-u[0].dmin, -u[1].dmin, -u[2].dmin, -u[3].dmin};
        dmin = vld1q_f32(dmin4);
    }
    uint64_t col = i * form.unit_n, block = col / form.block_n;
    for (uint32_t m = 0; m < a->row_n; m++, f += ROWS) {
        uint64_t at = pn__act_at(a, a->col_n / form.block_n, block, m);
        const int8_t *q = a->q + at * form.block_n + col % form.block_n;
        int32x4_t x[ROWS];
        for (int r = 0; r < ROWS; r++)
            x[r] = unit_lanes(&u[r], form, q);
        float32x4_t y = vfmaq_f32(vld1q_f32(f), fold(x), vmulq_n_f32(d, a->d[at]));
        if (form.has_min) {
            const int16_t *sums = a->sums + at * (form.block_n / PN_ACT_SUM_LEN);
            for (int r = 0; r < ROWS; r++)
                x[r] = min_lanes(&u[r], form, sums);
            y = vfmaq_f32(y, fold(x), vmulq_n_f32(dmin, a->d[at]));
        }
        vst1q_f32(f, y);
    }
}

INLINE void matmul(const struct pn_mm *mm, uint32_t lo, uint32_t hi, float *f, struct form form) {
    const struct pn_acts *a = mm->acts;
    pn_unit_fn unpack = unit_fn(mm->w->type);
    struct pn_unit units[ROWS];
    memset(units, 0, sizeof units); /* the compiler can't see that all is filled */
    for (uint32_t row = lo; row < hi; row += ROWS) {
        const uint8_t *p[ROWS];
        pn__rows4(mm->w, row, hi, p);
        memset(f, 0, (uint64_t)a->row_n * ROWS * sizeof *f);
        for (uint64_t i = 0; i < a->col_n / form.unit_n; i++) {
            for (int r = 0; r < ROWS; r++)
                unpack(p[r], i, &units[r]);
            unit_rows(units, form, a, i, f);
        }
        for (uint32_t m = 0; m < a->row_n; m++)
            pn__put4(mm, m, row, hi, vld1q_f32(f + (uint64_t)m * ROWS));
    }
}

#define MATMUL(name, unit_n, sub_len, block_n, has_min)                   \
    static void name(const struct pn_mm *mm, uint32_t lo, uint32_t hi,    \
                     const struct pn_thread_scratch *scratch) {           \
        matmul(mm, lo, hi, scratch->sums,                                 \
               (struct form){(unit_n), (sub_len), (block_n), (has_min)}); \
    }

MATMUL(matmul_16, 16, 16, 32, false)
MATMUL(matmul_32, 32, 32, 32, false)
MATMUL(matmul_32_min, 32, 32, 32, true)
MATMUL(matmul_256_by_16, 256, 16, 256, false)
MATMUL(matmul_256_by_16_min, 256, 16, 256, true)
MATMUL(matmul_256_by_32, 256, 32, 256, false)
MATMUL(matmul_256_by_32_min, 256, 32, 256, true)

void PN_K(init_neon_blocks)(struct pn_kernels *k) {
    for (unsigned t = 0; t < PN_TYPE_N; t++) {
        struct pn_unit_shape s = pn__unit_shape((enum pn_type)t);
        if (s.unit_n == 16)
            k->matmul[t] = matmul_16;
        else if (s.unit_n == 32)
            k->matmul[t] = s.has_min ? matmul_32_min : matmul_32;
        else if (s.unit_n == 256 && s.sub_len == 16)
            k->matmul[t] = s.has_min ? matmul_256_by_16_min : matmul_256_by_16;
        else if (s.unit_n == 256)
            k->matmul[t] = s.has_min ? matmul_256_by_32_min : matmul_256_by_32;
    }
}
