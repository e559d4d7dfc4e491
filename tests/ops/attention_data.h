/* Sequences with K and V as floats and in pages, for tests of attention. */
#ifndef PN_TESTS_OPS_ATTENTION_DATA_H
#define PN_TESTS_OPS_ATTENTION_DATA_H

#include "ops/ops_test.h"

#define LAYERS 2
#define LAYER 1 /* the one under test: the other must stay as it was */
#define UNTOUCHED 0xa5
#define DIM_MAX BACKEND_DIM_MAX

/* A sequence's K and V as floats, and the pages that they are written to. */
struct cache {
    struct pn_kv_shape shape;
    uint32_t q_head_n;
    uint32_t pos_n;
    uint32_t window;
    float scale;
    float *sinks; /* [q_head_n] or NULL */
    float *k;     /* [pos_n, head_n, k_dim] */
    float *v;
    float *q; /* [pos_n, q_head_n, k_dim] */
    struct pn_page_view *pages;
    struct pn_page_view *narrow; /* NULL: pages have one form */
    uint32_t page_n;
};

static const enum pn_kv_format all_formats[] = {PN_KV_F32, PN_KV_F16, PN_KV_Q8_0, PN_KV_Q4};
#define WIDE_FORMAT_N (PN_ARRAY_N(all_formats) - 1)

void pages_new(struct cache *c, const enum pn_kv_format *formats, uint32_t format_n);
/* Every page but the first gets a second form, in Q4. */
void narrow_new(struct cache *c);
void cache_init(struct cache *c, uint64_t seed, uint32_t pos_n, uint32_t head_n, uint32_t q_head_n,
                uint32_t k_dim, uint32_t v_dim);
void cache_free(struct cache *c);
/* Sinks far below the scores, among them, and above. */
void add_sinks(struct cache *c);
/* The batch of one sequence whose first lower pages are gone. */
struct pn_seq seq_of(const struct cache *c, uint32_t from, uint32_t row_n, uint32_t gone_n);
void write_rows(struct backend *b, struct cache *c, uint32_t from, uint32_t row_n);
void attend_rows(struct backend *b, struct cache *c, uint32_t from, uint32_t row_n, float *out);
/* Writes all K and V, in batches. */
void write_all(struct backend *b, struct cache *c);

#endif
