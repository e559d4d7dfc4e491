/* Any bytes as a GGUF: opening ends in a value, and what opens can be read from end to end.
 *
 * The input's first byte says in how many parts (1 to 3) the rest is handed out as the files of a
 * split model, in equal runs. Files are memory, through the I/O seam.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "gguf/gguf.h"

#define PART_MAX 3
#define FD_BASE 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inputs that opened, for the plain test: seeds that are all refused early would test little. */
extern uint64_t gguf_fuzz_opened_n;
uint64_t gguf_fuzz_opened_n;

static struct {
    const uint8_t *p;
    size_t n;
} parts[PART_MAX];
static unsigned part_n;

static int mem_open(const char *path, int flags) {
    (void)flags;
    unsigned i = 1;
    const char *tail = strstr(path, "-0000");
    if (tail) i = (unsigned)(tail[5] - '0');
    if (i < 1 || i > part_n) {
        errno = ENOENT;
        return -1;
    }
    return FD_BASE + (int)i - 1;
}

static int mem_close(int fd) {
    return fd >= FD_BASE && fd < FD_BASE + PART_MAX ? 0 : -1;
}

static int mem_fstat(int fd, struct stat *st) {
    memset(st, 0, sizeof *st);
    st->st_mode = S_IFREG | 0444;
    st->st_size = (off_t)parts[fd - FD_BASE].n;
    return 0;
}

static ssize_t mem_pread(int fd, void *buf, size_t bytes, off_t off) {
    size_t n = parts[fd - FD_BASE].n;
    if (off < 0 || (size_t)off >= n) return 0;
    if (bytes > n - (size_t)off) bytes = n - (size_t)off;
    memcpy(buf, parts[fd - FD_BASE].p + off, bytes);
    return (ssize_t)bytes;
}

/* A copy of exact size, so that a sanitizer sees a read past the end. */
static void *mem_mmap(int fd, uint64_t bytes, off_t off) {
    void *p = off == 0 && bytes == parts[fd - FD_BASE].n ? malloc(bytes ? bytes : 1) : NULL;
    if (!p) return MAP_FAILED;
    memcpy(p, parts[fd - FD_BASE].p, bytes);
    return p;
}

static int mem_munmap(void *p, uint64_t bytes) {
    (void)bytes;
    free(p);
    return 0;
}

static const struct pn_io mem_io = {mem_open,  mem_close, mem_fstat,
                                    mem_pread, mem_mmap,  mem_munmap};

/* What is summed up is read; the sum itself means nothing. */
static volatile uint64_t sink;

static void read_str(struct pn_str s) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s.len; i++)
        sum += (uint8_t)s.data[i];
    sink += sum;
}

static void read_array(const struct pn_gguf *g, const char *key) {
    struct pn_gguf_arr a;
    if (pn__gguf_get_arr(g, key, &a, NULL) != 1) return;
    for (uint64_t i = 0; i < a.n; i++) {
        read_str(pn__gguf_arr_str(&a, i));
        sink += (uint64_t)pn__gguf_arr_i64(&a, i);
        sink += pn__gguf_arr_f64(&a, i) > 0;
    }
}

static void read_keys(const struct pn_gguf *g) {
    for (uint64_t i = 0; i < pn__gguf_kv_n(g); i++) {
        const char *key = pn__gguf_kv_key(g, i);
        struct pn_detail d;
        struct pn_str s;
        uint64_t u;
        uint32_t u32;
        int64_t v;
        float f;
        bool b;
        if (pn__gguf_kv_index(g, key) != (int64_t)i) abort();
        if (pn__gguf_get_str(g, key, &s, &d) == 1) read_str(s);
        if (pn__gguf_get_u64(g, key, &u, &d) == 1) sink += u;
        if (pn__gguf_get_u32(g, key, &u32, &d) == 1) sink += u32;
        if (pn__gguf_get_i64(g, key, &v, &d) == 1) sink += (uint64_t)v;
        if (pn__gguf_get_f32(g, key, &f, &d) == 1) sink += f > 0;
        if (pn__gguf_get_bool(g, key, &b, &d) == 1) sink += b;
        read_array(g, key);
    }
}

static void read_tensors(struct pn_gguf *g) {
    for (uint64_t i = 0; i < pn__gguf_tensor_n(g); i++) {
        const struct pn_gguf_tensor *t = pn__gguf_tensor(g, i);
        const uint8_t *map;
        if (pn__gguf_find(g, t->name) != t || t->row_bytes * t->row_n != t->bytes) abort();
        if (t->offset + t->bytes > pn__gguf_shard_bytes(g, t->shard)) abort();
        if (pn__gguf_map(g, t->shard, NULL, &map) != 0) abort();
        sink += map[t->offset] + map[t->offset + t->bytes - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pn_detail d = {""};
    struct pn_gguf *g;
    char path[64];
    if (size == 0) return 0;
    part_n = 1 + data[0] % PART_MAX;
    size_t run = (size - 1) / part_n;
    for (unsigned i = 0; i < part_n; i++) {
        parts[i].p = data + 1 + i * run;
        parts[i].n = i + 1 < part_n ? run : size - 1 - i * run;
    }
    snprintf(path, sizeof path, part_n > 1 ? "mem-00001-of-0000%u.gguf" : "mem.gguf", part_n);
    pn__io_set(&mem_io);
    int rc = pn__gguf_open(path, &d, &g);
    if ((rc == 0) != (g != NULL) || (rc != 0) != (d.text[0] != '\0')) abort();
    if (g) {
        gguf_fuzz_opened_n++;
        read_keys(g);
        read_tensors(g);
        if (pn__gguf_check_model(g, &d) > 0 || pn__gguf_check_unchanged(g, &d) != 0) abort();
        pn__gguf_close(g);
    }
    pn__io_set(NULL);
    return 0;
}
