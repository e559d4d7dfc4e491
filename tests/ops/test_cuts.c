/* Attention of one row a sequence: the same bits however threads share the work. */
#include "ops/attention_data.h"

/* One row each of some sequences, as decoding has them. */
struct decoding {
    struct cache *c; /* all of one shape */
    uint32_t seq_n;
};

static void run_decoding(struct backend *b, void *user, float *out) {
    const struct decoding *d = user;
    const struct cache *c = d->c;
    struct pn_seq seqs[3];
    uint64_t row = (uint64_t)c->q_head_n * c->shape.k_dim;
    float *q = malloc(d->seq_n * row * sizeof *q);
    assert_non_null(q);
    for (uint32_t i = 0; i < d->seq_n; i++) {
        uint32_t last = d->c[i].pos_n - 1;
        uint32_t gone_n = c->window && last + 1 > c->window ? (last + 1 - c->window) / 64 : 0;
        seqs[i] = seq_of(&d->c[i], last, 1, gone_n);
        seqs[i].row_i = i;
        memcpy(q + i * row, d->c[i].q + last * row, row * sizeof *q);
    }
    struct pn_batch batch = {.seqs = seqs, .seq_n = d->seq_n, .row_n = d->seq_n};
    pn__op_attention(&b->step, &batch, PN_PAGE_WINDOW, LAYER, &c->shape,
                     heads(q, d->seq_n, c->q_head_n, c->shape.k_dim), c->scale, c->window, c->sinks,
                     heads(out, d->seq_n, c->q_head_n, c->shape.v_dim));
    free(q);
}

/* However threads share a row's work, by KV heads, by their queries or by groups: the bits of one
 * thread, which has no choice. */
static void check_cuts(const struct decoding *d) {
    enum pn_isa levels[ISA_N];
    uint32_t level_n = isa_list(levels);
    uint64_t n = (uint64_t)d->seq_n * d->c->q_head_n * d->c->shape.v_dim;
    struct backend b;
    for (uint32_t i = 0; i < d->seq_n; i++) {
        backend_open(&b, PN_ISA_REF, 2);
        write_all(&b, &d->c[i]);
        backend_close(&b);
    }
    float *want = reference_run(run_decoding, (void *)(uintptr_t)d, n);
    for (uint32_t l = 0; l < level_n; l++)
        for (uint32_t thread_n = 1; thread_n <= 7; thread_n++) {
            float *got = guarded_new(n);
            backend_open(&b, levels[l], thread_n);
            run_decoding(&b, (void *)(uintptr_t)d, got);
            backend_close(&b);
            guarded_check(got, n);
            if (!same_bits(got, want, n))
                fail_msg("differs at %s, %u threads: %u positions, %u KV heads of %u",
                         pn__isa_name(levels[l]), thread_n, d->c->pos_n, d->c->shape.head_n,
                         d->c->q_head_n / d->c->shape.head_n);
            guarded_free(got);
        }
    guarded_free(want);
}

static void test_cuts(void **state) {
    (void)state;
    static const uint32_t kv_heads[] = {1, 2, 3, 5}, per_kv[] = {1, 4, 7, 70};
    static const uint32_t pos[] = {90, 1024, 1025, 1900, 2048, 2100, 3500};
    static const uint32_t windows[] = {0, 40, 1300};
    uint32_t at = 0;
    for (size_t h = 0; h < PN_ARRAY_N(kv_heads); h++)
        for (size_t p = 0; p < PN_ARRAY_N(per_kv); p++)
            for (size_t i = h % 2; i < PN_ARRAY_N(pos); i += 2, at++) {
                struct cache c;
                cache_init(&c, 5200 + at, pos[i], kv_heads[h], kv_heads[h] * per_kv[p], 16, 24);
                c.window = windows[at % 3];
                if (at % 2) add_sinks(&c);
                pages_new(&c, all_formats + at % 4, at % 5 ? 1 : 4 - at % 4);
                check_cuts(&(struct decoding){&c, 1});
                cache_free(&c);
            }
}

/* More groups than parts, and sequences of different lengths. */
static void test_cuts_long(void **state) {
    (void)state;
    struct cache c[3];
    cache_init(&c[0], 5500, 9300, 1, 40, 8, 8);
    pages_new(&c[0], all_formats, PN_ARRAY_N(all_formats));
    check_cuts(&(struct decoding){c, 1});
    cache_free(&c[0]);
    static const uint32_t pos[] = {3000, 70, 1025};
    for (int window = 0; window < 2; window++) {
        for (uint32_t i = 0; i < 3; i++) {
            cache_init(&c[i], 5600 + i, pos[i], 1, 6, 24, 16);
            c[i].window = window ? 1500 : 0;
            pages_new(&c[i], all_formats, PN_ARRAY_N(all_formats));
        }
        check_cuts(&(struct decoding){c, 3});
        check_cuts(&(struct decoding){c, 2});
        for (uint32_t i = 0; i < 3; i++)
            cache_free(&c[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_cuts_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
