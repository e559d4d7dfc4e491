/* K and V in pages, and attention over them: against a softmax in double over what the pages hold,
 * with a bound from the scores' own roundings, and the same bits whatever the cuts. */
#include "ops/attention_data.h"
#include "ops/cpu/math.h"

/* ---- the layout of a page, read by the words of ops.h ---- */

static uint64_t bytes_of(enum pn_kv_format format, uint32_t dim) {
    uint32_t scales = 2 * ((dim + 31) / 32);
    switch (format) {
    case PN_KV_F32:
        return 4 * dim;
    case PN_KV_F16:
        return 2 * dim;
    case PN_KV_Q8_0:
        return scales + dim;
    case PN_KV_Q4:
        return scales + (dim + 1) / 2;
    }
    return 0;
}

static bool in_q4(const struct cache *c, uint32_t pos) {
    return c->pages[pos / PN_PAGE_TOKENS].format == PN_KV_Q4;
}

static const int q4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

/* A vector as it is stored: rotated in Q4. */
static void read_vector(const struct cache *c, uint32_t pos, uint32_t head, bool value,
                        double *out) {
    const struct pn_page_view *page = &c->pages[pos / PN_PAGE_TOKENS];
    uint32_t wanted = value ? c->shape.v_dim : c->shape.k_dim;
    value = value && !c->shape.v_in_k;
    uint32_t dim = value ? c->shape.v_dim : c->shape.k_dim;
    uint64_t row_bytes = bytes_of(page->format, dim);
    uint64_t k_bytes = bytes_of(page->format, c->shape.k_dim);
    uint64_t k_part = (c->shape.head_n * PN_PAGE_TOKENS * k_bytes + 63) / 64 * 64;
    const uint8_t *p = page->data + LAYER * pn__kv_layer_bytes(page->format, &c->shape) +
                       (value ? k_part : 0) +
                       (head * PN_PAGE_TOKENS + pos % PN_PAGE_TOKENS) * row_bytes;
    for (uint32_t i = 0; i < wanted; i++) {
        float f;
        uint16_t h;
        if (page->format == PN_KV_F32) {
            memcpy(&f, p + 4 * i, 4);
        } else if (page->format == PN_KV_F16) {
            memcpy(&h, p + 2 * i, 2);
            f = pn__f16_to_f32(h);
        } else {
            const uint8_t *codes = p + 2 * ((dim + 31) / 32);
            memcpy(&h, p + 2 * (i / 32), 2);
            int level = (int8_t)codes[page->format == PN_KV_Q4 ? 0 : i];
            if (page->format == PN_KV_Q4)
                level = q4_levels[i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15];
            f = pn__f16_to_f32(h) * (float)level;
        }
        out[i] = f;
    }
}

/* ---- the rotation, by Sylvester's H(2n) = (H H; H -H) ---- */

static uint32_t run_of(uint32_t dim) {
    uint32_t n = 1;
    while (dim % (2 * n) == 0)
        n *= 2;
    return n;
}

/* Element i of H(n) x is the sum of x_j, or of -x_j where i and j share an odd number of bits. */
static void turn_exact(const double *x, double *out, uint32_t dim) {
    uint32_t n = run_of(dim);
    for (uint32_t i = 0; i < dim; i++) {
        out[i] = 0;
        for (uint32_t j = 0; j < n; j++) {
            double y = x[i / n * n + j];
            out[i] += __builtin_parity(i % n & j) ? -y : y;
        }
        out[i] /= sqrt(n);
    }
}

/* How far off float arithmetic in pairs may leave each: every level and the factor round once, and
 * the factor is itself the result of a root and a quotient. */
static void turn_bound(const double *x, double *out, uint32_t dim) {
    uint32_t n = run_of(dim);
    for (uint32_t i = 0; i < dim; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++)
            sum += fabs(x[i / n * n + j]);
        out[i] = (log2(n) + 3) * U * sum / sqrt(n);
    }
}

