/* What the files of the gguf room share: the parsed header of one shard, and the steps of opening.
 *
 * Protocol of opening: resolve the path to a list of shards (split.c); open each, keep its
 * descriptor (gguf.c); parse its header (parse.c) through a cursor that reads the file in growing
 * windows (cursor.c); check the set (split.c); sort the names and the ranges of the whole model and
 * refuse duplicates and overlaps (index.c). Nothing is allocated for a count before the count was
 * held against the bytes that the file has left, so memory is bounded by bytes really there.
 */
#ifndef PN_GGUF_INTERNAL_H
#define PN_GGUF_INTERNAL_H

#include <sys/stat.h>

#include "gguf/gguf.h"

/* Limits beside the file's own size: a sparse file can be of any size for free. */
#define PN_GGUF_HEADER_MAX_BYTES (256u << 20)
#define PN_GGUF_TENSOR_MAX (1u << 20) /* in the whole model */
#define PN_GGUF_KV_MAX (1u << 20)
#define PN_GGUF_KEY_MAX_BYTES 65535
#define PN_GGUF_NAME_MAX_BYTES 64

#define PN_GGUF_ALIGN_DEFAULT 32
#define PN_GGUF_ALIGN_MIN 8
#define PN_GGUF_ALIGN_MAX 65536

/* Part of a path that fits into a message beside names and numbers. */
#define PN_GGUF_LABEL_BYTES 161

struct gguf_kv {
    uint32_t key_pos; /* in the header buffer, NUL-terminated there */
    uint32_t pos;     /* of the value: a scalar's bytes, a string's length, an array's elements */
    uint32_t type;    /* enum pn_gguf_type */
    uint32_t elem_type;
    uint64_t n;             /* elements; 1 for a scalar */
    uint32_t *string_poses; /* [n] of a string array: where each one's length lies */
};

struct gguf_header {
    uint8_t *buf; /* the file's first `bytes` bytes */
    uint64_t bytes;
    struct gguf_kv *kvs;
    uint64_t kv_n;
    uint32_t *kv_sorted; /* [kv_n] by key */
    uint32_t version;
    uint64_t align;
    uint64_t data_off; /* where tensor offsets count from */
    uint64_t tensor_n; /* of this shard */
};

struct gguf_shard {
    char *path;
    char label[PN_GGUF_LABEL_BYTES]; /* the path, its start cut off when long */
    int fd;
    uint64_t bytes;
    struct stat st; /* as opened */
    uint8_t *map;   /* NULL until asked for */
    struct gguf_header h;
};

struct pn_gguf {
    struct gguf_shard *shards;
    uint32_t shard_n;
    struct pn_gguf_tensor *tensors;
    uint64_t tensor_n;
    uint32_t *tensor_sorted; /* [tensor_n] by name */
};

/* ---- cursor.c: the header bytes of one shard ---- */

struct gguf_cursor {
    struct gguf_shard *shard; /* grows shard->h.buf, whose bytes below h.bytes are read */
    uint64_t pos;
    struct pn_detail *d;
    char where[112]; /* what is being read: "key 'x'", "tensor 'y'" */
};

/* Loads [pos, pos + bytes): PN_E_FORMAT when the file has not that many left. */
int pn__gguf_need(struct gguf_cursor *c, uint64_t bytes, const char *what) PN_MUST_CHECK;
int pn__gguf_take_u32(struct gguf_cursor *c, const char *what, uint32_t *out) PN_MUST_CHECK;
int pn__gguf_take_u64(struct gguf_cursor *c, const char *what, uint64_t *out) PN_MUST_CHECK;
/* A length and that many bytes; `pos` is where the bytes begin, `bytes` at most max_bytes. */
int pn__gguf_take_str(struct gguf_cursor *c, const char *what, uint64_t max_bytes, uint32_t *pos,
                      uint64_t *bytes) PN_MUST_CHECK;
/* Bytes between the cursor and the file's end or the header limit, whichever is nearer. */
uint64_t pn__gguf_left(const struct gguf_cursor *c);

/* Unaligned little-endian loads. */
uint16_t pn__gguf_ld16(const uint8_t *p);
uint32_t pn__gguf_ld32(const uint8_t *p);
uint64_t pn__gguf_ld64(const uint8_t *p);

/* ---- kv.c ---- */
int pn__gguf_parse_kvs(struct gguf_cursor *c, uint64_t kv_n) PN_MUST_CHECK;
/* Bytes of one element of a fixed-size type; 0 for strings, arrays and unknown types. */
uint32_t pn__gguf_type_bytes(unsigned type);

/* ---- get.c: the getters, on any shard's metadata ---- */
const struct gguf_kv *pn__gguf_kv_find(const struct gguf_shard *s, const char *key);
int pn__gguf_shard_u64(const struct gguf_shard *s, const char *key, uint64_t *out,
                       struct pn_detail *d) PN_MUST_CHECK;
int pn__gguf_shard_str(const struct gguf_shard *s, const char *key, struct pn_str *out,
                       struct pn_detail *d) PN_MUST_CHECK;

/* ---- tensors.c ---- */
/* Parses the shard's tensor infos, checks their ranges against its size, appends to g->tensors. */
int pn__gguf_parse_tensors(struct gguf_cursor *c, struct pn_gguf *g,
                           uint32_t shard_i) PN_MUST_CHECK;

/* ---- parse.c ---- */
/* Parses shard_i's header and appends its tensors to g->tensors. */
int pn__gguf_parse(struct pn_gguf *g, uint32_t shard_i, struct pn_detail *d) PN_MUST_CHECK;

/* ---- index.c ---- */
int pn__gguf_index_kvs(struct gguf_shard *s, struct pn_detail *d) PN_MUST_CHECK;
int pn__gguf_index_tensors(struct pn_gguf *g, struct pn_detail *d) PN_MUST_CHECK;

/* ---- split.c ---- */
struct gguf_split_name {
    uint32_t prefix_len; /* bytes of the path before "-0000i-of-0000n.gguf" */
    uint32_t i;          /* from 1 */
    uint32_t n;          /* 0: not such a name */
};
struct gguf_split_name pn__gguf_split_name(const char *path);
/* Path of part i (from 1) of the set that `path` belongs to; NULL: no memory. */
char *pn__gguf_split_path(const char *path, const struct gguf_split_name *name, uint32_t i);
/* The one model that a folder holds, as a path to its first file. The caller frees it. */
int pn__gguf_folder_model(const char *folder, struct pn_detail *d, char **out) PN_MUST_CHECK;
/* What shard_i's own metadata says about the set against its name and the first shard. */
int pn__gguf_check_shard(const struct pn_gguf *g, uint32_t shard_i,
                         const struct gguf_split_name *name, struct pn_detail *d) PN_MUST_CHECK;
/* The tensor count over all shards. */
int pn__gguf_check_set(const struct pn_gguf *g, struct pn_detail *d) PN_MUST_CHECK;

#endif
