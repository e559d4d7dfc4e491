/* The text of a template cut into tokens: plain text, and what stands inside the marks. White space
 * control is done here: '-' and '+' beside the marks, trim_blocks (a newline behind a block goes)
 * and lstrip_blocks (blanks between a line's start and a block go). */
#include <string.h>

#include "text/chat/ast.h"
#include "text/utf8.h"

bool pn__j_is_space(uint32_t cp) {
    return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

size_t pn__j_space_len(const char *s, size_t at, size_t to) {
    size_t from = at;
    while (at < to) {
        struct pn_utf8_char ch = pn__text_char(s + at, to - at);
        if (!pn__j_is_space(ch.cp)) break;
        at += ch.len;
    }
    return at - from;
}

size_t pn__j_rspace_len(const char *s, size_t from, size_t to) {
    size_t end = to;
    while (end > from) {
        size_t at = end - 1;
        while (at > from && ((uint8_t)s[at] & 0xc0) == 0x80)
            at--;
        if (!pn__j_is_space(pn__text_char(s + at, end - at).cp)) break;
        end = at;
    }
    return to - end;
}

struct pn_jplace pn__jlex_place(struct pn_jlex *x, size_t at) {
    if (at < x->counted) {
        x->counted = 0;
        x->place = (struct pn_jplace){1, 1};
    }
    for (; x->counted < at; x->counted++) {
        uint8_t b = (uint8_t)x->s[x->counted];
        if (b == '\n') {
            x->place.line++;
            x->place.column = 1;
        } else if ((b & 0xc0) != 0x80) {
            x->place.column++;
        }
    }
    return x->place;
}

static int fail_at(struct pn_jlex *x, size_t at, const char *what) {
    return pn__jplace_fail(x->d, PN_E_FORMAT, pn__jlex_place(x, at), "%s", what);
}

int pn__jlex_add(struct pn_jlex *x, enum pn_jtok_kind kind, size_t at, const char *p, size_t n) {
    if (x->tok_n == x->tok_cap) {
        size_t cap = x->tok_cap ? x->tok_cap * 2 : 256;
        struct pn_jtok *grown = pn__jarena_take(x->arena, cap, sizeof *grown);
        if (!grown) return pn__fail(x->d, PN_E_NOMEM, "template: no memory for %zu tokens", cap);
        if (x->tok_n) memcpy(grown, x->tok, x->tok_n * sizeof *grown);
        x->tok = grown;
        x->tok_cap = cap;
    }
    x->tok[x->tok_n++] =
        (struct pn_jtok){.kind = kind, .at = pn__jlex_place(x, at), .p = p, .n = n};
    return 0;
}

static bool has(const struct pn_jlex *x, size_t at, const char *text) {
    size_t n = strlen(text);
    return at + n <= x->n && memcmp(x->s + at, text, n) == 0;
}

/* Plain text [from, to) before a mark; `control` is the character behind the mark. */
static int add_data(struct pn_jlex *x, size_t from, size_t to, char control, bool is_block) {
    size_t end = to;
    if (control == '-') {
        end -= pn__j_rspace_len(x->s, from, to);
    } else if (control != '+' && is_block) {
        size_t line = to;
        while (line > from && x->s[line - 1] != '\n')
            line--;
        if ((line > from || x->line_starts) && pn__j_space_len(x->s, line, to) == to - line)
            end = line;
    }
    if (end == from) return 0;
    return pn__jlex_add(x, PN_JT_DATA, from, x->s + from, end - from);
}

/* Behind an end mark at x->at: blanks after '-', a newline after a block's end. */
static void skip_behind(struct pn_jlex *x, char control, bool is_block) {
    size_t from = x->at;
    if (control == '-')
        x->at += pn__j_space_len(x->s, x->at, x->n);
    else if (is_block && control != '+' && has(x, x->at, "\n"))
        x->at++;
    x->line_starts = x->at > from && x->s[x->at - 1] == '\n';
}

/* The end mark `mark` at `at`, with its '-' or '+'; 0 when there is none, else its length. */
static size_t end_mark(const struct pn_jlex *x, size_t at, const char *mark, bool plus,
                       char *control) {
    *control = 0;
    if (has(x, at, mark)) return 2;
    if (at + 1 >= x->n || !has(x, at + 1, mark)) return 0;
    if (x->s[at] != '-' && !(plus && x->s[at] == '+')) return 0;
    *control = x->s[at];
    return 3;
}

static int lex_comment(struct pn_jlex *x, size_t open) {
    /* "{#-#}": the sign belongs to the start. */
    size_t from = open + 2 + (has(x, open + 2, "-") || has(x, open + 2, "+"));
    for (size_t at = from; at + 2 <= x->n; at++) {
        char control;
        size_t len = end_mark(x, at, "#}", true, &control);
        if (len == 0) continue;
        x->at = at + len;
        skip_behind(x, control, true);
        return 0;
    }
    return fail_at(x, open, "this comment has no end ('#}')");
}

/* The word `name` alone in a block at `open`: its length with marks, else 0. */
static size_t block_of(const struct pn_jlex *x, size_t open, const char *name, bool plus,
                       char *control) {
    size_t at = open + 2;
    if (!has(x, open, "{%")) return 0;
    if (has(x, at, "-") || has(x, at, "+")) at++;
    at += pn__j_space_len(x->s, at, x->n);
    if (!has(x, at, name)) return 0;
    at += strlen(name);
    at += pn__j_space_len(x->s, at, x->n);
    size_t len = end_mark(x, at, "%}", plus, control);
    return len ? at + len - open : 0;
}

/* Raw text: everything up to the endraw. */
static int lex_raw(struct pn_jlex *x, size_t open, size_t len, char control) {
    char end_control = 0;
    x->at = open + len;
    if (control == '-') x->at += pn__j_space_len(x->s, x->at, x->n);
    x->line_starts = x->s[x->at - 1] == '\n';
    for (size_t at = x->at; at + 2 <= x->n; at++) {
        size_t end = block_of(x, at, "endraw", true, &end_control);
        if (end == 0) continue;
        int rc = add_data(x, x->at, at, x->s[at + 2], true);
        x->at = at + end;
        skip_behind(x, end_control, true);
        return rc;
    }
    return fail_at(x, open, "this raw block has no end ('{% endraw %}')");
}

static int lex_inside(struct pn_jlex *x, size_t open, bool is_block) {
    const char *mark = is_block ? "%}" : "}}";
    int rc = pn__jlex_add(x, is_block ? PN_JT_BLOCK_BEGIN : PN_JT_VAR_BEGIN, open, x->s + open, 2);
    x->at = open + 2;
    if (has(x, x->at, "-") || has(x, x->at, "+")) x->at++;
    while (rc == 0) {
        char control;
        x->at += pn__j_space_len(x->s, x->at, x->n);
        if (x->at >= x->n)
            return fail_at(x, open, is_block ? "this '{%' has no '%}'" : "this '{{' has no '}}'");
        size_t len = x->open_n ? 0 : end_mark(x, x->at, mark, is_block, &control);
        if (len) {
            rc = pn__jlex_add(x, is_block ? PN_JT_BLOCK_END : PN_JT_VAR_END, x->at, x->s + x->at,
                              len);
            x->at += len;
            skip_behind(x, control, is_block);
            return rc;
        }
        rc = pn__jlex_inner(x);
    }
    return rc;
}

int pn__jlex_all(struct pn_jlex *x) {
    x->line_starts = true;
    x->place = (struct pn_jplace){1, 1};
    int rc = 0;
    while (rc == 0 && x->at < x->n) {
        size_t open = x->at;
        while (open < x->n && !(x->s[open] == '{' && open + 1 < x->n && x->s[open + 1] &&
                                strchr("{%#", x->s[open + 1])))
            open++;
        if (open == x->n) {
            rc = pn__jlex_add(x, PN_JT_DATA, x->at, x->s + x->at, x->n - x->at);
            x->at = x->n;
            break;
        }
        char kind = x->s[open + 1];
        char control = open + 2 < x->n ? x->s[open + 2] : 0;
        rc = add_data(x, x->at, open, control, kind != '{');
        if (rc) break;
        x->line_starts = false;
        if (kind == '#') {
            rc = lex_comment(x, open);
            continue;
        }
        char raw_control;
        size_t raw = kind == '%' ? block_of(x, open, "raw", false, &raw_control) : 0;
        rc = raw ? lex_raw(x, open, raw, raw_control) : lex_inside(x, open, kind == '%');
    }
    if (rc == 0) rc = pn__jlex_add(x, PN_JT_END, x->n, x->s + x->n, 0);
    return rc;
}
