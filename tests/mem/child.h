/* For tests whose body runs in a child process, where cmocka's asserts don't reach: the body
 * returns 0, or says what didn't hold and returns 1. */
#ifndef PN_TESTS_MEM_CHILD_H
#define PN_TESTS_MEM_CHILD_H

#include <stdio.h>

#define CHECK(cond)                                                    \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            return 1;                                                  \
        }                                                              \
    } while (0)

#endif
