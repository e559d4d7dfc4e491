/* Block formats of ggml tensor types: sizes, exact dequantisation, quantisation, and the integer
 * form (codes, sub-scales, float scale) that every kernel's arithmetic is defined on.
 */
#ifndef PN_QUANT_H
#define PN_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* ggml's own numbers, as stored in files. */
enum pn_type {
    PN_TYPE_F32 = 0,
    PN_TYPE_F16 = 1,
    PN_TYPE_Q4_0 = 2,
    PN_TYPE_Q4_1 = 3,
    PN_TYPE_Q5_0 = 6,
    PN_TYPE_Q5_1 = 7,
    PN_TYPE_Q8_0 = 8,
    PN_TYPE_Q8_1 = 9,
    PN_TYPE_Q2_K = 10,
    PN_TYPE_Q3_K = 11,
    PN_TYPE_Q4_K = 12,
    PN_TYPE_Q5_K = 13,
    PN_TYPE_Q6_K = 14,
    PN_TYPE_Q8_K = 15,
    PN_TYPE_IQ2_XXS = 16,
    PN_TYPE_IQ2_XS = 17,
    PN_TYPE_IQ3_XXS = 18,
    PN_TYPE_IQ1_S = 19,
    PN_TYPE_IQ4_NL = 20,
    PN_TYPE_IQ3_S = 21,
    PN_TYPE_IQ2_S = 22,
    PN_TYPE_IQ4_XS = 23,
    PN_TYPE_I8 = 24,
    PN_TYPE_I16 = 25,
    PN_TYPE_I32 = 26,
    PN_TYPE_I64 = 27,
    PN_TYPE_F64 = 28,
    PN_TYPE_IQ1_M = 29,
    PN_TYPE_BF16 = 30,
    PN_TYPE_TQ1_0 = 34,
    PN_TYPE_TQ2_0 = 35,
    PN_TYPE_MXFP4 = 39,
    PN_TYPE_NVFP4 = 40,
    PN_TYPE_Q1_0 = 41,
    PN_TYPE_Q2_0 = 42,
};
#define PN_TYPE_N 43 /* numbers are below this; gaps are removed types */

/* How the activation beside a weight of this type is prepared (KERNELS: part of the type). */
enum pn_act_kind {
    PN_ACT_NONE = 0, /* not a matmul weight type */
    PN_ACT_F32,      /* as it is: F32, F16 */
    PN_ACT_BF16,     /* rounded to bfloat16, nearest even: BF16 */
    PN_ACT_Q32,      /* int8 in blocks of 32 */
    PN_ACT_Q256,     /* int8 in blocks of 256 */
};

struct pn_type_info {
    const char *name;     /* "Q4_K"; NULL for a number that no type has */
    uint32_t block_n;     /* values a block */
    uint32_t block_bytes; /* bytes a block */
    enum pn_act_kind act;
};

/* NULL when `type` is no type that this build knows. */
const struct pn_type_info *pn__type_info(unsigned type);
const char *pn__type_name(unsigned type); /* "?" for unknown */
bool pn__type_by_name(const char *name, enum pn_type *out);
/* "F32 F16 Q4_0 …": every type this build knows, for messages. */
const char *pn__type_list(void);

/* Bytes of a row of `col_n` values. False when the type is unknown, col_n is not a multiple of its
 * block, or the product wraps. */
bool pn__type_row_bytes(unsigned type, uint64_t col_n, uint64_t *out);

/* half and bfloat16, exact and round-to-nearest-even, all of NaN, infinities and subnormals. */
float pn__f16_to_f32(uint16_t h);
uint16_t pn__f32_to_f16(float f);
float pn__bf16_to_f32(uint16_t h);
uint16_t pn__f32_to_bf16(float f);

/* Row of `col_n` values (a multiple of block_n) to floats, exact to 1 ulp of the reference. Types
 * with act NONE have no such form here: every value becomes NaN. */
void pn__dequant_row(enum pn_type type, const void *src, float *dst, uint64_t col_n);

/* Floats to F32, F16, BF16, Q8_0, Q4_0 (reference rounding: what ggml's quantize_row_*_ref gives).
 * A block with a value that isn't finite gets a NaN scale and codes of 0, so that the NaN comes out
 * again. PN_E_UNSUPPORTED for other types, PN_E_INVALID when col_n is not a multiple of block_n. */
int pn__quant_row(enum pn_type type, const float *src, void *dst, uint64_t col_n) PN_MUST_CHECK;

/* ---- integer form ----
 * A block of block_n values is sub_n runs of sub_len codes. With scales s and codes c the weights
 * are
 *     w = d * scales[sub] * c  -  dmin * mins[sub]
 * and a block's share of row.x, with activation codes q and activation scale dx, is
 *     f = fmaf((float)(sum_sub scales[sub] * (sum c*q)), d * dx, f)
 *     then, for types with has_min, f = fmaf((float)(sum_sub mins[sub] * (sum q)), -dmin * dx, f)
 * Every integer sum is exact in int32 (unit.c has the bound of each type). A type whose floats
 * differ within a file block (NVFP4) or whose file block is longer than an activation block (Q1_0,
 * Q2_0) yields several "units": a unit is what one fmaf covers, unit_n values. One activation block
 * holds one or more whole units.
 */
#define PN_UNIT_MAX 256
#define PN_SUB_MAX 16
struct pn_unit {
    PN_ALIGNED(32) int8_t codes[PN_UNIT_MAX];
    int16_t scales[PN_SUB_MAX]; /* 1 where the type has no sub-scales */
    int16_t mins[PN_SUB_MAX];   /* left alone where the type has no minimum */
    float d;
    float dmin; /* has_min types; Q4_1 and Q5_1 store -m here with mins 1 */
};
struct pn_unit_shape {
    uint16_t unit_n;  /* values a unit: 16, 32 or 256 */
    uint16_t sub_n;   /* runs a unit */
    uint16_t sub_len; /* values a run: 16 or 32; sub_n * sub_len == unit_n */
    bool has_min;
};
/* For every type with act Q32 or Q256; all zero for others. */
struct pn_unit_shape pn__unit_shape(enum pn_type type);

/* Unpacks unit `unit_i` of a row (counted from the row's start); `row` needs no alignment. Codes
 * and scales past the type's shape are left alone. */
typedef void (*pn_unit_fn)(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out);

/* The unpacker of a type, to look up once a matrix; NULL where pn__unit_shape is all zero. */
pn_unit_fn pn__unit_fn(enum pn_type type);
/* The same by type, for callers that unpack little. */
void pn__unit_unpack(enum pn_type type, const void *row, uint64_t unit_i, struct pn_unit *out);

#endif