/* The definition's own order. */
static void turn_float(float *x, uint32_t dim) {
    uint32_t n = run_of(dim);
    for (uint32_t h = 1; h < n; h *= 2)
        for (uint32_t i = 0; i < dim; i++)
            if (!(i & h)) {
                float a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
    for (uint32_t i = 0; i < dim; i++)
        x[i] *= 1.0f / sqrtf((float)n);
}

/* ---- storing ---- */

/* How far x is from the nearest of the sixteen levels times d. */
static double q4_distance(double x, double d) {
    double best = HUGE_VAL;
    for (int k = 0; k < 16; k++)
        best = fmin(best, fabs(x - d * q4_levels[k]));
    return best;
}

/* Each element is as near to the rotated vector's as any of the block's sixteen levels. */
static void check_stored_q4(const float *x, uint32_t dim, const double *got) {
    double halves[DIM_MAX] = {0}, want[DIM_MAX], off[DIM_MAX];
    for (uint32_t i = 0; i < dim; i++)
        halves[i] = pn__f16_to_f32(pn__f32_to_f16(x[i]));
    turn_exact(halves, want, dim);
    turn_bound(halves, off, dim);
    for (uint32_t b = 0; b < dim; b += 32) {
        uint32_t end = b + 32 < dim ? b + 32 : dim;
        double low = 0, high = 0, slack = 0;
        for (uint32_t i = b; i < end; i++) {
            low = fmin(low, want[i]);
            high = fmax(high, want[i]);
            slack = fmax(slack, off[i]);
        }
        double d = (high > -low ? -high : -low) / 127;
        bool tie = fabs(high + low) <= 2 * slack; /* then the scale may have either sign */
        /* The scale is a half, a subnormal one at worst. */
        slack = 3 * slack + fmax(fabs(d) * 127 * 0x1p-11, 127 * 0x1p-25) * 1.001;
        for (uint32_t i = b; i < end; i++) {
            double bound = q4_distance(want[i], d);
            if (tie) bound = fmax(bound, q4_distance(want[i], -d));
            ASSERT_NEAR(got[i], want[i], bound + slack);
        }
    }
}

static void check_stored(const struct cache *c, uint32_t pos, uint32_t head, bool value) {
    uint32_t dim = value ? c->shape.v_dim : c->shape.k_dim;
    const float *x = (value ? c->v : c->k) + ((uint64_t)pos * c->shape.head_n + head) * dim;
    double got[DIM_MAX];
    read_vector(c, pos, head, value, got);
    if (in_q4(c, pos)) {
        check_stored_q4(x, dim, got);
        return;
    }
    for (uint32_t b = 0; b < dim; b += 32) {
        double am = 0;
        for (uint32_t i = b; i < dim && i < b + 32; i++)
            am = fmax(am, fabs((double)x[i]));
        for (uint32_t i = b; i < dim && i < b + 32; i++) {
            double bound = 0;
            if (c->pages[pos / PN_PAGE_TOKENS].format == PN_KV_F16)
                bound = fabs((double)x[i]) * 0x1p-11 + 0x1p-25;
            /* Half a step, and the scale's rounding to a half (at least a subnormal one's) times
             * the code. */
            if (c->pages[pos / PN_PAGE_TOKENS].format == PN_KV_Q8_0)
                bound = am / 127 * 0.5001 + fmax(am * 0x1p-11, 127 * 0x1p-25);
            ASSERT_NEAR(got[i], x[i], bound);
        }
    }
}

static void test_write(void **state) {
    (void)state;
    static const uint32_t dims[] = {8, 24, 64, 80};
    for (size_t f = 0; f < PN_ARRAY_N(all_formats); f++) {
        for (size_t i = 0; i < PN_ARRAY_N(dims); i++) {
            struct cache c;
            cache_init(&c, 100 + i, 150, 3, 3, dims[i], dims[(i + 1) % 4]);
            for (uint32_t k = 0; k < dims[i]; k++)
                c.k[k] = 0, c.k[3 * dims[i] + k] *= 1e-7f; /* a zero vector, a tiny one */
            pages_new(&c, &all_formats[f], 1);
            struct backend b;
            backend_open(&b, PN_ISA_REF, 2);
            write_all(&b, &c);
            backend_close(&b);
            for (uint32_t pos = 0; pos < c.pos_n; pos++)
                for (uint32_t h = 0; h < 3; h++) {
                    check_stored(&c, pos, h, false);
                    check_stored(&c, pos, h, true);
                }
            /* The other layer and the slots past the last position are as they were. */
            uint64_t layer_bytes = pn__kv_layer_bytes(all_formats[f], &c.shape);
            for (uint64_t k = 0; k < layer_bytes; k++)
                assert_int_equal(c.pages[0].data[k], UNTOUCHED);
            uint64_t k_bytes = pn__kv_row_bytes(all_formats[f], dims[i]);
            const uint8_t *last = c.pages[2].data + layer_bytes;
            for (uint64_t k = 22 * k_bytes; k < 64 * k_bytes; k++)
                assert_int_equal(last[k], UNTOUCHED);
            cache_free(&c);
        }
    }
}

/* Non-finite values and scales past a half's range come out as no finite number. */
static void test_write_non_finite(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        for (size_t f = 0; f < PN_ARRAY_N(all_formats); f++) {
            struct cache c;
            double got[DIM_MAX];
            cache_init(&c, 7, 3, 1, 1, 40, 40);
            c.k[40 + 33] = bad[i];
            pages_new(&c, &all_formats[f], 1);
            struct backend b;
            backend_open(&b, PN_ISA_REF, 1);
            write_all(&b, &c);
            backend_close(&b);
            read_vector(&c, 1, 0, false, got);
            if (all_formats[f] == PN_KV_F32)
                assert_true(same_bits(&c.k[40 + 33], &bad[i], 1) && (float)got[0] == c.k[40]);
            else
                assert_false(isfinite(got[33]));
            for (int k = 0; k < 32; k++)
                assert_true(isfinite(got[k])); /* other blocks don't notice */
            cache_free(&c);
        }
    }
}

