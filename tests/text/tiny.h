/* Tiny vocabularies for tests, written as GGUF with the project's own writer and loaded again. */
#ifndef PN_TESTS_TEXT_TINY_H
#define PN_TESTS_TEXT_TINY_H

#include "gguf/gguf.h"
#include "gguf/gguf_writer.h"
#include "support/pn_test.h"
#include "text/text.h"

#define TINY_MAX 400

enum { TINY_NORMAL = 1, TINY_UNKNOWN, TINY_CONTROL, TINY_USER, TINY_UNUSED, TINY_BYTE };

struct tiny {
    const char *model; /* tokenizer.ggml.model; NULL: no such key */
    const char *pre;   /* NULL: no such key */
    char text[TINY_MAX][24];
    float score[TINY_MAX];
    int32_t type[TINY_MAX];
    uint32_t n;
    const char *merges[TINY_MAX];
    uint32_t merge_n;
    void (*extra)(struct pn_gguf_writer *w); /* more keys; may be NULL */
    bool no_types, no_scores, no_tokens, no_merges;
};

/* Adds a token and returns its id. */
int32_t tiny_add(struct tiny *t, const char *text, int32_t type, float score);
/* Adds a merge "LEFT RIGHT" and, unless it is there, the token LEFTRIGHT; returns its id. */
int32_t tiny_merge(struct tiny *t, const char *merge);
int32_t tiny_find(const struct tiny *t, const char *text);

/* Byte-level BPE: tokens 0 to 255 are the bytes in order. */
void tiny_bpe(struct tiny *t, const char *pre);
/* SPM: <unk> 0, <s> 1, </s> 2, then the bytes from 3, "▁" at 259, then a to z. */
void tiny_spm(struct tiny *t);

/* The file of it, opened; NULL and the reason in `d` when that fails. */
struct pn_gguf *tiny_open(const struct tiny *t, struct pn_detail *d);
int tiny_load(const struct tiny *t, const char *pre, struct pn_detail *d, struct pn_vocab **out);
struct pn_vocab *tiny_vocab(const struct tiny *t);

/* Tokenizes and compares with `n` ids. */
void expect_ids(const struct pn_vocab *v, const char *text, size_t len, unsigned flags,
                const int32_t *ids, size_t n);
#define EXPECT(v, text, flags, ...)                                        \
    expect_ids(v, text, sizeof(text) - 1, flags, (int32_t[]){__VA_ARGS__}, \
               sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* Counts warnings while it is on, and keeps the last one. */
void tiny_log_on(void);
void tiny_log_off(void);
extern int tiny_warnings;
extern char tiny_warning[1024];

#endif
