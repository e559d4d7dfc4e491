#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "gguf/gguf_internal.h"

/* Name of one byte, one dimension, type, offset. */
#define TENSOR_MIN_BYTES (8 + 1 + 4 + 8 + 4 + 8)

static int take_name(struct gguf_cursor *c, uint64_t i, uint32_t *pos, uint64_t *len) {
    uint64_t at = c->pos;
    snprintf(c->where, sizeof c->where, "tensor %llu", (unsigned long long)i);
    int rc = pn__gguf_take_str(c, "name", PN_GGUF_NAME_MAX_BYTES, pos, len);
    if (rc) return rc;
    const char *p = (const char *)c->shard->h.buf + *pos;
    if (*len == 0) {
        return pn__fail(c->d, PN_E_FORMAT, "%s: %s: the name at offset %llu is empty",
                        c->shard->label, c->where, (unsigned long long)at);
    }
    snprintf(c->where, sizeof c->where, "tensor '%.*s'", (int)*len, p);
    for (uint64_t k = 0; k < *len; k++) {
        unsigned char b = (unsigned char)p[k];
        if (b >= 0x20 && b != 0x7f) continue;
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: %s: the name at offset %llu has a control character (0x%02x)",
                        c->shard->label, c->where, (unsigned long long)at, b);
    }
    return 0;
}

static int take_dims(struct gguf_cursor *c, struct pn_gguf_tensor *t) {
    uint64_t at = c->pos;
    int rc = pn__gguf_take_u32(c, "dimension count", &t->dim_n);
    if (rc) return rc;
    if (t->dim_n < 1 || t->dim_n > 4) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: %s: dimension count %u at offset %llu, wanted 1 to 4", c->shard->label,
                        c->where, t->dim_n, (unsigned long long)at);
    }
    uint64_t value_n = 1;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i >= t->dim_n) continue;
        at = c->pos;
        rc = pn__gguf_take_u64(c, "dimension", &t->dims[i]);
        if (rc) return rc;
        if (t->dims[i] == 0) {
            return pn__fail(c->d, PN_E_FORMAT, "%s: %s: dimension %u is 0 (at offset %llu)",
                            c->shard->label, c->where, i, (unsigned long long)at);
        }
        if (pn__mul_u64(value_n, t->dims[i], &value_n) || value_n > INT64_MAX) {
            return pn__fail(c->d, PN_E_FORMAT,
                            "%s: %s: the product of its dimensions overflows at dimension %u = "
                            "%llu (at offset %llu)",
                            c->shard->label, c->where, i, (unsigned long long)t->dims[i],
                            (unsigned long long)at);
        }
    }
    t->row_n = t->dims[1] * t->dims[2] * t->dims[3];
    return 0;
}

static int take_type(struct gguf_cursor *c, struct pn_gguf_tensor *t) {
    uint64_t at = c->pos;
    uint32_t type;
    int rc = pn__gguf_take_u32(c, "type", &type);
    if (rc) return rc;
    const struct pn_type_info *info = pn__type_info(type);
    if (!info) {
        return pn__fail(c->d, PN_E_UNSUPPORTED,
                        "%.100s: %s: type number %u (at offset %llu) is unknown; this build knows: "
                        "%s",
                        c->shard->label, c->where, type, (unsigned long long)at, pn__type_list());
    }
    t->type = (enum pn_type)type;
    if (t->dims[0] % info->block_n) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: %s: rows of %llu values are no multiple of %s's block of %u (type at "
                        "offset %llu)",
                        c->shard->label, c->where, (unsigned long long)t->dims[0], info->name,
                        info->block_n, (unsigned long long)at);
    }
    if (!pn__type_row_bytes(type, t->dims[0], &t->row_bytes) ||
        pn__mul_u64(t->row_bytes, t->row_n, &t->bytes)) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: %s: %llu rows of %llu values of type %s overflow (type at offset "
                        "%llu)",
                        c->shard->label, c->where, (unsigned long long)t->row_n,
                        (unsigned long long)t->dims[0], info->name, (unsigned long long)at);
    }
    return 0;
}

