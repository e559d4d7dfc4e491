#include "gguf/gguf_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "gguf/gguf_internal.h"

struct bytes {
    uint8_t *p;
    uint64_t n;
    uint64_t cap;
};

struct w_tensor {
    char *name;
    enum pn_type type;
    uint32_t dim_n;
    uint64_t dims[4];
    uint64_t data_pos; /* in w->data */
    uint64_t bytes;
};

struct pn_gguf_writer {
    uint32_t version;
    uint32_t align;
    struct bytes kvs; /* as they will lie in the file */
    uint64_t kv_n;
    struct w_tensor *tensors;
    uint64_t tensor_n;
    uint64_t tensor_cap;
    struct bytes data; /* every tensor's data, one behind the other */
    int rc;            /* of the first adding call that failed */
    struct pn_detail d;
};

/* Room for `n` more bytes, zeroed; NULL: no memory. */
static uint8_t *extend(struct bytes *b, uint64_t n) {
    uint64_t end;
    if (pn__add_u64(b->n, n, &end)) return NULL;
    if (end > b->cap || !b->p) {
        uint64_t cap = pn__max_u64(end, pn__max_u64(2 * b->cap, 256));
        uint8_t *p = pn__realloc_array(b->p, (size_t)cap, 1);
        if (!p) return NULL;
        b->p = p;
        b->cap = cap;
    }
    uint8_t *at = b->p + b->n;
    memset(at, 0, (size_t)n);
    b->n = end;
    return at;
}

static bool put(struct bytes *b, const void *src, uint64_t n) {
    uint8_t *at = extend(b, n);
    if (!at) return false;
    if (n) memcpy(at, src, (size_t)n);
    return true;
}

static bool put_u32(struct bytes *b, uint32_t v) {
    return put(b, &v, sizeof v);
}

static bool put_u64(struct bytes *b, uint64_t v) {
    return put(b, &v, sizeof v);
}

static bool put_str(struct bytes *b, const char *s, uint64_t len) {
    return put_u64(b, len) && put(b, s, len);
}

static bool put_key(struct bytes *b, const char *key, uint32_t type) {
    return put_str(b, key, strlen(key)) && put_u32(b, type);
}

static void no_memory(struct pn_gguf_writer *w, const char *what) {
    if (!w->rc) w->rc = pn__fail(&w->d, PN_E_NOMEM, "writing a GGUF: no memory for '%.80s'", what);
}

int pn__gguf_writer_new(struct pn_gguf_writer **out, struct pn_detail *d) {
    *out = pn__calloc(1, sizeof **out);
    if (!*out) return pn__fail(d, PN_E_NOMEM, "writing a GGUF: no memory");
    (*out)->version = 3;
    (*out)->align = PN_GGUF_ALIGN_DEFAULT;
    return 0;
}

void pn__gguf_writer_free(struct pn_gguf_writer *w) {
    if (!w) return;
    for (uint64_t i = 0; i < w->tensor_n; i++)
        pn__free(w->tensors[i].name);
    pn__free(w->tensors);
    pn__free(w->kvs.p);
    pn__free(w->data.p);
    pn__free(w);
}

void pn__gguf_w_version(struct pn_gguf_writer *w, uint32_t version) {
    w->version = version;
}

void pn__gguf_w_align(struct pn_gguf_writer *w, uint32_t align) {
    if (align == 0 || (align & (align - 1))) {
        if (!w->rc)
            w->rc = pn__fail(&w->d, PN_E_INVALID, "alignment %u, wanted a power of two", align);
        return;
    }
    w->align = align;
    pn__gguf_w_u32(w, "general.alignment", align);
}

void pn__gguf_w_scalar(struct pn_gguf_writer *w, const char *key, enum pn_gguf_type type,
                       const void *value) {
    uint32_t bytes = pn__gguf_type_bytes(type);
    if (bytes == 0) {
        if (!w->rc)
            w->rc = pn__fail(&w->d, PN_E_INVALID, "key '%.80s': no scalar type %u", key, type);
        return;
    }
    if (!put_key(&w->kvs, key, type) || !put(&w->kvs, value, bytes)) no_memory(w, key);
    w->kv_n++;
}

void pn__gguf_w_u32(struct pn_gguf_writer *w, const char *key, uint32_t value) {
    pn__gguf_w_scalar(w, key, PN_GGUF_U32, &value);
}

void pn__gguf_w_f32(struct pn_gguf_writer *w, const char *key, float value) {
    pn__gguf_w_scalar(w, key, PN_GGUF_F32, &value);
}

void pn__gguf_w_bool(struct pn_gguf_writer *w, const char *key, bool value) {
    uint8_t byte = value;
    pn__gguf_w_scalar(w, key, PN_GGUF_BOOL, &byte);
}

