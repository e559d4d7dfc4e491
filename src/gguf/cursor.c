#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/io.h"
#include "gguf/gguf_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are read as they lie");

/* The first read; small files are read whole by it. */
#define WINDOW_BYTES (64u << 10)

uint16_t pn__gguf_ld16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

uint32_t pn__gguf_ld32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

uint64_t pn__gguf_ld64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

uint64_t pn__gguf_left(const struct gguf_cursor *c) {
    return pn__sub_floor_u64(pn__min_u64(c->shard->bytes, PN_GGUF_HEADER_MAX_BYTES), c->pos);
}

/* Grows the buffer to hold `end` bytes: doubled, so that the copies stay linear in the header. */
static int load_to(struct gguf_cursor *c, uint64_t end) {
    struct gguf_shard *s = c->shard;
    uint64_t want = pn__max_u64(end, pn__max_u64(2 * s->h.bytes, WINDOW_BYTES));
    want = pn__min_u64(want, pn__min_u64(s->bytes, PN_GGUF_HEADER_MAX_BYTES));
    uint8_t *buf = pn__realloc_array(s->h.buf, (size_t)want, 1);
    if (!buf) {
        return pn__fail(c->d, PN_E_NOMEM, "%s: no memory for %llu bytes of header", s->label,
                        (unsigned long long)want);
    }
    s->h.buf = buf;
    int rc =
        pn__io_read_exact(s->fd, s->label, buf + s->h.bytes, want - s->h.bytes, s->h.bytes, c->d);
    if (rc) return rc;
    s->h.bytes = want;
    return 0;
}

int pn__gguf_need(struct gguf_cursor *c, uint64_t bytes, const char *what) {
    struct gguf_shard *s = c->shard;
    uint64_t end;
    bool wrapped = pn__add_u64(c->pos, bytes, &end);
    if (wrapped || end > s->bytes) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: %s: %s wants %llu bytes at offset %llu, but the file has %llu (cut "
                        "short?)",
                        s->label, c->where, what, (unsigned long long)bytes,
                        (unsigned long long)c->pos, (unsigned long long)s->bytes);
    }
    if (end > PN_GGUF_HEADER_MAX_BYTES) {
        return pn__fail(c->d, PN_E_UNSUPPORTED,
                        "%s: %s: %s at offset %llu: the header is longer than %u MiB", s->label,
                        c->where, what, (unsigned long long)c->pos, PN_GGUF_HEADER_MAX_BYTES >> 20);
    }
    return end > s->h.bytes ? load_to(c, end) : 0;
}

int pn__gguf_take_u32(struct gguf_cursor *c, const char *what, uint32_t *out) {
    int rc = pn__gguf_need(c, 4, what);
    if (rc) return rc;
    *out = pn__gguf_ld32(c->shard->h.buf + c->pos);
    c->pos += 4;
    return 0;
}

int pn__gguf_take_u64(struct gguf_cursor *c, const char *what, uint64_t *out) {
    int rc = pn__gguf_need(c, 8, what);
    if (rc) return rc;
    *out = pn__gguf_ld64(c->shard->h.buf + c->pos);
    c->pos += 8;
    return 0;
}

int pn__gguf_take_str(struct gguf_cursor *c, const char *what, uint64_t max_bytes, uint32_t *pos,
                      uint64_t *bytes) {
    uint64_t at = c->pos;
    int rc = pn__gguf_take_u64(c, what, bytes);
    if (rc) return rc;
    if (*bytes > max_bytes) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: %s: %s at offset %llu has length %llu, at most %llu is allowed",
                        c->shard->label, c->where, what, (unsigned long long)at,
                        (unsigned long long)*bytes, (unsigned long long)max_bytes);
    }
    rc = pn__gguf_need(c, *bytes, what);
    if (rc) return rc;
    *pos = (uint32_t)c->pos;
    c->pos += *bytes;
    return 0;
}
