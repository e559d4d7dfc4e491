#include "ops/attention_data.h"

void pages_new(struct cache *c, const enum pn_kv_format *formats, uint32_t format_n) {
    c->page_n = (c->pos_n + PN_PAGE_TOKENS - 1) / PN_PAGE_TOKENS;
    c->pages = calloc(c->page_n, sizeof *c->pages);
    assert_non_null(c->pages);
    for (uint32_t i = 0; i < c->page_n; i++) {
        enum pn_kv_format f = formats[i % format_n];
        uint64_t bytes = pn__kv_layer_bytes(f, &c->shape) * LAYERS;
        c->pages[i] = (struct pn_page_view){aligned_alloc(64, bytes), f};
        assert_non_null(c->pages[i].data);
        memset(c->pages[i].data, UNTOUCHED, bytes);
    }
}

void narrow_new(struct cache *c) {
    uint64_t bytes = pn__kv_layer_bytes(PN_KV_Q4, &c->shape) * LAYERS;
    c->narrow = calloc(c->page_n, sizeof *c->narrow);
    assert_non_null(c->narrow);
    for (uint32_t i = 1; i < c->page_n; i++) {
        c->narrow[i] = (struct pn_page_view){aligned_alloc(64, bytes), PN_KV_Q4};
        assert_non_null(c->narrow[i].data);
        memset(c->narrow[i].data, UNTOUCHED, bytes);
    }
}

static void pages_free(struct cache *c) {
    for (uint32_t i = 0; i < c->page_n; i++) {
        free(c->pages[i].data);
        if (c->narrow) free(c->narrow[i].data);
    }
    free(c->pages);
    free(c->narrow);
}

static float *floats_new(struct rng *r, uint64_t n, float scale) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    rng_fill(r, x, n, scale);
    return x;
}

void cache_init(struct cache *c, uint64_t seed, uint32_t pos_n, uint32_t head_n, uint32_t q_head_n,
                uint32_t k_dim, uint32_t v_dim) {
    struct rng r = {seed};
    *c = (struct cache){
        .shape = {head_n, k_dim, v_dim, false}, .q_head_n = q_head_n, .pos_n = pos_n};
    c->scale = 1.0f / sqrtf((float)k_dim);
    c->k = floats_new(&r, (uint64_t)pos_n * head_n * k_dim, 3);
    c->v = floats_new(&r, (uint64_t)pos_n * head_n * v_dim, 2);
    c->q = floats_new(&r, (uint64_t)pos_n * q_head_n * k_dim, 3);
}

void cache_free(struct cache *c) {
    pages_free(c);
    free(c->k);
    free(c->v);
    free(c->q);
    free(c->sinks);
}

void add_sinks(struct cache *c) {
    static const float some[] = {-20.0f, 0.5f, 30.0f, 4.0f, -INFINITY};
    c->sinks = calloc(c->q_head_n, sizeof *c->sinks);
    assert_non_null(c->sinks);
    for (uint32_t h = 0; h < c->q_head_n; h++)
        c->sinks[h] = some[h % PN_ARRAY_N(some)];
}

static struct pn_heads rows_of(float *x, uint32_t from, uint32_t row_n, uint32_t head_n,
                               uint32_t dim) {
    return heads(x + (uint64_t)from * head_n * dim, row_n, head_n, dim);
}

struct pn_seq seq_of(const struct cache *c, uint32_t from, uint32_t row_n, uint32_t gone_n) {
    struct pn_seq s = {.row_n = row_n, .pos = from};
    s.tables[PN_PAGE_WINDOW] =
        (struct pn_page_table){.pages = c->pages + gone_n,
                               .first = gone_n,
                               .n = c->page_n - gone_n,
                               .narrow = c->narrow ? c->narrow + gone_n : NULL};
    return s;
}

void write_rows(struct backend *b, struct cache *c, uint32_t from, uint32_t row_n) {
    struct pn_seq seq = seq_of(c, from, row_n, 0);
    struct pn_batch batch = {.seqs = &seq, .seq_n = 1, .row_n = row_n};
    pn__op_kv_write(&b->step, &batch, PN_PAGE_WINDOW, LAYER, &c->shape,
                    rows_of(c->k, from, row_n, c->shape.head_n, c->shape.k_dim),
                    rows_of(c->v, from, row_n, c->shape.head_n, c->shape.v_dim));
}

void attend_rows(struct backend *b, struct cache *c, uint32_t from, uint32_t row_n, float *out) {
    uint32_t gone_n = 0;
    if (c->window && from + 1 > c->window) gone_n = (from + 1 - c->window) / PN_PAGE_TOKENS;
    struct pn_seq seq = seq_of(c, from, row_n, gone_n);
    struct pn_batch batch = {.seqs = &seq, .seq_n = 1, .row_n = row_n};
    pn__op_attention(&b->step, &batch, PN_PAGE_WINDOW, LAYER, &c->shape,
                     rows_of(c->q, from, row_n, c->q_head_n, c->shape.k_dim), c->scale, c->window,
                     c->sinks, heads(out, row_n, c->q_head_n, c->shape.v_dim));
}

void write_all(struct backend *b, struct cache *c) {
    for (uint32_t at = 0; at < c->pos_n; at += BACKEND_ROW_MAX)
        write_rows(b, c, at, c->pos_n - at < BACKEND_ROW_MAX ? c->pos_n - at : BACKEND_ROW_MAX);
}
