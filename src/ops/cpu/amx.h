/* What the AMX matmuls share: more than PN_TILE rows of input times weights in blocks.
 *
 * A tile register holds 16 rows of 64 bytes, and one instruction adds the dots of 16 rows of input
 * with 16 rows of weights over up to 64 codes. The weights are unpacked by the walks of AVX-512,
 * whose registers of one dword a row are what the instruction takes as its second matrix; the input
 * lies in tiles of 16 rows (kernels.h). All sums are exact integers, so only the order of what
 * follows counts, and that is AVX-512's: the same bits.
 *
 * The tile shapes are a thread's state: set where they change, released at the end, or the system
 * would go on saving the registers. */
#ifndef PN_OPS_CPU_AMX_H
#define PN_OPS_CPU_AMX_H

#include "ops/cpu/avx512.h"

#define AMX_ROWS 16 /* input rows of a tile */
#define AMX_VALUES (AMX_ROWS * ROWS)

/* Rows of input up to which weights are not kept in a panel: a few blocks are unpacked and used at
 * once, so that reading memory and arithmetic overlap. */
#define AMX_STREAM_ROWS AMX_ROWS

/* The intrinsics don't tell the compiler what memory they read. */
#define PN_AMX_FENCE() __asm__ volatile("" ::: "memory")

/* ---- shapes ---- */

/* Tile registers 0 to 3 hold sums, one row an input row; 4 and 5 input; 6 and 7 weights. */
#define SUM_TILES 4
#define INPUT_TILES 6
#define TILES 8

/* The instruction's operand. */
struct pn_amx_config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t zeros[14];
    uint16_t row_bytes[16];
    uint8_t row_n[16];
};
_Static_assert(sizeof(struct pn_amx_config) == 64, "as the processor reads it");

/* Dots over `len` codes. The even registers of sums and input are for row_n[0] input rows, the
 * odd ones for row_n[1], or where that is 0 for row_n[0] too. */
INLINE void pn__amx_shape(uint32_t len, const uint32_t row_n[2]) {
    struct pn_amx_config c = {.palette = 1};
    for (int i = 0; i < TILES; i++) {
        bool input = i >= SUM_TILES && i < INPUT_TILES;
        c.row_bytes[i] = (uint16_t)(input ? len : 64);
        uint32_t input_n = i % 2 && row_n[1] ? row_n[1] : row_n[0];
        c.row_n[i] = (uint8_t)(i < INPUT_TILES ? input_n : len / 4);
    }
    /* Not the intrinsic: gcc 12's names eight of the bytes as read, and the rest is optimised away.
     */
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}

/* ---- groups of sixteen weight rows ---- */

/* Part of a product: blocks of group_n groups of weights with one or two tiles of input. */
struct pn_amx_part {
    const uint8_t *panel; /* packed blocks, the first of which is number block_i of the row */
    uint64_t group_bytes; /* from one group to the next */
    uint32_t group_n;
    uint64_t block_i;
    uint64_t block_n;
    const struct pn_acts *acts;
    uint32_t tile_i;   /* first tile of input */
    uint32_t row_n[2]; /* input rows of it and of the next; the second may be 0 */
    float *f;          /* [group_n][2][AMX_ROWS][ROWS] dots in the making, 64-byte aligned */
    struct pn_feed *feed;
};

/* What a type does; handed on as plain arguments, constants where they are inlined. */
struct pn_amx_type {
    struct pn_group_shape shape;
    uint32_t dot_len;  /* codes of an instruction */
    uint32_t tile_n;   /* of input at a time */
    uint32_t group_n;  /* of weights at a time */
    uint64_t stream_n; /* blocks at a time where there is no panel: whole blocks of any type */
};
typedef void (*pn_amx_dot_fn)(const struct pn_amx_part *p);

#define AMX_GROUP_MAX 2
#define AMX_STREAM_BYTES 10240

INLINE void pn__amx_put(const struct pn_mm *mm, const struct pn_amx_part *p, const float *f,
                        uint32_t first, __mmask16 ours) {
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t m = 0; m < p->row_n[t]; m++)
            pn__put16(mm, (p->tile_i + t) * AMX_ROWS + m, first, ours,
                      _mm512_load_ps(f + t * AMX_VALUES + m * ROWS));
}

/* Input rows of a tile and of the next one, where tile_n says that it is taken along. */
INLINE void pn__amx_rows(const struct pn_acts *a, uint32_t tile_i, uint32_t tile_n,
                         uint32_t row_n[2]) {
    uint32_t left_n = a->row_n - tile_i * AMX_ROWS;
    row_n[0] = left_n < AMX_ROWS ? left_n : AMX_ROWS;
    left_n -= row_n[0];
    row_n[1] = tile_n < 2 ? 0 : left_n < AMX_ROWS ? left_n : AMX_ROWS;
}

