#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"

/* Sync: constant after pn_log_set, which runs before threads use the library. */
static pn_log_fn log_fn;
static void *log_user;
static enum pn_log_level log_level = PN_LOG_WARN;

void pn_log_set(pn_log_fn fn, void *user, enum pn_log_level level) {
    log_fn = fn;
    log_user = user;
    log_level = level;
}

void pn__log(enum pn_log_level level, const char *fmt, ...) {
    if (!log_fn || level > log_level) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(line, sizeof line, fmt, ap) < 0) line[0] = '\0';
    va_end(ap);
    pn__text_clean(line, sizeof line);
    log_fn(log_user, level, line);
}
