/* Writing GGUF files: for tests and tools.
 *
 * Keys and tensors are added in any order and written in that order; the data lies in tensor order,
 * each at a multiple of the alignment. The first error sticks and is returned by the call that
 * writes, so that the adding calls need no check. A writer writes as often as it is asked.
 */
#ifndef PN_GGUF_WRITER_H
#define PN_GGUF_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/gguf.h"

struct pn_gguf_writer;

/* Version 3, alignment 32. */
int pn__gguf_writer_new(struct pn_gguf_writer **out, struct pn_detail *d) PN_MUST_CHECK;
void pn__gguf_writer_free(struct pn_gguf_writer *w);

void pn__gguf_w_version(struct pn_gguf_writer *w, uint32_t version);
/* A power of two; also adds the key general.alignment. */
void pn__gguf_w_align(struct pn_gguf_writer *w, uint32_t align);

/* Any scalar but a string: `value` points to the type's own C representation. */
void pn__gguf_w_scalar(struct pn_gguf_writer *w, const char *key, enum pn_gguf_type type,
                       const void *value);
void pn__gguf_w_u32(struct pn_gguf_writer *w, const char *key, uint32_t value);
void pn__gguf_w_f32(struct pn_gguf_writer *w, const char *key, float value);
void pn__gguf_w_bool(struct pn_gguf_writer *w, const char *key, bool value);
void pn__gguf_w_str(struct pn_gguf_writer *w, const char *key, const char *value);
/* `n` elements of a fixed-size type / of strings. */
void pn__gguf_w_array(struct pn_gguf_writer *w, const char *key, enum pn_gguf_type type,
                      const void *elems, uint64_t n);
void pn__gguf_w_strings(struct pn_gguf_writer *w, const char *key, const struct pn_str *strings,
                        uint64_t n);

/* `dims` in ggml order, `dim_n` of 1 to 4. `data` is copied; NULL: zeros. */
void pn__gguf_w_tensor(struct pn_gguf_writer *w, const char *name, enum pn_type type,
                       uint32_t dim_n, const uint64_t *dims, const void *data);

/* The whole model as bytes; the caller gives them back with pn__free. */
int pn__gguf_w_bytes(const struct pn_gguf_writer *w, uint8_t **out, uint64_t *bytes,
                     struct pn_detail *d) PN_MUST_CHECK;
/* Part `shard_i` (from 0) of `shard_n`: the tensors in equal runs, all keys in the first part, the
 * split.* keys in each. */
int pn__gguf_w_part_bytes(const struct pn_gguf_writer *w, uint32_t shard_i, uint32_t shard_n,
                          uint8_t **out, uint64_t *bytes, struct pn_detail *d) PN_MUST_CHECK;

/* The same into files: written beside and renamed, so never seen half-written. */
int pn__gguf_w_file(const struct pn_gguf_writer *w, const char *path,
                    struct pn_detail *d) PN_MUST_CHECK;
/* PREFIX-00001-of-0000n.gguf ... */
int pn__gguf_w_split(const struct pn_gguf_writer *w, const char *prefix, uint32_t shard_n,
                     struct pn_detail *d) PN_MUST_CHECK;

#endif