void pn__gguf_w_str(struct pn_gguf_writer *w, const char *key, const char *value) {
    if (!put_key(&w->kvs, key, PN_GGUF_STRING) || !put_str(&w->kvs, value, strlen(value))) {
        no_memory(w, key);
    }
    w->kv_n++;
}

void pn__gguf_w_array(struct pn_gguf_writer *w, const char *key, enum pn_gguf_type type,
                      const void *elems, uint64_t n) {
    uint64_t bytes;
    uint32_t each = pn__gguf_type_bytes(type);
    if (each == 0 || pn__mul_u64(each, n, &bytes)) {
        if (!w->rc)
            w->rc = pn__fail(&w->d, PN_E_INVALID, "key '%.80s': no array of type %u", key, type);
        return;
    }
    if (!put_key(&w->kvs, key, PN_GGUF_ARRAY) || !put_u32(&w->kvs, type) || !put_u64(&w->kvs, n) ||
        !put(&w->kvs, elems, bytes)) {
        no_memory(w, key);
    }
    w->kv_n++;
}

void pn__gguf_w_strings(struct pn_gguf_writer *w, const char *key, const struct pn_str *strings,
                        uint64_t n) {
    bool ok = put_key(&w->kvs, key, PN_GGUF_ARRAY) && put_u32(&w->kvs, PN_GGUF_STRING) &&
              put_u64(&w->kvs, n);
    for (uint64_t i = 0; i < n && ok; i++)
        ok = put_str(&w->kvs, strings[i].data, strings[i].len);
    if (!ok) no_memory(w, key);
    w->kv_n++;
}

/* Room for one more; false: no memory. */
static bool grow_tensors(struct pn_gguf_writer *w) {
    if (w->tensor_n < w->tensor_cap) return true;
    uint64_t cap = pn__max_u64(2 * w->tensor_cap, 16);
    struct w_tensor *grown = pn__realloc_array(w->tensors, (size_t)cap, sizeof *grown);
    if (!grown) return false;
    w->tensors = grown;
    w->tensor_cap = cap;
    return true;
}

void pn__gguf_w_tensor(struct pn_gguf_writer *w, const char *name, enum pn_type type,
                       uint32_t dim_n, const uint64_t *dims, const void *data) {
    struct w_tensor t = {.type = type, .dim_n = dim_n, .dims = {1, 1, 1, 1}};
    uint64_t row_bytes = 0;
    bool ok = dim_n >= 1 && dim_n <= 4 && pn__type_row_bytes(type, dims[0], &row_bytes);
    t.bytes = row_bytes;
    for (uint32_t i = 0; ok && i < dim_n; i++) {
        t.dims[i] = dims[i];
        if (i > 0) ok = !pn__mul_u64(t.bytes, dims[i], &t.bytes);
    }
    if (!ok) {
        if (!w->rc)
            w->rc = pn__fail(&w->d, PN_E_INVALID, "tensor '%.80s': bad shape or type", name);
        return;
    }
    t.name = grow_tensors(w) ? pn__strdup(name) : NULL;
    t.data_pos = w->data.n;
    uint8_t *at = t.name ? extend(&w->data, t.bytes) : NULL;
    if (!at) {
        pn__free(t.name);
        no_memory(w, name);
        return;
    }
    if (data) memcpy(at, data, (size_t)t.bytes);
    w->tensors[w->tensor_n++] = t;
}

/* ---- to bytes ---- */

static bool pad(struct bytes *b, uint32_t align) {
    return extend(b, (align - b->n % align) % align) != NULL;
}

static bool put_split_keys(struct bytes *b, uint16_t shard_i, uint16_t shard_n, uint64_t tensor_n) {
    int32_t all = (int32_t)tensor_n;
    return put_key(b, "split.no", PN_GGUF_U16) && put(b, &shard_i, 2) &&
           put_key(b, "split.count", PN_GGUF_U16) && put(b, &shard_n, 2) &&
           put_key(b, "split.tensors.count", PN_GGUF_I32) && put(b, &all, 4);
}

/* Tensors [from, to): infos, then data. */
static bool put_tensors(const struct pn_gguf_writer *w, struct bytes *b, uint64_t from, uint64_t to,
                        uint32_t align) {
    uint64_t off = 0;
    for (uint64_t i = from; i < to; i++) {
        const struct w_tensor *t = &w->tensors[i];
        if (!put_str(b, t->name, strlen(t->name)) || !put_u32(b, t->dim_n) ||
            !put(b, t->dims, 8ull * t->dim_n) || !put_u32(b, t->type) || !put_u64(b, off)) {
            return false;
        }
        off += t->bytes;
        off += (align - off % align) % align;
    }
    for (uint64_t i = from; i < to; i++) {
        const struct w_tensor *t = &w->tensors[i];
        if (!pad(b, align) || !put(b, w->data.p + t->data_pos, t->bytes)) return false;
    }
    return true;
}