/* One tile of input: each block is used as soon as it is unpacked. */
INLINE void pn__amx_stream(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                           struct pn_amx_type type, pn_pack_fn pack, pn_amx_dot_fn dot) {
    const struct pn_weight *w = mm->w;
    uint64_t block_n = w->col_n / type.shape.block_len;
    uint32_t ahead = pn__rows_ahead(w);
    _Alignas(64) uint8_t panel[AMX_STREAM_BYTES];
    _Alignas(64) float f[2 * AMX_VALUES];
    struct pn_feed feed = {0};
    struct pn_amx_part p = {.panel = panel, .group_n = 1, .acts = mm->acts, .f = f, .feed = &feed};
    pn__amx_rows(mm->acts, 0, 1, p.row_n);
    pn__amx_shape(type.dot_len, p.row_n);
    for (uint32_t row = lo; row < hi; row += ROWS) {
        __mmask16 ours;
        uint32_t first = pn__group_start(w, row, hi, &ours);
        const uint8_t *next = pn__group_ahead(mm, row, hi, ahead);
        memset(f, 0, AMX_VALUES * sizeof *f);
        for (uint64_t b = 0; b < block_n; b += type.stream_n) {
            struct pn_walk k = pn__walk_of(w, first, type.shape.block_len);
            uint64_t at = w->row_bytes * b / block_n;
            k.block_n = block_n - b < type.stream_n ? block_n - b : type.stream_n;
            k.p += at;
            if (next) k.next = next + at * ROWS;
            pack(&k, panel);
            p.block_i = b;
            p.block_n = k.block_n;
            dot(&p);
        }
        pn__amx_put(mm, &p, f, first, ours);
    }
}

INLINE void pn__amx_panel(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                          const struct pn_thread_scratch *scratch, struct pn_amx_type type,
                          pn_pack_fn pack, pn_amx_dot_fn dot) {
    const struct pn_weight *w = mm->w;
    const struct pn_acts *a = mm->acts;
    uint64_t block_n = w->col_n / type.shape.block_len;
    uint64_t group_bytes = block_n * type.shape.record_bytes;
    uint32_t group_max = (uint32_t)(scratch->panel_bytes / group_bytes);
    if (group_max > PN_AMX_GROUPS) group_max = PN_AMX_GROUPS;
    uint32_t tile_n = (a->row_n + AMX_ROWS - 1) / AMX_ROWS;
    uint32_t shape[2] = {0};
    _Alignas(64) float f[AMX_GROUP_MAX * 2 * AMX_VALUES];
    for (uint32_t row = lo; row < hi; row += group_max * ROWS) {
        uint32_t end = hi - row < group_max * ROWS ? hi : row + group_max * ROWS;
        uint32_t group_n = (end - row + ROWS - 1) / ROWS;
        uint32_t first[PN_AMX_GROUPS];
        __mmask16 ours[PN_AMX_GROUPS];
        uint64_t turn_n = (uint64_t)((tile_n + type.tile_n - 1) / type.tile_n) *
                          ((group_n + type.group_n - 1) / type.group_n);
        struct pn_feed feed = pn__feed_after(mm, row, end, hi, turn_n * block_n);
        for (uint32_t g = 0; g < group_n; g++) {
            first[g] = pn__group_start(w, row + g * ROWS, hi, &ours[g]);
            pn__panel_pack(mm, first[g], g + 1 == group_n, type.shape, pack,
                           scratch->panel + g * group_bytes);
        }
        for (uint32_t t = 0; t < tile_n; t += type.tile_n) {
            struct pn_amx_part p = {.group_bytes = group_bytes,
                                    .block_n = block_n,
                                    .acts = a,
                                    .tile_i = t,
                                    .f = f,
                                    .feed = &feed};
            pn__amx_rows(a, t, type.tile_n, p.row_n);
            if (p.row_n[0] != shape[0] || p.row_n[1] != shape[1]) {
                memcpy(shape, p.row_n, sizeof shape);
                pn__amx_shape(type.dot_len, shape);
            }
            for (uint32_t g = 0; g < group_n; g += p.group_n) {
                p.panel = scratch->panel + g * group_bytes;
                p.group_n = group_n - g < type.group_n ? 1 : type.group_n;
                memset(f, 0, p.group_n * 2 * AMX_VALUES * sizeof *f);
                dot(&p);
                for (uint32_t i = 0; i < p.group_n; i++)
                    pn__amx_put(mm, &p, f + i * 2 * AMX_VALUES, first[g + i], ours[g + i]);
            }
        }
    }
}

/* Weight rows [lo, hi) for more than PN_TILE rows of input. */
INLINE void pn__matmul_amx(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                           const struct pn_thread_scratch *scratch, struct pn_amx_type type,
                           pn_pack_fn pack, pn_amx_dot_fn dot) {
    if (mm->acts->row_n <= AMX_STREAM_ROWS)
        pn__amx_stream(mm, lo, hi, type, pack, dot);
    else
        pn__amx_panel(mm, lo, hi, scratch, type, pack, dot);
    _tile_release();
}

void pn__init_amx(struct pn_kernels *k);
void pn__init_amx_q32(struct pn_kernels *k);
void pn__init_amx_unit32(struct pn_kernels *k);
void pn__init_amx_k(struct pn_kernels *k);
void pn__init_amx_unit256(struct pn_kernels *k);

#endif
