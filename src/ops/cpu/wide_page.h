/* Vectors of K and V as a page holds them, read sixteen elements at a time, and sixteen of them
 * turned so that a lane is a position. */
#ifndef PN_OPS_CPU_WIDE_PAGE_H
#define PN_OPS_CPU_WIDE_PAGE_H

#include "ops/cpu/q4.h"
#include "ops/cpu/wide.h"

/* The K or the V vectors of one head in a page. */
struct rows {
    const uint8_t *p;
    uint64_t bytes; /* a vector */
    uint32_t dim;
    enum pn_kv_format format;
};

static struct rows rows_of(const struct pn_att_tile *t, uint32_t pos, bool value) {
    const struct pn_page_view *page = pn__att_page(t, pos / PN_PAGE_TOKENS);
    const uint8_t *layer = page->data + t->layer_i * pn__kv_layer_bytes(page->format, t->shape);
    uint64_t k_bytes = pn__kv_row_bytes(page->format, t->shape->k_dim);
    uint64_t k_part = pn__kv_v_offset(page->format, t->shape);
    struct rows r = {.p = layer, .bytes = k_bytes, .dim = t->shape->k_dim, .format = page->format};
    if (value && !t->shape->v_in_k) {
        r.p += k_part;
        r.bytes = pn__kv_row_bytes(page->format, t->shape->v_dim);
        r.dim = t->shape->v_dim;
    }
    r.p += (uint64_t)t->kv_head * PN_PAGE_TOKENS * r.bytes;
    return r;
}

/* Elements i … i + n - 1 of a vector, n <= 16, then zeros. A half, or a half times a code, is
 * exact. `format` is a constant where this is inlined; so is n, but at the end of a vector. */
INLINE struct w16 widen16(const uint8_t *row, size_t i, uint32_t dim, uint32_t n,
                          enum pn_kv_format format) {
    const size_t scale_bytes = 2 * (size_t)((dim + 31) / 32);
    uint8_t part[64];
    const uint8_t *p = row;
    size_t bytes = 0;
    switch (format) {
    case PN_KV_F32:
        p += 4 * i;
        bytes = 4 * (size_t)n;
        break;
    case PN_KV_F16:
        p += 2 * i;
        bytes = 2 * (size_t)n;
        break;
    case PN_KV_Q8_0:
        p += scale_bytes + i;
        bytes = n;
        break;
    case PN_KV_Q4:
        p += scale_bytes + i / 2;
        bytes = (n + 1) / 2;
        break;
    }
    if (n < 16) { /* the page ends with its last vector */
        memset(part, 0, sizeof part);
        memcpy(part, p, bytes);
        p = part;
    }
    if (format == PN_KV_F32) return w16_load((const float *)(const void *)p);
    if (format == PN_KV_F16) return w16_of_halves(h16_load(p));
    uint16_t d;
    memcpy(&d, row + 2 * (i / 32), sizeof d);
    struct w16 scale = w16_of_halves(h16_set(d));
    c16 codes = format == PN_KV_Q4 ? c16_lookup(pn__q4_levels, p) : c16_load(p);
    struct w16 x = w16_mul(scale, w16_of_codes(codes));
    return n < 16 ? w16_between(x, 0, n - 1, w16_set(0)) : x;
}

/* Elements [from, to) of rows [row, row + row_n) into buf, `stride` apart, zeros up to a multiple
 * of sixteen. `format` is a constant where this is inlined. */
INLINE void widen_as(const struct rows *r, uint32_t row, uint32_t row_n, uint32_t from, uint32_t to,
                     float *buf, size_t stride, enum pn_kv_format format) {
    const size_t whole_n = (to - from) / 16 * 16;
    const uint8_t *p = r->p + row * r->bytes;
    for (uint32_t t = 0; t < row_n; t++, buf += stride, p += r->bytes) {
#pragma GCC unroll 4
        for (size_t i = 0; i < whole_n; i += 16)
            w16_store(buf + i, widen16(p, from + i, r->dim, 16, format));
        if (from + whole_n < to)
            w16_store(buf + whole_n,
                      widen16(p, from + whole_n, r->dim, (uint32_t)(to - from - whole_n), format));
    }
}

static void widen(const struct rows *r, uint32_t row, uint32_t row_n, uint32_t from, uint32_t to,
                  float *buf, size_t stride) {
    switch (r->format) {
    case PN_KV_F32:
        widen_as(r, row, row_n, from, to, buf, stride, PN_KV_F32);
        break;
    case PN_KV_F16:
        widen_as(r, row, row_n, from, to, buf, stride, PN_KV_F16);
        break;
    case PN_KV_Q8_0:
        widen_as(r, row, row_n, from, to, buf, stride, PN_KV_Q8_0);
        break;
    case PN_KV_Q4:
        widen_as(r, row, row_n, from, to, buf, stride, PN_KV_Q4);
        break;
    }
}

/* Elements i … i + n - 1 of sixteen vectors from `p` on, turned, into buf[element][stride]. */
INLINE void turn16(const struct rows *r, const uint8_t *p, uint32_t i, uint32_t n, float *buf,
                   size_t stride, enum pn_kv_format format) {
    struct w16 x[16], y[16];
#pragma GCC unroll 16
    for (uint32_t t = 0; t < 16; t++)
        x[t] = widen16(p + t * r->bytes, i, r->dim, n, format);
    w16_transpose(x, y);
#pragma GCC unroll 16
    for (uint32_t k = 0; k < 16; k++)
        w16_store(buf + k * stride, y[k]);
}

/* Elements [from, to) of key_n vectors (a multiple of sixteen), turned: buf[element][position],
 * zeros up to a multiple of sixteen elements. Constants where this is inlined: key_n, format. */
INLINE void turn_as(const struct rows *r, uint32_t row, uint32_t from, uint32_t to, float *buf,
                    uint32_t key_n, enum pn_kv_format format) {
    for (uint32_t i = from; i < to; i += 16, buf += 16 * (size_t)key_n) {
        for (uint32_t at = 0; at < key_n; at += 16) {
            const uint8_t *p = r->p + (row + at) * r->bytes;
            if (to - i < 16)
                turn16(r, p, i, to - i, buf + at, key_n, format);
            else
                turn16(r, p, i, 16, buf + at, key_n, format);
        }
    }
}

INLINE void turn(const struct rows *r, uint32_t row, uint32_t from, uint32_t to, float *buf,
                 uint32_t key_n) {
    switch (r->format) {
    case PN_KV_F32:
        turn_as(r, row, from, to, buf, key_n, PN_KV_F32);
        break;
    case PN_KV_F16:
        turn_as(r, row, from, to, buf, key_n, PN_KV_F16);
        break;
    case PN_KV_Q8_0:
        turn_as(r, row, from, to, buf, key_n, PN_KV_Q8_0);
        break;
    case PN_KV_Q4:
        turn_as(r, row, from, to, buf, key_n, PN_KV_Q4);
        break;
    }
}

#endif
