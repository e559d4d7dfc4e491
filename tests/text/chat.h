/* What the tests of chat templates share. */
#ifndef PN_TESTS_TEXT_CHAT_H
#define PN_TESTS_TEXT_CHAT_H

#include <jansson.h>

#include "support/pn_test.h"
#include "text/chat/chat.h"

/* Limits that no test of something else meets. */
extern const struct pn_template_limits chat_limits;

/* 2025-03-09T14:05:06, the goldens' clock. */
const struct tm *chat_now(void);

/* JSON written with ' for ". */
json_t *chat_json(const char *text);

/* A file's bytes with a NUL behind them, or NULL. */
char *chat_read(const char *path, size_t *n);

struct pn_template *chat_parse(const char *text);

/* The template must give that text for the variables (in chat_json's spelling; NULL: none). */
void chat_gives(const char *text, const char *variables, const char *want);

/* The first error, of parsing or rendering, has that code and all of `says` in it. */
void chat_fails(const char *text, const char *variables, int code, const char *says);

#endif
