/* What every test program includes: cmocka with its odd prelude, and skipping with a reason. */
#ifndef PN_TESTS_SUPPORT_PN_TEST_H
#define PN_TESTS_SUPPORT_PN_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

/* Exit code that ctest reads as "skipped"; the reason is printed first. */
#define PN_SKIP_EXIT(...)                \
    do {                                 \
        printf("skipped: " __VA_ARGS__); \
        printf("\n");                    \
        exit(77);                        \
    } while (0)

/* Inside one cmocka test. */
#define PN_SKIP_TEST(...)                                   \
    do {                                                    \
        print_message("[ SKIPPED  ] reason: " __VA_ARGS__); \
        print_message("\n");                                \
        skip();                                             \
    } while (0)

/* A call that must succeed, with the detail printed when it doesn't. */
#define PN_ASSERT_OK(call, d)                                               \
    do {                                                                    \
        int rc_ = (call);                                                   \
        if (rc_ != 0) print_error("%s: %s\n", pn_err_name(rc_), (d)->text); \
        assert_int_equal(rc_, 0);                                           \
    } while (0)

#endif
