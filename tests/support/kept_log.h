/* What was logged, a line each behind its level as a number. */
#ifndef PN_TESTS_SUPPORT_KEPT_LOG_H
#define PN_TESTS_SUPPORT_KEPT_LOG_H

#include <stdio.h>
#include <string.h>

#include "base/log.h"

struct kept_log {
    char text[16384]; /* what is too long is cut */
};

/* For pn_log_set; `user` is a struct kept_log. */
static inline void kept_log_add(void *user, enum pn_log_level level, const char *line) {
    struct kept_log *log = user;
    size_t len = strlen(log->text);
    snprintf(log->text + len, sizeof log->text - len, "%d %s\n", (int)level, line);
}

#endif
