#include <math.h>
#include <string.h>

#include "gguf/gguf_internal.h"

/* An integer of any width: the value, and whether it is the unsigned range that holds it. */
struct any_int {
    bool is_int;
    bool negative; /* then `bits` is an int64_t */
    uint64_t bits;
};

static struct any_int any_of_signed(int64_t v) {
    return (struct any_int){true, v < 0, (uint64_t)v};
}

static struct any_int load_int(unsigned type, const uint8_t *p) {
    switch (type) {
    case PN_GGUF_U8:
        return (struct any_int){true, false, *p};
    case PN_GGUF_BOOL:
        return (struct any_int){true, false, *p != 0};
    case PN_GGUF_U16:
        return (struct any_int){true, false, pn__gguf_ld16(p)};
    case PN_GGUF_U32:
        return (struct any_int){true, false, pn__gguf_ld32(p)};
    case PN_GGUF_U64:
        return (struct any_int){true, false, pn__gguf_ld64(p)};
    case PN_GGUF_I8:
        return any_of_signed((int8_t)*p);
    case PN_GGUF_I16:
        return any_of_signed((int16_t)pn__gguf_ld16(p));
    case PN_GGUF_I32:
        return any_of_signed((int32_t)pn__gguf_ld32(p));
    case PN_GGUF_I64:
        return any_of_signed((int64_t)pn__gguf_ld64(p));
    default:
        return (struct any_int){false, false, 0};
    }
}

static bool load_float(unsigned type, const uint8_t *p, double *out) {
    if (type == PN_GGUF_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        *out = (double)f;
        return true;
    }
    if (type == PN_GGUF_F64) {
        memcpy(out, p, sizeof *out);
        return true;
    }
    struct any_int v = load_int(type, p);
    if (!v.is_int) return false;
    *out = v.negative ? (double)(int64_t)v.bits : (double)v.bits;
    return true;
}

static int wrong_type(const struct gguf_shard *s, const char *key, const struct gguf_kv *kv,
                      const char *wanted, struct pn_detail *d) {
    if (kv->type == PN_GGUF_ARRAY) {
        return pn__fail(d, PN_E_FORMAT,
                        "%s: key '%.80s' at offset %u is an array of %llu %s, wanted %s", s->label,
                        key, kv->pos, (unsigned long long)kv->n, pn__gguf_type_name(kv->elem_type),
                        wanted);
    }
    return pn__fail(d, PN_E_FORMAT, "%s: key '%.80s' at offset %u is of type %s, wanted %s",
                    s->label, key, kv->pos, pn__gguf_type_name(kv->type), wanted);
}

int pn__gguf_shard_u64(const struct gguf_shard *s, const char *key, uint64_t *out,
                       struct pn_detail *d) {
    const struct gguf_kv *kv = pn__gguf_kv_find(s, key);
    if (!kv) return 0;
    struct any_int v = load_int(kv->type, s->h.buf + kv->pos);
    if (!v.is_int || kv->type == PN_GGUF_BOOL) return wrong_type(s, key, kv, "an integer", d);
    if (v.negative) {
        return pn__fail(d, PN_E_FORMAT, "%s: key '%.80s' at offset %u is %lld, wanted 0 or more",
                        s->label, key, kv->pos, (long long)(int64_t)v.bits);
    }
    *out = v.bits;
    return 1;
}

int pn__gguf_shard_str(const struct gguf_shard *s, const char *key, struct pn_str *out,
                       struct pn_detail *d) {
    const struct gguf_kv *kv = pn__gguf_kv_find(s, key);
    if (!kv) return 0;
    if (kv->type != PN_GGUF_STRING) return wrong_type(s, key, kv, "a string", d);
    out->data = (const char *)s->h.buf + kv->pos + 8;
    out->len = (size_t)pn__gguf_ld64(s->h.buf + kv->pos);
    return 1;
}

int pn__gguf_get_u64(const struct pn_gguf *g, const char *key, uint64_t *out, struct pn_detail *d) {
    return pn__gguf_shard_u64(&g->shards[0], key, out, d);
}

int pn__gguf_get_u32(const struct pn_gguf *g, const char *key, uint32_t *out, struct pn_detail *d) {
    const struct gguf_shard *s = &g->shards[0];
    uint64_t v = 0;
    int rc = pn__gguf_shard_u64(s, key, &v, d);
    if (rc <= 0) return rc;
    if (v > UINT32_MAX) {
        return pn__fail(d, PN_E_FORMAT, "%s: key '%.80s' at offset %u is %llu, wanted at most %u",
                        s->label, key, pn__gguf_kv_find(s, key)->pos, (unsigned long long)v,
                        UINT32_MAX);
    }
    *out = (uint32_t)v;
    return 1;
}

