/* The integer form of every block type: shapes, values against the oracle on random and saturated
 * blocks with any scale (NaN and infinity too), and block sums that stay exact in int32. */
#include "support/pn_test.h"

#include <math.h>

#include "quant/iq_tables.h"
#include "quant/oracle.h"

#define BLOCKS_MAX 8
#define BLOCK_BYTES_MAX 256
#define ROW_MAX (BLOCKS_MAX * 256)

/* Types that have units, and the largest block sum that unit.c promises for each. */
static const struct {
    enum pn_type type;
    int32_t sum_max;
} types[] = {
    {PN_TYPE_Q4_0, 1 * 8 * 127 * 32},       {PN_TYPE_Q4_1, 1 * 15 * 127 * 32},
    {PN_TYPE_Q5_0, 1 * 16 * 127 * 32},      {PN_TYPE_Q5_1, 1 * 31 * 127 * 32},
    {PN_TYPE_Q8_0, 1 * 128 * 127 * 32},     {PN_TYPE_Q2_K, 15 * 3 * 127 * 256},
    {PN_TYPE_Q3_K, 32 * 4 * 127 * 256},     {PN_TYPE_Q4_K, 63 * 15 * 127 * 256},
    {PN_TYPE_Q5_K, 63 * 31 * 127 * 256},    {PN_TYPE_Q6_K, 128 * 32 * 127 * 256},
    {PN_TYPE_IQ1_S, 15 * 9 * 127 * 256},    {PN_TYPE_IQ1_M, 15 * 9 * 127 * 256},
    {PN_TYPE_IQ2_XXS, 31 * 43 * 127 * 256}, {PN_TYPE_IQ2_XS, 31 * 43 * 127 * 256},
    {PN_TYPE_IQ2_S, 31 * 43 * 127 * 256},   {PN_TYPE_IQ3_XXS, 31 * 62 * 127 * 256},
    {PN_TYPE_IQ3_S, 31 * 15 * 127 * 256},   {PN_TYPE_IQ4_NL, 127 * 127 * 32},
    {PN_TYPE_IQ4_XS, 32 * 127 * 127 * 256}, {PN_TYPE_TQ1_0, 1 * 127 * 256},
    {PN_TYPE_TQ2_0, 2 * 127 * 256},         {PN_TYPE_MXFP4, 12 * 127 * 32},
    {PN_TYPE_NVFP4, 12 * 127 * 16},         {PN_TYPE_Q1_0, 1 * 127 * 32},
    {PN_TYPE_Q2_0, 2 * 127 * 32},
};
#define TYPE_N PN_ARRAY_N(types)

static void shapes(void **state) {
    (void)state;
    unsigned with_units = 0;
    for (unsigned t = 0; t < PN_TYPE_N + 3; t++) {
        const struct pn_type_info *info = pn__type_info(t);
        struct pn_unit_shape s = pn__unit_shape((enum pn_type)t);
        if (!info || (info->act != PN_ACT_Q32 && info->act != PN_ACT_Q256)) {
            assert_int_equal(s.unit_n, 0);
            assert_null(pn__unit_fn((enum pn_type)t));
            continue;
        }
        with_units++;
        unsigned act_n = info->act == PN_ACT_Q32 ? 32 : 256;
        assert_non_null(pn__unit_fn((enum pn_type)t));
        assert_true(s.sub_len == 16 || s.sub_len == 32);
        assert_int_equal(s.sub_n * s.sub_len, s.unit_n);
        assert_true(s.sub_n <= PN_SUB_MAX && s.unit_n <= PN_UNIT_MAX);
        assert_int_equal(act_n % s.unit_n, 0);
        assert_int_equal(info->block_n % s.unit_n, 0);
    }
    assert_int_equal(with_units, TYPE_N);
}

/* FNV-1a over the values of a grid, one byte each, as the format's authors list them. */
static uint64_t grid_hash(const uint16_t *grid, unsigned n, unsigned bits, const int8_t *values) {
    uint64_t h = 0xcbf29ce484222325u;
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < (bits == 2 ? 8 : 4); k++) {
            unsigned digit = grid[i] >> (bits * k) & ((1u << bits) - 1);
            h = (h ^ (uint8_t)values[digit]) * 0x100000001b3u;
        }
    return h;
}

