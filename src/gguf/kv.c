#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "gguf/gguf_internal.h"

/* Key of one byte, type, value of one byte. */
#define KV_MIN_BYTES (8 + 1 + 4 + 1)

static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {
    [PN_GGUF_U8] = {"u8", 1},       [PN_GGUF_I8] = {"i8", 1},     [PN_GGUF_U16] = {"u16", 2},
    [PN_GGUF_I16] = {"i16", 2},     [PN_GGUF_U32] = {"u32", 4},   [PN_GGUF_I32] = {"i32", 4},
    [PN_GGUF_F32] = {"f32", 4},     [PN_GGUF_BOOL] = {"bool", 1}, [PN_GGUF_STRING] = {"string", 0},
    [PN_GGUF_ARRAY] = {"array", 0}, [PN_GGUF_U64] = {"u64", 8},   [PN_GGUF_I64] = {"i64", 8},
    [PN_GGUF_F64] = {"f64", 8},
};

const char *pn__gguf_type_name(unsigned type) {
    return type < PN_ARRAY_N(types) ? types[type].name : "?";
}

uint32_t pn__gguf_type_bytes(unsigned type) {
    return type < PN_ARRAY_N(types) ? types[type].bytes : 0;
}

/* Keys become C strings and parts of messages: no NUL, no control characters. */
static int check_key(struct gguf_cursor *c, uint64_t at, uint32_t pos, uint64_t len) {
    const uint8_t *p = c->shard->h.buf + pos;
    if (len == 0) {
        return pn__fail(c->d, PN_E_FORMAT, "%s: %s at offset %llu is empty", c->shard->label,
                        c->where, (unsigned long long)at);
    }
    for (uint64_t i = 0; i < len; i++) {
        if (p[i] >= 0x20 && p[i] != 0x7f) continue;
        return pn__fail(
            c->d, PN_E_FORMAT,
            "%s: %s '%.*s' at offset %llu has a control character (byte 0x%02x at %llu)",
            c->shard->label, c->where, (int)(len > 64 ? 64 : len), (const char *)p,
            (unsigned long long)at, p[i], (unsigned long long)i);
    }
    return 0;
}

/* The elements of a string array: one pass that notes where each one lies. */
static int take_strings(struct gguf_cursor *c, struct gguf_kv *kv) {
    kv->string_poses = pn__calloc((size_t)kv->n, sizeof *kv->string_poses);
    if (!kv->string_poses) {
        return pn__fail(c->d, PN_E_NOMEM, "%s: %s: no memory for an index of %llu strings",
                        c->shard->label, c->where, (unsigned long long)kv->n);
    }
    for (uint64_t i = 0; i < kv->n; i++) {
        uint32_t pos;
        uint64_t len;
        kv->string_poses[i] = (uint32_t)c->pos;
        int rc = pn__gguf_take_str(c, "array string", UINT64_MAX, &pos, &len);
        if (rc) return rc;
    }
    return 0;
}

static int take_array(struct gguf_cursor *c, struct gguf_kv *kv) {
    uint64_t at = c->pos;
    int rc = pn__gguf_take_u32(c, "element type", &kv->elem_type);
    if (rc) return rc;
    if (kv->elem_type == PN_GGUF_ARRAY) {
        return pn__fail(c->d, PN_E_UNSUPPORTED, "%s: %s at offset %llu is an array of arrays",
                        c->shard->label, c->where, (unsigned long long)at);
    }
    if (kv->elem_type >= PN_ARRAY_N(types)) {
        return pn__fail(c->d, PN_E_FORMAT, "%s: %s: unknown element type %u at offset %llu",
                        c->shard->label, c->where, kv->elem_type, (unsigned long long)at);
    }
    rc = pn__gguf_take_u64(c, "element count", &kv->n);
    if (rc) return rc;
    uint64_t least = kv->elem_type == PN_GGUF_STRING ? 8 : types[kv->elem_type].bytes;
    if (kv->n > pn__gguf_left(c) / least) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: %s: array of %llu %s at offset %llu wants at least %llu bytes each, "
                        "the file has %llu bytes",
                        c->shard->label, c->where, (unsigned long long)kv->n,
                        types[kv->elem_type].name, (unsigned long long)c->pos,
                        (unsigned long long)least, (unsigned long long)c->shard->bytes);
    }
    kv->pos = (uint32_t)c->pos;
    if (kv->elem_type == PN_GGUF_STRING) return take_strings(c, kv);
    rc = pn__gguf_need(c, kv->n * least, "array");
    if (rc) return rc;
    c->pos += kv->n * least;
    return 0;
}

static int take_kv(struct gguf_cursor *c, uint64_t kv_i, struct gguf_kv *kv) {
    uint64_t at = c->pos;
    uint64_t len;
    snprintf(c->where, sizeof c->where, "key %llu", (unsigned long long)kv_i);
    int rc = pn__gguf_take_str(c, "name", PN_GGUF_KEY_MAX_BYTES, &kv->key_pos, &len);
    if (rc) return rc;
    rc = check_key(c, at, kv->key_pos, len);
    if (rc) return rc;
    snprintf(c->where, sizeof c->where, "key '%.*s'", (int)(len > 80 ? 80 : len),
             (const char *)c->shard->h.buf + kv->key_pos);

    at = c->pos;
    rc = pn__gguf_take_u32(c, "value type", &kv->type);
    if (rc) return rc;
    if (kv->type >= PN_ARRAY_N(types)) {
        return pn__fail(c->d, PN_E_FORMAT, "%s: %s: unknown value type %u at offset %llu",
                        c->shard->label, c->where, kv->type, (unsigned long long)at);
    }
    /* The value type was decoded: its first byte makes the key a C string in place. */
    c->shard->h.buf[at] = '\0';

    kv->n = 1;
    kv->pos = (uint32_t)c->pos;
    kv->elem_type = kv->type;
    if (kv->type == PN_GGUF_ARRAY) return take_array(c, kv);
    if (kv->type == PN_GGUF_STRING) {
        uint32_t pos;
        return pn__gguf_take_str(c, "string", UINT64_MAX, &pos, &len);
    }
    rc = pn__gguf_need(c, types[kv->type].bytes, "value");
    if (rc) return rc;
    c->pos += types[kv->type].bytes;
    return 0;
}

int pn__gguf_parse_kvs(struct gguf_cursor *c, uint64_t kv_n) {
    struct gguf_header *h = &c->shard->h;
    uint64_t most = pn__min_u64(PN_GGUF_KV_MAX, pn__gguf_left(c) / KV_MIN_BYTES);
    if (kv_n > most) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: key count %llu at offset 16: a file of %llu bytes can hold at most "
                        "%llu",
                        c->shard->label, (unsigned long long)kv_n,
                        (unsigned long long)c->shard->bytes, (unsigned long long)most);
    }
    h->kvs = pn__calloc((size_t)kv_n, sizeof *h->kvs);
    if (!h->kvs) {
        return pn__fail(c->d, PN_E_NOMEM, "%s: no memory for %llu keys", c->shard->label,
                        (unsigned long long)kv_n);
    }
    for (uint64_t i = 0; i < kv_n; i++) {
        h->kv_n = i + 1;
        int rc = take_kv(c, i, &h->kvs[i]);
        if (rc) return rc;
    }
    return 0;
}
