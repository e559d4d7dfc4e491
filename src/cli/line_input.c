/* libedit works in the locale of its thread. The program has none of its own (numbers and messages
 * are the same everywhere), so the thread gets a UTF-8 one for as long as libedit is at work. */
#include "cli/line_input.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/state_folder.h"
#include "text/utf8.h"

#define HISTORY_LINES_MAX 1000
#define PROMPT "> "

struct pn_lines {
    EditLine *edit; /* NULL: lines are read plainly */
    History *history;
    locale_t utf8;
    char *path; /* of the history's file; NULL: it isn't kept */
    char *line; /* of a plain read */
    size_t cap;
    size_t line_i;
};

/* ---- the history's file ---- */

/* Where typed lines are kept: --history, else in the state folder. NULL: nowhere. */
static char *history_path(const struct pn_settings *s) {
    const char *given = pn__set_text(s, PN_SET_HISTORY);
    static const char name[] = "/history";
    char folder[PN_STATE_PATH_BYTES];
    if (given) return *given ? pn__strdup(given) : NULL;
    if (!pn__state_folder(s, folder, sizeof folder)) return NULL;
    int err = pn__state_folder_make(folder);
    if (err) pn__log(PN_LOG_INFO, "%s: %s; typed lines are not kept", folder, strerror(err));
    if (err) return NULL;
    size_t n = strlen(folder) + sizeof name;
    char *path = pn__calloc(n, 1);
    if (path) snprintf(path, n, "%s%s", folder, name);
    return path;
}

static void history_start(struct pn_lines *l, const struct pn_settings *s) {
    HistEvent event;
    l->history = history_init();
    if (!l->history) return;
    history(l->history, &event, H_SETSIZE, HISTORY_LINES_MAX);
    history(l->history, &event, H_SETUNIQUE, 1);
    el_set(l->edit, EL_HIST, history, l->history);
    l->path = history_path(s);
    if (!l->path) return;
    /* A file that isn't there yet is no trouble; one that can't be written is left alone. */
    history(l->history, &event, H_LOAD, l->path);
    if (access(l->path, W_OK) == 0 || errno == ENOENT) return;
    pn__log(PN_LOG_INFO, "%s: %s; typed lines are not kept", l->path, strerror(errno));
    pn__free(l->path);
    l->path = NULL;
}

/* Written after each line, so that a terminal that is closed loses none. */
static void history_add(struct pn_lines *l, const char *line) {
    HistEvent event;
    if (!l->history || !*line) return;
    history(l->history, &event, H_ENTER, line);
    if (l->path) history(l->history, &event, H_SAVE, l->path);
}

/* ---- editing ---- */

static char *prompt_of(EditLine *edit) {
    static char prompt[] = PROMPT;
    (void)edit;
    return prompt;
}

/* A byte from the terminal: 1, 0 at its end, -1 for trouble and for Ctrl-C. libedit's own reading
 * would go on after a signal, so that Ctrl-C waits for the next key. */
static int read_byte(char *out) {
    struct pollfd wait[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = pn__interrupt_fd(), .events = POLLIN}};
    while (!pn__interrupted()) {
        int n = poll(wait, PN_ARRAY_N(wait), -1);
        if (n < 0 && errno != EINTR) return -1;
        if (n <= 0 || pn__interrupted() || wait[0].revents == 0) continue;
        ssize_t got = read(STDIN_FILENO, out, 1);
        if (got >= 0 || errno != EINTR) return (int)got;
    }
    return -1;
}

/* A character; what is no UTF-8 is seen as U+FFFD. */
static int read_character(EditLine *edit, wchar_t *out) {
    char bytes[4];
    (void)edit;
    *out = (wchar_t)0xFFFD;
    for (size_t n = 0; n < sizeof bytes;) {
        int got = read_byte(bytes + n);
        if (got <= 0) return got;
        struct pn_utf8_char c = pn__utf8_next(bytes, ++n);
        if (c.state == PN_UTF8_PARTIAL) continue;
        if (c.state == PN_UTF8_OK) *out = (wchar_t)c.cp;
        break;
    }
    return 1;
}

static bool start_editing(struct pn_lines *l, const struct pn_settings *s) {
    l->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!l->utf8) return false;
    locale_t before = uselocale(l->utf8);
    FILE *screen = isatty(STDOUT_FILENO) == 1 ? stdout : stderr;
    l->edit = el_init("pannier", stdin, screen, stderr);
    if (l->edit) {
        el_set(l->edit, EL_PROMPT, prompt_of);
        el_set(l->edit, EL_EDITOR, "emacs");
        el_set(l->edit, EL_SIGNAL, 1); /* the terminal is put right on Ctrl-Z, fg and resizing */
        el_set(l->edit, EL_GETCFN, read_character);
        history_start(l, s);
        el_source(l->edit, NULL);
    }
    uselocale(before);
    return l->edit != NULL;
}

