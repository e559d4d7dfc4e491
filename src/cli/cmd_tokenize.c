#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "gguf/gguf.h"
#include "text/text.h"
#include "text/utf8.h"

struct input {
    char *text;
    size_t len;
    size_t cap;
};

/* All of standard input, checked to be UTF-8. */
static int read_input(struct input *in, struct pn_detail *d) {
    while (!feof(stdin)) {
        if (in->len == in->cap) {
            size_t cap = in->cap ? in->cap * 2 : 65536;
            char *grown = pn__realloc_array(in->text, cap, 1);
            if (!grown)
                return pn__fail(d, PN_E_NOMEM, "standard input: no memory for %zu bytes", cap);
            in->text = grown;
            in->cap = cap;
        }
        in->len += fread(in->text + in->len, 1, in->cap - in->len, stdin);
        if (ferror(stdin)) return pn__fail(d, PN_E_IO, "standard input: %s", strerror(errno));
    }
    size_t valid = pn__utf8_valid_len(in->text, in->len);
    if (valid < in->len)
        return pn__fail(d, PN_E_INVALID,
                        "standard input: not UTF-8 at byte %zu (0x%02X); convert the text first, "
                        "for example with iconv",
                        valid, (unsigned char)in->text[valid]);
    return 0;
}

static int load_vocab(const struct pn_settings *s, struct pn_detail *d, struct pn_vocab **v) {
    struct pn_gguf *g = NULL;
    int rc = pn__gguf_open(s->positional[0], d, &g);
    if (rc == 0) rc = pn__vocab_load(g, pn__set_text(s, PN_SET_PRE), d, v);
    pn__gguf_close(g);
    return rc;
}

int pn__cmd_tokenize(const struct pn_settings *s, struct pn_detail *d) {
    struct pn_vocab *v = NULL;
    struct input in = {0};
    struct pn_ids ids = {0};
    unsigned flags = 0;
    if (pn__set_flag(s, PN_SET_BOS)) flags |= PN_TOKENIZE_BOS;
    if (pn__set_flag(s, PN_SET_SPECIAL)) flags |= PN_TOKENIZE_SPECIAL;

    int rc = load_vocab(s, d, &v);
    if (rc == 0) rc = read_input(&in, d);
    if (rc == 0 && (flags & PN_TOKENIZE_BOS) && pn__vocab_bos(v) == PN_TOKEN_NONE)
        rc = pn__fail(d, PN_E_INVALID, "%s: the vocabulary has no BOS token; leave --bos out",
                      s->positional[0]);
    if (rc == 0) rc = pn__tokenize(v, in.text, in.len, flags, &ids, d);
    if (rc == 0) {
        for (size_t i = 0; i < ids.n; i++)
            printf(i ? " %d" : "%d", ids.ids[i]);
        putchar('\n');
    }
    pn__ids_free(&ids);
    pn__free(in.text);
    pn__vocab_free(v);
    return rc;
}
