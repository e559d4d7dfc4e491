/* A host of files, and one sample of what they say. */
#ifndef PN_TESTS_MEM_SIGNALS_H
#define PN_TESTS_MEM_SIGNALS_H

#include "mem/mem_tree.h"
#include "pn_mem.h"
#include "support/pn_test.h"

extern struct mem_tree tree;
extern pn_host_sample sample; /* the last one taken */

/* Around each test: 64 GiB of memory, 1.5 % of the time some and 0.25 % all tasks stalled. */
int signals_setup(void **state);
int signals_teardown(void **state);
#define SIGNALS_TEST(f) cmocka_unit_test_setup_teardown(f, signals_setup, signals_teardown)

void put(const char *path, const char *text);
/* A v2 group: current and limits as text, and reclaimable bytes. */
void put_v2(const char *dir, const char *current, const char *high, const char *max,
            uint64_t file_bytes);

/* Takes a sample and says how `source` is. */
enum pn_source_status take(enum pn_mem_source source);

#endif