static int next_edited(struct pn_lines *l, const char **line, size_t *len, struct pn_detail *d) {
    int n = 0;
    pn__interrupt_clear();
    locale_t before = uselocale(l->utf8);
    /* libedit would do so only after it has shown the prompt: a Ctrl-D between would be lost. */
    el_set(l->edit, EL_PREP_TERM, 1);
    const char *got = el_gets(l->edit, &n);
    size_t got_n = got && n > 0 ? (size_t)n : 0;
    if (got_n > 0 && got[got_n - 1] == '\n') got_n--;
    if (got_n > l->cap || !l->line) {
        char *bigger = pn__realloc_array(l->line, got_n + 256, 1);
        if (bigger) {
            l->line = bigger;
            l->cap = got_n + 255;
        }
    }
    bool kept = l->line && got_n <= l->cap;
    if (kept) {
        memcpy(l->line, got ? got : "", got_n);
        l->line[got_n] = '\0';
        if (got && n > 0 && !pn__interrupted()) history_add(l, l->line);
    }
    uselocale(before);
    if (!kept) return pn__fail(d, PN_E_NOMEM, "a line of %zu bytes", got_n);
    if (pn__interrupted()) {
        el_reset(l->edit);
        pn__interrupt_clear();
        return PN_LINE_INTERRUPTED;
    }
    *line = l->line;
    *len = got_n;
    return got && n > 0 ? PN_LINE_TEXT : PN_LINE_END;
}

/* ---- plain reading ---- */

static int grow(struct pn_lines *l, struct pn_detail *d) {
    size_t cap = l->cap ? 2 * l->cap : 4096;
    char *bigger = pn__realloc_array(l->line, cap, 1);
    if (!bigger) return pn__fail(d, PN_E_NOMEM, "a line of more than %zu bytes", l->cap);
    l->line = bigger;
    l->cap = cap;
    return 0;
}

static int next_plain(struct pn_lines *l, const char **line, size_t *len, struct pn_detail *d) {
    size_t n = 0;
    int c;
    l->line_i++;
    while ((c = getc_unlocked(stdin)) != EOF && c != '\n') {
        if (n == PN_LINE_BYTES_MAX) {
            return pn__fail(d, PN_E_INVALID, "standard input, line %zu: longer than %zu bytes",
                            l->line_i, PN_LINE_BYTES_MAX);
        }
        int rc = n == l->cap ? grow(l, d) : 0;
        if (rc) return rc;
        l->line[n++] = (char)c;
    }
    if (ferror(stdin)) return pn__fail(d, PN_E_IO, "standard input: %s", strerror(errno));
    if (c == EOF && n == 0) return PN_LINE_END;
    size_t bad = pn__utf8_valid_len(l->line, n);
    if (bad < n) {
        return pn__fail(d, PN_E_INVALID,
                        "standard input, line %zu: byte 0x%02x at column %zu is not UTF-8",
                        l->line_i, (unsigned char)l->line[bad], bad + 1);
    }
    *line = l->line ? l->line : "";
    *len = n;
    return PN_LINE_TEXT;
}

/* ---- */

int pn__lines_new(const struct pn_settings *s, struct pn_detail *d, struct pn_lines **out) {
    bool terminal =
        isatty(STDIN_FILENO) == 1 && (isatty(STDOUT_FILENO) == 1 || isatty(STDERR_FILENO) == 1);
    *out = pn__calloc(1, sizeof **out);
    if (!*out) return pn__fail(d, PN_E_NOMEM, "reading lines");
    if (terminal && !start_editing(*out, s)) {
        pn__log(PN_LOG_WARN, "lines can't be edited on this terminal; they are read as they come");
    }
    return 0;
}

void pn__lines_free(struct pn_lines *l) {
    if (!l) return;
    if (l->edit) el_end(l->edit);
    if (l->history) history_end(l->history);
    if (l->utf8) freelocale(l->utf8);
    pn__free(l->path);
    pn__free(l->line);
    pn__free(l);
}

bool pn__lines_edited(const struct pn_lines *l) {
    return l->edit != NULL;
}

int pn__lines_next(struct pn_lines *l, const char **line, size_t *len, struct pn_detail *d) {
    *line = "";
    *len = 0;
    return l->edit ? next_edited(l, line, len, d) : next_plain(l, line, len, d);
}