static void test_row_bytes(void **state) {
    (void)state;
    assert_int_equal(pn__kv_row_bytes(PN_KV_F32, 24), 96);
    assert_int_equal(pn__kv_row_bytes(PN_KV_F16, 24), 48);
    assert_int_equal(pn__kv_row_bytes(PN_KV_Q8_0, 8), 10);
    assert_int_equal(pn__kv_row_bytes(PN_KV_Q8_0, 24), 26);
    assert_int_equal(pn__kv_row_bytes(PN_KV_Q8_0, 64), 68);
    assert_int_equal(pn__kv_row_bytes(PN_KV_Q8_0, 80), 86);
    struct pn_kv_shape s = {3, 24, 8, false};
    assert_int_equal(pn__kv_layer_bytes(PN_KV_Q8_0, &s), 3 * 64 * 26 + 3 * 64 * 10);
    s.head_n = 1;
    assert_int_equal(pn__kv_layer_bytes(PN_KV_F32, &s), 64 * 96 + 64 * 32);
    s.v_in_k = true;
    assert_int_equal(pn__kv_layer_bytes(PN_KV_F32, &s), 64 * 96);
}

/* ---- attention ---- */

/* One output vector in double, and how far float arithmetic in the canonical order may be off. What
 * Q4 positions give is summed up rotated, as it is stored, and rotated back at the end. */
struct sums {
    double out[DIM_MAX];
    double size[DIM_MAX]; /* of absolute values */
};

static double score_exact(const struct cache *c, uint32_t row, uint32_t head, uint32_t t,
                          double *err) {
    uint32_t dim = c->shape.k_dim;
    const float *x = c->q + ((uint64_t)row * c->q_head_n + head) * dim;
    double plain[DIM_MAX], q[DIM_MAX], q_err[DIM_MAX] = {0}, vec[DIM_MAX], dot = 0, size = 0,
                                       off = 0;
    for (uint32_t i = 0; i < dim; i++)
        q[i] = plain[i] = x[i];
    if (in_q4(c, t)) {
        turn_exact(plain, q, dim);
        turn_bound(plain, q_err, dim);
    }
    read_vector(c, t, head / (c->q_head_n / c->shape.head_n), false, vec);
    for (uint32_t i = 0; i < dim; i++) {
        dot += q[i] * vec[i];
        size += fabs(q[i] * vec[i]);
        off += q_err[i] * fabs(vec[i]);
    }
    /* Lane additions, tree, the scale's product, and s - max. */
    *err = ((dim / 16.0 + 1 + 4 + 1) * U * size + 1.001 * off) * c->scale +
           2 * U * fabs(dot * c->scale);
    return dot * c->scale;
}

static void oracle(const struct cache *c, uint32_t row, uint32_t head, double *out, double *bound) {
    uint32_t dim = c->shape.v_dim;
    uint32_t lo = c->window && row + 1 > c->window ? row + 1 - c->window : 0;
    double *s = malloc((row + 1) * sizeof *s);
    double vec[DIM_MAX], max = -HUGE_VAL, score_err = 0, sum = 0;
    struct sums parts[2] = {{{0}, {0}}, {{0}, {0}}}; /* plain, rotated */
    for (uint32_t t = lo; t <= row; t++) {
        double err;
        s[t] = score_exact(c, row, head, t, &err);
        max = fmax(max, s[t]);
        score_err = fmax(score_err, err);
    }
    if (c->sinks) max = fmax(max, c->sinks[head]);
    if (c->sinks) sum = exp(c->sinks[head] - max);
    for (uint32_t t = lo; t <= row; t++) {
        double p = exp(s[t] - max);
        struct sums *part = &parts[in_q4(c, t)];
        sum += p;
        read_vector(c, t, head / (c->q_head_n / c->shape.head_n), true, vec);
        for (uint32_t i = 0; i < dim; i++) {
            part->out[i] += p * vec[i];
            part->size[i] += fabs(p * vec[i]);
        }
    }
    /* Both sums are off by the scores' errors (of s and of max), then by their own roundings: a
     * group's chain of additions, and four for each merge. */
    uint32_t chain_n = row - lo + 1 < 1024 ? row - lo + 1 : 1024;
    uint32_t merge_n = row / 1024 + (c->sinks != NULL);
    double rel = expm1(2 * score_err) * 2 + (chain_n + chain_n / 16.0 + 16 + 8 * merge_n) * U;
    /* The way back spreads an element's error over its run, and rounds. */
    double back[DIM_MAX], off[DIM_MAX], n = run_of(dim);
    turn_exact(parts[1].out, back, dim);
    turn_bound(parts[1].size, off, dim);
    for (uint32_t i = 0; i < dim; i++) {
        double spread = 0;
        for (uint32_t j = 0; j < n; j++)
            spread += parts[1].size[i / run_of(dim) * run_of(dim) + j] / sqrt(n);
        out[i] = (parts[0].out[i] + back[i]) / sum;
        bound[i] = (rel * (parts[0].size[i] + spread) + 1.001 * off[i]) / sum + 0x1p-120;
    }
    free(s);
}

