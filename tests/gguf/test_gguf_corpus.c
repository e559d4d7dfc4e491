/* The reader of model files over its fuzz corpus and mutants of it. */
#include "support/corpus.h"

#define MUTANT_N 20000

extern uint64_t gguf_fuzz_opened_n;

static void corpus(void **state) {
    (void)state;
    corpus_run();
    /* Three are no GGUF, eight open. */
    assert_true(gguf_fuzz_opened_n >= 8);
}

static size_t mutate(uint8_t *buf, size_t n) {
    static const uint64_t odd[] = {0,          1,          2,          31,         32,        255,
                                   1ull << 31, 1ull << 32, 1ull << 62, 1ull << 63, UINT64_MAX};
    for (uint64_t edits = 1 + corpus_rng() % 4; edits > 0; edits--) {
        size_t at = corpus_rng() % n;
        uint64_t v = odd[corpus_rng() % PN_ARRAY_N(odd)];
        size_t k = (size_t)1 << corpus_rng() % 4;
        switch (corpus_rng() % 4) {
        case 0:
            buf[at] ^= (uint8_t)(1 << corpus_rng() % 8);
            break;
        case 1:
            memcpy(buf + at, &v, k < n - at ? k : n - at);
            break;
        case 2:
            buf[at] = (uint8_t)corpus_rng();
            break;
        default:
            n = 1 + corpus_rng() % n;
        }
    }
    return n;
}

static void mutants(void **state) {
    (void)state;
    corpus_run_mutants(0x67677566, MUTANT_N, mutate);
    /* Many mutations touch what a file may be: the deep half of the code is reached too. */
    assert_true(gguf_fuzz_opened_n > MUTANT_N / 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(mutants)};
    return cmocka_run_group_tests(tests, corpus_load, corpus_unload);
}
