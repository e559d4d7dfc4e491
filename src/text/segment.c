#include "text/segment.h"

#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"

static int reserve(void **p, size_t *cap, size_t need, size_t size, struct pn_detail *d) {
    if (need <= *cap) return 0;
    size_t n = *cap * 2 > need ? *cap * 2 : need;
    void *grown = pn__realloc_array(*p, n, size);
    if (!grown) return pn__fail(d, PN_E_NOMEM, "tokenize: no memory for %zu symbols", n);
    *p = grown;
    *cap = n;
    return 0;
}

static int reserve_syms(struct pn_segmenter *w, size_t n) {
    void *p = w->sym;
    int rc = reserve(&p, &w->sym_cap, n, sizeof *w->sym, w->d);
    w->sym = p;
    return rc;
}

static int reserve_heap(struct pn_segmenter *w, size_t n) {
    void *p = w->heap;
    int rc = reserve(&p, &w->heap_cap, n, sizeof *w->heap, w->d);
    w->heap = p;
    return rc;
}

static int reserve_text(struct pn_segmenter *w, size_t n) {
    void *p = w->text;
    int rc = reserve(&p, &w->text_cap, n, 1, w->d);
    w->text = p;
    return rc;
}

static void heap_push(struct pn_segmenter *w, struct pn_pair p) {
    size_t i = w->heap_n++;
    while (i > 0 && w->heap[(i - 1) / 2].order > p.order) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
        w->work++;
    }
    w->heap[i] = p;
    w->work++;
}

static struct pn_pair heap_pop(struct pn_segmenter *w) {
    struct pn_pair top = w->heap[0];
    struct pn_pair last = w->heap[--w->heap_n];
    size_t i = 0;
    for (;;) {
        size_t kid = 2 * i + 1;
        if (kid >= w->heap_n) break;
        if (kid + 1 < w->heap_n && w->heap[kid + 1].order < w->heap[kid].order) kid++;
        if (w->heap[kid].order >= last.order) break;
        w->heap[i] = w->heap[kid];
        i = kid;
        w->work++;
    }
    w->heap[i] = last;
    w->work++;
    return top;
}

/* Higher scores sort first; -0 counts as 0. */
static uint32_t score_order(float score) {
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~bits;
}

/* Queues the pair of symbol `left` and its right neighbour if the vocabulary merges it. A merge
 * takes one pair off the queue and adds at most two, so n symbols need fewer than 2n places. */
static void try_pair(struct pn_segmenter *w, const char *piece, int32_t left) {
    if (left < 0 || w->sym[left].next < 0) return;
    const struct pn_vocab *v = w->v;
    const struct pn_sym *a = &w->sym[left];
    const struct pn_sym *b = &w->sym[a->next];
    struct pn_pair p = {.len = a->len + b->len};
    w->work++;
    if (v->kind == PN_VOCAB_SPM) {
        if (p.len > v->text_len_max) return;
        p.out = pn__strtab_find(&v->strings, (struct pn_str){piece + a->off, p.len});
        if (!pn__token_is_text(v, p.out)) return;
        p.order = (uint64_t)score_order(v->score[p.out]) << 32;
    } else {
        uint32_t rank = pn__merge_rank(v, a->id, b->id);
        if (rank == PN_STR_NONE) return;
        p.out = v->merge[rank].out;
        p.order = (uint64_t)rank << 32;
    }
    p.order |= (uint32_t)left;
    heap_push(w, p);
}

static void merge_all(struct pn_segmenter *w, const char *piece, size_t n) {
    w->heap_n = 0;
    for (size_t i = 0; i + 1 < n; i++)
        try_pair(w, piece, (int32_t)i);
    while (w->heap_n) {
        struct pn_pair p = heap_pop(w);
        int32_t left = (int32_t)(uint32_t)p.order;
        struct pn_sym *a = &w->sym[left];
        if (a->len == 0 || a->next < 0) continue;
        struct pn_sym *b = &w->sym[a->next];
        if (a->len + b->len != p.len) continue;
        a->id = p.out;
        a->len = p.len;
        a->next = b->next;
        b->len = 0;
        if (a->next >= 0) w->sym[a->next].prev = left;
        try_pair(w, piece, a->prev);
        try_pair(w, piece, left);
    }
}

/* What is no token goes byte by byte; a byte that has none either becomes the unknown token, once
 * for the symbol, or is counted as lost. */
static int emit(struct pn_segmenter *w, const char *piece, const struct pn_sym *s) {
    const struct pn_vocab *v = w->v;
    if (pn__token_is_text(v, s->id)) return pn__ids_push(w->out, (int32_t)s->id, w->d);
    bool unknown = false;
    for (uint32_t i = 0; i < s->len; i++) {
        uint8_t b = (uint8_t)piece[s->off + i];
        int rc = 0;
        if (v->byte_token[b] != PN_TOKEN_NONE) {
            rc = pn__ids_push(w->out, v->byte_token[b], w->d);
        } else if (v->kind == PN_VOCAB_SPM && v->unk != PN_TOKEN_NONE) {
            if (!unknown) rc = pn__ids_push(w->out, v->unk, w->d);
            unknown = true;
        } else if (w->lost_n++ == 0) {
            w->lost = b;
        }
        if (rc) return rc;
    }
    return 0;
}

