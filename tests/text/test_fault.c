/* Loading and tokenizing with the 1st, 2nd, ... allocation failing: an error each time, nothing
 * leaked, nothing half-done, until none fails any more. */
#include "base/alloc.h"
#include "text/tiny.h"

static struct tiny t;

#define ALLOCS_MAX 10000

static void load_with_failures(const struct pn_gguf *g) {
    for (uint64_t nth = 1; nth < ALLOCS_MAX; nth++) {
        struct pn_detail d = {0};
        struct pn_vocab *v = NULL;
        uint64_t before = pn__alloc_count();
        pn__alloc_fail_nth(nth);
        int rc = pn__vocab_load(g, NULL, &d, &v);
        uint64_t made = pn__alloc_count() - before;
        pn__alloc_fail_nth(0);
        if (rc == 0) {
            assert_non_null(v);
            pn__vocab_free(v);
            /* A failure may cost the JIT only; all others must have been errors. */
            if (made < nth) return;
            continue;
        }
        assert_int_equal(rc, PN_E_NOMEM);
        assert_null(v);
        assert_true(d.text[0] != 0);
    }
    fail_msg("still allocating after %d", ALLOCS_MAX);
}

static void tokenize_with_failures(const struct pn_vocab *v, const char *text, size_t len) {
    for (uint64_t nth = 1; nth < ALLOCS_MAX; nth++) {
        struct pn_detail d = {0};
        struct pn_ids l = {0};
        PN_ASSERT_OK(pn__tokenize(v, "ab", 2, 0, &l, &d), &d);
        size_t had = l.n;
        uint64_t before = pn__alloc_count();
        pn__alloc_fail_nth(nth);
        int rc = pn__tokenize(v, text, len, PN_TOKENIZE_SPECIAL | PN_TOKENIZE_BOS, &l, &d);
        uint64_t made = pn__alloc_count() - before;
        pn__alloc_fail_nth(0);
        if (rc == 0) {
            assert_true(l.n > had);
        } else {
            assert_int_equal(rc, PN_E_NOMEM);
            assert_int_equal(l.n, had);
            assert_true(d.text[0] != 0);
        }
        pn__ids_free(&l);
        if (rc == 0 && made < nth) return;
    }
    fail_msg("still allocating after %d", ALLOCS_MAX);
}

static void fail_each(void) {
    struct pn_detail d;
    char text[2000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "ab a9.\n\xff"[i % 8];
    struct pn_gguf *g = tiny_open(&t, &d);
    assert_non_null(g);
    load_with_failures(g);
    pn__gguf_close(g);
    struct pn_vocab *v = tiny_vocab(&t);
    tokenize_with_failures(v, text, sizeof text);
    pn__vocab_free(v);
}

static void spm(void **state) {
    (void)state;
    tiny_spm(&t);
    tiny_add(&t, "ab", TINY_NORMAL, -1);
    fail_each();
}

static void bpe(void **state) {
    (void)state;
    tiny_bpe(&t, "llama-bpe");
    tiny_merge(&t, "a b");
    t.merges[t.merge_n++] = "x y";
    t.merges[t.merge_n++] = "xy longer-than-the-table-has-room-for";
    tiny_add(&t, "<|x|>", TINY_CONTROL, 0);
    fail_each();
}

static void nfc_key(struct pn_gguf_writer *w) {
    pn__gguf_w_str(w, "tokenizer.huggingface.json", "{\"normalizer\": {\"type\": \"NFC\"}}");
}

static void many_patterns(void **state) {
    (void)state;
    tiny_bpe(&t, "deepseek-llm");
    t.extra = nfc_key;
    fail_each();
}

static void gemma4(void **state) {
    (void)state;
    tiny_spm(&t);
    t.model = "gemma4";
    tiny_merge(&t, "a b");
    fail_each();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm),
        cmocka_unit_test(bpe),
        cmocka_unit_test(many_patterns),
        cmocka_unit_test(gemma4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
