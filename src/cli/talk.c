#include "cli/talk.h"

#include <stdio.h>
#include <string.h>

/* ---- commands ---- */

enum talk_command { TALK_NONE, TALK_EXIT, TALK_RESET, TALK_HELP, TALK_UNKNOWN };

static const char *const command_names[] = {"/exit", "/reset", "/help"};

static const char help_text[] =
    "/reset   start a new conversation\n"
    "/exit    leave (so does Ctrl-D)\n"
    "/help    this list\n"
    "Ctrl-C stops the answer, or drops the line being typed. A message that looks like a command\n"
    "is written with one slash more: //exit.\n";

/* A line that is a slash and letters, with blanks around. */
static enum talk_command command_of(const char *line, size_t len, const char **near) {
    char word[16];
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        len--;
    while (len && (*line == ' ' || *line == '\t')) {
        line++;
        len--;
    }
    *near = NULL;
    if (len < 2 || line[0] != '/') return TALK_NONE;
    for (size_t i = 1; i < len; i++) {
        char lower = (char)(line[i] | 0x20);
        if (lower < 'a' || lower > 'z') return TALK_NONE;
    }
    snprintf(word, sizeof word, "%.*s", (int)(len < sizeof word ? len : sizeof word - 1), line);
    for (size_t i = 0; i < PN_ARRAY_N(command_names); i++) {
        if (strlen(command_names[i]) == len && strcmp(command_names[i], word) == 0) {
            return (enum talk_command)(TALK_EXIT + i);
        }
    }
    *near = pn__nearest(word, command_names, PN_ARRAY_N(command_names));
    return TALK_UNKNOWN;
}

/* ---- a conversation ---- */

/* Errors of one turn, and those that pass (no memory for it now); after the others the engine or
 * the output is gone. */
static bool can_go_on(int rc) {
    return rc == PN_E_INVALID || rc == PN_E_CONTEXT || pn_err_retryable(rc);
}

static int chat_line(struct pn_conversation *c, bool edited, const char *line, size_t len,
                     bool *ended, struct pn_detail *d) {
    const char *near;
    enum talk_command command = command_of(line, len, &near);
    switch (command) {
    case TALK_EXIT:
        *ended = true;
        return 0;
    case TALK_RESET:
        fputs("[a new conversation]\n", stderr);
        return pn__conversation_reset(c, d);
    case TALK_HELP:
        fputs(help_text, stderr);
        return 0;
    case TALK_UNKNOWN:
        if (!edited) break; /* in a file it is what somebody wrote */
        fprintf(stderr, "[there is no such command%s%s%s; /help lists them]\n",
                near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
        return 0;
    case TALK_NONE:
        break;
    }
    if (len > 1 && line[0] == '/' && line[1] == '/') {
        line++;
        len--;
    }
    return pn__conversation_say(c, line, len, d);
}

/* The next line, as pn__lines_next; a terminal's cursor is left at the start of one. */
static int next_line(struct pn_lines *lines, const char **line, size_t *len, struct pn_detail *d) {
    int got = pn__lines_next(lines, line, len, d);
    if (pn__lines_edited(lines) && got != PN_LINE_TEXT) fputc('\n', stderr);
    return got;
}

int pn__talk_chat(struct pn_conversation *c, struct pn_lines *lines, struct pn_detail *d) {
    bool edited = pn__lines_edited(lines);
    bool ended = false;
    int rc = 0;
    while (rc == 0 && !ended) {
        const char *line;
        size_t len;
        int got = next_line(lines, &line, &len, d);
        if (got < 0) rc = got;
        if (got == PN_LINE_END) break;
        if (got != PN_LINE_TEXT || len == 0) continue;
        rc = chat_line(c, edited, line, len, &ended, d);
        if (rc && edited && can_go_on(rc)) {
            fprintf(stderr, "pannier: %s\n", d->text);
            rc = 0;
        }
    }
    return rc;
}

/* ---- plain completion ---- */

#define RAW_PREDICT 256u

int pn__talk_raw(struct pn_answer *a, const char *text, size_t len, struct pn_detail *d) {
    struct pn_ids prompt = {0};
    pn_session *session = NULL;
    int64_t most = pn__set_int(a->s, PN_SET_PREDICT);
    unsigned flags = pn__vocab_add_bos(a->vocab) ? PN_TOKENIZE_BOS : 0;
    if (pn__set_flag(a->s, PN_SET_SPECIAL)) flags |= PN_TOKENIZE_SPECIAL;
    if (len == 0) return pn__fail(d, PN_E_INVALID, "empty prompt: there is nothing to continue");
    int rc = pn__tokenize(a->vocab, text, len, flags, &prompt, d);
    if (rc == 0) rc = pn_session_new(a->engine, d, &session);
    if (rc == 0) {
        rc = pn__answer_ask(a, session, 0, prompt.ids, (uint32_t)prompt.n,
                            most > 0 ? (uint32_t)most : RAW_PREDICT, d);
    }
    if (rc == 0) rc = pn__answer_report(a, d);
    pn_session_free(session);
    pn__ids_free(&prompt);
    return rc;
}

int pn__talk_raw_lines(struct pn_answer *a, struct pn_lines *lines, struct pn_detail *d) {
    int rc = 0;
    while (rc == 0) {
        const char *line;
        size_t len;
        int got = next_line(lines, &line, &len, d);
        if (got < 0) rc = got;
        if (got == PN_LINE_END) break;
        if (got == PN_LINE_TEXT && len > 0) rc = pn__talk_raw(a, line, len, d);
    }
    return rc;
}