static void check_rows(const struct cache *c, uint32_t from, uint32_t row_n, const float *got) {
    double want[DIM_MAX], bound[DIM_MAX];
    for (uint32_t r = 0; r < row_n; r++)
        for (uint32_t h = 0; h < c->q_head_n; h++) {
            oracle(c, from + r, h, want, bound);
            for (uint32_t i = 0; i < c->shape.v_dim; i++)
                ASSERT_NEAR(got[(r * c->q_head_n + h) * c->shape.v_dim + i], want[i], bound[i]);
        }
}

/* What same_everywhere runs: the last rows of a cache. */
struct last_rows {
    struct cache *c;
    uint32_t row_n;
};

static void run_last(struct backend *b, void *user, float *out) {
    struct last_rows *l = user;
    attend_rows(b, l->c, l->c->pos_n - l->row_n, l->row_n, out);
}

static void check_cache(struct cache *c) {
    struct backend b;
    backend_open(&b, PN_ISA_REF, 2);
    write_all(&b, c);
    backend_close(&b);
    struct last_rows l = {c, c->pos_n < 3 ? c->pos_n : 3};
    uint64_t n = (uint64_t)l.row_n * c->q_head_n * c->shape.v_dim;
    float *got = reference_run(run_last, &l, n);
    check_rows(c, c->pos_n - l.row_n, l.row_n, got);
    same_everywhere(run_last, &l, got, n);
    /* And alone, as decoding has it. */
    uint64_t before = (uint64_t)(l.row_n - 1) * c->q_head_n * c->shape.v_dim;
    l.row_n = 1;
    same_everywhere(run_last, &l, got + before, n - before);
    guarded_free(got);
}

/* ---- the definition, bit by bit ---- */

static float tree(float lanes[16]) {
    for (int s = 8; s; s /= 2)
        for (int j = 0; j < s; j++)
            lanes[j] += lanes[j + s];
    return lanes[0];
}

static float score_of(const struct cache *c, uint32_t row, uint32_t head, uint32_t t) {
    double k[DIM_MAX];
    float lanes[16] = {0};
    float q[DIM_MAX];
    memcpy(q, c->q + ((uint64_t)row * c->q_head_n + head) * c->shape.k_dim,
           c->shape.k_dim * sizeof *q);
    if (in_q4(c, t)) turn_float(q, c->shape.k_dim);
    read_vector(c, t, head / (c->q_head_n / c->shape.head_n), false, k);
    for (uint32_t i = 0; i < c->shape.k_dim; i++)
        lanes[i % 16] = fmaf(q[i], (float)k[i], lanes[i % 16]);
    return tree(lanes) * c->scale;
}

/* Sums of p * v: of plain positions, then of rotated ones. */
#define BOTH (2 * DIM_MAX)

/* One group's maximum, sum and values; to are included. */
static void group_of(const struct cache *c, uint32_t row, uint32_t head, uint32_t from, uint32_t to,
                     float *max, float *sum, float acc[BOTH]) {
    float lanes[16] = {0};
    double v[DIM_MAX];
    *max = -INFINITY;
    memset(acc, 0, BOTH * sizeof *acc);
    for (uint32_t t = from; t <= to; t++)
        *max = fmaxf(*max, score_of(c, row, head, t));
    for (uint32_t t = from; t <= to; t++) {
        float p = pn__exp(score_of(c, row, head, t) - *max);
        lanes[t % 16] += p;
        read_vector(c, t, head / (c->q_head_n / c->shape.head_n), true, v);
        float *part = acc + (in_q4(c, t) ? DIM_MAX : 0);
        for (uint32_t i = 0; i < c->shape.v_dim; i++)
            part[i] = fmaf(p, (float)v[i], part[i]);
    }
    *sum = tree(lanes);
}

