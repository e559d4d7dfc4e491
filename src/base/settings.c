#include "base/settings.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/log.h"

#define ENV_PREFIX "PN_"
#define ENV_PREFIX_N (sizeof ENV_PREFIX - 1)

struct row {
    const char *flag; /* without dashes; NULL: environment only */
    char letter;      /* 0: none */
    const char *env;  /* NULL: flag only */
    enum pn_setting_kind kind;
    const char *initial; /* NULL: not set */
    int64_t min;
    int64_t max;
    const char *arg;
    unsigned cmds;
    const char *help;
};

static const struct row rows[PN_SET_N] = {
#define SETTING_ROW(id, flag, letter, env, kind, initial, min, max, arg, cmds, help) \
    {flag, letter, env, PN_SETTING_##kind, initial, min, max, arg, cmds, help},
    PN_SETTINGS_TABLE(SETTING_ROW)
#undef SETTING_ROW
};

struct cmd_row {
    unsigned cmd;
    const char *name;
};

static const struct cmd_row cmds[] = {
#define CMD_ROW(id, bit, name) {1u << (bit), name},
    PN_CMD_TABLE(CMD_ROW)
#undef CMD_ROW
};

const char *pn__cmd_name(unsigned cmd) {
    for (size_t i = 0; i < PN_ARRAY_N(cmds); i++) {
        if (cmds[i].cmd == cmd) return cmds[i].name;
    }
    return "?";
}

/* ---- near names ------------------------------------------------------------------------- */

#define NEAR_MAX 31

/* Edits (insert, drop, replace, swap two neighbours) from a to b. Longer words are not compared. */
static unsigned edit_distance(const char *a, const char *b) {
    size_t an = strlen(a);
    size_t bn = strlen(b);
    if (an > NEAR_MAX || bn > NEAR_MAX) return UINT32_MAX;
    unsigned m[NEAR_MAX + 1][NEAR_MAX + 1];
    for (unsigned i = 0; i <= an; i++)
        m[i][0] = i;
    for (unsigned j = 0; j <= bn; j++)
        m[0][j] = j;
    for (size_t i = 1; i <= an; i++) {
        for (size_t j = 1; j <= bn; j++) {
            unsigned best = m[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (m[i - 1][j] + 1 < best) best = m[i - 1][j] + 1;
            if (m[i][j - 1] + 1 < best) best = m[i][j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && m[i - 2][j - 2] + 1 < best) best = m[i - 2][j - 2] + 1;
            m[i][j] = best;
        }
    }
    return m[an][bn];
}

const char *pn__nearest(const char *word, const char *const *candidates, size_t n) {
    const char *found = NULL;
    unsigned best = (unsigned)(strlen(word) + 2) / 3 + 1; /* a third of the word may be wrong */
    for (size_t i = 0; i < n; i++) {
        unsigned distance = edit_distance(word, candidates[i]);
        if (distance < best && distance < strlen(candidates[i])) {
            best = distance;
            found = candidates[i];
        }
    }
    return found;
}

static const char *nearest_flag(const char *word, unsigned cmd) {
    const char *names[PN_SET_N];
    size_t n = 0;
    for (size_t i = 0; i < PN_SET_N; i++) {
        if (rows[i].flag && (rows[i].cmds & cmd)) names[n++] = rows[i].flag;
    }
    return pn__nearest(word, names, n);
}

/* `word` and the result are without the "PN_" that all of them share. */
static const char *nearest_env(const char *word) {
    const char *names[PN_SET_N];
    size_t n = 0;
    for (size_t i = 0; i < PN_SET_N; i++) {
        bool ours = rows[i].env && strncmp(rows[i].env, ENV_PREFIX, ENV_PREFIX_N) == 0;
        if (ours) names[n++] = rows[i].env + ENV_PREFIX_N;
    }
    return pn__nearest(word, names, n);
}

/* ---- values ----------------------------------------------------------------------------- */

/* All digits, at most INT64_MAX; a leading '-' is accepted so that the range can be named. */
static bool parse_int(const char *text, int64_t *out) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0') return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

static bool parse_bytes(const char *text, int64_t *out) {
    static const char units[] = "KMGT";
    size_t digit_n = strspn(text, "0123456789");
    if (digit_n == 0 || digit_n > 19) return false;
    uint64_t bytes = 0;
    for (size_t i = 0; i < digit_n; i++)
        bytes = bytes * 10 + (uint64_t)(text[i] - '0'); /* 19 digits fit 64 bits */
    unsigned shift = 0;
    if (text[digit_n] != '\0') {
        char unit = text[digit_n];
        if (unit >= 'a' && unit <= 'z') unit = (char)(unit - 'a' + 'A');
        const char *at = strchr(units, unit);
        if (!at || text[digit_n + 1] != '\0') return false;
        shift = 10 * (unsigned)(at - units + 1);
    }
    if (pn__mul_u64(bytes, 1ull << shift, &bytes) || bytes > INT64_MAX) return false;
    *out = (int64_t)bytes;
    return true;
}

/* Plain decimal notation: no hexadecimal, no "nan" or "inf", no blanks. */
static bool parse_float(const char *text, double *out) {
    if (text[0] == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0') return false;
    char *end;
    *out = strtod(text, &end);
    return *end == '\0' && end != text && isfinite(*out);
}

/* Index of `text` in the list "a|b|c", or -1. */
static int64_t choice_index(const char *list, const char *text) {
    size_t len = strlen(text);
    int64_t index = 0;
    for (const char *at = list;; index++) {
        size_t item = strcspn(at, "|");
        if (item == len && memcmp(at, text, len) == 0) return index;
        if (at[item] == '\0') return -1;
        at += item + 1;
    }
}

static bool parse_switch(const char *text, int64_t *out) {
    *out = !strcmp(text, "1") || !strcmp(text, "on");
    return *out || !strcmp(text, "0") || !strcmp(text, "off");
}

static int bad_value(const struct row *r, const char *name, const char *text, struct pn_detail *d) {
    long long min = (long long)r->min;
    long long max = (long long)r->max;
    switch (r->kind) {
    case PN_SETTING_INT:
    case PN_SETTING_FLOAT: {
        const char *noun = r->kind == PN_SETTING_INT ? "a whole number" : "a number";
        if (r->max == INT64_MAX) {
            return pn__fail(d, PN_E_USAGE, "%s: '%.80s' is not %s of at least %lld", name, text,
                            noun, min);
        }
        return pn__fail(d, PN_E_USAGE, "%s: '%.80s' is not %s from %lld to %lld", name, text, noun,
                        min, max);
    }
    case PN_SETTING_BYTES:
        return pn__fail(d, PN_E_USAGE,
                        "%s: '%.80s' is not a size in bytes such as 1073741824, 1024M or 1G "
                        "(K, M, G, T are powers of 1024)",
                        name, text);
    case PN_SETTING_CHOICE:
        return pn__fail(d, PN_E_USAGE, "%s: '%.80s' is not one of %s", name, text, r->arg);
    case PN_SETTING_FLAG:
        return pn__fail(d, PN_E_USAGE, "%s: '%.80s' is not one of 0|1|off|on", name, text);
    case PN_SETTING_TEXT:
    case PN_SETTING_LIST:
        break;
    }
    return pn__fail(d, PN_E_USAGE, "%s: '%.80s' can't be used", name, text);
}

/* `name` is what the user wrote: "--ctx", "-c" or "PN_CTX". `text` outlives `v`. */
static int set_value(struct pn_setting_value *v, const struct row *r, const char *name,
                     const char *text, struct pn_detail *d) {
    struct pn_setting_value new_value = {.text = text, .source = v->source};
    bool good = true;
    switch (r->kind) {
    case PN_SETTING_INT:
        good = parse_int(text, &new_value.i) && new_value.i >= r->min && new_value.i <= r->max;
        break;
    case PN_SETTING_BYTES:
        good = parse_bytes(text, &new_value.i) && new_value.i >= r->min && new_value.i <= r->max;
        break;
    case PN_SETTING_FLOAT:
        good = parse_float(text, &new_value.f) && new_value.f >= (double)r->min &&
               new_value.f <= (double)r->max;
        break;
    case PN_SETTING_CHOICE:
        new_value.i = choice_index(r->arg, text);
        good = new_value.i >= 0;
        break;
    case PN_SETTING_FLAG:
        good = parse_switch(text, &new_value.i);
        break;
    case PN_SETTING_TEXT:
    case PN_SETTING_LIST:
        break;
    }
    if (!good) return bad_value(r, name, text, d);
    *v = new_value;
    return 0;
}

/* ---- sources ---------------------------------------------------------------------------- */

static int apply_env(struct pn_settings *s, const char *entry, struct pn_detail *d) {
    const char *eq = strchr(entry, '=');
    if (!eq) return 0;
    size_t len = (size_t)(eq - entry);
    for (size_t i = 0; i < PN_SET_N; i++) {
        const char *env = rows[i].env;
        if (!env || strlen(env) != len || memcmp(env, entry, len) != 0) continue;
        int rc = set_value(&s->values[i], &rows[i], env, eq + 1, d);
        if (rc == 0) s->values[i].source = PN_FROM_ENV;
        return rc;
    }
    if (strncmp(entry, ENV_PREFIX, ENV_PREFIX_N) != 0) return 0;
    char name[NEAR_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)pn__min_u64(len, NEAR_MAX), entry);
    const char *near = nearest_env(name + ENV_PREFIX_N);
    pn__log(PN_LOG_WARN, "environment: '%s' is not a setting and is ignored%s%s%s", name,
            near ? " (did you mean " ENV_PREFIX : "", near ? near : "", near ? "?)" : "");
    return 0;
}

int pn__settings_init(struct pn_settings *s, char *const *env, struct pn_detail *d) {
    *s = (struct pn_settings){0};
    for (size_t i = 0; i < PN_SET_N; i++) {
        const char *name = rows[i].flag ? rows[i].flag : rows[i].env;
        if (!rows[i].initial) continue;
        int rc = set_value(&s->values[i], &rows[i], name, rows[i].initial, d);
        if (rc != 0) return rc;
    }
    for (; env && *env; env++) {
        int rc = apply_env(s, *env, d);
        if (rc != 0) return rc;
    }
    return 0;
}

/* The row that "--name[=V]" or "-x" means for `cmd`, or -1. `name` has `len` bytes. */
static int find_long(const char *name, size_t len, unsigned cmd) {
    for (int i = 0; i < PN_SET_N; i++) {
        const char *flag = rows[i].flag;
        if (flag && (rows[i].cmds & cmd) && strlen(flag) == len && !memcmp(flag, name, len))
            return i;
    }
    return -1;
}

static int find_short(char letter, unsigned cmd) {
    for (int i = 0; i < PN_SET_N; i++) {
        if (letter && rows[i].letter == letter && (rows[i].cmds & cmd)) return i;
    }
    return -1;
}

static int unknown_flag(const char *arg, unsigned cmd, struct pn_detail *d) {
    const char *name = pn__cmd_name(cmd);
    bool is_long = arg[1] == '-';
    if (!is_long) {
        if (arg[2] != '\0' && find_short(arg[1], cmd) >= 0) {
            return pn__fail(d, PN_E_USAGE, "'%.40s': a value stands apart from its flag: -%c %.30s",
                            arg, arg[1], arg + 2);
        }
        return pn__fail(d, PN_E_USAGE, "unknown flag '%.40s' (see 'pannier %s --help')", arg, name);
    }
    char word[NEAR_MAX + 1];
    size_t len = strcspn(arg + 2, "=");
    int other = find_long(arg + 2, len, PN_CMD_ALL);
    snprintf(word, sizeof word, "%.*s", (int)pn__min_u64(len, NEAR_MAX), arg + 2);
    if (other >= 0) {
        unsigned first = rows[other].cmds & (~rows[other].cmds + 1);
        return pn__fail(d, PN_E_USAGE, "--%s is a flag of '%s', not of '%s'", word,
                        pn__cmd_name(first), name);
    }
    const char *near = nearest_flag(word, cmd);
    if (near) {
        return pn__fail(d, PN_E_USAGE, "unknown flag '--%s' (did you mean --%s?)", word, near);
    }
    return pn__fail(d, PN_E_USAGE, "unknown flag '--%s' (see 'pannier %s --help')", word, name);
}

/* True when `arg` is exactly a long flag of `cmd`: more likely a forgotten value than a value. */
static bool looks_like_flag(const char *arg, unsigned cmd) {
    if (strncmp(arg, "--", 2) != 0) return false;
    return find_long(arg + 2, strcspn(arg + 2, "="), cmd) >= 0;
}

/* One flag at argv[*i]; moves *i to its last argument. */
static int parse_flag(struct pn_settings *s, unsigned cmd, int argc, char *const *argv, int *i,
                      struct pn_detail *d) {
    const char *arg = argv[*i];
    bool is_long = arg[1] == '-';
    size_t len = is_long ? strcspn(arg + 2, "=") : 1;
    const char *value = is_long && arg[2 + len] == '=' ? arg + 3 + len : NULL;
    int id =
        is_long ? find_long(arg + 2, len, cmd) : (arg[2] == '\0' ? find_short(arg[1], cmd) : -1);
    if (id < 0) return unknown_flag(arg, cmd, d);

    const struct row *r = &rows[id];
    char name[NEAR_MAX + 3];
    snprintf(name, sizeof name, "%s%.*s", is_long ? "--" : "-", (int)pn__min_u64(len, NEAR_MAX),
             arg + (is_long ? 2 : 1));
    if (s->values[id].source == PN_FROM_FLAG && r->kind != PN_SETTING_LIST) {
        return pn__fail(d, PN_E_USAGE, "%s is given twice", name);
    }
    if (r->kind == PN_SETTING_FLAG) {
        if (value) return pn__fail(d, PN_E_USAGE, "%s takes no value, got '%.80s'", name, value);
        value = "1";
    }
    if (!value) {
        if (*i + 1 >= argc) {
            return pn__fail(d, PN_E_USAGE, "%s needs a value: %s %s", name, name, r->arg);
        }
        value = argv[*i + 1];
        if (looks_like_flag(value, cmd)) {
            return pn__fail(d, PN_E_USAGE,
                            "%s needs a value, and '%.40s' is a flag (write --%s=VALUE if it is "
                            "meant)",
                            name, value, r->flag);
        }
        *i += 1;
    }
    int rc = set_value(&s->values[id], r, name, value, d);
    if (rc == 0) s->values[id].source = PN_FROM_FLAG;
    if (rc == 0 && r->kind == PN_SETTING_LIST) {
        if (s->listed_n == PN_LISTED_MAX) {
            return pn__fail(d, PN_E_USAGE, "%s: more than %d values", name, PN_LISTED_MAX);
        }
        s->listed[s->listed_n].id = (enum pn_setting)id;
        s->listed[s->listed_n++].text = value;
    }
    return rc;
}

const char *pn__set_listed(const struct pn_settings *s, enum pn_setting id, uint32_t i) {
    for (uint32_t k = 0; k < s->listed_n; k++) {
        if (s->listed[k].id == id && i-- == 0) return s->listed[k].text;
    }
    return NULL;
}

int pn__settings_parse(struct pn_settings *s, unsigned cmd, int argc, char *const *argv,
                       struct pn_detail *d) {
    bool flags_ended = false;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (!flags_ended && strcmp(arg, "--") == 0) {
            flags_ended = true;
            continue;
        }
        if (flags_ended || arg[0] != '-' || arg[1] == '\0') {
            if (s->positional_n == PN_POSITIONAL_MAX) {
                return pn__fail(d, PN_E_USAGE, "too many arguments, from '%.80s' on", arg);
            }
            s->positional[s->positional_n++] = arg;
            continue;
        }
        int rc = parse_flag(s, cmd, argc, argv, &i, d);
        if (rc != 0 || pn__set_flag(s, PN_SET_HELP)) return rc;
    }
    return 0;
}

/* ---- printing --------------------------------------------------------------------------- */

#define HELP_COLUMN 34
#define HELP_WIDTH 100

/* Prints `text` from column HELP_COLUMN on, broken at blanks; `at` is the column now. */
static void print_wrapped(FILE *f, int at, const char *text) {
    if (at >= HELP_COLUMN) {
        fputc('\n', f);
        at = 0;
    }
    fprintf(f, "%*s", HELP_COLUMN - at, "");
    at = HELP_COLUMN;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (at > HELP_COLUMN && at + 1 + (int)len > HELP_WIDTH) {
            fprintf(f, "\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN;
        } else if (at > HELP_COLUMN) {
            fputc(' ', f);
            at++;
        }
        fprintf(f, "%.*s", (int)len, text);
        at += (int)len;
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', f);
}

/* In a list for several commands a row says whose it is. */
static void print_row(FILE *f, const struct row *r, unsigned cmd) {
    char left[96];
    char right[512];
    char whose[96] = "";
    for (size_t i = 0; i < PN_ARRAY_N(cmds) && (r->cmds & cmd) != cmd; i++) {
        size_t at = strlen(whose);
        if (!(r->cmds & cmds[i].cmd)) continue;
        snprintf(whose + at, sizeof whose - at, "%s%s", at ? ", " : "", cmds[i].name);
    }
    if (r->flag) {
        char letter[5] = "    ";
        if (r->letter) snprintf(letter, sizeof letter, "-%c, ", r->letter);
        snprintf(left, sizeof left, "  %s--%s%s%s", letter, r->flag, r->arg ? " " : "",
                 r->arg ? r->arg : "");
    } else {
        snprintf(left, sizeof left, "  %s", r->env);
    }
    snprintf(right, sizeof right, "%s%s%s%s%s%s%s%s%s", whose, whose[0] ? ": " : "", r->help,
             r->initial ? " [" : "", r->initial ? r->initial : "", r->initial ? "]" : "",
             r->flag && r->env ? " (" : "", r->flag && r->env ? r->env : "",
             r->flag && r->env ? ")" : "");
    print_wrapped(f, fprintf(f, "%s", left), right);
}

void pn__settings_help(FILE *f, unsigned cmd) {
    fputs("flags, with [default] and (environment variable):\n", f);
    for (size_t i = 0; i < PN_SET_N; i++) {
        if (rows[i].flag && (rows[i].cmds & cmd)) print_row(f, &rows[i], cmd);
    }
    fputs("environment:\n", f);
    for (size_t i = 0; i < PN_SET_N; i++) {
        if (!rows[i].flag && (rows[i].cmds & cmd)) print_row(f, &rows[i], cmd);
    }
}

void pn__settings_list(const struct pn_settings *s, FILE *f) {
    static const char *const sources[] = {"default", "environment", "flag"};
    for (size_t i = 0; i < PN_SET_N; i++) {
        const struct row *r = &rows[i];
        const struct pn_setting_value *v = &s->values[i];
        const char *value = v->text ? v->text : "-";
        if (r->kind == PN_SETTING_FLAG) value = v->i ? "on" : "off";
        bool is_unset = !v->text && r->kind != PN_SETTING_FLAG;
        fprintf(f, "%-24s %-16s %s\n", r->flag ? r->flag : r->env, value,
                is_unset ? "not set" : sources[v->source]);
    }
}
