#include "mem/signals.h"

#include "base/io.h"

#define MEMINFO "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 48118784 kB\n"
#define PSI                                                                               \
    "some avg10=1.50 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.25 avg60=0 avg300=0 " \
    "total=45\n"

struct mem_tree tree;
pn_host_sample sample;

int signals_setup(void **state) {
    (void)state;
    mem_tree_new(&tree);
    mem_tree_write(&tree, "proc/meminfo", MEMINFO);
    mem_tree_write(&tree, "proc/pressure/memory", PSI);
    return 0;
}

int signals_teardown(void **state) {
    (void)state;
    pn__io_set(NULL);
    mem_tree_free(&tree);
    return 0;
}

void put(const char *path, const char *text) {
    mem_tree_write(&tree, path, text);
}

void put_v2(const char *dir, const char *current, const char *high, const char *max,
            uint64_t file_bytes) {
    char path[256];
    char stat[256];
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.current", dir);
    put(path, current);
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.high", dir);
    put(path, high);
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.max", dir);
    put(path, max);
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.stat", dir);
    snprintf(stat, sizeof stat,
             "anon 1\nfile_dirty 0\nfile_writeback 0\ninactive_file %llu\nactive_file 0\n",
             (unsigned long long)file_bytes);
    put(path, stat);
}

enum pn_source_status take(enum pn_mem_source source) {
    pn_host_signals_sample(tree.root, &sample);
    const pn_source_state *s = &sample.sources[source];
    /* A failure says why; the other states have nothing to say. */
    assert_int_equal(s->status == PN_SOURCE_FAILED, s->why[0] != '\0');
    return s->status;
}