static void canonical(const struct cache *c, uint32_t row, uint32_t head, float *out) {
    uint32_t lo = c->window && row + 1 > c->window ? row + 1 - c->window : 0;
    float max = 0, sum = 0, all[BOTH], group[BOTH], m, l;
    bool any_q4 = false;
    for (uint32_t t = lo; t <= row; t++)
        any_q4 = any_q4 || in_q4(c, t);
    for (uint32_t g = lo / 1024; g <= row / 1024; g++) {
        uint32_t from = g * 1024 > lo ? g * 1024 : lo;
        uint32_t to = g * 1024 + 1023 < row ? g * 1024 + 1023 : row;
        bool first = g == lo / 1024;
        group_of(c, row, head, from, to, &m, &l, first ? all : group);
        float both = first ? m : fmaxf(max, m);
        float a = pn__exp(max - both), b = pn__exp(m - both);
        sum = first ? l : fmaf(l, b, sum * a);
        for (uint32_t i = 0; !first && i < BOTH; i++)
            all[i] = fmaf(group[i], b, all[i] * a);
        max = both;
    }
    if (any_q4) {
        turn_float(all + DIM_MAX, c->shape.v_dim);
        for (uint32_t i = 0; i < c->shape.v_dim; i++)
            all[i] += all[DIM_MAX + i];
    }
    if (c->sinks) {
        float both = fmaxf(max, c->sinks[head]);
        float a = pn__exp(max - both);
        sum = sum * a + pn__exp(c->sinks[head] - both);
        for (uint32_t i = 0; i < c->shape.v_dim; i++)
            all[i] *= a;
    }
    for (uint32_t i = 0; i < c->shape.v_dim; i++)
        out[i] = all[i] / sum;
}

static void test_definition(void **state) {
    (void)state;
    static const uint32_t windows[] = {0, 70, 1500};
    for (size_t w = 0; w < PN_ARRAY_N(windows); w++) {
        struct cache c;
        float want[40];
        cache_init(&c, 9000 + w, 2090, 2, 4, 24, 40);
        c.window = windows[w];
        if (w % 2 == 1) add_sinks(&c);
        pages_new(&c, all_formats, PN_ARRAY_N(all_formats));
        struct backend b;
        backend_open(&b, PN_ISA_REF, 2);
        write_all(&b, &c);
        float *got = guarded_new(60 * 4 * 40);
        attend_rows(&b, &c, 2030, 60, got);
        backend_close(&b);
        for (uint32_t r = 0; r < 60; r += 7)
            for (uint32_t h = 0; h < 4; h++) {
                canonical(&c, 2030 + r, h, want);
                assert_true(same_bits(got + (r * 4 + h) * 40, want, 40));
            }
        guarded_check(got, 60 * 4 * 40);
        guarded_free(got);
        cache_free(&c);
    }
}

static const uint32_t lengths[] = {1, 63, 64, 65, 1023, 1024, 1025, 2100};

static void test_lengths(void **state) {
    (void)state;
    static const uint32_t dims[] = {8, 24, 64, 80};
    for (size_t i = 0; i < PN_ARRAY_N(lengths); i++)
        for (size_t f = 0; f < PN_ARRAY_N(all_formats); f++) {
            struct cache c;
            uint32_t dim = dims[(i + f) % 4];
            cache_init(&c, 1000 + i * 3 + f, lengths[i], 2, 6, dim, dim);
            pages_new(&c, &all_formats[f], 1);
            check_cache(&c);
            cache_free(&c);
        }
}

/* Every head size with every format; K and V of different sizes; formats mixed over the pages. */
static void test_dims(void **state) {
    (void)state;
    static const uint32_t dims[] = {8, 24, 64, 80};
    for (size_t i = 0; i < PN_ARRAY_N(dims); i++) {
        for (size_t f = 0; f <= PN_ARRAY_N(all_formats); f++) {
            struct cache c;
            cache_init(&c, 2000 + i * 4 + f, 200, 1 + i % 2, 4, dims[i], dims[(i + f) % 4]);
            if (f < PN_ARRAY_N(all_formats))
                pages_new(&c, &all_formats[f], 1);
            else
                pages_new(&c, all_formats, PN_ARRAY_N(all_formats));
            check_cache(&c);
            cache_free(&c);
        }
    }
}

/* Long heads, one longer than any kernel's buffer, and every number of queries that may share a
 * tile, on every level. */
static void test_shapes(void **state) {
    (void)state;
    static const uint32_t dims[] = {16, 96, 128, 200, 256, 288, 320};
    for (size_t i = 0; i < PN_ARRAY_N(dims); i++)
        for (uint32_t per_kv = 1; per_kv <= 9; per_kv++) {
            struct cache c;
            cache_init(&c, 2500 + i * 10 + per_kv, 97, 1, per_kv, dims[i], dims[(i + per_kv) % 7]);
            c.window = per_kv == 5 ? 33 : 0;
            pages_new(&c, &all_formats[(i + per_kv) % 4], 1);
            struct backend b;
            backend_open(&b, PN_ISA_REF, 2);
            write_all(&b, &c);
            backend_close(&b);
            struct last_rows l = {&c, 37};
            uint64_t n = (uint64_t)l.row_n * per_kv * c.shape.v_dim;
            uint64_t row_n = (uint64_t)per_kv * c.shape.v_dim;
            float *got = reference_run(run_last, &l, n);
            same_everywhere(run_last, &l, got, n);
            l.row_n = 1;
            same_everywhere(run_last, &l, got + (n - row_n), row_n);
            guarded_free(got);
            cache_free(&c);
        }
}

