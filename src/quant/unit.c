/* The integer form by type, and dequantisation, which is defined on it.
 *
 * Bounds of the block sums with activation codes |q| <= 127, all below 2^31, so int32 is exact in
 * any order of additions (|scale| x |code| x 127 x values):
 *     Q8_0            1 x 128 x 127 x  32 =     520 192
 *     IQ4_NL          1 x 127 x 127 x  32 =     516 128
 *     Q5_1 and below  1 x  31 x 127 x  32 =     125 984
 *     Q6_K          128 x  32 x 127 x 256 = 133 169 152, the largest
 *     IQ4_XS         32 x 127 x 127 x 256 = 132 128 768
 *     Q5_K           63 x  31 x 127 x 256 =  63 495 936
 *     IQ3_XXS        31 x  62 x 127 x 256 =  62 488 064
 *     IQ2_*          31 x  43 x 127 x 256 =  43 338 496
 *     Q4_K           63 x  15 x 127 x 256 =  30 723 840
 *     IQ3_S          31 x  15, IQ1_* 15 x 9, Q3_K 32 x 4, Q2_K 15 x 3, TQ* 1 x 1: smaller
 *     minimums       63 x       127 x 256 =   2 048 256
 *
 * Dequantisation in float rounds once a value: a half has 11 significant bits, so d * scale (8 bits
 * more at most) is exact, and so are d * scale * code where there is a minimum (11 + 6 + 5 bits)
 * and dmin * min; what rounds is the last product or the subtraction, as in the reference. */
#include <string.h>

#include "quant/bits.h"
#include "quant/unit.h"

struct unit_entry {
    struct pn_unit_shape shape;
    pn_unit_fn fn;
};

static const struct unit_entry entries[PN_TYPE_N] = {
#define UNIT_ROW(id, suffix, n, sub_n, sub_len, has_min) \
    [PN_TYPE_##id] = {{n, sub_n, sub_len, has_min}, pn__unit_##suffix},
    PN_UNIT_TABLE(UNIT_ROW)
#undef UNIT_ROW
};

static const struct unit_entry no_entry;

static const struct unit_entry *entry_of(enum pn_type type) {
    return (unsigned)type < PN_TYPE_N ? &entries[type] : &no_entry;
}

struct pn_unit_shape pn__unit_shape(enum pn_type type) {
    return entry_of(type)->shape;
}

pn_unit_fn pn__unit_fn(enum pn_type type) {
    return entry_of(type)->fn;
}

void pn__unit_unpack(enum pn_type type, const void *row, uint64_t unit_i, struct pn_unit *out) {
    entry_of(type)->fn(row, unit_i, out);
}

static void unit_floats(const struct pn_unit *u, struct pn_unit_shape shape, float *restrict dst) {
    const int8_t *code = u->codes;
    for (unsigned s = 0; s < shape.sub_n; s++) {
        float scale = u->d * u->scales[s];
        if (shape.has_min) {
            float min = u->dmin * u->mins[s];
            for (unsigned i = 0; i < shape.sub_len; i++)
                dst[i] = scale * code[i] - min;
        } else {
            for (unsigned i = 0; i < shape.sub_len; i++)
                dst[i] = scale * code[i];
        }
        code += shape.sub_len;
        dst += shape.sub_len;
    }
}

void pn__dequant_row(enum pn_type type, const void *src, float *dst, uint64_t col_n) {
    const struct unit_entry *entry = entry_of(type);
    const uint8_t *bytes = src;
    if (entry->fn) {
        struct pn_unit u;
        for (uint64_t i = 0; i < col_n / entry->shape.unit_n; i++) {
            entry->fn(src, i, &u);
            unit_floats(&u, entry->shape, dst + i * entry->shape.unit_n);
        }
    } else if (type == PN_TYPE_F32) {
        if (col_n > 0) memcpy(dst, src, col_n * sizeof *dst);
    } else if (type == PN_TYPE_F16) {
        for (uint64_t i = 0; i < col_n; i++)
            dst[i] = pn__load_f16(bytes + 2 * i);
    } else if (type == PN_TYPE_BF16) {
        for (uint64_t i = 0; i < col_n; i++)
            dst[i] = pn__bfloat_widen(pn__load_u16(bytes + 2 * i));
    } else {
        for (uint64_t i = 0; i < col_n; i++)
            dst[i] = pn__f32_of_bits(0x7fc00000u);
    }
}