/* The offset is kept as stored: the data section's start is known after the last tensor info. */
static int take_tensor(struct gguf_cursor *c, uint64_t i, struct pn_gguf_tensor *t,
                       uint32_t *name_pos) {
    uint64_t len;
    int rc = take_name(c, i, name_pos, &len);
    if (rc) return rc;
    uint64_t name_end = c->pos;
    rc = take_dims(c, t);
    if (rc) return rc;
    /* The dimension count was decoded: its first byte makes the name a C string in place. */
    c->shard->h.buf[name_end] = '\0';
    rc = take_type(c, t);
    if (rc) return rc;
    uint64_t at = c->pos;
    rc = pn__gguf_take_u64(c, "offset", &t->offset);
    if (rc) return rc;
    if (t->offset % c->shard->h.align) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: %s: data offset %llu (at offset %llu) is no multiple of the "
                        "alignment %llu",
                        c->shard->label, c->where, (unsigned long long)t->offset,
                        (unsigned long long)at, (unsigned long long)c->shard->h.align);
    }
    return 0;
}

/* Makes offsets absolute and holds every range against the file. */
static int place_tensors(struct gguf_cursor *c, struct pn_gguf_tensor *tensors, uint64_t n,
                         uint32_t shard_i) {
    struct gguf_shard *s = c->shard;
    if (pn__align_u64(c->pos, s->h.align, &s->h.data_off)) s->h.data_off = UINT64_MAX;
    for (uint64_t i = 0; i < n; i++) {
        struct pn_gguf_tensor *t = &tensors[i];
        uint64_t start;
        uint64_t end;
        t->shard = shard_i;
        if (pn__add_u64(s->h.data_off, t->offset, &start) || pn__add_u64(start, t->bytes, &end) ||
            end > s->bytes) {
            return pn__fail(c->d, PN_E_FORMAT,
                            "%s: tensor '%s': wants %llu bytes at data offset %llu (data begins at "
                            "%llu), but the file has %llu bytes (cut short?)",
                            s->label, t->name, (unsigned long long)t->bytes,
                            (unsigned long long)t->offset, (unsigned long long)s->h.data_off,
                            (unsigned long long)s->bytes);
        }
        t->offset = start;
    }
    return 0;
}

static int grow_tensors(struct gguf_cursor *c, struct pn_gguf *g) {
    struct gguf_shard *s = c->shard;
    uint64_t n = s->h.tensor_n;
    uint64_t most =
        pn__min_u64(PN_GGUF_TENSOR_MAX - g->tensor_n, pn__gguf_left(c) / TENSOR_MIN_BYTES);
    if (n > most) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: tensor count %llu at offset 8: a file of %llu bytes can hold at most "
                        "%llu",
                        s->label, (unsigned long long)n, (unsigned long long)s->bytes,
                        (unsigned long long)most);
    }
    struct pn_gguf_tensor *grown =
        pn__realloc_array(g->tensors, (size_t)(g->tensor_n + n), sizeof *grown);
    if (!grown) {
        return pn__fail(c->d, PN_E_NOMEM, "%s: no memory for %llu tensors", s->label,
                        (unsigned long long)n);
    }
    g->tensors = grown;
    memset(grown + g->tensor_n, 0, (size_t)n * sizeof *grown);
    return 0;
}

/* Gives back what was read past the header's end; where that fails the larger buffer stays. */
static void trim(struct gguf_cursor *c) {
    struct gguf_header *h = &c->shard->h;
    uint8_t *buf = pn__realloc_array(h->buf, (size_t)c->pos, 1);
    if (buf) h->buf = buf;
    h->bytes = c->pos;
}

int pn__gguf_parse_tensors(struct gguf_cursor *c, struct pn_gguf *g, uint32_t shard_i) {
    struct gguf_shard *s = c->shard;
    uint64_t n = s->h.tensor_n;
    int rc = grow_tensors(c, g);
    if (rc) return rc;
    struct pn_gguf_tensor *first = g->tensors + g->tensor_n;
    uint32_t *name_poses = pn__calloc((size_t)n, sizeof *name_poses);
    if (!name_poses) {
        return pn__fail(c->d, PN_E_NOMEM, "%s: no memory for %llu tensor names", s->label,
                        (unsigned long long)n);
    }
    for (uint64_t i = 0; i < n && !rc; i++)
        rc = take_tensor(c, i, &first[i], &name_poses[i]);
    trim(c);
    /* The buffer has its final place now. */
    for (uint64_t i = 0; i < n && !rc; i++)
        first[i].name = (const char *)s->h.buf + name_poses[i];
    pn__free(name_poses);
    if (!rc) rc = place_tensors(c, first, n, shard_i);
    if (!rc) g->tensor_n += n;
    return rc;
}