static void test_windows(void **state) {
    (void)state;
    static const uint32_t windows[] = {1, 2, 63, 64, 65, 500, 1024, 1025, 5000};
    for (size_t i = 0; i < PN_ARRAY_N(windows); i++) {
        struct cache c;
        cache_init(&c, 3000 + i, 1100, 1, 2, 24, 24);
        c.window = windows[i];
        pages_new(&c, all_formats, PN_ARRAY_N(all_formats));
        check_cache(&c);
        cache_free(&c);
    }
}

/* More query heads a KV head than a tile takes. */
static void test_many_heads(void **state) {
    (void)state;
    struct cache c;
    static const uint32_t per_kv[] = {19, 65, 131};
    for (size_t i = 0; i < PN_ARRAY_N(per_kv); i++) {
        cache_init(&c, 4000 + i, 70, 2, 2 * per_kv[i], 16, 16);
        pages_new(&c, all_formats, 1);
        check_cache(&c);
        cache_free(&c);
    }
}

/* Every level, lengths that end in and at a group, windows with and without. */
static void test_sinks(void **state) {
    (void)state;
    for (size_t i = 0; i < PN_ARRAY_N(lengths); i++) {
        struct cache c;
        cache_init(&c, 4500 + i, lengths[i], 2, 10, 24, 40);
        c.window = i % 2 ? 40 : 0;
        add_sinks(&c);
        pages_new(&c, all_formats, PN_ARRAY_N(all_formats));
        check_cache(&c);
        cache_free(&c);
    }
}

/* One row a token for all heads, V in it: sizes as real models have them, and such that a block of
 * Q8_0 has some of both. A rotated vector's first part is nothing by itself: not in Q4. */
static void test_latent(void **state) {
    (void)state;
    static const uint32_t dims[][2] = {{576, 512}, {32, 24}, {80, 41}, {320, 320}};
    static const uint32_t per_kv[] = {16, 4, 33, 1};
    for (size_t i = 0; i < PN_ARRAY_N(dims); i++)
        for (size_t f = 0; f <= WIDE_FORMAT_N; f++) {
            struct cache c;
            bool mixed = f == WIDE_FORMAT_N;
            cache_init(&c, 4700 + i, i % 2 ? 1030 : 150, 1, per_kv[i], dims[i][0], dims[i][1]);
            c.shape.v_in_k = true;
            pages_new(&c, &all_formats[mixed ? 0 : f], mixed ? WIDE_FORMAT_N : 1);
            check_cache(&c);
            cache_free(&c);
        }
}

/* Sharp and flat distributions: huge scores, equal scores, one position that takes all. */
static void test_extreme_scores(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct cache c;
        cache_init(&c, 5000, 1100, 1, 2, 32, 32);
        for (uint64_t i = 0; i < 1100 * 2 * 32; i++)
            c.q[i] = kind == 0 ? c.q[i] * 1000 : kind == 1 ? 0 : c.q[i] * 1e-3f;
        if (kind == 2)
            for (int i = 0; i < 32; i++)
                c.k[17 * 32 + i] = 1e6f * c.q[1099 * 64 + i];
        pages_new(&c, all_formats, 1);
        check_cache(&c);
        cache_free(&c);
    }
}

/* exp of given scores: q picks one element of K, in F32 pages, and V says which position it was. */
static void check_exps(const float *scores) {
    enum { N = 512 };
    struct cache c;
    cache_init(&c, 5100, N, 1, 1, 8, N);
    c.scale = 1;
    for (uint32_t t = 0; t < N; t++) {
        for (uint32_t i = 0; i < N; i++)
            c.v[t * N + i] = i == t;
        for (uint32_t i = 0; i < 8; i++)
            c.q[t * 8 + i] = i == 0;
        c.k[t * 8] = scores[t];
    }
    pages_new(&c, all_formats, 1);
    struct backend b;
    backend_open(&b, PN_ISA_REF, 1);
    write_all(&b, &c);
    backend_close(&b);
    struct last_rows l = {&c, 1};
    float *got = reference_run(run_last, &l, N);
    for (uint32_t t = 0; t < N; t++)
        assert_true(got[t] <= got[0] && (got[t] > 0 || scores[t] < -80));
    same_everywhere(run_last, &l, got, N);
    guarded_free(got);
    cache_free(&c);
}

