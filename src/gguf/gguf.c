#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/io.h"
#include "gguf/gguf_internal.h"

/* The end of a long path is the part that tells. */
static void make_label(const char *path, char label[PN_GGUF_LABEL_BYTES]) {
    size_t len = strlen(path);
    if (len < PN_GGUF_LABEL_BYTES) {
        memcpy(label, path, len + 1);
        return;
    }
    const char *from = path + len - (PN_GGUF_LABEL_BYTES - 4);
    while (((unsigned char)*from & 0xc0) == 0x80)
        from++;
    snprintf(label, PN_GGUF_LABEL_BYTES, "...%s", from);
}

static int open_failed(const char *label, int err, const struct gguf_split_name *name,
                       struct pn_detail *d) {
    bool missing = err == ENOENT || err == ENOTDIR;
    int code = missing ? PN_E_NOTFOUND : PN_E_IO;
    if (name && name->n > 1 && missing) {
        return pn__fail(d, code, "%s: part %u of %u is missing", label, name->i, name->n);
    }
    return pn__fail(d, code, "%s: %s", label, missing ? "no such file" : strerror(err));
}

/* Opens without ever waiting (a FIFO has no writer yet) and asks what it is. */
static int open_stat(const char *path, const char *label, const struct gguf_split_name *name,
                     int *fd, struct stat *st, struct pn_detail *d) {
    const struct pn_io *io = pn__io();
    do {
        *fd = io->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return open_failed(label, errno, name, d);
    if (io->fstat(*fd, st) == 0) return 0;
    int err = errno;
    io->close(*fd);
    *fd = -1;
    return pn__fail(d, PN_E_IO, "%s: asking its size: %s", label, strerror(err));
}

/* The file to open for what the caller named: itself, or a folder's one model. */
static int resolve(const char *path, struct pn_detail *d, char **out) {
    char label[PN_GGUF_LABEL_BYTES];
    struct stat st = {0};
    int fd;
    *out = NULL;
    if (path[0] == '\0') return pn__fail(d, PN_E_INVALID, "the model's path is empty");
    make_label(path, label);
    int rc = open_stat(path, label, NULL, &fd, &st, d);
    if (rc) return rc;
    pn__io()->close(fd);
    if (S_ISDIR(st.st_mode)) return pn__gguf_folder_model(path, d, out);
    *out = pn__strdup(path);
    return *out ? 0 : pn__fail(d, PN_E_NOMEM, "%s: no memory for a path", label);
}

/* Opens one file and parses it. `path` is taken over in every case. */
static int add_shard(struct pn_gguf *g, char *path, const struct gguf_split_name *name,
                     struct pn_detail *d) {
    struct gguf_shard *grown = pn__realloc_array(g->shards, g->shard_n + 1, sizeof *grown);
    if (!grown) {
        pn__free(path);
        return pn__fail(d, PN_E_NOMEM, "no memory for %u files", g->shard_n + 1);
    }
    g->shards = grown;
    struct gguf_shard *s = &grown[g->shard_n];
    memset(s, 0, sizeof *s);
    s->path = path;
    s->fd = -1;
    g->shard_n++;
    make_label(path, s->label);
    int rc = open_stat(path, s->label, name, &s->fd, &s->st, d);
    if (rc) return rc;
    if (!S_ISREG(s->st.st_mode)) {
        return pn__fail(d, PN_E_INVALID, "%s: %s, not a regular file", s->label,
                        S_ISDIR(s->st.st_mode) ? "a folder" : "a device, pipe or socket");
    }
    s->bytes = (uint64_t)s->st.st_size;
    rc = pn__gguf_parse(g, g->shard_n - 1, d);
    return rc ? rc : pn__gguf_check_shard(g, g->shard_n - 1, name, d);
}

static int add_shards(struct pn_gguf *g, const char *path, struct pn_detail *d) {
    struct gguf_split_name name = pn__gguf_split_name(path);
    bool split = name.n > 1;
    for (uint32_t i = 1; i <= (split ? name.n : 1); i++) {
        char *part = split ? pn__gguf_split_path(path, &name, i) : pn__strdup(path);
        if (!part) return pn__fail(d, PN_E_NOMEM, "no memory for a path");
        name.i = i;
        int rc = add_shard(g, part, &name, d);
        if (rc) return rc;
    }
    return 0;
}

int pn__gguf_open(const char *path, struct pn_detail *d, struct pn_gguf **out) {
    char *file = NULL;
    *out = NULL;
    struct pn_gguf *g = pn__calloc(1, sizeof *g);
    if (!g) return pn__fail(d, PN_E_NOMEM, "no memory to open a model");
    int rc = resolve(path, d, &file);
    if (rc) goto fail;
    rc = add_shards(g, file, d);
    if (rc) goto fail;
    rc = pn__gguf_index_tensors(g, d);
    if (rc) goto fail;
    rc = pn__gguf_check_set(g, d);
    if (rc) goto fail;
    pn__free(file);
    *out = g;
    return 0;
fail:
    pn__free(file);
    pn__gguf_close(g);
    return rc;
}

static void free_header(struct gguf_header *h) {
    for (uint64_t i = 0; h->kvs && i < h->kv_n; i++)
        pn__free(h->kvs[i].string_poses);
    pn__free(h->kvs);
    pn__free(h->kv_sorted);
    pn__free(h->buf);
}

void pn__gguf_close(struct pn_gguf *g) {
    if (!g) return;
    for (uint32_t i = 0; i < g->shard_n; i++) {
        struct gguf_shard *s = &g->shards[i];
        if (s->map) pn__io()->munmap(s->map, s->bytes);
        if (s->fd >= 0) pn__io()->close(s->fd);
        free_header(&s->h);
        pn__free(s->path);
    }
    pn__free(g->shards);
    pn__free(g->tensors);
    pn__free(g->tensor_sorted);
    pn__free(g);
}

int pn__gguf_map(struct pn_gguf *g, uint32_t shard, struct pn_detail *d, const uint8_t **out) {
    *out = NULL;
    if (shard >= g->shard_n) {
        return pn__fail(d, PN_E_INVALID, "file %u of %u can't be mapped: no such file", shard,
                        g->shard_n);
    }
    struct gguf_shard *s = &g->shards[shard];
    if (!s->map) {
        errno = ENOMEM;
        void *p = pn__alloc_should_fail() ? MAP_FAILED : pn__io()->mmap_read(s->fd, s->bytes, 0);
        if (p == MAP_FAILED) {
            return pn__fail(d, errno == ENOMEM ? PN_E_NOMEM : PN_E_IO,
                            "%s: mapping its %llu bytes: %s", s->label,
                            (unsigned long long)s->bytes, strerror(errno));
        }
        s->map = p;
    }
    *out = s->map;
    return 0;
}

int pn__gguf_check_unchanged(const struct pn_gguf *g, struct pn_detail *d) {
    for (uint32_t i = 0; i < g->shard_n; i++) {
        const struct gguf_shard *s = &g->shards[i];
        struct stat st;
        if (pn__io()->fstat(s->fd, &st) != 0) {
            return pn__fail(d, PN_E_IO, "%s: the opened file is gone: %s", s->label,
                            strerror(errno));
        }
        if (st.st_size != s->st.st_size) {
            return pn__fail(d, PN_E_IO, "%s: the file changed: %lld bytes now, %lld when opened",
                            s->label, (long long)st.st_size, (long long)s->st.st_size);
        }
        if (st.st_mtim.tv_sec != s->st.st_mtim.tv_sec ||
            st.st_mtim.tv_nsec != s->st.st_mtim.tv_nsec || st.st_ino != s->st.st_ino ||
            st.st_dev != s->st.st_dev) {
            return pn__fail(d, PN_E_IO, "%s: the file changed since it was opened (written to)",
                            s->label);
        }
    }
    return 0;
}

/* ---- what was found ---- */

const char *pn__gguf_path(const struct pn_gguf *g) {
    return g->shards[0].path;
}

uint32_t pn__gguf_version(const struct pn_gguf *g) {
    return g->shards[0].h.version;
}

uint32_t pn__gguf_shard_n(const struct pn_gguf *g) {
    return g->shard_n;
}

const char *pn__gguf_shard_path(const struct pn_gguf *g, uint32_t shard) {
    return g->shards[shard].path;
}

int pn__gguf_shard_fd(const struct pn_gguf *g, uint32_t shard) {
    return g->shards[shard].fd;
}

uint64_t pn__gguf_shard_bytes(const struct pn_gguf *g, uint32_t shard) {
    return g->shards[shard].bytes;
}

uint64_t pn__gguf_tensor_n(const struct pn_gguf *g) {
    return g->tensor_n;
}

const struct pn_gguf_tensor *pn__gguf_tensor(const struct pn_gguf *g, uint64_t i) {
    return &g->tensors[i];
}

uint64_t pn__gguf_kv_n(const struct pn_gguf *g) {
    return g->shards[0].h.kv_n;
}

const char *pn__gguf_kv_key(const struct pn_gguf *g, uint64_t i) {
    const struct gguf_header *h = &g->shards[0].h;
    return (const char *)h->buf + h->kvs[i].key_pos;
}

unsigned pn__gguf_kv_type(const struct pn_gguf *g, uint64_t i) {
    return g->shards[0].h.kvs[i].type;
}

unsigned pn__gguf_kv_elem_type(const struct pn_gguf *g, uint64_t i) {
    return g->shards[0].h.kvs[i].elem_type;
}

uint64_t pn__gguf_kv_elem_n(const struct pn_gguf *g, uint64_t i) {
    return g->shards[0].h.kvs[i].n;
}

int64_t pn__gguf_kv_index(const struct pn_gguf *g, const char *key) {
    const struct gguf_kv *kv = pn__gguf_kv_find(&g->shards[0], key);
    return kv ? kv - g->shards[0].h.kvs : -1;
}
