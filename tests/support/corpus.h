/* A fuzz target's entry point over the files of its corpus (the folder PN_FUZZ_CORPUS), and over
 * mutants of them from a fixed seed. */
#ifndef PN_TESTS_SUPPORT_CORPUS_H
#define PN_TESTS_SUPPORT_CORPUS_H

#include "support/pn_test.h"

#define CORPUS_FILE_MAX 16384 /* bytes; longer ones are cut */

struct corpus_file {
    uint8_t *p; /* [CORPUS_FILE_MAX] */
    size_t n;
};
extern struct corpus_file corpus_files[256];
extern size_t corpus_file_n;

/* For cmocka's group. Fails when there are no files. */
int corpus_load(void **state);
int corpus_unload(void **state);

/* The empty input, then every file, each on an allocation of exactly its size. */
void corpus_run(void);

/* `mutant_n` copies of files picked at random, each changed by `mutate`: buf [CORPUS_FILE_MAX]
 * holds n > 0 bytes; it returns how many there are then. */
void corpus_run_mutants(uint64_t seed, int mutant_n, size_t (*mutate)(uint8_t *buf, size_t n));

/* For `mutate`. */
uint64_t corpus_rng(void);

#endif
