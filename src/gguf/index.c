#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gguf/gguf_internal.h"

/* Sorted, not hashed: no choice of names in a file makes a look-up slow. */

static int by_key(const void *a, const void *b, void *user) {
    const struct gguf_header *h = user;
    const char *x = (const char *)h->buf + h->kvs[*(const uint32_t *)a].key_pos;
    const char *y = (const char *)h->buf + h->kvs[*(const uint32_t *)b].key_pos;
    return strcmp(x, y);
}

static int by_name(const void *a, const void *b, void *user) {
    const struct pn_gguf_tensor *tensors = user;
    return strcmp(tensors[*(const uint32_t *)a].name, tensors[*(const uint32_t *)b].name);
}

static int by_place(const void *a, const void *b, void *user) {
    const struct pn_gguf_tensor *tensors = user;
    const struct pn_gguf_tensor *x = &tensors[*(const uint32_t *)a];
    const struct pn_gguf_tensor *y = &tensors[*(const uint32_t *)b];
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return 0;
}

/* 0 .. n-1 in `order`; NULL: no memory. */
static uint32_t *sorted(uint64_t n, int (*order)(const void *, const void *, void *), void *user) {
    uint32_t *is = pn__calloc((size_t)n, sizeof *is);
    if (!is) return NULL;
    for (uint64_t i = 0; i < n; i++)
        is[i] = (uint32_t)i;
    qsort_r(is, (size_t)n, sizeof *is, order, user);
    return is;
}

int pn__gguf_index_kvs(struct gguf_shard *s, struct pn_detail *d) {
    struct gguf_header *h = &s->h;
    h->kv_sorted = sorted(h->kv_n, by_key, h);
    if (!h->kv_sorted) {
        return pn__fail(d, PN_E_NOMEM, "%s: no memory for an index of %llu keys", s->label,
                        (unsigned long long)h->kv_n);
    }
    for (uint64_t i = 1; i < h->kv_n; i++) {
        if (by_key(&h->kv_sorted[i - 1], &h->kv_sorted[i], h) != 0) continue;
        const struct gguf_kv *x = &h->kvs[h->kv_sorted[i - 1]];
        const struct gguf_kv *y = &h->kvs[h->kv_sorted[i]];
        return pn__fail(d, PN_E_FORMAT,
                        "%s: key '%.80s' is there twice (values at offsets %u and %u)", s->label,
                        (const char *)h->buf + x->key_pos, x->pos, y->pos);
    }
    return 0;
}

static int check_twice(const struct pn_gguf *g, struct pn_detail *d) {
    for (uint64_t i = 1; i < g->tensor_n; i++) {
        const struct pn_gguf_tensor *x = &g->tensors[g->tensor_sorted[i - 1]];
        const struct pn_gguf_tensor *y = &g->tensors[g->tensor_sorted[i]];
        if (strcmp(x->name, y->name) != 0) continue;
        if (x->shard == y->shard) {
            return pn__fail(d, PN_E_FORMAT,
                            "%s: tensor '%s' is there twice (data at offsets %llu and %llu)",
                            g->shards[x->shard].label, x->name, (unsigned long long)x->offset,
                            (unsigned long long)y->offset);
        }
        return pn__fail(d, PN_E_FORMAT,
                        "tensor '%s' is there twice: in %s at offset %llu and in %s at offset %llu",
                        x->name, g->shards[x->shard].label, (unsigned long long)x->offset,
                        g->shards[y->shard].label, (unsigned long long)y->offset);
    }
    return 0;
}

static int check_overlaps(const struct pn_gguf *g, const uint32_t *placed, struct pn_detail *d) {
    for (uint64_t i = 1; i < g->tensor_n; i++) {
        const struct pn_gguf_tensor *x = &g->tensors[placed[i - 1]];
        const struct pn_gguf_tensor *y = &g->tensors[placed[i]];
        if (x->shard != y->shard || x->offset + x->bytes <= y->offset) continue;
        return pn__fail(d, PN_E_FORMAT,
                        "%s: tensors '%s' (offset %llu, %llu bytes) and '%s' (offset %llu) overlap",
                        g->shards[x->shard].label, x->name, (unsigned long long)x->offset,
                        (unsigned long long)x->bytes, y->name, (unsigned long long)y->offset);
    }
    return 0;
}

int pn__gguf_index_tensors(struct pn_gguf *g, struct pn_detail *d) {
    g->tensor_sorted = sorted(g->tensor_n, by_name, g->tensors);
    if (!g->tensor_sorted) {
        return pn__fail(d, PN_E_NOMEM, "no memory for an index of %llu tensors",
                        (unsigned long long)g->tensor_n);
    }
    int rc = check_twice(g, d);
    if (rc) return rc;
    uint32_t *placed = sorted(g->tensor_n, by_place, g->tensors);
    if (!placed) {
        return pn__fail(d, PN_E_NOMEM, "no memory for the places of %llu tensors",
                        (unsigned long long)g->tensor_n);
    }
    rc = check_overlaps(g, placed, d);
    pn__free(placed);
    return rc;
}

const struct gguf_kv *pn__gguf_kv_find(const struct gguf_shard *s, const char *key) {
    const struct gguf_header *h = &s->h;
    uint64_t lo = 0;
    uint64_t hi = h->kv_n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        const struct gguf_kv *kv = &h->kvs[h->kv_sorted[mid]];
        int order = strcmp(key, (const char *)h->buf + kv->key_pos);
        if (order == 0) return kv;
        if (order < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return NULL;
}

const struct pn_gguf_tensor *pn__gguf_find(const struct pn_gguf *g, const char *name) {
    uint64_t lo = 0;
    uint64_t hi = g->tensor_n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        const struct pn_gguf_tensor *t = &g->tensors[g->tensor_sorted[mid]];
        int order = strcmp(name, t->name);
        if (order == 0) return t;
        if (order < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return NULL;
}
