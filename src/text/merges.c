#include <string.h>

#include "base/alloc.h"
#include "text/vocab.h"

static uint32_t pair_slot(uint32_t left, uint32_t right, uint32_t mask) {
    return (uint32_t)pn__hash_u64(((uint64_t)left << 32 | right) * 0xD6E8FEB86659FD93u) & mask;
}

uint32_t pn__merge_rank(const struct pn_vocab *v, uint32_t left, uint32_t right) {
    if (v->merge_slot_n == 0) return PN_STR_NONE;
    uint32_t mask = v->merge_slot_n - 1;
    for (uint32_t at = pair_slot(left, right, mask); v->merge_slot[at]; at = (at + 1) & mask) {
        const struct pn_merge *m = &v->merge[v->merge_slot[at] - 1];
        if (m->left == left && m->right == right) return v->merge_slot[at] - 1;
    }
    return PN_STR_NONE;
}

/* The number of `s`, added when it is new. */
static int intern(struct pn_strtab *t, struct pn_str s, uint32_t *out) {
    *out = pn__strtab_find(t, s);
    if (*out != PN_STR_NONE) return 0;
    uint32_t found;
    int rc = pn__strtab_add(t, s, &found);
    if (rc) return rc;
    *out = t->n - 1;
    return 0;
}

/* "LEFT RIGHT", cut at the first space that has something in front of it. The result's text is put
 * together in `buf`, of at least text.len bytes. */
static int add_merge(struct pn_vocab *v, struct pn_str text, char *buf, struct pn_merge *m) {
    const char *space = memchr(text.data + 1, ' ', text.len - 1);
    struct pn_str left = {text.data, (size_t)(space - text.data)};
    struct pn_str right = {space + 1, text.len - left.len - 1};
    memcpy(buf, left.data, left.len);
    memcpy(buf + left.len, right.data, right.len);
    int rc = intern(&v->strings, left, &m->left);
    if (rc == 0) rc = intern(&v->strings, right, &m->right);
    if (rc == 0) rc = intern(&v->strings, (struct pn_str){buf, text.len - 1}, &m->out);
    return rc;
}

static bool well_formed(struct pn_str s) {
    if (s.len < 3) return false;
    const char *space = memchr(s.data + 1, ' ', s.len - 1);
    return space && space != s.data + s.len - 1;
}

static void index_merges(struct pn_vocab *v) {
    uint32_t mask = v->merge_slot_n - 1;
    for (uint32_t i = 0; i < v->merge_n; i++) {
        const struct pn_merge *m = &v->merge[i];
        /* A pair given twice keeps its first rank. */
        if (pn__merge_rank(v, m->left, m->right) != PN_STR_NONE) continue;
        uint32_t at = pair_slot(m->left, m->right, mask);
        while (v->merge_slot[at])
            at = (at + 1) & mask;
        v->merge_slot[at] = i + 1;
    }
}

int pn__vocab_load_merges(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    static const char key[] = "tokenizer.ggml.merges";
    struct pn_gguf_arr arr;
    int rc = pn__gguf_get_arr(g, key, &arr, d);
    if (rc < 0) return rc;
    if (rc == 0)
        return pn__fail(d, PN_E_FORMAT, "key '%s' is missing: a BPE vocabulary needs it", key);
    if (arr.type != PN_GGUF_STRING)
        return pn__fail(d, PN_E_FORMAT, "key '%s': elements are %s, not strings", key,
                        pn__gguf_type_name(arr.type));
    if (arr.n > INT32_MAX / 4)
        return pn__fail(d, PN_E_FORMAT, "key '%s': %llu merges are too many", key,
                        (unsigned long long)arr.n);

    size_t len_max = 0;
    for (uint64_t i = 0; i < arr.n; i++) {
        struct pn_str s = pn__gguf_arr_str(&arr, i);
        if (!well_formed(s))
            return pn__fail(d, PN_E_FORMAT, "key '%s': element %llu '%.*s' is not two parts", key,
                            (unsigned long long)i, (int)(s.len < 60 ? s.len : 60), s.data);
        if (s.len > len_max) len_max = s.len;
    }
    uint32_t slot_n = 64;
    while (slot_n < 2 * arr.n)
        slot_n *= 2;
    char *buf = pn__calloc(len_max + 1, 1);
    v->merge = pn__calloc(arr.n, sizeof *v->merge);
    v->merge_slot = pn__calloc(slot_n, sizeof *v->merge_slot);
    rc = buf && v->merge && v->merge_slot ? 0 : PN_E_NOMEM;
    if (rc == 0) v->merge_slot_n = slot_n;
    for (uint64_t i = 0; rc == 0 && i < arr.n; i++) {
        rc = add_merge(v, pn__gguf_arr_str(&arr, i), buf, &v->merge[i]);
        if (rc == 0) v->merge_n++;
    }
    pn__free(buf);
    if (rc)
        return pn__fail(d, rc, "key '%s': no memory for %llu merges", key,
                        (unsigned long long)arr.n);
    index_merges(v);
    return 0;
}
