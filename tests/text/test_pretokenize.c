/* Every pre-tokeniser against pieces worked out by another engine, and against its own limits. */
#include "support/pn_test.h"
#include "text/pre_cases.h"
#include "text/pretokenize.h"
#include "text/tiny.h"
#include "text/utf8.h"
#include "text/vocab.h"

static struct pn_pre *pre_of(const char *name) {
    struct pn_detail d;
    struct pn_pre *p = NULL;
    const struct pn_pre_rule *rule = pn__pre_find((struct pn_str){name, strlen(name)});
    assert_non_null(rule);
    PN_ASSERT_OK(pn__pre_new(rule, &d, &p), &d);
    return p;
}

/* CASES T7. */
static void pieces(void **state) {
    (void)state;
    assert_int_equal(sizeof pre_cases / sizeof pre_cases[0], pn__pre_rule_n);
    for (size_t i = 0; i < pn__pre_rule_n; i++) {
        struct pn_pre *p = pre_of(pre_cases[i].name);
        struct pn_pre_scratch w = {0};
        for (size_t k = 0; k < sizeof pre_texts / sizeof pre_texts[0]; k++) {
            struct pn_detail d;
            char got[512] = "";
            size_t at = 0;
            PN_ASSERT_OK(pn__pre_split(p, pre_texts[k], strlen(pre_texts[k]), &w, &d), &d);
            for (size_t s = 0; s < w.segs.n; s++)
                at +=
                    (size_t)snprintf(got + at, sizeof got - at, s ? " %zu" : "%zu", w.segs.len[s]);
            if (strcmp(got, pre_cases[i].lens[k]) != 0)
                fail_msg("%s: '%s' gives %s, not %s", pre_cases[i].name, pre_texts[k], got,
                         pre_cases[i].lens[k]);
        }
        pn__pre_scratch_free(&w);
        pn__pre_free(p);
    }
}

/* Mongolian vowel separator: white space for PCRE2, not for the models. */
static void white_space_is_unicodes(void **state) {
    (void)state;
    struct pn_pre *p = pre_of("gpt-2");
    struct pn_pre_scratch w = {0};
    struct pn_detail d;
    PN_ASSERT_OK(pn__pre_split(p, "a\xe1\xa0\x8e!", 5, &w, &d), &d);
    assert_int_equal(w.segs.n, 2);
    assert_int_equal(w.segs.len[0], 1);
    PN_ASSERT_OK(pn__pre_split(p, "a\xc2\x85!", 4, &w, &d), &d);
    assert_int_equal(w.segs.n, 3);
    pn__pre_scratch_free(&w);
    pn__pre_free(p);
}

static uint64_t work_for(const struct pn_vocab *v, const char *text, size_t len) {
    struct pn_detail d;
    struct pn_ids l = {0};
    uint64_t work = 0;
    PN_ASSERT_OK(pn__tokenize_counted(v, text, len, 0, &l, &d, &work), &d);
    pn__ids_free(&l);
    assert_true(work >= len);
    return work;
}

/* CASES T2: twice the text is less than 2.5 times the work, whatever the merges do with it. */
static void check_growth(const struct pn_vocab *v, const char *text) {
    uint64_t before = work_for(v, text, 25000);
    for (size_t len = 50000; len <= 200000; len *= 2) {
        uint64_t work = work_for(v, text, len);
        assert_true(work * 2 < before * 5);
        before = work;
    }
}

static void work_grows_with_the_text(void **state) {
    (void)state;
    static struct tiny t;
    const size_t len = 200000;
    char *same = malloc(len), *random = malloc(len);
    uint32_t seed = 12345;
    memset(same, '_', len);
    for (size_t i = 0; i < len; i++) {
        seed = seed * 1664525u + 1013904223u;
        random[i] = (char)('a' + (seed >> 24) % 4);
    }
    for (int spm = 0; spm < 2; spm++) {
        if (spm)
            tiny_spm(&t);
        else
            tiny_bpe(&t, "llama-bpe");
        static const char *const merges[] = {"_ _", "__ __", "____ ____", "________ ________",
                                             "a b", "b a",   "ab a",      "aba b",
                                             "c d", "cd ab", "a a",       "d c"};
        for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++)
            tiny_merge(&t, merges[i]);
        t.merge_n = spm ? 0 : t.merge_n;
        struct pn_vocab *v = tiny_vocab(&t);
        check_growth(v, same);
        check_growth(v, random);
        pn__vocab_free(v);
    }
    free(same);
    free(random);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces),
        cmocka_unit_test(white_space_is_unicodes),
        cmocka_unit_test(work_grows_with_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
