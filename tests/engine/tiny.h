/* Tiny models written into a temporary folder, whole or with one thing wrong; and a machine of any
 * size to plan for. */
#ifndef PN_TESTS_ENGINE_TINY_H
#define PN_TESTS_ENGINE_TINY_H

#include <stdbool.h>
#include <stdint.h>

#include "mem/mem_tree.h"

/* One change to the file. Everything NULL / 0: none. */
struct tiny_edit {
    const char *drop;  /* a key or tensor that is left out */
    const char *extra; /* an F32 vector of 4 more */
    const char *key;   /* this key has another value: */
    const char *str;   /* a string, */
    double f32;        /* a float, */
    uint32_t u32;      /* or a number */
    bool is_f32;
    const char *reshaped;   /* a tensor with one row (of a vector: one value) more */
    const char *not_finite; /* a tensor whose first value is NaN */
};

/* F32 weights, the same for each seed. arch "llama" or "gemma3" (which has a window). */
struct tiny {
    const char *arch;
    uint32_t layer_n;
    uint32_t embd;
    uint32_t ff;
    uint32_t head_n;
    uint32_t kv_head_n;
    uint32_t head_dim;
    uint32_t vocab;
    uint32_t ctx;
    uint32_t window;
    uint32_t pattern;      /* every so many layers one has no window; 0: no such key */
    const char *rope_type; /* of scaling; NULL: no such keys */
    float rope_factor;
    uint32_t rope_ctx; /* original context; 0: no such key */
    uint64_t seed;
};

extern const struct tiny tiny_llama;
extern const struct tiny tiny_gemma3; /* 7 layers: six with a window of 8, the sixth without */

/* Fails the test when the file can't be written. `edit` may be NULL. */
void tiny_write(const struct tiny *t, const struct tiny_edit *edit, const char *path);

/* PREFIX-00001-of-0000n.gguf … */
void tiny_write_split(const struct tiny *t, const char *prefix, uint32_t shard_n);

/* The folder of a program's models, for cmocka's group: made empty, and removed with all in it. */
extern struct mem_tree tiny_tree;
int tiny_tree_setup(void **state);
int tiny_tree_teardown(void **state);
/* A path in it; it stays valid for eight more calls. */
const char *tiny_path(const char *name);
/* Setup with models: llama.gguf, and the same as part-00001-of-00002.gguf and its other half. */
int tiny_files_setup(void **state);

/* The values of a tensor as tiny_write makes them; `n` of them. */
void tiny_values(const struct tiny *t, const char *name, float *out, uint64_t n);

/* The folder is a machine too, of which `avail_bytes` (a multiple of 1024) can be given away and
 * none are kept free. */
void tiny_machine(uint64_t avail_bytes);

#endif
