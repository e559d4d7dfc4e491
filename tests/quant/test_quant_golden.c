/* Every block type against the floats that a reference engine made of the same 1024 weights
 * (tests/data/quants): dequantisation, the integer form, and the oracle of these tests. */
#include "support/pn_test.h"

#include <math.h>

#include "quant/oracle.h"

#define GOLDEN_N 1024
#define BYTES_MAX (GOLDEN_N * 4)

static size_t load(const char *type, const char *ext, void *to) {
    char path[512];
    snprintf(path, sizeof path, "%s/quants/%s.%s", PN_TEST_DATA, type, ext);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    size_t n = fread(to, 1, BYTES_MAX, f);
    fclose(f);
    return n;
}

/* d * scale * code - dmin * min in double, which holds every product and difference exactly. */
static double unit_value(const struct pn_unit *u, struct pn_unit_shape s, unsigned i) {
    unsigned sub = i / s.sub_len;
    double v = (double)u->d * u->scales[sub] * u->codes[i];
    return s.has_min ? v - (double)u->dmin * u->mins[sub] : v;
}

static void check_type(enum pn_type type, const struct pn_type_info *info) {
    static uint8_t packed[BYTES_MAX];
    static float want[GOLDEN_N], got[GOLDEN_N];
    uint64_t bytes = 0;
    assert_true(pn__type_row_bytes(type, GOLDEN_N, &bytes));
    assert_int_equal(load(info->name, "bin", packed), bytes);
    assert_int_equal(load(info->name, "f32", want), sizeof want);

    pn__dequant_row(type, packed, got, GOLDEN_N);
    for (unsigned i = 0; i < GOLDEN_N; i++)
        if (oracle_ulps(got[i], want[i]) > 1)
            fail_msg("%s value %u: got %a, want %a", info->name, i, got[i], want[i]);
    if (info->block_n == 1) return;

    for (unsigned i = 0; i < GOLDEN_N; i++) {
        const uint8_t *block = packed + i / info->block_n * info->block_bytes;
        float v = (float)oracle_value(type, block, i % info->block_n);
        if (oracle_ulps(v, want[i]) > 1)
            fail_msg("%s value %u: oracle %a, want %a", info->name, i, v, want[i]);
    }
    struct pn_unit_shape shape = pn__unit_shape(type);
    struct pn_unit u;
    for (unsigned i = 0; i < GOLDEN_N; i++) {
        if (i % shape.unit_n == 0) pn__unit_unpack(type, packed, i / shape.unit_n, &u);
        float v = (float)unit_value(&u, shape, i % shape.unit_n);
        if (oracle_ulps(v, want[i]) > 1)
            fail_msg("%s value %u: unit %a, want %a", info->name, i, v, want[i]);
    }
}

static void every_type(void **state) {
    (void)state;
    unsigned checked = 0;
    for (unsigned t = 0; t < PN_TYPE_N; t++) {
        const struct pn_type_info *info = pn__type_info(t);
        if (!info || info->act == PN_ACT_NONE || t == PN_TYPE_F32) continue;
        check_type((enum pn_type)t, info);
        checked++;
    }
    assert_int_equal(checked, 27);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