/* Scores less their maximum whose exp in double stands so near to the middle between two floats
 * that a shorter way than the definition's rounds to the other one, among others of all sizes. */
static void test_exp(void **state) {
    (void)state;
    static const float hard[] = {
        -0x1.db8546p-7f, -0x1.db91d4p-6f, -0x1.5be05cp-5f, -0x1.ad09a6p-5f, -0x1.12451ep-4f,
        -0x1.746ec8p-4f, -0x1.5d3408p-3f, -0x1.e2a52p-3f,  -0x1.5506bcp-2f, -0x1.03e2ap-1f,
        -0x1.b56f04p-1f, -0x1.56f9c8p+0f, -0x1.e8303p+0f,  -0x1.7b3606p+1f, -0x1.3fd6fap+2f,
        -0x1.fd58dep+2f, -0x1.aa98f8p+3f, -0x1.4a8e1p+4f,  -0x1.f816f4p+4f, -0x1.ba4d3p+5f,
        -0x1.555c54p+6f,
    };
    float scores[512] = {0};
    struct rng r = {5101};
    for (int turn = 0; turn < 8; turn++) {
        for (uint32_t t = 1; t < 512; t++)
            scores[t] = -fabsf(rng_float(&r)) * (turn % 2 ? 150.0f : ldexpf(1, (int)(t % 24) - 16));
        for (uint32_t i = 0; i < PN_ARRAY_N(hard); i++)
            scores[1 + (i * 97 + 31 * (uint32_t)turn) % 511] = hard[i];
        check_exps(scores);
    }
}

/* Law 3: a prompt in any chunks, beside others or alone. */
static void run_chunks(struct backend *b, struct cache *c, uint32_t from, uint32_t chunk,
                       float *out) {
    for (uint32_t at = from; at < c->pos_n; at += chunk) {
        uint32_t n = c->pos_n - at < chunk ? c->pos_n - at : chunk;
        write_rows(b, c, at, n);
        attend_rows(b, c, at, n, out + (uint64_t)(at - from) * c->q_head_n * c->shape.v_dim);
    }
}

static void check_chunks(struct cache *c, uint32_t from) {
    static const uint32_t chunks[] = {1, 7, 64, 100};
    uint64_t n = (uint64_t)(c->pos_n - from) * c->q_head_n * c->shape.v_dim;
    float *want = NULL;
    for (size_t i = 0; i < PN_ARRAY_N(chunks); i++) {
        for (uint32_t t = 1; t <= 3; t++) {
            struct backend b;
            backend_open(&b, pn__isa_best(PN_ISA_NEON), t);
            for (uint32_t at = 0; at < from; at += 64)
                write_rows(&b, c, at, from - at < 64 ? from - at : 64);
            float *got = guarded_new(n);
            run_chunks(&b, c, from, chunks[i], got);
            guarded_check(got, n);
            backend_close(&b);
            if (!want) {
                want = got;
                continue;
            }
            if (!same_bits(got, want, n)) fail_msg("chunks of %u, %u threads", chunks[i], t);
            guarded_free(got);
        }
    }
    guarded_free(want);
}

static void test_chunks(void **state) {
    (void)state;
    for (int window = 0; window < 2; window++) {
        struct cache c;
        cache_init(&c, 6000, 200, 2, 4, 24, 24);
        c.window = window ? 50 : 0;
        pages_new(&c, all_formats, PN_ARRAY_N(all_formats));
        check_chunks(&c, 0);
        cache_free(&c);
        cache_init(&c, 6001, 1070, 1, 3, 24, 24); /* over a group's end */
        c.window = window ? 40 : 0;
        pages_new(&c, &all_formats[1], 1);
        check_chunks(&c, 970);
        cache_free(&c);
    }
}

/* Pages in two forms: each row reads what pn__page_narrow says, as if every page had but that form,
 * wherever the prompt is cut; and the wide forms that nobody reads any more may be gone. */
