/* The type table: every number from 0 to 60, names both ways, row sizes and their overflow. */
#include "support/pn_test.h"

#include "quant/quant.h"

struct expected {
    unsigned type;
    const char *name;
    uint32_t n, bytes;
    enum pn_act_kind act;
};

static const struct expected rows[] = {
    {0, "F32", 1, 4, PN_ACT_F32},          {1, "F16", 1, 2, PN_ACT_F32},
    {2, "Q4_0", 32, 18, PN_ACT_Q32},       {3, "Q4_1", 32, 20, PN_ACT_Q32},
    {6, "Q5_0", 32, 22, PN_ACT_Q32},       {7, "Q5_1", 32, 24, PN_ACT_Q32},
    {8, "Q8_0", 32, 34, PN_ACT_Q32},       {9, "Q8_1", 32, 36, PN_ACT_NONE},
    {10, "Q2_K", 256, 84, PN_ACT_Q256},    {11, "Q3_K", 256, 110, PN_ACT_Q256},
    {12, "Q4_K", 256, 144, PN_ACT_Q256},   {13, "Q5_K", 256, 176, PN_ACT_Q256},
    {14, "Q6_K", 256, 210, PN_ACT_Q256},   {15, "Q8_K", 256, 292, PN_ACT_NONE},
    {16, "IQ2_XXS", 256, 66, PN_ACT_Q256}, {17, "IQ2_XS", 256, 74, PN_ACT_Q256},
    {18, "IQ3_XXS", 256, 98, PN_ACT_Q256}, {19, "IQ1_S", 256, 50, PN_ACT_Q256},
    {20, "IQ4_NL", 32, 18, PN_ACT_Q32},    {21, "IQ3_S", 256, 110, PN_ACT_Q256},
    {22, "IQ2_S", 256, 82, PN_ACT_Q256},   {23, "IQ4_XS", 256, 136, PN_ACT_Q256},
    {24, "I8", 1, 1, PN_ACT_NONE},         {25, "I16", 1, 2, PN_ACT_NONE},
    {26, "I32", 1, 4, PN_ACT_NONE},        {27, "I64", 1, 8, PN_ACT_NONE},
    {28, "F64", 1, 8, PN_ACT_NONE},        {29, "IQ1_M", 256, 56, PN_ACT_Q256},
    {30, "BF16", 1, 2, PN_ACT_BF16},       {34, "TQ1_0", 256, 54, PN_ACT_Q256},
    {35, "TQ2_0", 256, 66, PN_ACT_Q256},   {39, "MXFP4", 32, 17, PN_ACT_Q32},
    {40, "NVFP4", 64, 36, PN_ACT_Q32},     {41, "Q1_0", 128, 18, PN_ACT_Q32},
    {42, "Q2_0", 64, 18, PN_ACT_Q32},
};

static void every_number(void **state) {
    (void)state;
    size_t next = 0;
    for (unsigned t = 0; t <= 60; t++) {
        const struct pn_type_info *info = pn__type_info(t);
        if (next < PN_ARRAY_N(rows) && rows[next].type == t) {
            const struct expected *e = &rows[next++];
            assert_non_null(info);
            assert_string_equal(info->name, e->name);
            assert_int_equal(info->block_n, e->n);
            assert_int_equal(info->block_bytes, e->bytes);
            assert_int_equal(info->act, e->act);
            assert_string_equal(pn__type_name(t), e->name);
        } else {
            assert_null(info);
            assert_string_equal(pn__type_name(t), "?");
        }
    }
    assert_int_equal(next, PN_ARRAY_N(rows));
    assert_null(pn__type_info(UINT32_MAX));
}

static void names_round_trip(void **state) {
    (void)state;
    char list[1024] = "";
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        enum pn_type type = PN_TYPE_N;
        assert_true(pn__type_by_name(rows[i].name, &type));
        assert_int_equal(type, rows[i].type);
        if (i > 0) strcat(list, " ");
        strcat(list, rows[i].name);
    }
    assert_string_equal(pn__type_list(), list);

    enum pn_type type = PN_TYPE_I8;
    static const char *const unknown[] = {"", "?", "Q4", "Q4_2", "Q4_0 ", "q4_0x", "F3", "F322"};
    for (size_t i = 0; i < PN_ARRAY_N(unknown); i++)
        assert_false(pn__type_by_name(unknown[i], &type));
    assert_int_equal(type, PN_TYPE_I8); /* left alone */
}

static void row_bytes(void **state) {
    (void)state;
    uint64_t bytes = 0;
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        const struct expected *e = &rows[i];
        assert_true(pn__type_row_bytes(e->type, 0, &bytes));
        assert_int_equal(bytes, 0);
        assert_true(pn__type_row_bytes(e->type, 12 * (uint64_t)e->n, &bytes));
        assert_int_equal(bytes, 12 * (uint64_t)e->bytes);
        if (e->n == 1) continue;
        assert_false(pn__type_row_bytes(e->type, 1, &bytes));
        assert_false(pn__type_row_bytes(e->type, e->n - 1, &bytes));
        assert_false(pn__type_row_bytes(e->type, e->n + 1, &bytes));
    }
    assert_false(pn__type_row_bytes(4, 32, &bytes));
    assert_false(pn__type_row_bytes(PN_TYPE_N, 32, &bytes));
    assert_false(pn__type_row_bytes(UINT32_MAX, 32, &bytes));
}

static void row_bytes_overflow(void **state) {
    (void)state;
    uint64_t bytes = 0;
    assert_true(pn__type_row_bytes(PN_TYPE_F32, UINT64_MAX / 4, &bytes));
    assert_int_equal(bytes, UINT64_MAX / 4 * 4);
    assert_false(pn__type_row_bytes(PN_TYPE_F32, UINT64_MAX / 4 + 1, &bytes));
    assert_false(pn__type_row_bytes(PN_TYPE_F64, UINT64_MAX, &bytes));
    /* The only block type with more bytes than values. */
    uint64_t most = UINT64_MAX / 34 * 32;
    assert_true(pn__type_row_bytes(PN_TYPE_Q8_0, most, &bytes));
    assert_false(pn__type_row_bytes(PN_TYPE_Q8_0, most + 32, &bytes));
    assert_true(pn__type_row_bytes(PN_TYPE_Q4_0, UINT64_MAX / 32 * 32, &bytes));
    assert_int_equal(bytes, UINT64_MAX / 32 * 18);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number),
        cmocka_unit_test(names_round_trip),
        cmocka_unit_test(row_bytes),
        cmocka_unit_test(row_bytes_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
