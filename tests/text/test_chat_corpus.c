/* The fuzz target's entry point over its corpus, and over mutations of it from a fixed seed. */
#include <dirent.h>

#include "support/pn_test.h"

#define MUTANT_N 3000
#define FILE_MAX_BYTES 16384
#define SEED 0x6a696e6aull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern uint64_t template_fuzz_rendered_n;

static struct {
    uint8_t *p;
    size_t n;
} files[256];
static size_t file_n;

/* xorshift64*: fast, and the same everywhere. */
static uint64_t rng_state = SEED;
static uint64_t rng(void) {
    rng_state ^= rng_state >> 12;
    rng_state ^= rng_state << 25;
    rng_state ^= rng_state >> 27;
    return rng_state * 0x2545f4914f6cdd1dull;
}

static int load(void **state) {
    (void)state;
    DIR *dir = opendir(PN_FUZZ_CORPUS);
    const struct dirent *e;
    while (dir && (e = readdir(dir)) && file_n < PN_ARRAY_N(files)) {
        char path[1024];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", PN_FUZZ_CORPUS, e->d_name);
        FILE *f = fopen(path, "rb");
        if (!f) return -1;
        files[file_n].p = malloc(FILE_MAX_BYTES);
        files[file_n].n = fread(files[file_n].p, 1, FILE_MAX_BYTES, f);
        fclose(f);
        file_n++;
    }
    if (dir) closedir(dir);
    return file_n ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    for (size_t i = 0; i < file_n; i++)
        free(files[i].p);
    return 0;
}

/* Runs on an allocation of exactly that size. */
static void run(const uint8_t *p, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n) memcpy(copy, p, n);
    assert_int_equal(LLVMFuzzerTestOneInput(copy, n), 0);
    free(copy);
}

static void corpus(void **state) {
    (void)state;
    run((const uint8_t *)"", 0);
    for (size_t i = 0; i < file_n; i++)
        run(files[i].p, files[i].n);
    /* The seeds are good but for two of them, and most render twice. */
    assert_true(template_fuzz_rendered_n > file_n);
}

/* Bytes changed, cut off, or moved over from another seed's template. */
static void mutants(void **state) {
    static const char marks[] = "{}%#-|.()[],:'\"~+*/ \n0a";
    (void)state;
    uint64_t rendered = template_fuzz_rendered_n;
    print_message("seed 0x%llx, %d mutants of %zu files\n", SEED, MUTANT_N, file_n);
    for (int m = 0; m < MUTANT_N; m++) {
        static uint8_t buf[FILE_MAX_BYTES];
        size_t i = rng() % file_n;
        size_t n = files[i].n;
        memcpy(buf, files[i].p, n);
        size_t template_n = strnlen((const char *)buf, n);
        for (uint64_t edits = 1 + rng() % 3; edits > 0; edits--) {
            size_t at = rng() % (rng() % 8 ? template_n + 1 : n);
            if (at >= n) at = 0;
            const uint8_t *other = files[rng() % file_n].p;
            size_t len = 1 + rng() % 12;
            switch (rng() % 4) {
            case 0:
                buf[at] = (uint8_t)marks[rng() % (sizeof marks - 1)];
                break;
            case 1:
                memcpy(buf + at, other + rng() % 40, len < n - at ? len : n - at);
                break;
            case 2:
                buf[at] = (uint8_t)rng();
                break;
            default:
                memmove(buf + at, buf + at + (len < n - at ? len : 0),
                        n - at - (len < n - at ? len : 0));
                n -= len < n - at ? len : 0;
            }
        }
        run(buf, n);
    }
    /* Some mutations touch only what may be anything: what lies behind the parser is reached. */
    assert_true(template_fuzz_rendered_n - rendered > MUTANT_N / 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(mutants)};
    return cmocka_run_group_tests(tests, load, unload);
}