int pn__gguf_get_i64(const struct pn_gguf *g, const char *key, int64_t *out, struct pn_detail *d) {
    const struct gguf_shard *s = &g->shards[0];
    const struct gguf_kv *kv = pn__gguf_kv_find(s, key);
    if (!kv) return 0;
    struct any_int v = load_int(kv->type, s->h.buf + kv->pos);
    if (!v.is_int || kv->type == PN_GGUF_BOOL) return wrong_type(s, key, kv, "an integer", d);
    if (!v.negative && v.bits > INT64_MAX) {
        return pn__fail(d, PN_E_FORMAT, "%s: key '%.80s' at offset %u is %llu, wanted at most %lld",
                        s->label, key, kv->pos, (unsigned long long)v.bits, (long long)INT64_MAX);
    }
    *out = (int64_t)v.bits;
    return 1;
}

int pn__gguf_get_f64(const struct pn_gguf *g, const char *key, double *out, struct pn_detail *d) {
    const struct gguf_shard *s = &g->shards[0];
    const struct gguf_kv *kv = pn__gguf_kv_find(s, key);
    double v;
    if (!kv) return 0;
    if (kv->type == PN_GGUF_BOOL || !load_float(kv->type, s->h.buf + kv->pos, &v)) {
        return wrong_type(s, key, kv, "a number", d);
    }
    *out = v;
    return 1;
}

int pn__gguf_get_f32(const struct pn_gguf *g, const char *key, float *out, struct pn_detail *d) {
    double v = 0;
    int rc = pn__gguf_get_f64(g, key, &v, d);
    if (rc <= 0) return rc;
    if (isfinite(v) && fabs(v) > (double)__FLT_MAX__) {
        return pn__fail(d, PN_E_FORMAT, "%s: key '%.80s' at offset %u is %g, too large for f32",
                        g->shards[0].label, key, pn__gguf_kv_find(&g->shards[0], key)->pos, v);
    }
    *out = (float)v;
    return 1;
}

int pn__gguf_get_bool(const struct pn_gguf *g, const char *key, bool *out, struct pn_detail *d) {
    const struct gguf_shard *s = &g->shards[0];
    const struct gguf_kv *kv = pn__gguf_kv_find(s, key);
    if (!kv) return 0;
    if (kv->type != PN_GGUF_BOOL) return wrong_type(s, key, kv, "a bool", d);
    *out = s->h.buf[kv->pos] != 0;
    return 1;
}

int pn__gguf_get_str(const struct pn_gguf *g, const char *key, struct pn_str *out,
                     struct pn_detail *d) {
    return pn__gguf_shard_str(&g->shards[0], key, out, d);
}

int pn__gguf_get_arr(const struct pn_gguf *g, const char *key, struct pn_gguf_arr *out,
                     struct pn_detail *d) {
    const struct gguf_shard *s = &g->shards[0];
    const struct gguf_kv *kv = pn__gguf_kv_find(s, key);
    if (!kv) return 0;
    if (kv->type != PN_GGUF_ARRAY) return wrong_type(s, key, kv, "an array", d);
    *out = (struct pn_gguf_arr){g, (uint64_t)(kv - s->h.kvs), kv->n, kv->elem_type};
    return 1;
}

/* Element i's first byte, NULL when the array has no such element of fixed size. */
static const uint8_t *elem(const struct pn_gguf_arr *a, uint64_t i) {
    const struct gguf_header *h = &a->g->shards[0].h;
    const struct gguf_kv *kv = &h->kvs[a->kv_i];
    uint32_t bytes = pn__gguf_type_bytes(kv->elem_type);
    if (i >= kv->n || bytes == 0) return NULL;
    return h->buf + kv->pos + i * bytes;
}

double pn__gguf_arr_f64(const struct pn_gguf_arr *a, uint64_t i) {
    const uint8_t *p = elem(a, i);
    double v = 0;
    if (!p || !load_float(a->type, p, &v)) return 0;
    return v;
}

int64_t pn__gguf_arr_i64(const struct pn_gguf_arr *a, uint64_t i) {
    const uint8_t *p = elem(a, i);
    if (!p) return 0;
    struct any_int v = load_int(a->type, p);
    if (!v.is_int || (!v.negative && v.bits > INT64_MAX)) return 0;
    return (int64_t)v.bits;
}

struct pn_str pn__gguf_arr_str(const struct pn_gguf_arr *a, uint64_t i) {
    const struct gguf_header *h = &a->g->shards[0].h;
    const struct gguf_kv *kv = &h->kvs[a->kv_i];
    if (i >= kv->n || !kv->string_poses) return (struct pn_str){"", 0};
    const uint8_t *p = h->buf + kv->string_poses[i];
    return (struct pn_str){(const char *)p + 8, (size_t)pn__gguf_ld64(p)};
}