static void grids(void **state) {
    (void)state;
    static const int8_t one[4] = {-1, 0, 1, 99}, two[4] = {8, 25, 43, 99};
    static const int8_t three_xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    static const int8_t three_s[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    assert_true(grid_hash(pn__iq1_grid, 2048, 2, one) == 0x6703ed863501ae2eu);
    assert_true(grid_hash(pn__iq2_xxs_grid, 256, 2, two) == 0xbb4ee025b5ac6e8eu);
    assert_true(grid_hash(pn__iq2_xs_grid, 512, 2, two) == 0xc9b1ee61e79909bdu);
    assert_true(grid_hash(pn__iq2_s_grid, 1024, 2, two) == 0x123edd38a3b62b90u);
    assert_true(grid_hash(pn__iq3_xxs_grid, 256, 3, three_xxs) == 0xdfa5dc83d6a155d5u);
    assert_true(grid_hash(pn__iq3_s_grid, 512, 3, three_s) == 0xfa37020c25b44829u);
}

/* ---- one row against the oracle ---- */

static double unit_value(const struct pn_unit *u, struct pn_unit_shape s, unsigned i) {
    unsigned sub = i / s.sub_len;
    double v = (double)u->d * u->scales[sub] * u->codes[i];
    return s.has_min ? v - (double)u->dmin * u->mins[sub] : v;
}

/* Adds in int32 and fails where that would not be exact. */
static int32_t add_exact(int32_t a, int64_t b) {
    int32_t sum;
    assert_false(__builtin_add_overflow(a, b, &sum));
    return sum;
}

/* Block sums with activations that are all 127, all -127, and 127 with the sign that makes every
 * product positive (the worst case): returns the last. */
static int32_t check_sums(const struct pn_unit *u, struct pn_unit_shape s, int32_t sum_max) {
    int32_t worst = 0;
    for (int kind = 0; kind < 3; kind++) {
        int32_t sum = 0, mins = 0;
        for (unsigned sub = 0; sub < s.sub_n; sub++) {
            int32_t run = 0, q_sum = 0;
            for (unsigned i = 0; i < s.sub_len; i++) {
                int code = u->codes[sub * s.sub_len + i];
                int sign = code * u->scales[sub] < 0 ? -1 : 1;
                int q = kind == 0 ? 127 : kind == 1 ? -127 : 127 * sign;
                run = add_exact(run, (int64_t)code * q);
                q_sum += q;
            }
            sum = add_exact(sum, (int64_t)u->scales[sub] * run);
            if (s.has_min) mins = add_exact(mins, (int64_t)u->mins[sub] * q_sum);
        }
        assert_true(sum <= sum_max && sum >= -sum_max);
        assert_true(mins <= 63 * 127 * 256 && mins >= -63 * 127 * 256);
        worst = sum;
    }
    return worst;
}

#define CANARY 0x5a

/* What lies past the type's shape was left alone. */
static void check_canaries(const struct pn_unit *u, struct pn_unit_shape s) {
    for (unsigned i = s.unit_n; i < PN_UNIT_MAX; i++)
        assert_int_equal(u->codes[i], CANARY);
    for (unsigned i = s.sub_n; i < PN_SUB_MAX; i++)
        assert_int_equal(u->scales[i], CANARY << 8 | CANARY);
    for (unsigned i = s.has_min ? s.sub_n : 0; i < PN_SUB_MAX; i++)
        assert_int_equal(u->mins[i], CANARY << 8 | CANARY);
}

/* `row` is copied to an odd address with nothing behind it, so that alignment and reads past the
 * end show under sanitizers. Returns the largest block sum. */
static int32_t check_row(size_t type_i, const uint8_t *row, unsigned block_n) {
    enum pn_type type = types[type_i].type;
    const struct pn_type_info *info = pn__type_info(type);
    struct pn_unit_shape s = pn__unit_shape(type);
    static float got[ROW_MAX];
    size_t bytes = (size_t)block_n * info->block_bytes;
    uint8_t *memory = malloc(bytes + 1);
    assert_non_null(memory);
    memcpy(memory + 1, row, bytes);
    pn__dequant_row(type, memory + 1, got, (uint64_t)block_n * info->block_n);

    struct pn_unit u;
    int32_t largest = 0;
    for (unsigned i = 0; i < block_n * info->block_n; i++) {
        if (i % s.unit_n == 0) {
            memset(&u, CANARY, sizeof u);
            pn__unit_unpack(type, memory + 1, i / s.unit_n, &u);
            check_canaries(&u, s);
            int32_t sum = check_sums(&u, s, types[type_i].sum_max);
            largest = sum > largest ? sum : largest;
        }
        const uint8_t *block = row + i / info->block_n * info->block_bytes;
        float want = (float)oracle_value(type, block, i % info->block_n);
        float unit = (float)unit_value(&u, s, i % s.unit_n);
        if (oracle_ulps(got[i], want) > 1)
            fail_msg("%s value %u: got %a, want %a", info->name, i, got[i], want);
        if (oracle_ulps(unit, want) > 1)
            fail_msg("%s value %u: unit %a, want %a", info->name, i, unit, want);
    }
    free(memory);
    return largest;
}

static void random_blocks(void **state) {
    (void)state;
    uint8_t row[BLOCKS_MAX * BLOCK_BYTES_MAX];
    for (size_t t = 0; t < TYPE_N; t++) {
        uint64_t seed = 1000 + t;
        const struct pn_type_info *info = pn__type_info(types[t].type);
        for (unsigned round = 0; round < 100; round++) {
            unsigned n = 1 + round % BLOCKS_MAX;
            for (size_t i = 0; i < n * info->block_bytes; i++)
                row[i] = (uint8_t)oracle_random(&seed);
            check_row(t, row, n);
        }
    }
}

/* Offsets of the halves in a block; -1 for none. IQ1_M, MXFP4 and NVFP4 have none. */
static void half_offsets(enum pn_type type, int *d, int *min) {
    *d = 0;
    *min = -1;
    switch (type) {
    case PN_TYPE_Q4_1:
    case PN_TYPE_Q5_1:
    case PN_TYPE_Q4_K:
    case PN_TYPE_Q5_K:
        *min = 2;
        break;
    case PN_TYPE_Q2_K:
        *d = 80;
        *min = 82;
        break;
    case PN_TYPE_Q3_K:
        *d = 108;
        break;
    case PN_TYPE_Q6_K:
        *d = 208;
        break;
    case PN_TYPE_TQ1_0:
        *d = 52;
        break;
    case PN_TYPE_TQ2_0:
        *d = 64;
        break;
    default:
        break;
    }
}

static void set_scales(enum pn_type type, uint8_t *block, uint16_t d, uint16_t min) {
    int d_at, min_at;
    half_offsets(type, &d_at, &min_at);
    if (type == PN_TYPE_IQ1_M) {
        for (int k = 0; k < 4; k++)
            block[49 + 2 * k] = (uint8_t)((block[49 + 2 * k] & 15) | (d >> (4 * k) & 15) << 4);
    } else if (type == PN_TYPE_MXFP4) {
        block[0] = (uint8_t)(d >> 8);
    } else if (type == PN_TYPE_NVFP4) {
        for (int k = 0; k < 4; k++)
            block[k] = (uint8_t)(d >> (2 * k));
    } else {
        memcpy(block + d_at, &d, 2);
        if (min_at >= 0) memcpy(block + min_at, &min, 2);
    }
}

/* Every byte of a block the same, or alternating between two, so that codes and sub-scales sit at
 * both ends of their ranges, under each kind of scale. */
static void saturated_blocks(void **state) {
    (void)state;
    static const uint8_t fills[] = {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x55, 0xaa, 0xc0, 0x3f};
    static const uint16_t scales[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x3c00, 0x7bff,
                                      0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xffff, 0x0100};
    for (size_t t = 0; t < TYPE_N; t++) {
        enum pn_type type = types[t].type;
        uint32_t bytes = pn__type_info(type)->block_bytes;
        for (size_t f = 0; f < PN_ARRAY_N(fills) * PN_ARRAY_N(fills); f++) {
            uint8_t block[BLOCK_BYTES_MAX];
            for (uint32_t i = 0; i < bytes; i++)
                block[i] = fills[i % 2 ? f / PN_ARRAY_N(fills) : f % PN_ARRAY_N(fills)];
            for (size_t s = 0; s < PN_ARRAY_N(scales); s++) {
                set_scales(type, block, scales[s], scales[(s + f) % PN_ARRAY_N(scales)]);
                check_row(t, block, 1);
            }
        }
    }
}

static size_t index_of(enum pn_type type) {
    size_t t = 0;
    while (types[t].type != type)
        t++;
    return t;
}

/* The largest sums are reached, not just bounded: Q6_K with codes -32 and scales -128, Q8_0 with
 * -128, Q4_K and Q5_K with everything set. */
static void largest_sums(void **state) {
    (void)state;
    uint8_t block[BLOCK_BYTES_MAX] = {0};
    memset(block + 192, 0x80, 16);
    assert_int_equal(check_row(index_of(PN_TYPE_Q6_K), block, 1), 133169152);
    memset(block, 0x80, sizeof block);
    assert_int_equal(check_row(index_of(PN_TYPE_Q8_0), block, 1), 520192);
    memset(block, 0xff, sizeof block);
    assert_int_equal(check_row(index_of(PN_TYPE_Q4_K), block, 1), 30723840);
    assert_int_equal(check_row(index_of(PN_TYPE_Q5_K), block, 1), 63495936);
}

/* Every index of every grid, as a block can name it. */
static void every_grid_entry(void **state) {
    (void)state;
    uint8_t row[BLOCK_BYTES_MAX];
    static const enum pn_type grid_types[] = {PN_TYPE_IQ1_S,  PN_TYPE_IQ1_M, PN_TYPE_IQ2_XXS,
                                              PN_TYPE_IQ2_XS, PN_TYPE_IQ2_S, PN_TYPE_IQ3_XXS,
                                              PN_TYPE_IQ3_S};
    uint64_t seed = 7;
    for (size_t g = 0; g < PN_ARRAY_N(grid_types); g++) {
        enum pn_type type = grid_types[g];
        uint32_t bytes = pn__type_info(type)->block_bytes;
        for (unsigned low = 0; low < 256; low++)
            for (unsigned high = 0; high < 16; high++) {
                for (uint32_t i = 0; i < bytes; i++)
                    row[i] = (uint8_t)low;
                /* High index bits lie behind the low ones, in IQ2_XS in every other byte. */
                if (type == PN_TYPE_IQ2_XS)
                    for (uint32_t i = 3; i < 66; i += 2)
                        row[i] = (uint8_t)high;
                else
                    for (uint32_t i = type == PN_TYPE_IQ1_M ? 32 : 34; i < bytes; i++)
                        row[i] = (uint8_t)(high * 0x11 ^ (oracle_random(&seed) & 0x88));
                set_scales(type, row, 0x3c00, 0);
                check_row(index_of(type), row, 1);
            }
    }
}

static void plain_rows(void **state) {
    (void)state;
    static const float f[5] = {0.0f, -1.5f, 65504.0f, 0x1p-24f, INFINITY};
    static const uint16_t half[5] = {0, 0xbe00, 0x7bff, 1, 0x7c00};
    static const uint16_t bf[5] = {0, 0xbfc0, 0x4780, 0x3380, 0x7f80};
    uint8_t odd[21];
    float got[5];
    memcpy(odd + 1, f, sizeof f);
    for (unsigned n = 0; n <= 5; n++) {
        memset(got, CANARY, sizeof got);
        pn__dequant_row(PN_TYPE_F32, odd + 1, got, n);
        assert_memory_equal(got, f, n * sizeof *f);
    }
    memcpy(odd + 1, half, sizeof half);
    pn__dequant_row(PN_TYPE_F16, odd + 1, got, 5);
    assert_memory_equal(got, f, sizeof f);
    memcpy(odd + 1, bf, sizeof bf);
    pn__dequant_row(PN_TYPE_BF16, odd + 1, got, 5);
    assert_true(got[1] == -1.5f && got[2] == 65536.0f && got[3] == 0x1p-24f && isinf(got[4]));
    /* No float form here: NaN rather than numbers that look right. */
    pn__dequant_row(PN_TYPE_I32, odd + 1, got, 5);
    for (int i = 0; i < 5; i++)
        assert_true(isnan(got[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),        cmocka_unit_test(grids),
        cmocka_unit_test(random_blocks), cmocka_unit_test(saturated_blocks),
        cmocka_unit_test(largest_sums),  cmocka_unit_test(every_grid_entry),
        cmocka_unit_test(plain_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
