/* Reading GGUF v2 and v3 files, whole or split, with every number in them distrusted.
 *
 * Opening parses the header (metadata and tensor infos) of each shard, checks every count, length,
 * offset, alignment, type and product against the file's size, and keeps the opened descriptors:
 * replacing the path later changes nothing. Tensor data is not read; callers map or pread it.
 * Spec: ggml's docs/gguf.md.
 */
#ifndef PN_GGUF_H
#define PN_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "quant/quant.h"

struct pn_gguf;

enum pn_gguf_type {
    PN_GGUF_U8 = 0,
    PN_GGUF_I8,
    PN_GGUF_U16,
    PN_GGUF_I16,
    PN_GGUF_U32,
    PN_GGUF_I32,
    PN_GGUF_F32,
    PN_GGUF_BOOL,
    PN_GGUF_STRING,
    PN_GGUF_ARRAY,
    PN_GGUF_U64,
    PN_GGUF_I64,
    PN_GGUF_F64,
};
const char *pn__gguf_type_name(unsigned type);

/* A byte string inside the parsed header: not NUL-terminated, any bytes. */
struct pn_str {
    const char *data;
    size_t len;
};

struct pn_gguf_tensor {
    const char *name; /* NUL-terminated, unique in the model */
    uint32_t dim_n;   /* 1 to 4 */
    uint64_t dims[4]; /* ggml order: dims[0] is the row length; unused ones are 1 */
    enum pn_type type;
    uint32_t shard;     /* index into the opened files */
    uint64_t offset;    /* absolute, in that file */
    uint64_t bytes;     /* offset + bytes <= the file's size */
    uint64_t row_bytes; /* of one row of dims[0] values */
    uint64_t row_n;     /* dims[1] * dims[2] * dims[3] */
};

/* Opens the model that `path` names: a file, any shard NAME-0000i-of-0000n.gguf of a split model
 * (the set is checked whole), or a folder that holds one model. Errors: PN_E_NOTFOUND, PN_E_IO,
 * PN_E_FORMAT, PN_E_UNSUPPORTED, PN_E_NOMEM, PN_E_INVALID (a folder of several models, a path that
 * is no file), each naming file, key or tensor, value and offset. Files are only ever opened
 * read-only. `*out` is NULL after an error. Any GGUF opens, a bare vocabulary too: what can be run
 * is pn__gguf_check_model's question. */
int pn__gguf_open(const char *path, struct pn_detail *d, struct pn_gguf **out) PN_MUST_CHECK;
void pn__gguf_close(struct pn_gguf *g);

/* Refuses what is no language model by itself: vision projectors, adapters, control vectors,
 * draft-only files, files without tensors (PN_E_UNSUPPORTED) or without an architecture
 * (PN_E_FORMAT). Loaders call it; inspect and tokenize don't. */
int pn__gguf_check_model(const struct pn_gguf *g, struct pn_detail *d) PN_MUST_CHECK;

/* The first shard's path as opened, shard count, and each shard's path, descriptor and size. */
const char *pn__gguf_path(const struct pn_gguf *g);
uint32_t pn__gguf_version(const struct pn_gguf *g);
uint32_t pn__gguf_shard_n(const struct pn_gguf *g);
const char *pn__gguf_shard_path(const struct pn_gguf *g, uint32_t shard);
int pn__gguf_shard_fd(const struct pn_gguf *g, uint32_t shard);
uint64_t pn__gguf_shard_bytes(const struct pn_gguf *g, uint32_t shard);

/* PN_E_IO "changed" when a shard's size, mtime or inode is no longer what was opened. */
int pn__gguf_check_unchanged(const struct pn_gguf *g, struct pn_detail *d) PN_MUST_CHECK;

/* Maps a shard read-only (once; later calls return the same map, unmapped at close). Not to be
 * called by two threads at once on one `g`. */
int pn__gguf_map(struct pn_gguf *g, uint32_t shard, struct pn_detail *d,
                 const uint8_t **out) PN_MUST_CHECK;

uint64_t pn__gguf_tensor_n(const struct pn_gguf *g);
const struct pn_gguf_tensor *pn__gguf_tensor(const struct pn_gguf *g, uint64_t i);
const struct pn_gguf_tensor *pn__gguf_find(const struct pn_gguf *g, const char *name); /* NULL */

/* Metadata of the first shard, by index (for listing) and by key. */
uint64_t pn__gguf_kv_n(const struct pn_gguf *g);
const char *pn__gguf_kv_key(const struct pn_gguf *g, uint64_t i);
unsigned pn__gguf_kv_type(const struct pn_gguf *g, uint64_t i);      /* enum pn_gguf_type */
unsigned pn__gguf_kv_elem_type(const struct pn_gguf *g, uint64_t i); /* of an array's elements */
uint64_t pn__gguf_kv_elem_n(const struct pn_gguf *g, uint64_t i);    /* 1 for a scalar */
int64_t pn__gguf_kv_index(const struct pn_gguf *g, const char *key); /* -1: no such key */

/* Typed getters. They return 1 when found, 0 when the key is absent (`out` untouched), PN_E_FORMAT
 * when it is there with another type or out of range; integers of every width and sign convert
 * when the value fits. Strings from get_str point into the header and live as long as `g`. */
int pn__gguf_get_u64(const struct pn_gguf *g, const char *key, uint64_t *out, struct pn_detail *d);
int pn__gguf_get_u32(const struct pn_gguf *g, const char *key, uint32_t *out, struct pn_detail *d);
int pn__gguf_get_i64(const struct pn_gguf *g, const char *key, int64_t *out, struct pn_detail *d);
int pn__gguf_get_f32(const struct pn_gguf *g, const char *key, float *out, struct pn_detail *d);
int pn__gguf_get_f64(const struct pn_gguf *g, const char *key, double *out, struct pn_detail *d);
int pn__gguf_get_bool(const struct pn_gguf *g, const char *key, bool *out, struct pn_detail *d);
int pn__gguf_get_str(const struct pn_gguf *g, const char *key, struct pn_str *out,
                     struct pn_detail *d);

/* An array of any element type: returns 1, 0 or PN_E_FORMAT as above (the caller looks at `type`);
 * elements are read with pn__gguf_arr_*. A handle is valid as long as `g`. */
struct pn_gguf_arr {
    const struct pn_gguf *g;
    uint64_t kv_i;
    uint64_t n;
    unsigned type;
};
int pn__gguf_get_arr(const struct pn_gguf *g, const char *key, struct pn_gguf_arr *out,
                     struct pn_detail *d);
/* Integer or float element as double / integer element as i64 / string element. O(1) each (string
 * arrays carry an index). The caller keeps i < n and asks for a fitting type; a mismatch gives 0.
 */
double pn__gguf_arr_f64(const struct pn_gguf_arr *a, uint64_t i);
int64_t pn__gguf_arr_i64(const struct pn_gguf_arr *a, uint64_t i);
struct pn_str pn__gguf_arr_str(const struct pn_gguf_arr *a, uint64_t i);

#endif
