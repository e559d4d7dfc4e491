/* The binder: tensors named by a family become weights and vectors.
 *
 * It runs twice over the same calls. Counting, it marks which tensors the model uses, checks their
 * shapes and adds up bytes; binding, it hands out addresses: in the file's map, or in a copy whose
 * layout the first run fixed. A tensor of the file that no family call names is an error, for a
 * model run without one of its parts goes wrong without saying so. */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/io.h"
#include "engine/engine_internal.h"

static uint64_t tensor_i(const struct pn_gguf *g, const struct pn_gguf_tensor *t) {
    return (uint64_t)(t - pn__gguf_tensor(g, 0));
}

static int wrong_shape(const struct pn_gguf_tensor *t, uint64_t col_n, uint64_t row_n,
                       struct pn_detail *d) {
    return pn__fail(
        d, PN_E_FORMAT,
        "tensor '%s' is %llu x %llu x %llu x %llu; the model's metadata asks for %llu x "
        "%llu",
        t->name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
        (unsigned long long)t->dims[2], (unsigned long long)t->dims[3], (unsigned long long)col_n,
        (unsigned long long)row_n);
}

static int find(const struct bind_state *s, const char *name, bool optional, struct pn_detail *d,
                const struct pn_gguf_tensor **out) {
    *out = pn__gguf_find(s->f->g, name);
    if (*out || optional) return 0;
    return pn__fail(d, PN_E_FORMAT, "tensor '%s' is missing", name);
}

/* Adds a weight to the copy's layout, once. */
static int place_weight(struct model_file *f, const struct pn_gguf_tensor *t, struct pn_detail *d) {
    uint64_t *place = &f->places[tensor_i(f->g, t)];
    if (*place != PLACE_UNUSED) return 0;
    uint64_t end;
    if (pn__add_u64(f->copy_bytes, t->bytes, &end) || pn__align_u64(end, 64, &end)) {
        return pn__fail(d, PN_E_FORMAT, "tensor '%s': sizes wrap", t->name);
    }
    *place = f->copy_bytes;
    f->copy_bytes = end;
    f->weight_bytes += t->bytes;
    return 0;
}

static int read_floats(const struct model_file *f, const struct pn_gguf_tensor *t, float *dst,
                       struct pn_detail *d);

/* NVFP4 keeps one more factor for each matrix of NAME.weight, as NAME.scale [n]. NULL: none. */
static const struct pn_gguf_tensor *find_scales(const struct bind_state *s, const char *name) {
    char other[96];
    size_t len = strlen(name);
    if (len < 7 || len > 80 || strcmp(name + len - 7, ".weight") != 0) return NULL;
    snprintf(other, sizeof other, "%.*s.scale", (int)(len - 7), name);
    return pn__gguf_find(s->f->g, other);
}

static int companion_scale(struct bind_state *s, const char *name, struct pn_detail *d,
                           float *scale) {
    const struct pn_gguf_tensor *t = find_scales(s, name);
    *scale = 1.0f;
    if (!t) return 0;
    if (t->dims[0] * t->row_n != 1 || t->type != PN_TYPE_F32) return wrong_shape(t, 1, 1, d);
    s->f->places[tensor_i(s->f->g, t)] = PLACE_VECTOR;
    return s->counting ? 0 : read_floats(s->f, t, scale, d);
}

/* A weight tensor that was found and has the right shape; `out` has the matrix' shape. */
static int bind_tensor(struct bind_state *s, const struct pn_gguf_tensor *t, struct pn_detail *d,
                       struct pn_weight *out) {
    struct model_file *f = s->f;
    if (pn__type_info(t->type)->act == PN_ACT_NONE) {
        return pn__fail(d, PN_E_UNSUPPORTED, "tensor '%s' is of type %s, which is no weight type",
                        t->name, pn__type_name(t->type));
    }
    int rc = place_weight(f, t, d);
    if (rc) return rc;
    out->row_bytes = t->row_bytes;
    out->type = t->type;
    if (s->counting) return 0;
    if (!s->map) {
        out->data = s->copy + f->places[tensor_i(f->g, t)];
        return 0;
    }
    const uint8_t *base;
    rc = pn__gguf_map(f->g, t->shard, d, &base);
    if (rc == 0) out->data = base + t->offset;
    return rc;
}

