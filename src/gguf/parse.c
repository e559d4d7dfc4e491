#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/io.h"
#include "gguf/gguf_internal.h"

#define HEADER_MIN_BYTES 24

/* What a file that is no GGUF looks like by its first bytes; NULL: like nothing we know. */
static const char *guess(const uint8_t *p, uint64_t n) {
    static const struct {
        const char *magic;
        const char *what;
    } known[] = {
        {"<", "HTML"},
        {"version https://git-lfs", "a Git LFS pointer"},
        {"PK\x03\x04", "a zip archive"},
        {"lmgg", "an older ggml format"},
        {"fmgg", "an older ggml format"},
        {"tjgg", "an older ggml format"},
        {"algg", "an older ggml adapter"},
        {"\x1f\x8b", "a gzip archive"},
        {"{", "JSON"},
    };
    if (n > 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) { /* byte-order mark */
        p += 3;
        n -= 3;
    }
    while (n > 0 && (*p == ' ' || (*p >= '\t' && *p <= '\r'))) {
        p++;
        n--;
    }
    for (size_t i = 0; i < PN_ARRAY_N(known); i++) {
        size_t len = strlen(known[i].magic);
        if (n >= len && memcmp(p, known[i].magic, len) == 0) return known[i].what;
    }
    if (n > 9 && p[8] == '{') return "safetensors";
    return NULL;
}

static int check_magic(struct gguf_cursor *c) {
    struct gguf_shard *s = c->shard;
    if (s->bytes == 0) return pn__fail(c->d, PN_E_FORMAT, "%s: the file is empty", s->label);
    int rc = pn__gguf_need(c, pn__min_u64(s->bytes, HEADER_MIN_BYTES), "header");
    if (rc) return rc;
    if (s->bytes >= 4 && memcmp(s->h.buf, "GGUF", 4) == 0) return 0;
    const char *like = guess(s->h.buf, s->h.bytes);
    if (like) {
        return pn__fail(c->d, PN_E_FORMAT, "%s: not a GGUF (looks like %s)", s->label, like);
    }
    char hex[32] = "";
    for (uint64_t i = 0; i < 4 && i < s->bytes; i++)
        snprintf(hex + 3 * i, sizeof hex - 3 * i, " %02x", s->h.buf[i]);
    return pn__fail(c->d, PN_E_FORMAT, "%s: not a GGUF (starts with%s, wanted 47 47 55 46)",
                    s->label, hex);
}

static int take_version(struct gguf_cursor *c) {
    struct gguf_shard *s = c->shard;
    c->pos = 4;
    int rc = pn__gguf_take_u32(c, "version", &s->h.version);
    if (rc) return rc;
    uint32_t v = s->h.version;
    if (v == 2 || v == 3) return 0;
    uint32_t swapped = __builtin_bswap32(v);
    if (swapped >= 1 && swapped <= 3) {
        return pn__fail(c->d, PN_E_UNSUPPORTED,
                        "%s: big-endian, not supported (version %u stored as 0x%08x at offset 4)",
                        s->label, swapped, v);
    }
    return pn__fail(c->d, PN_E_UNSUPPORTED,
                    "%s: GGUF version %u not supported (at offset 4; this build reads 2 and 3)",
                    s->label, v);
}

static int take_align(struct gguf_cursor *c) {
    struct gguf_shard *s = c->shard;
    s->h.align = PN_GGUF_ALIGN_DEFAULT;
    const struct gguf_kv *kv = pn__gguf_kv_find(s, "general.alignment");
    if (!kv) return 0;
    if (kv->type != PN_GGUF_U32) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: key 'general.alignment' at offset %u is of type %s, wanted u32",
                        s->label, kv->pos, pn__gguf_type_name(kv->type));
    }
    uint32_t align = pn__gguf_ld32(s->h.buf + kv->pos);
    if (align < PN_GGUF_ALIGN_MIN || align > PN_GGUF_ALIGN_MAX || (align & (align - 1))) {
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: key 'general.alignment' at offset %u is %u, wanted a power of two "
                        "from %u to %u",
                        s->label, kv->pos, align, PN_GGUF_ALIGN_MIN, PN_GGUF_ALIGN_MAX);
    }
    s->h.align = align;
    return 0;
}

/* `cat part1 part2` puts a second header where the first file's data ends. */
static int check_tail(struct gguf_cursor *c, const struct pn_gguf *g, uint64_t tensor_from) {
    struct gguf_shard *s = c->shard;
    uint64_t end = c->pos;
    uint64_t padded;
    uint8_t magic[8];
    for (uint64_t i = tensor_from; i < g->tensor_n; i++)
        end = pn__max_u64(end, g->tensors[i].offset + g->tensors[i].bytes);
    if (pn__align_u64(end, s->h.align, &padded)) return 0;
    const uint64_t places[2] = {end, padded};
    for (int i = 0; i < 2; i++) {
        if (places[i] > s->bytes || s->bytes - places[i] < HEADER_MIN_BYTES) continue;
        int rc = pn__io_read_exact(s->fd, s->label, magic, sizeof magic, places[i], c->d);
        if (rc) return rc;
        if (memcmp(magic, "GGUF", 4) != 0) continue;
        return pn__fail(c->d, PN_E_FORMAT,
                        "%s: a second GGUF begins at offset %llu: files joined with `cat`? Keep "
                        "the parts of a split model as separate files",
                        s->label, (unsigned long long)places[i]);
    }
    return 0;
}

int pn__gguf_parse(struct pn_gguf *g, uint32_t shard_i, struct pn_detail *d) {
    struct gguf_shard *s = &g->shards[shard_i];
    struct gguf_cursor c = {.shard = s, .d = d, .where = "header"};
    uint64_t tensor_from = g->tensor_n;
    uint64_t kv_n;
    int rc = check_magic(&c);
    if (!rc) rc = take_version(&c);
    if (!rc) rc = pn__gguf_take_u64(&c, "tensor count", &s->h.tensor_n);
    if (!rc) rc = pn__gguf_take_u64(&c, "key count", &kv_n);
    if (!rc) rc = pn__gguf_parse_kvs(&c, kv_n);
    if (!rc) rc = pn__gguf_index_kvs(s, d);
    if (!rc) rc = take_align(&c);
    if (!rc) rc = pn__gguf_parse_tensors(&c, g, shard_i);
    if (!rc) rc = check_tail(&c, g, tensor_from);
    return rc;
}
