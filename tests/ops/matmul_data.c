#include "ops/matmul_data.h"

#define FILE_VALUES 1024 /* weights in a file of tests/data/quants */

static uint64_t read_blocks(enum pn_type type, uint8_t *buf, size_t cap) {
    char path[256];
    snprintf(path, sizeof path, PN_TEST_DATA "/quants/%s.bin", pn__type_name(type));
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is missing", path);
    uint64_t n = fread(buf, 1, cap, f);
    fclose(f);
    return n;
}

void weight_make(struct rng *r, enum pn_type type, uint32_t row_n, uint32_t col_n,
                 struct pn_weight *w) {
    const struct pn_type_info *info = pn__type_info(type);
    uint8_t file[FILE_VALUES * 4];
    uint64_t row_bytes;
    assert_true(pn__type_row_bytes(type, col_n, &row_bytes));
    struct fence fence;
    fence_new(&fence, row_bytes * row_n);
    uint8_t *data = fence_end(&fence, row_bytes * row_n);
    if (type == PN_TYPE_F32) {
        for (uint64_t i = 0; i < (uint64_t)row_n * col_n; i++) {
            float v = rng_float(r);
            memcpy(data + 4 * i, &v, sizeof v);
        }
    } else {
        uint64_t have_n = read_blocks(type, file, sizeof file) / info->block_bytes;
        assert_int_equal(have_n, FILE_VALUES / info->block_n);
        for (uint64_t i = 0; i < row_bytes * row_n / info->block_bytes; i++)
            memcpy(data + i * info->block_bytes,
                   file + rng_below(r, (uint32_t)have_n) * info->block_bytes, info->block_bytes);
    }
    *w = (struct pn_weight){data, row_bytes, row_n, col_n, type, 1.0f};
}

void weight_free(struct pn_weight *w) {
    fence_free_at((void *)w->data, w->row_bytes * w->row_n);
    w->data = NULL;
}

uint32_t matmul_types(enum pn_type out[PN_TYPE_N]) {
    uint32_t n = 0;
    for (unsigned t = 0; t < PN_TYPE_N; t++)
        if (pn__type_info(t) && pn__type_info(t)->act != PN_ACT_NONE) out[n++] = (enum pn_type)t;
    return n;
}

static float flushed(float f) {
    return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f;
}

static float bf16(float f) {
    return flushed(pn__bf16_to_f32(pn__f32_to_bf16(f)));
}

/* Codes and scale of one activation block, from KERNELS. */
static float quant_block(const float *x, uint32_t n, int *q) {
    float am = 0;
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        am = fmaxf(am, fabsf(x[i]));
    }
    memset(q, 0, n * sizeof *q);
    if (!finite) return NAN;
    if (am < 0x1p-100f) return 0;
    float id = 127.0f / am;
    for (uint32_t i = 0; i < n; i++)
        q[i] = (int)rintf(x[i] * id);
    return am / 127.0f;
}

static uint32_t block_of(enum pn_type type) {
    return pn__type_info(type)->act == PN_ACT_Q256 ? 256 : 32;
}

void act_values(enum pn_type type, const float *x, uint32_t n, double *value, double *err) {
    enum pn_act_kind kind = pn__type_info(type)->act;
    if (kind == PN_ACT_F32 || kind == PN_ACT_BF16) {
        for (uint32_t i = 0; i < n; i++) {
            value[i] = kind == PN_ACT_F32 ? (double)x[i] : (double)bf16(x[i]);
            err[i] = kind == PN_ACT_F32 ? 0 : fabs((double)x[i]) * 0x1p-8 / 2 + 0x1p-126;
        }
        return;
    }
    uint32_t block_n = block_of(type);
    for (uint32_t b = 0; b < n; b += block_n) {
        int q[256];
        double d = quant_block(x + b, block_n, q);
        for (uint32_t i = 0; i < block_n; i++) {
            value[b + i] = d * q[i];
            /* Half a step; d and 127 / am are rounded, which moves 127 steps by 127 * 4 U more. */
            err[b + i] = d > 0 ? d * (0.5 + 127 * 4 * U) : 0x1p-100;
        }
    }
}

static float tree(float lanes[16]) {
    for (int s = 8; s; s /= 2)
        for (int j = 0; j < s; j++)
            lanes[j] = lanes[j] + lanes[j + s];
    return lanes[0];
}

static float float_dot(const float *w, const float *x, uint32_t n) {
    float lanes[16] = {0};
    for (uint32_t k = 0; k < n; k++)
        lanes[k % 16] = fmaf(w[k], x[k], lanes[k % 16]);
    return tree(lanes);
}

