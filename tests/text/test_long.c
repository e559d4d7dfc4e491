/* CASES T1: long runs of one character through every pre-tokeniser, on a small stack. */
#include <pthread.h>

#include "text/pretokenize.h"
#include "text/tiny.h"

#define RUN_N 131072

/* CASES T1: one character RUN_N times, alone and with others around it. */
static void run_of(const struct pn_vocab *v, const char *unit, const char *front,
                   const char *back) {
    size_t unit_n = strlen(unit), at = strlen(front), len = at + unit_n * RUN_N + strlen(back);
    char *text = malloc(len + 1);
    strcpy(text, front);
    for (size_t i = 0; i < RUN_N; i++, at += unit_n)
        memcpy(text + at, unit, unit_n);
    strcpy(text + at, back);

    struct pn_detail d;
    struct pn_ids l = {0};
    PN_ASSERT_OK(pn__tokenize(v, text, len, 0, &l, &d), &d);
    at = 0;
    for (size_t i = 0; i < l.n; i++) {
        struct pn_str p = pn__vocab_piece(v, l.ids[i], false);
        assert_true(at + p.len <= len && memcmp(p.data, text + at, p.len) == 0);
        at += p.len;
    }
    assert_int_equal(at, len);
    pn__ids_free(&l);
    free(text);
}

/* Whether an earlier rule has the very same patterns. */
static bool seen_before(size_t rule) {
    for (size_t i = 0; i < rule; i++) {
        bool same = true;
        for (size_t k = 0; same && k < PN_PRE_PATTERNS_MAX; k++) {
            const char *a = pn__pre_rules[i].patterns[k], *b = pn__pre_rules[rule].patterns[k];
            same = a && b ? strcmp(a, b) == 0 : a == b;
        }
        if (same) return true;
    }
    return false;
}

static void *long_runs_thread(void *user) {
    (void)user;
    static const char *const units[] = {"Z",         ".",   " ",        "\n", "\xe4\xb8\xad",
                                        "a\xcc\x81", "z",   "zZ",       "9",  "~",
                                        "\t\n x",    " \n", "\xc3\xa9", "'s"};
    static struct tiny t;
    for (size_t i = 0; i < pn__pre_rule_n; i++) {
        if (seen_before(i)) continue;
        if (pn__pre_rules[i].chars) {
            tiny_spm(&t);
            t.model = "gemma4";
        } else {
            tiny_bpe(&t, pn__pre_rules[i].name);
            tiny_merge(&t, "Z Z");
            tiny_merge(&t, "ZZ ZZ");
        }
        struct pn_vocab *v = tiny_vocab(&t);
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            run_of(v, units[u], "", "");
            run_of(v, units[u], "x", "y");
        }
        pn__vocab_free(v);
    }
    return NULL;
}

static void long_runs_in_a_small_stack(void **state) {
    (void)state;
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 * 1024), 0);
    assert_int_equal(pthread_create(&thread, &attr, long_runs_thread, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_runs_in_a_small_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
