/* Chat templates over their fuzz corpus and mutants of it. */
#include "support/corpus.h"

#define MUTANT_N 3000

extern uint64_t template_fuzz_rendered_n;

static void corpus(void **state) {
    (void)state;
    corpus_run();
    /* The seeds are good but for two of them, and most render twice. */
    assert_true(template_fuzz_rendered_n > corpus_file_n);
}

/* Bytes changed, cut off, or moved over from another seed's template. */
static size_t mutate(uint8_t *buf, size_t n) {
    static const char marks[] = "{}%#-|.()[],:'\"~+*/ \n0a";
    size_t template_n = strnlen((const char *)buf, n);
    for (uint64_t edits = 1 + corpus_rng() % 3; edits > 0; edits--) {
        size_t at = corpus_rng() % (corpus_rng() % 8 ? template_n + 1 : n);
        if (at >= n) at = 0;
        const uint8_t *other = corpus_files[corpus_rng() % corpus_file_n].p;
        size_t len = 1 + corpus_rng() % 12;
        switch (corpus_rng() % 4) {
        case 0:
            buf[at] = (uint8_t)marks[corpus_rng() % (sizeof marks - 1)];
            break;
        case 1:
            memcpy(buf + at, other + corpus_rng() % 40, len < n - at ? len : n - at);
            break;
        case 2:
            buf[at] = (uint8_t)corpus_rng();
            break;
        default:
            memmove(buf + at, buf + at + (len < n - at ? len : 0),
                    n - at - (len < n - at ? len : 0));
            n -= len < n - at ? len : 0;
        }
    }
    return n;
}

static void mutants(void **state) {
    (void)state;
    uint64_t rendered = template_fuzz_rendered_n;
    corpus_run_mutants(0x6a696e6a, MUTANT_N, mutate);
    /* Some mutations touch only what may be anything: what lies behind the parser is reached. */
    assert_true(template_fuzz_rendered_n - rendered > MUTANT_N / 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(mutants)};
    return cmocka_run_group_tests(tests, corpus_load, corpus_unload);
}