static float bf16_dot(const float *w, const float *x, uint32_t n) {
    float lanes[16] = {0};
    for (uint32_t k = 0; k < n; k += 32)
        for (int odd = 1; odd >= 0; odd--)
            for (uint32_t j = 0; j < 16; j++) {
                uint32_t at = k + 2 * j + (uint32_t)odd;
                float wv = at < n ? flushed(w[at]) : 0;
                float xv = at < n ? bf16(x[at]) : 0;
                /* Tiny is judged before the exponent is bounded. */
                bool tiny =
                    fabs((double)wv * (double)xv + (double)lanes[j]) < 0x1p-126 * (1 - 0x1p-25);
                float sum = fmaf(wv, xv, lanes[j]);
                lanes[j] = tiny ? copysignf(0.0f, sum) : sum;
            }
    return tree(lanes);
}

static float block_dot(const struct pn_weight *w, const uint8_t *row, const float *x) {
    struct pn_unit_shape shape = pn__unit_shape(w->type);
    uint32_t block_n = block_of(w->type);
    float f = 0;
    for (uint32_t b = 0; b < w->col_n; b += block_n) {
        int q[256];
        float d = quant_block(x + b, block_n, q);
        for (uint32_t off = 0; off < block_n; off += shape.unit_n) {
            struct pn_unit unit;
            pn__unit_unpack(w->type, row, (b + off) / shape.unit_n, &unit);
            int32_t sum = 0, min_sum = 0;
            for (uint32_t i = 0; i < shape.unit_n; i++) {
                sum += unit.scales[i / shape.sub_len] * (unit.codes[i] * q[off + i]);
                if (shape.has_min) min_sum += unit.mins[i / shape.sub_len] * q[off + i];
            }
            float scale = unit.d * d;
            f = fmaf((float)sum, scale, f);
            if (!shape.has_min) continue;
            float min_scale = -unit.dmin * d;
            f = fmaf((float)min_sum, min_scale, f);
        }
    }
    return f;
}

float canonical_dot(const struct pn_weight *w, uint32_t row, const float *x) {
    const uint8_t *bytes = w->data + row * w->row_bytes;
    enum pn_act_kind kind = pn__type_info(w->type)->act;
    if (kind == PN_ACT_Q32 || kind == PN_ACT_Q256) return block_dot(w, bytes, x) * w->scale;
    float *values = malloc(w->col_n * sizeof *values);
    assert_non_null(values);
    pn__dequant_row(w->type, bytes, values, w->col_n);
    float f = kind == PN_ACT_F32 ? float_dot(values, x, w->col_n) : bf16_dot(values, x, w->col_n);
    free(values);
    return f * w->scale;
}

/* Sum of the absolute values of what a row's fmafs add, per value: scale and minimum apart. */
static double term_size(const struct pn_weight *w, const uint8_t *row, const double *value) {
    struct pn_unit_shape shape = pn__unit_shape(w->type);
    double size = 0;
    for (uint32_t i = 0; i < w->col_n; i += shape.unit_n) {
        struct pn_unit unit;
        pn__unit_unpack(w->type, row, i / shape.unit_n, &unit);
        for (uint32_t k = 0; k < shape.unit_n; k++) {
            uint32_t sub = k / shape.sub_len;
            double a = fabs((double)unit.d * unit.scales[sub] * unit.codes[k]);
            if (shape.has_min) a += fabs((double)unit.dmin * unit.mins[sub]);
            size += a * fabs(value[i + k]);
        }
    }
    return size;
}

double oracle_dot(const struct pn_weight *w, uint32_t row, const double *value, double *bound) {
    const uint8_t *bytes = w->data + row * w->row_bytes;
    float *values = malloc(w->col_n * sizeof *values);
    assert_non_null(values);
    pn__dequant_row(w->type, bytes, values, w->col_n);
    double sum = 0, size = 0;
    for (uint32_t k = 0; k < w->col_n; k++) {
        sum += (double)values[k] * value[k];
        size += fabs((double)values[k] * value[k]);
    }
    free(values);
    /* Roundings that a term can meet: its lane's additions and the tree; or one fmaf a unit (two
     * with a minimum), the integer sum's and the scales' conversion, and dequantisation's own. */
    double step_n = w->col_n / 16.0 + 1 + 4;
    if (pn__unit_fn(w->type)) {
        struct pn_unit_shape shape = pn__unit_shape(w->type);
        step_n = (double)w->col_n / shape.unit_n * (shape.has_min ? 2 : 1) + 2 + 2;
        size = term_size(w, bytes, value);
    }
    *bound = step_n * U * size * fabs((double)w->scale) + U * fabs(sum * w->scale);
    return sum * w->scale;
}
