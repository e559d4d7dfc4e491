/* Known answers for the integer dot products of the matmul, on every object flavour of this build.
 *
 * gcc 12 at -O3 -mavx512vnni turns a sum of (int8_t)u8 * s8 into one of u8 * s8. The kernels
 * declare their codes int8_t, which it gets right; this is the alarm if a compiler ever doesn't.
 * Q8_0 rows reach every code, -128 included, against the extreme activation codes.
 */
#include "ops/ops_test.h"

#define K 64
#define ROWS 21
#define BLOCK 34 /* f16 scale, 32 codes */

static void put_block(uint8_t *to, const int8_t codes[32]) {
    const uint16_t one = 0x3c00;
    memcpy(to, &one, 2);
    memcpy(to + 2, codes, 32);
}

/* Weights c, c + 1, … and activations of +-127 and 0 with an am of 127: the scale is 1, codes are
 * the values, and the result is the integer itself. */
static void check_code(struct backend *b, int c, uint32_t m_n, int pattern) {
    uint8_t rows[ROWS * K / 32 * BLOCK];
    float x[8 * K], out[8 * ROWS];
    long want[ROWS] = {0};
    float q[K];
    for (int k = 0; k < K; k++) {
        static const float extremes[4][4] = {{127, 127, 127, 127},
                                             {-127, -127, -127, -127},
                                             {127, -127, 127, -127},
                                             {-127, 0, 1, 127}};
        q[k] = extremes[pattern][k % 4];
    }
    for (uint32_t m = 0; m < m_n; m++)
        memcpy(x + m * K, q, sizeof q);
    for (int r = 0; r < ROWS; r++) {
        for (int blk = 0; blk < K / 32; blk++) {
            int8_t codes[32];
            for (int i = 0; i < 32; i++) {
                codes[i] = (int8_t)(((c + r + (pattern < 2 ? 0 : i)) & 255) - 128);
                want[r] += (long)codes[i] * (long)q[blk * 32 + i];
            }
            put_block(rows + (r * (K / 32) + blk) * BLOCK, codes);
        }
    }
    struct pn_weight w = {rows, K / 32 * BLOCK, ROWS, K, PN_TYPE_Q8_0, 1.0f};
    struct pn_matmul part = {&w, NULL, mat(out, m_n, ROWS)};
    pn__op_matmul(&b->step, mat(x, m_n, K), &part, 1);
    for (uint32_t m = 0; m < m_n; m++)
        for (int r = 0; r < ROWS; r++)
            if ((long)out[m * ROWS + r] != want[r])
                fail_msg("code %d, pattern %d, row %d: %ld, not %ld", c - 128, pattern, r,
                         (long)out[m * ROWS + r], want[r]);
}

static void test_every_code(void **state) {
    (void)state;
    enum pn_isa levels[ISA_N];
    uint32_t level_n = isa_list(levels);
    for (uint32_t i = 0; i < level_n; i++) {
        struct backend b;
        backend_open(&b, levels[i], 1);
        for (int c = 0; c < 256; c++)
            for (int pattern = 0; pattern < 4; pattern++) {
                check_code(&b, c, 1, pattern);
                check_code(&b, c, 8, pattern);
            }
        backend_close(&b);
    }
}

/* Codes times sub-scales stay inside int16 and a unit's sum inside int32, for the largest of them:
 * Q6_K with scales of -128 and codes of -32 (quant/unit.c). */
static void test_largest_sum(void **state) {
    (void)state;
    enum pn_isa levels[ISA_N];
    uint32_t level_n = isa_list(levels);
    uint8_t row[210 * ROWS] = {0};
    float x[256];
    for (int r = 0; r < ROWS; r++) {
        uint8_t *block = row + 210 * r; /* low and high bits all 0: code -32 */
        memset(block + 192, 0x80, 16);  /* scales -128 */
        const uint16_t one = 0x3c00;
        memcpy(block + 208, &one, 2);
    }
    for (int i = 0; i < 256; i++)
        x[i] = 127;
    for (uint32_t i = 0; i < level_n; i++) {
        struct backend b;
        float out[ROWS];
        backend_open(&b, levels[i], 1);
        struct pn_weight w = {row, 210, ROWS, 256, PN_TYPE_Q6_K, 1.0f};
        struct pn_matmul part = {&w, NULL, mat(out, 1, ROWS)};
        pn__op_matmul(&b.step, mat(x, 1, 256), &part, 1);
        for (int r = 0; r < ROWS; r++)
            assert_true(out[r] == 128.0f * 32 * 127 * 256);
        backend_close(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_largest_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