int pn__gguf_w_part_bytes(const struct pn_gguf_writer *w, uint32_t shard_i, uint32_t shard_n,
                          uint8_t **out, uint64_t *bytes, struct pn_detail *d) {
    struct bytes b = {0};
    *out = NULL;
    if (w->rc) return pn__fail(d, w->rc, "%s", w->d.text);
    if (shard_n < 1 || shard_n > UINT16_MAX || shard_i >= shard_n) {
        return pn__fail(d, PN_E_INVALID, "writing a GGUF: part %u of %u", shard_i, shard_n);
    }
    bool split = shard_n > 1;
    uint64_t from = w->tensor_n * shard_i / shard_n;
    uint64_t to = w->tensor_n * (shard_i + 1) / shard_n;
    uint64_t kv_n = (shard_i == 0 ? w->kv_n : 0) + (split ? 3 : 0);
    /* Only the first part has general.alignment among its keys. */
    uint32_t align = shard_i == 0 ? w->align : PN_GGUF_ALIGN_DEFAULT;
    bool ok = put(&b, "GGUF", 4) && put_u32(&b, w->version) && put_u64(&b, to - from) &&
              put_u64(&b, kv_n);
    if (ok && shard_i == 0) ok = put(&b, w->kvs.p, w->kvs.n);
    if (ok && split) ok = put_split_keys(&b, (uint16_t)shard_i, (uint16_t)shard_n, w->tensor_n);
    ok = ok && put_tensors(w, &b, from, to, align) && pad(&b, align);
    if (!ok) {
        pn__free(b.p);
        return pn__fail(d, PN_E_NOMEM, "writing a GGUF: no memory for its bytes");
    }
    *out = b.p;
    *bytes = b.n;
    return 0;
}

int pn__gguf_w_bytes(const struct pn_gguf_writer *w, uint8_t **out, uint64_t *bytes,
                     struct pn_detail *d) {
    return pn__gguf_w_part_bytes(w, 0, 1, out, bytes, d);
}

/* ---- to files ---- */

static int write_all(int fd, const uint8_t *p, uint64_t n) {
    while (n > 0) {
        ssize_t put_n = write(fd, p, (size_t)pn__min_u64(n, 1u << 30));
        if (put_n < 0 && errno == EINTR) continue;
        if (put_n < 0) return -errno;
        p += put_n;
        n -= (uint64_t)put_n;
    }
    return 0;
}

static int write_file(const char *path, const uint8_t *p, uint64_t n, struct pn_detail *d) {
    size_t cap = strlen(path) + 5;
    char *part = pn__calloc(cap, 1);
    if (!part) return pn__fail(d, PN_E_NOMEM, "%.160s: no memory for a path", path);
    snprintf(part, cap, "%s.tmp", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int err = fd < 0 ? -errno : write_all(fd, p, n);
    if (fd >= 0 && close(fd) != 0 && !err) err = -errno;
    if (!err && rename(part, path) != 0) err = -errno;
    if (err && fd >= 0) unlink(part);
    pn__free(part);
    if (!err) return 0;
    return pn__fail(d, PN_E_IO, "%.160s: writing %llu bytes: %s", path, (unsigned long long)n,
                    strerror(-err));
}

int pn__gguf_w_file(const struct pn_gguf_writer *w, const char *path, struct pn_detail *d) {
    uint8_t *p = NULL;
    uint64_t n = 0;
    int rc = pn__gguf_w_bytes(w, &p, &n, d);
    if (!rc) rc = write_file(path, p, n, d);
    pn__free(p);
    return rc;
}

int pn__gguf_w_split(const struct pn_gguf_writer *w, const char *prefix, uint32_t shard_n,
                     struct pn_detail *d) {
    struct gguf_split_name name = {(uint32_t)strlen(prefix), 1, shard_n};
    int rc = 0;
    for (uint32_t i = 0; i < shard_n && !rc; i++) {
        uint8_t *p = NULL;
        uint64_t n = 0;
        char *path = pn__gguf_split_path(prefix, &name, i + 1);
        if (!path) return pn__fail(d, PN_E_NOMEM, "%.160s: no memory for a path", prefix);
        rc = pn__gguf_w_part_bytes(w, i, shard_n, &p, &n, d);
        if (!rc) rc = write_file(path, p, n, d);
        pn__free(p);
        pn__free(path);
    }
    return rc;
}