static int bind_weight(void *user, const char *name, uint32_t col_n, uint32_t row_n, bool optional,
                       struct pn_detail *d, struct pn_weight *out) {
    struct bind_state *s = user;
    const struct pn_gguf_tensor *t;
    int rc = find(s, name, optional, d, &t);
    if (rc || !t) return rc;
    if (t->dims[0] != col_n || t->row_n != row_n || t->dims[1] != row_n) {
        return wrong_shape(t, col_n, row_n, d);
    }
    *out = (struct pn_weight){.row_n = row_n, .col_n = col_n, .scale = 1.0f};
    rc = companion_scale(s, name, d, &out->scale);
    return rc ? rc : bind_tensor(s, t, d, out);
}

static int bind_floats(struct bind_state *s, const struct pn_gguf_tensor *t, uint64_t n,
                       struct pn_detail *d, const float **out);

static int bind_stack(void *user, const char *name, uint32_t col_n, uint32_t row_n, uint32_t n,
                      bool optional, struct pn_detail *d, struct pn_expert_part *out) {
    struct bind_state *s = user;
    const struct pn_gguf_tensor *t;
    int rc = find(s, name, optional, d, &t);
    if (rc || !t) return rc;
    if (t->dims[0] != col_n || t->dims[1] != row_n || t->dims[2] != n || t->dims[3] != 1) {
        return pn__fail(
            d, PN_E_FORMAT,
            "tensor '%s' is %llu x %llu x %llu x %llu; the model's metadata asks for %u x %u x %u",
            t->name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
            (unsigned long long)t->dims[2], (unsigned long long)t->dims[3], col_n, row_n, n);
    }
    out->w = (struct pn_weight){.row_n = row_n, .col_n = col_n, .scale = 1.0f};
    rc = bind_tensor(s, t, d, &out->w);
    out->expert_bytes = row_n * t->row_bytes;
    const struct pn_gguf_tensor *scales = find_scales(s, name);
    if (rc || !scales) return rc;
    return bind_floats(s, scales, n, d, &out->scales);
}

/* Vectors are small: the file's bytes pass through a buffer on the stack. */
#define PIECE_BYTES 4096u

static int read_floats(const struct model_file *f, const struct pn_gguf_tensor *t, float *dst,
                       struct pn_detail *d) {
    uint8_t piece[PIECE_BYTES];
    const struct pn_type_info *info = pn__type_info(t->type);
    uint64_t total = t->bytes;
    uint64_t done = 0;
    while (done < total) {
        uint64_t bytes = pn__min_u64(total - done, PIECE_BYTES);
        int rc = pn__io_read_exact(pn__gguf_shard_fd(f->g, t->shard),
                                   pn__gguf_shard_path(f->g, t->shard), piece, bytes,
                                   t->offset + done, d);
        if (rc) return rc;
        pn__dequant_row(t->type, piece, dst + done / info->block_bytes, bytes / info->block_bytes);
        done += bytes;
    }
    return 0;
}

static int bind_floats(struct bind_state *s, const struct pn_gguf_tensor *t, uint64_t n,
                       struct pn_detail *d, const float **out) {
    if (t->dims[0] * t->row_n != n) return wrong_shape(t, n, 1, d);
    if (t->type != PN_TYPE_F32 && t->type != PN_TYPE_F16 && t->type != PN_TYPE_BF16) {
        return pn__fail(d, PN_E_UNSUPPORTED, "tensor '%s' is of type %s; F32, F16 or BF16 is right",
                        t->name, pn__type_name(t->type));
    }
    s->f->places[tensor_i(s->f->g, t)] = PLACE_VECTOR;
    float *dst = pn__arena_take(&s->floats, n, sizeof(float));
    if (s->floats.overflow)
        return pn__fail(d, PN_E_STATE, "vector '%s' outgrew its block", t->name);
    if (s->counting) return 0;
    *out = dst;
    return read_floats(s->f, t, dst, d);
}

static int bind_vector(void *user, const char *name, uint64_t n, bool optional, struct pn_detail *d,
                       const float **out) {
    struct bind_state *s = user;
    const struct pn_gguf_tensor *t;
    int rc = find(s, name, optional, d, &t);
    return rc || !t ? rc : bind_floats(s, t, n, d, out);
}

void pn__binder_init(struct pn_binder *b, struct bind_state *s) {
    *b = (struct pn_binder){
        .weight = bind_weight, .stack = bind_stack, .vector = bind_vector, .user = s};
}
