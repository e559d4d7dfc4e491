#include "support/corpus.h"

#include <dirent.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct corpus_file corpus_files[256];
size_t corpus_file_n;

/* xorshift64*: fast, and the same everywhere. */
static uint64_t rng_state;
uint64_t corpus_rng(void) {
    rng_state ^= rng_state >> 12;
    rng_state ^= rng_state << 25;
    rng_state ^= rng_state >> 27;
    return rng_state * 0x2545f4914f6cdd1dull;
}

int corpus_load(void **state) {
    (void)state;
    DIR *dir = opendir(PN_FUZZ_CORPUS);
    const struct dirent *e;
    while (dir && (e = readdir(dir)) && corpus_file_n < PN_ARRAY_N(corpus_files)) {
        char path[1024];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", PN_FUZZ_CORPUS, e->d_name);
        FILE *f = fopen(path, "rb");
        if (!f) return -1;
        struct corpus_file *to = &corpus_files[corpus_file_n++];
        to->p = malloc(CORPUS_FILE_MAX);
        to->n = fread(to->p, 1, CORPUS_FILE_MAX, f);
        fclose(f);
    }
    if (dir) closedir(dir);
    return corpus_file_n ? 0 : -1;
}

int corpus_unload(void **state) {
    (void)state;
    for (size_t i = 0; i < corpus_file_n; i++)
        free(corpus_files[i].p);
    return 0;
}

static void run(const uint8_t *p, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n) memcpy(copy, p, n);
    assert_int_equal(LLVMFuzzerTestOneInput(copy, n), 0);
    free(copy);
}

void corpus_run(void) {
    run((const uint8_t *)"", 0);
    for (size_t i = 0; i < corpus_file_n; i++)
        run(corpus_files[i].p, corpus_files[i].n);
}

void corpus_run_mutants(uint64_t seed, int mutant_n, size_t (*mutate)(uint8_t *buf, size_t n)) {
    print_message("seed 0x%llx, %d mutants of %zu files\n", (unsigned long long)seed, mutant_n,
                  corpus_file_n);
    rng_state = seed;
    for (int m = 0; m < mutant_n; m++) {
        static uint8_t buf[CORPUS_FILE_MAX];
        const struct corpus_file *f = &corpus_files[corpus_rng() % corpus_file_n];
        if (f->n == 0) continue;
        memcpy(buf, f->p, f->n);
        run(buf, mutate(buf, f->n));
    }
}
