#include "text/pretokenize.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"

/* Backtracking frames that may be nested: the patterns are flat, 64 is far above what they use. */
#define DEPTH_MAX 64
#define HEAP_MAX_KIB 1024
/* Calls of the matcher for one match: the costliest patterns make under 4 for each character. */
#define MATCH_CALLS_MIN 10000
#define MATCH_CALLS_PER_BYTE 8

struct pn_pre {
    const struct pn_pre_rule *rule;
    pcre2_general_context *general;
    pcre2_code *code[PN_PRE_PATTERNS_MAX];
    size_t code_n;
};

static void *pcre_alloc(PCRE2_SIZE size, void *unused) {
    (void)unused;
    return pn__calloc(1, size);
}

static void pcre_free(void *p, void *unused) {
    (void)unused;
    pn__free(p);
}

/* Whether the space-separated list has the word. */
static bool list_has(const char *list, struct pn_str word) {
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, " ");
        if (n == word.len && memcmp(p, word.data, n) == 0) return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

const struct pn_pre_rule *pn__pre_find(struct pn_str name) {
    for (size_t i = 0; i < pn__pre_rule_n; i++) {
        const struct pn_pre_rule *r = &pn__pre_rules[i];
        if (list_has(r->name, name) || list_has(r->aliases, name)) return r;
    }
    return NULL;
}

void pn__pre_names(char *buf, size_t size) {
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < pn__pre_rule_n; i++) {
        const char *name = pn__pre_rules[i].name;
        size_t need = strlen(name) + (i ? 2 : 0);
        if (at + need + 1 > size) break;
        if (i) memcpy(buf + at, ", ", 2);
        memcpy(buf + at + (i ? 2 : 0), name, strlen(name) + 1);
        at += need;
    }
}

static int compile(struct pn_pre *p, const char *pattern, struct pn_detail *d) {
    int err = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *cc = pcre2_compile_context_create(p->general);
    if (!cc) return pn__fail(d, PN_E_NOMEM, "pre-tokeniser '%s': no memory", p->rule->name);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &err, &at, cc);
    pcre2_compile_context_free(cc);
    if (!code) {
        bool mem = err == PCRE2_ERROR_HEAP_FAILED;
        return pn__fail(d, mem ? PN_E_NOMEM : PN_E_UNSUPPORTED,
                        "pre-tokeniser '%s': pattern %zu: pcre2 error %d at %zu", p->rule->name,
                        p->code_n, err, (size_t)at);
    }
    p->code[p->code_n++] = code;
    /* Only for speed: where a machine or a policy has no JIT, the interpreter runs instead. */
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return 0;
}

int pn__pre_new(const struct pn_pre_rule *rule, struct pn_detail *d, struct pn_pre **out) {
    struct pn_pre *p = pn__calloc(1, sizeof *p);
    if (!p) return pn__fail(d, PN_E_NOMEM, "pre-tokeniser '%s': no memory", rule->name);
    p->rule = rule;
    int rc = 0;
    p->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (!p->general) {
        rc = pn__fail(d, PN_E_NOMEM, "pre-tokeniser '%s': no memory", rule->name);
        goto fail;
    }
    for (size_t i = 0; i < PN_PRE_PATTERNS_MAX && rule->patterns[i]; i++) {
        rc = compile(p, rule->patterns[i], d);
        if (rc) goto fail;
    }
    *out = p;
    return 0;
fail:
    pn__pre_free(p);
    return rc;
}

void pn__pre_free(struct pn_pre *p) {
    if (!p) return;
    for (size_t i = 0; i < p->code_n; i++)
        pcre2_code_free(p->code[i]);
    pcre2_general_context_free(p->general);
    pn__free(p);
}

static int segs_push(struct pn_segs *s, size_t len, struct pn_detail *d) {
    if (len == 0) return 0;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        size_t *grown = pn__realloc_array(s->len, cap, sizeof *grown);
        if (!grown) return pn__fail(d, PN_E_NOMEM, "tokenize: no memory for %zu pieces", cap);
        s->len = grown;
        s->cap = cap;
    }
    s->len[s->n++] = len;
    return 0;
}

static int match_at(const pcre2_code *code, const char *seg, size_t len, size_t from,
                    struct pn_pre_scratch *w) {
    /* The text was checked once as a whole; checking it again for each match would be quadratic. */
    const uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(code, (PCRE2_SPTR)seg, len, from, options, w->match, w->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(code, (PCRE2_SPTR)seg, len, from, options | PCRE2_NO_JIT, w->match,
                         w->context);
    }
    return rc;
}

/* Cuts one segment into matches and gaps, appended to w->next. */
static int split_segment(const pcre2_code *code, const char *seg, size_t len,
                         struct pn_pre_scratch *w, struct pn_detail *d) {
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(w->match);
    size_t done = 0;
    while (done < len) {
        int m = match_at(code, seg, len, done, w);
        if (m == PCRE2_ERROR_NOMATCH) break;
        if (m == PCRE2_ERROR_NOMEMORY || m == PCRE2_ERROR_HEAPLIMIT)
            return pn__fail(d, PN_E_NOMEM, "tokenize: the pattern matcher ran out of memory");
        if (m < 0 || span[1] <= span[0]) {
            return pn__fail(d, PN_E_UNSUPPORTED,
                            "tokenize: the pattern matcher gave up (pcre2 error %d) %zu bytes into "
                            "a segment of %zu",
                            m, done, len);
        }
        int rc = segs_push(&w->next, span[0] - done, d);
        if (rc == 0) rc = segs_push(&w->next, span[1] - span[0], d);
        if (rc) return rc;
        done = span[1];
    }
    return segs_push(&w->next, len - done, d);
}

static int prepare(const struct pn_pre *p, size_t len, struct pn_pre_scratch *w,
                   struct pn_detail *d) {
    if (!w->match) w->match = pcre2_match_data_create(1, p->general);
    if (!w->context) w->context = pcre2_match_context_create(p->general);
    if (!w->match || !w->context)
        return pn__fail(d, PN_E_NOMEM, "tokenize: no memory for the pattern matcher");
    uint64_t calls = MATCH_CALLS_MIN + (uint64_t)len * MATCH_CALLS_PER_BYTE;
    pcre2_set_match_limit(w->context, calls > UINT32_MAX ? UINT32_MAX : (uint32_t)calls);
    pcre2_set_depth_limit(w->context, DEPTH_MAX);
    pcre2_set_heap_limit(w->context, HEAP_MAX_KIB);
    return 0;
}

int pn__pre_split(const struct pn_pre *p, const char *text, size_t len, struct pn_pre_scratch *w,
                  struct pn_detail *d) {
    int rc = prepare(p, len, w, d);
    if (rc) return rc;
    w->segs.n = 0;
    rc = segs_push(&w->segs, len, d);
    if (rc) return rc;
    for (size_t i = 0; i < p->code_n; i++) {
        w->next.n = 0;
        size_t at = 0;
        for (size_t k = 0; k < w->segs.n; k++) {
            rc = split_segment(p->code[i], text + at, w->segs.len[k], w, d);
            if (rc) return rc;
            at += w->segs.len[k];
        }
        struct pn_segs done = w->segs;
        w->segs = w->next;
        w->next = done;
    }
    return 0;
}

void pn__pre_scratch_free(struct pn_pre_scratch *w) {
    pn__free(w->segs.len);
    pn__free(w->next.len);
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    memset(w, 0, sizeof *w);
}