static void check_forms(uint32_t k_dim, uint32_t v_dim, uint32_t window, uint32_t per_kv) {
    struct cache c, one;
    cache_init(&c, 6500 + k_dim + window, 500, 2, 2 * per_kv, k_dim, v_dim);
    c.window = window;
    pages_new(&c, &all_formats[1], 1);
    narrow_new(&c);
    check_chunks(&c, 0);
    struct backend b;
    backend_open(&b, pn__isa_best(PN_ISA_NEON), 2);
    write_all(&b, &c);
    one = c;
    one.narrow = NULL;
    one.pages = calloc(c.page_n, sizeof *one.pages);
    uint64_t n = (uint64_t)c.q_head_n * v_dim;
    float *got = guarded_new(100 * n), *want = guarded_new(n);
    attend_rows(&b, &c, 400, 100, got);
    for (uint32_t r = 0; r < 100; r++) {
        for (uint32_t p = 0; p < c.page_n; p++) {
            bool narrow = p >= 1 && p + PN_KV_WIDE_PAGES <= (400 + r) / 64;
            one.pages[p] = narrow ? c.narrow[p] : c.pages[p];
        }
        attend_rows(&b, &one, 400 + r, 1, want);
        assert_true(same_bits(got + r * n, want, n));
    }
    for (uint32_t p = 1; p + PN_KV_WIDE_PAGES <= 400 / 64; p++) {
        free(c.pages[p].data);
        c.pages[p].data = NULL;
    }
    float *again = guarded_new(100 * n);
    attend_rows(&b, &c, 400, 100, again);
    assert_true(same_bits(got, again, 100 * n));
    backend_close(&b);
    guarded_free(got);
    guarded_free(again);
    guarded_free(want);
    free(one.pages);
    cache_free(&c);
}

static void test_forms(void **state) {
    (void)state;
    check_forms(24, 24, 0, 2);
    check_forms(64, 40, 0, 1);
    check_forms(80, 64, 200, 5);
}

static void test_beside_others(void **state) {
    (void)state;
    enum { SEQS = 4, HEADS_Q = 4, D = 24 };
    static const uint32_t lens[SEQS] = {90, 1, 130, 65}, rows[SEQS] = {20, 1, 5, 65};
    struct cache c[SEQS];
    struct pn_seq seqs[SEQS];
    uint32_t row_n = 0;
    static float k[128 * 2 * D], v[128 * 2 * D], q[128 * HEADS_Q * D], out[128 * HEADS_Q * D];
    struct backend b;
    backend_open(&b, PN_ISA_REF, 3);
    for (int i = 0; i < SEQS; i++) {
        cache_init(&c[i], 7000 + i, lens[i], 2, HEADS_Q, D, D);
        pages_new(&c[i], all_formats, PN_ARRAY_N(all_formats));
        uint32_t from = lens[i] - rows[i];
        for (uint32_t at = 0; at < from; at += 50)
            write_rows(&b, &c[i], at, from - at < 50 ? from - at : 50);
        seqs[i] = seq_of(&c[i], from, rows[i], 0);
        seqs[i].row_i = row_n;
        memcpy(k + row_n * 2 * D, c[i].k + from * 2 * D, rows[i] * 2 * D * 4);
        memcpy(v + row_n * 2 * D, c[i].v + from * 2 * D, rows[i] * 2 * D * 4);
        memcpy(q + row_n * HEADS_Q * D, c[i].q + from * HEADS_Q * D, rows[i] * HEADS_Q * D * 4);
        row_n += rows[i];
    }
    struct pn_batch batch = {.seqs = seqs, .seq_n = SEQS, .row_n = row_n};
    pn__op_kv_write(&b.step, &batch, PN_PAGE_WINDOW, LAYER, &c[0].shape, heads(k, row_n, 2, D),
                    heads(v, row_n, 2, D));
    pn__op_attention(&b.step, &batch, PN_PAGE_WINDOW, LAYER, &c[0].shape,
                     heads(q, row_n, HEADS_Q, D), c[0].scale, 0, NULL,
                     heads(out, row_n, HEADS_Q, D));
    for (int i = 0; i < SEQS; i++) {
        float *alone = guarded_new((uint64_t)rows[i] * HEADS_Q * D);
        attend_rows(&b, &c[i], lens[i] - rows[i], rows[i], alone);
        assert_true(
            same_bits(out + seqs[i].row_i * HEADS_Q * D, alone, (uint64_t)rows[i] * HEADS_Q * D));
        guarded_free(alone);
    }
    backend_close(&b);
    for (int i = 0; i < SEQS; i++)
        cache_free(&c[i]);
}

/* A NaN in K or V reaches every row that may see it, and no other. */
static void test_non_finite(void **state) {
    (void)state;
    for (int in_v = 0; in_v < 2; in_v++) {
        struct cache c;
        cache_init(&c, 8000, 80, 1, 1, 16, 16);
        c.window = 10;
        (in_v ? c.v : c.k)[70 * 16 + 3] = NAN;
        pages_new(&c, all_formats, 1);
        struct backend b;
        backend_open(&b, PN_ISA_REF, 1);
        write_all(&b, &c);
        float out[80 * 16];
        attend_rows(&b, &c, 0, 80, out);
        backend_close(&b);
        for (int r = 0; r < 80; r++)
            assert_int_equal(isnan(out[r * 16 + 3]) != 0, r >= 70 && r < 80);
        cache_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_bytes),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_non_finite),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_dims),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_many_heads),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_extreme_scores),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_beside_others),
        cmocka_unit_test(test_non_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
