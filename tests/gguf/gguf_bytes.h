/* Building GGUF bytes by hand, right or wrong, for the tests; and the folder they are put in. */
#ifndef PN_TESTS_GGUF_BYTES_H
#define PN_TESTS_GGUF_BYTES_H

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "gguf/gguf.h"
#include "gguf/gguf_writer.h"
#include "support/pn_test.h"

struct gb {
    uint8_t p[8192];
    size_t n;
};

static inline void gb_raw(struct gb *b, const void *src, size_t n) {
    assert_true(b->n + n <= sizeof b->p);
    memcpy(b->p + b->n, src, n);
    b->n += n;
}
static inline void gb_u8(struct gb *b, uint8_t v) {
    gb_raw(b, &v, 1);
}
static inline void gb_u32(struct gb *b, uint32_t v) {
    gb_raw(b, &v, 4);
}
static inline void gb_u64(struct gb *b, uint64_t v) {
    gb_raw(b, &v, 8);
}
static inline void gb_str(struct gb *b, const char *s) {
    gb_u64(b, strlen(s));
    gb_raw(b, s, strlen(s));
}
static inline void gb_zeros(struct gb *b, size_t n) {
    while (n--)
        gb_u8(b, 0);
}
static inline void gb_header(struct gb *b, uint32_t version, uint64_t tensor_n, uint64_t kv_n) {
    b->n = 0;
    gb_raw(b, "GGUF", 4);
    gb_u32(b, version);
    gb_u64(b, tensor_n);
    gb_u64(b, kv_n);
}
/* A tensor info, any numbers. */
static inline void gb_tensor(struct gb *b, const char *name, uint32_t dim_n, const uint64_t *dims,
                             uint32_t type, uint64_t off) {
    gb_str(b, name);
    gb_u32(b, dim_n);
    for (uint32_t i = 0; i < dim_n && i < 8; i++)
        gb_u64(b, dims[i]);
    gb_u32(b, type);
    gb_u64(b, off);
}
static inline void gb_align(struct gb *b, size_t align) {
    while (b->n % align)
        gb_u8(b, 0);
}

/* ---- files ---- */

static char gb_dir[] = "/tmp/pn-gguf-XXXXXX";

static inline int gb_setup(void **state) {
    (void)state;
    return mkdtemp(gb_dir) ? 0 : -1;
}
static inline int gb_teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", gb_dir);
    return system(cmd);
}
/* The path of `name` in the folder; up to 64 live at once. */
static inline const char *gb_path(const char *name) {
    static char paths[64][600];
    static unsigned turn;
    char *p = paths[turn++ % 64];
    snprintf(p, sizeof paths[0], "%s/%.540s", gb_dir, name);
    return p;
}
static inline const char *gb_write(const char *name, const void *p, size_t n) {
    const char *path = gb_path(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    close(fd);
    return path;
}

static inline void gb_assert_has(const struct pn_detail *d, const char *needle) {
    if (strstr(d->text, needle)) return;
    print_error("the message lacks '%s': %s\n", needle, d->text);
    fail();
}

/* Opening `path` fails with `code`, and the message has each of the needles (NULL-terminated). */
static inline void gb_refused(const char *path, int code, ...) {
    struct pn_detail d = {""};
    struct pn_gguf *g = (struct pn_gguf *)&d;
    const char *needle;
    va_list ap;
    int rc = pn__gguf_open(path, &d, &g);
    if (rc != code) print_error("%s: got %s: %s\n", path, pn_err_name(rc), d.text);
    assert_int_equal(rc, code);
    assert_null(g);
    va_start(ap, code);
    while ((needle = va_arg(ap, const char *)))
        gb_assert_has(&d, needle);
    va_end(ap);
}
#define GB_REFUSED(path, code, ...) gb_refused(path, code, __VA_ARGS__, NULL)

/* These bytes are refused; the file is named in the message. */
#define GB_BAD(b, code, ...) \
    gb_refused(gb_write("bad.gguf", (b)->p, (b)->n), code, "bad.gguf", __VA_ARGS__, NULL)

/* A small model: 2 keys, an array of strings, `tensor_n` F32 tensors "t0" ... of 8 x 4 values, each
 * filled with its number. */
static inline struct pn_gguf_writer *gb_model(uint32_t tensor_n) {
    struct pn_detail d;
    struct pn_gguf_writer *w;
    const uint64_t dims[2] = {8, 4};
    const struct pn_str words[3] = {{"one", 3}, {"", 0}, {"th\0ree", 6}};
    PN_ASSERT_OK(pn__gguf_writer_new(&w, &d), &d);
    pn__gguf_w_str(w, "general.architecture", "llama");
    pn__gguf_w_u32(w, "llama.block_count", 2);
    pn__gguf_w_strings(w, "tokenizer.ggml.tokens", words, 3);
    for (uint32_t i = 0; i < tensor_n; i++) {
        char name[32];
        float data[32];
        for (int k = 0; k < 32; k++)
            data[k] = (float)i;
        snprintf(name, sizeof name, "t%u", i);
        pn__gguf_w_tensor(w, name, PN_TYPE_F32, 2, dims, data);
    }
    return w;
}

#endif