/* One piece whose symbols are set up, `n` of them. */
static int finish_piece(struct pn_segmenter *w, const char *piece, size_t n) {
    int rc = reserve_heap(w, 2 * n);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        w->sym[i].prev = (int32_t)i - 1;
        w->sym[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    merge_all(w, piece, n);
    for (int32_t i = 0; i >= 0 && rc == 0; i = w->sym[i].next)
        rc = emit(w, piece, &w->sym[i]);
    return rc;
}

/* The token that the whole piece spells in the byte alphabet, or PN_STR_NONE. */
static int whole_token(struct pn_segmenter *w, const char *piece, size_t n, uint32_t *out) {
    *out = PN_STR_NONE;
    if (n > w->v->text_len_max) return 0;
    int rc = reserve_text(w, 2 * n);
    if (rc) return rc;
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        at += pn__utf8_put(pn__byte_to_cp((uint8_t)piece[i]), w->text + at);
    *out = pn__strtab_find(&w->v->strings, (struct pn_str){w->text, at});
    return 0;
}

static int bytes_piece(struct pn_segmenter *w, const char *piece, size_t n) {
    const struct pn_vocab *v = w->v;
    if (v->rule->ignore_merges) {
        uint32_t id;
        int rc = whole_token(w, piece, n, &id);
        if (rc) return rc;
        if (pn__token_is_text(v, id)) return pn__ids_push(w->out, (int32_t)id, w->d);
    }
    int rc = reserve_syms(w, n);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        w->sym[i].id = v->byte_symbol[(uint8_t)piece[i]];
        w->sym[i].off = (uint32_t)i;
        w->sym[i].len = 1;
    }
    return finish_piece(w, piece, n);
}

/* A run of characters that nothing spans at either end. */
static int chars_run(struct pn_segmenter *w, const char *piece, size_t n) {
    const struct pn_strtab *strings = &w->v->strings;
    int rc = reserve_syms(w, n);
    if (rc) return rc;
    size_t count = 0;
    for (size_t at = 0; at < n; count++) {
        uint32_t len = pn__text_char(piece + at, n - at).len;
        w->sym[count].id = pn__strtab_find(strings, (struct pn_str){piece + at, len});
        w->sym[count].off = (uint32_t)at;
        w->sym[count].len = len;
        at += len;
        w->work++;
    }
    return finish_piece(w, piece, count);
}

/* Cuts a piece where two neighbours occur together in no token and no merge. */
static int chars_piece(struct pn_segmenter *w, const char *piece, size_t n) {
    size_t from = 0;
    uint32_t before = 0;
    for (size_t at = 0; at < n;) {
        struct pn_utf8_char c = pn__text_char(piece + at, n - at);
        if (at > from && !pn__joint(w->v, before, c.cp)) {
            int rc = chars_run(w, piece + from, at - from);
            if (rc) return rc;
            from = at;
        }
        before = c.cp;
        at += c.len;
    }
    return chars_run(w, piece + from, n - from);
}

/* gemma4 has tokens for runs of line ends that its merges don't make. */
static int lines_piece(struct pn_segmenter *w, const char *piece, size_t n) {
    if (piece[0] == '\n' && n <= w->v->text_len_max) {
        uint32_t id = pn__strtab_find(&w->v->strings, (struct pn_str){piece, n});
        if (pn__token_is_text(w->v, id)) return pn__ids_push(w->out, (int32_t)id, w->d);
    }
    return chars_piece(w, piece, n);
}

/* Valid stretches go through the patterns; an invalid one is a piece. */
static int bpe(struct pn_segmenter *w, const char *text, size_t n) {
    bool chars = w->v->kind == PN_VOCAB_BPE_CHARS;
    for (size_t at = 0; at < n;) {
        size_t len = pn__utf8_valid_len(text + at, n - at);
        if (len) {
            int rc = pn__pre_split(w->v->pre, text + at, len, &w->pre, w->d);
            for (size_t i = 0; rc == 0 && i < w->pre.segs.n; i++) {
                size_t piece_n = w->pre.segs.len[i];
                rc =
                    chars ? lines_piece(w, text + at, piece_n) : bytes_piece(w, text + at, piece_n);
                at += piece_n;
            }
            if (rc) return rc;
        } else {
            len = pn__utf8_invalid_len(text + at, n - at);
            int rc = chars ? chars_piece(w, text + at, len) : bytes_piece(w, text + at, len);
            if (rc) return rc;
            at += len;
        }
    }
    return 0;
}

int pn__segment(struct pn_segmenter *w, const char *text, size_t n, bool after_special) {
    if (w->v->nfc) {
        int failed = pn__nfc(text, n, &w->nfc, w->d);
        if (failed) return failed;
        text = w->nfc.data;
        n = w->nfc.n;
    }
    if (w->v->kind == PN_VOCAB_BPE_BYTES) return bpe(w, text, n);
    bool prefix = w->v->add_space_prefix && after_special;
    size_t spaces = prefix;
    for (size_t i = 0; i < n; i++)
        spaces += text[i] == ' ';
    int rc = reserve_text(w, n + spaces * PN_SPM_SPACE_LEN);
    if (rc) return rc;
    size_t at = 0;
    for (size_t i = prefix ? SIZE_MAX : 0; i != n; i++) {
        if (i == SIZE_MAX || text[i] == ' ') {
            memcpy(w->text + at, PN_SPM_SPACE, PN_SPM_SPACE_LEN);
            at += PN_SPM_SPACE_LEN;
        } else {
            w->text[at++] = text[i];
        }
    }
    return w->v->kind == PN_VOCAB_SPM ? chars_piece(w, w->text, at) : bpe(w, w->text, at);
}

void pn__segmenter_free(struct pn_segmenter *w) {
    pn__pre_scratch_free(&w->pre);
    pn__buf_free(&w->nfc);
    pn__free(w->sym);
    pn__free(w->heap);
    pn__free(w->text);
}
