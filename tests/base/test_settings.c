#include "base/settings.h"
#include "pn_mem.h"
#include "support/pn_test.h"

/* The table again, as data, so that each row is tested whatever is added to it. */
struct row {
    enum pn_setting id;
    const char *flag;
    char letter;
    const char *env;
    enum pn_setting_kind kind;
    const char *initial;
    int64_t min;
    int64_t max;
    const char *arg;
    unsigned cmds;
    const char *help;
};

static const struct row rows[] = {
#define TEST_ROW(id, flag, letter, env, kind, initial, min, max, arg, cmds, help) \
    {PN_SET_##id, flag, letter, env, PN_SETTING_##kind, initial, min, max, arg, cmds, help},
    PN_SETTINGS_TABLE(TEST_ROW)
#undef TEST_ROW
};

static char warnings[4096];
static int warning_n;

static void collect(void *user, enum pn_log_level level, const char *line) {
    (void)user;
    assert_int_equal(level, PN_LOG_WARN);
    size_t at = strlen(warnings);
    snprintf(warnings + at, sizeof warnings - at, "%s\n", line);
    warning_n++;
}

static int log_setup(void **state) {
    (void)state;
    warnings[0] = '\0';
    warning_n = 0;
    pn_log_set(collect, NULL, PN_LOG_WARN);
    return 0;
}

static int log_teardown(void **state) {
    (void)state;
    pn_log_set(NULL, NULL, PN_LOG_WARN);
    return 0;
}

static int parse(struct pn_settings *s, unsigned cmd, struct pn_detail *d, const char *a,
                 const char *b, const char *c) {
    char *argv[] = {(char *)a, (char *)b, (char *)c, NULL};
    int argc = 0;
    PN_ASSERT_OK(pn__settings_init(s, NULL, d), d);
    while (argv[argc])
        argc++;
    return pn__settings_parse(s, cmd, argc, argv, d);
}

static unsigned first_cmd(const struct row *r) {
    return r->cmds & (~r->cmds + 1);
}

/* A value inside the row's bounds and one that must be refused (NULL: every value is right). */
static void sample_values(const struct row *r, char *good, char *bad, size_t cap) {
    good[0] = bad[0] = '\0';
    switch (r->kind) {
    case PN_SETTING_INT:
    case PN_SETTING_BYTES:
        snprintf(good, cap, "%lld", (long long)r->min);
        snprintf(bad, cap, "%lldx", (long long)r->max);
        break;
    case PN_SETTING_FLOAT:
        snprintf(good, cap, "%lld.0", (long long)r->min);
        snprintf(bad, cap, "%lld.5", (long long)r->max);
        break;
    case PN_SETTING_TEXT:
    case PN_SETTING_LIST:
        snprintf(good, cap, "text");
        break;
    case PN_SETTING_CHOICE:
        snprintf(good, cap, "%.*s", (int)strcspn(r->arg, "|"), r->arg);
        snprintf(bad, cap, "%s", r->arg); /* the whole list is none of its items */
        break;
    case PN_SETTING_FLAG:
        snprintf(good, cap, "1");
        snprintf(bad, cap, "maybe");
        break;
    }
}

static void test_defaults_parse_as_values(void **state) {
    (void)state;
    struct pn_settings s;
    struct pn_detail d;
    PN_ASSERT_OK(pn__settings_init(&s, NULL, &d), &d);
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        const struct row *r = &rows[i];
        const struct pn_setting_value *v = &s.values[r->id];
        assert_int_equal(v->source, PN_FROM_DEFAULT);
        if (!r->initial) {
            assert_null(v->text);
            assert_int_equal(v->i, 0);
            continue;
        }
        assert_string_equal(v->text, r->initial);
        if (r->kind == PN_SETTING_INT) assert_int_equal(v->i, strtoll(r->initial, NULL, 10));
        if (r->kind == PN_SETTING_FLOAT) assert_true(v->f == strtod(r->initial, NULL));
    }
    assert_int_equal(pn__set_int(&s, PN_SET_KV), 1); /* f16 of f32|f16|q8_0 */
    assert_int_equal(pn__set_int(&s, PN_SET_LOG), PN_LOG_WARN);
    assert_int_equal(s.positional_n, 0);
}

/* A flag or letter that means two things for one command, or nothing, can't be told apart. */
static void test_table_is_consistent(void **state) {
    (void)state;
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        const struct row *r = &rows[i];
        assert_true(r->flag || r->env);
        assert_true(r->cmds != 0 && (r->cmds & ~(unsigned)PN_CMD_ALL) == 0);
        assert_true(r->help[0] != '\0');
        /* But for what is everybody's. */
        bool shared = r->id == PN_SET_HOME || r->id == PN_SET_XDG_STATE_HOME;
        if (r->env && !shared) assert_memory_equal(r->env, "PN_", 3);
        if (r->kind != PN_SETTING_FLAG) assert_non_null(r->arg);
        for (size_t j = 0; j < i; j++) {
            const struct row *o = &rows[j];
            if (r->env && o->env) assert_string_not_equal(r->env, o->env);
            if (!(r->cmds & o->cmds)) continue;
            if (r->flag && o->flag) assert_string_not_equal(r->flag, o->flag);
            assert_true(!r->letter || r->letter != o->letter);
        }
    }
}

static void test_every_flag_takes_its_value(void **state) {
    (void)state;
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        const struct row *r = &rows[i];
        if (!r->flag || r->id == PN_SET_HELP) continue;
        struct pn_settings s;
        struct pn_detail d;
        char good[80];
        char bad[80];
        char joined[160];
        char lone[160];
        sample_values(r, good, bad, sizeof good);
        snprintf(lone, sizeof lone, "--%s", r->flag);
        snprintf(joined, sizeof joined, "--%s=%s", r->flag, good);
        bool is_switch = r->kind == PN_SETTING_FLAG;

        PN_ASSERT_OK(parse(&s, first_cmd(r), &d, lone, is_switch ? NULL : good, NULL), &d);
        assert_string_equal(pn__set_text(&s, r->id), good);
        assert_true(pn__set_given(&s, r->id));
        assert_int_equal(parse(&s, first_cmd(r), &d, joined, NULL, NULL),
                         is_switch ? PN_E_USAGE : 0);
        if (r->letter) {
            char letter[3] = {'-', r->letter, '\0'};
            PN_ASSERT_OK(parse(&s, first_cmd(r), &d, letter, is_switch ? NULL : good, NULL), &d);
            assert_string_equal(pn__set_text(&s, r->id), good);
        }
        assert_int_equal(parse(&s, first_cmd(r), &d, lone, lone, NULL), PN_E_USAGE);
        assert_non_null(strstr(d.text, lone));
        if (is_switch) continue;
        assert_int_equal(parse(&s, first_cmd(r), &d, lone, NULL, NULL), PN_E_USAGE);
        assert_non_null(strstr(d.text, "needs a value"));
        if (r->kind == PN_SETTING_TEXT || r->kind == PN_SETTING_LIST) continue;
        /* Refused with the flag, the value and what is right. */
        assert_int_equal(parse(&s, first_cmd(r), &d, lone, bad, NULL), PN_E_USAGE);
        assert_non_null(strstr(d.text, lone));
        assert_non_null(strstr(d.text, bad));
        if (r->kind == PN_SETTING_CHOICE) assert_non_null(strstr(d.text, r->arg));
        if (r->kind == PN_SETTING_INT) {
            char bound[24];
            snprintf(bound, sizeof bound, " %lld", (long long)r->min);
            assert_non_null(strstr(d.text, bound));
        }
    }
}

static void test_every_variable_is_read(void **state) {
    (void)state;
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        const struct row *r = &rows[i];
        if (!r->env) continue;
        struct pn_settings s;
        struct pn_detail d;
        char good[80];
        char bad[80];
        char entry[160];
        char *env[] = {"HOME=/", entry, NULL};
        sample_values(r, good, bad, sizeof good);
        snprintf(entry, sizeof entry, "%s=%s", r->env, good);
        PN_ASSERT_OK(pn__settings_init(&s, env, &d), &d);
        assert_string_equal(pn__set_text(&s, r->id), good);
        assert_int_equal(s.values[r->id].source, PN_FROM_ENV);
        snprintf(entry, sizeof entry, "%s=%s", r->env, bad);
        int want = r->kind == PN_SETTING_TEXT ? 0 : PN_E_USAGE; /* an empty text is a text */
        assert_int_equal(pn__settings_init(&s, env, &d), want);
        if (want != 0) assert_non_null(strstr(d.text, r->env));
        snprintf(entry, sizeof entry, "%s=", r->env);
        assert_int_equal(pn__settings_init(&s, env, &d), want);
    }
    assert_int_equal(warning_n, 0);
}

static void test_unknown_variable_is_a_warning(void **state) {
    (void)state;
    struct pn_settings s;
    struct pn_detail d;
    char *env[] = {"PN_THREDS=4", "PNX=1", "PN_FOO=1", "PN_NO_EQUALS_SIGN", NULL};
    PN_ASSERT_OK(pn__settings_init(&s, env, &d), &d);
    assert_int_equal(warning_n, 2);
    assert_non_null(strstr(warnings, "'PN_THREDS' is not a setting"));
    assert_non_null(strstr(warnings, "did you mean PN_THREADS?"));
    assert_non_null(strstr(warnings, "'PN_FOO' is not a setting and is ignored\n"));
    assert_int_equal(pn__set_int(&s, PN_SET_THREADS), 0);
}

static void test_flag_beats_environment(void **state) {
    (void)state;
    struct pn_settings s;
    struct pn_detail d;
    char *env[] = {"PN_THREADS=3", "PN_CTX=100", NULL};
    char *argv[] = {"--threads", "2", "model.gguf"};
    PN_ASSERT_OK(pn__settings_init(&s, env, &d), &d);
    PN_ASSERT_OK(pn__settings_parse(&s, PN_CMD_RUN, 3, argv, &d), &d);
    assert_int_equal(pn__set_int(&s, PN_SET_THREADS), 2);
    assert_int_equal(s.values[PN_SET_THREADS].source, PN_FROM_FLAG);
    assert_int_equal(pn__set_int(&s, PN_SET_CTX), 100);
    assert_int_equal(s.positional_n, 1);
    assert_string_equal(s.positional[0], "model.gguf");
}

static void expect_usage(unsigned cmd, const char *a, const char *b, const char *c,
                         const char *text) {
    struct pn_settings s;
    struct pn_detail d = {{0}};
    assert_int_equal(parse(&s, cmd, &d, a, b, c), PN_E_USAGE);
    if (!strstr(d.text, text)) fail_msg("'%s' does not say '%s'", d.text, text);
}

static void test_unknown_flags_are_refused(void **state) {
    (void)state;
    expect_usage(PN_CMD_RUN, "--thread", "2", NULL, "did you mean --threads?");
    expect_usage(PN_CMD_RUN, "--promtp=x", NULL, NULL, "did you mean --prompt?");
    expect_usage(PN_CMD_RUN, "--zzzzzzzz", NULL, NULL, "pannier run --help");
    expect_usage(PN_CMD_RUN, "--greedy", "2", NULL, "a flag of 'logits', not of 'run'");
    expect_usage(PN_CMD_RUN, "-z", NULL, NULL, "unknown flag '-z'");
    expect_usage(PN_CMD_RUN, "-n5", NULL, NULL, "-n 5");
    expect_usage(PN_CMD_RUN, "--=3", NULL, NULL, "unknown flag");
    expect_usage(PN_CMD_RUN, "--json=1", NULL, NULL, "--json takes no value, got '1'");
    expect_usage(PN_CMD_LOGITS, "--out", "--greedy", "3", "'--greedy' is a flag");
    expect_usage(PN_CMD_TOKENIZE, "--threads", "3", NULL, "not of 'tokenize'");
}

static void test_numbers(void **state) {
    (void)state;
    struct pn_settings s;
    struct pn_detail d;
    static const char *const bad_ints[] = {
        "", " 1", "1 ", "0x10", "+1", "1e3", "-", "99999999999999999999", "-1", "257"};
    for (size_t i = 0; i < PN_ARRAY_N(bad_ints); i++)
        expect_usage(PN_CMD_RUN, "--threads", bad_ints[i], NULL, "a whole number from 0 to 256");
    static const char *const bad_floats[] = {"nan",    "inf",  "",   "1.5",
                                             "0x1p-2", "-0.1", "1e", "1e999"};
    for (size_t i = 0; i < PN_ARRAY_N(bad_floats); i++)
        expect_usage(PN_CMD_RUN, "--top-p", bad_floats[i], NULL, "a number from 0 to 1");
    PN_ASSERT_OK(parse(&s, PN_CMD_RUN, &d, "--top-p", "25e-2", NULL), &d);
    assert_true(pn__set_float(&s, PN_SET_TOP_P) == 0.25);
    PN_ASSERT_OK(parse(&s, PN_CMD_RUN, &d, "--seed", "9223372036854775807", NULL), &d);
    assert_int_equal(pn__set_int(&s, PN_SET_SEED), INT64_MAX);
}

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        const char *entry;
        int64_t bytes; /* -1: refused */
    } cases[] = {
        {"PN_HOST_RESERVE_BYTES=0", 0},
        {"PN_HOST_RESERVE_BYTES=123", 123},
        {"PN_HOST_RESERVE_BYTES=64K", 65536},
        {"PN_HOST_RESERVE_BYTES=64k", 65536},
        {"PN_HOST_RESERVE_BYTES=3M", 3 << 20},
        {"PN_HOST_RESERVE_BYTES=2G", 2ll << 30},
        {"PN_HOST_RESERVE_BYTES=1T", 1ll << 40},
        {"PN_HOST_RESERVE_BYTES=8388607T", 8388607ll << 40},
        {"PN_HOST_RESERVE_BYTES=8388608T", -1}, /* 2^63 */
        {"PN_HOST_RESERVE_BYTES=9223372036854775808", -1},
        {"PN_HOST_RESERVE_BYTES=99999999999999999999", -1},
        {"PN_HOST_RESERVE_BYTES=1KB", -1},
        {"PN_HOST_RESERVE_BYTES=1P", -1},
        {"PN_HOST_RESERVE_BYTES=G", -1},
        {"PN_HOST_RESERVE_BYTES=-1", -1},
        {"PN_HOST_RESERVE_BYTES=1.5G", -1},
    };
    for (size_t i = 0; i < PN_ARRAY_N(cases); i++) {
        struct pn_settings s;
        struct pn_detail d;
        char *env[] = {(char *)cases[i].entry, NULL};
        int rc = pn__settings_init(&s, env, &d);
        assert_int_equal(rc, cases[i].bytes < 0 ? PN_E_USAGE : 0);
        if (rc == 0) assert_int_equal(pn__set_int(&s, PN_SET_HOST_RESERVE), cases[i].bytes);
        if (rc != 0) assert_non_null(strstr(d.text, "is not a size in bytes such as"));
    }
}

static void test_lists(void **state) {
    (void)state;
    struct pn_settings s;
    struct pn_detail d;
    PN_ASSERT_OK(parse(&s, PN_CMD_RUN, &d, "--template-arg=a=1", "--template-arg", "b=2"), &d);
    assert_string_equal(pn__set_listed(&s, PN_SET_TEMPLATE_ARG, 0), "a=1");
    assert_string_equal(pn__set_listed(&s, PN_SET_TEMPLATE_ARG, 1), "b=2");
    assert_null(pn__set_listed(&s, PN_SET_TEMPLATE_ARG, 2));
    assert_null(pn__set_listed(&s, PN_SET_PROMPT, 0));

    char *many[PN_LISTED_MAX + 1];
    for (int i = 0; i <= PN_LISTED_MAX; i++)
        many[i] = "--template-arg=a=1";
    PN_ASSERT_OK(pn__settings_init(&s, NULL, &d), &d);
    PN_ASSERT_OK(pn__settings_parse(&s, PN_CMD_RUN, PN_LISTED_MAX, many, &d), &d);
    PN_ASSERT_OK(pn__settings_init(&s, NULL, &d), &d);
    assert_int_equal(pn__settings_parse(&s, PN_CMD_RUN, PN_LISTED_MAX + 1, many, &d), PN_E_USAGE);
    assert_non_null(strstr(d.text, "more than 64 values"));
}

static void test_positional_arguments(void **state) {
    (void)state;
    struct pn_settings s;
    struct pn_detail d;
    PN_ASSERT_OK(parse(&s, PN_CMD_RUN, &d, "-", "--", "--json"), &d);
    assert_int_equal(s.positional_n, 2);
    assert_string_equal(s.positional[0], "-");
    assert_string_equal(s.positional[1], "--json");
    assert_false(pn__set_flag(&s, PN_SET_JSON));

    char *many[PN_POSITIONAL_MAX + 1];
    for (int i = 0; i <= PN_POSITIONAL_MAX; i++)
        many[i] = "file";
    PN_ASSERT_OK(pn__settings_init(&s, NULL, &d), &d);
    assert_int_equal(pn__settings_parse(&s, PN_CMD_RUN, PN_POSITIONAL_MAX + 1, many, &d),
                     PN_E_USAGE);
}

static void test_help_wins(void **state) {
    (void)state;
    struct pn_settings s;
    struct pn_detail d;
    PN_ASSERT_OK(parse(&s, PN_CMD_RUN, &d, "--help", "--nonsense", NULL), &d);
    assert_true(pn__set_flag(&s, PN_SET_HELP));
}

static char *printed(void (*print)(FILE *f, void *arg), void *arg) {
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    print(f, arg);
    fclose(f);
    return text;
}

static void print_help(FILE *f, void *arg) {
    pn__settings_help(f, *(unsigned *)arg);
}

static void print_list(FILE *f, void *arg) {
    pn__settings_list(arg, f);
}

static void test_help_names_every_row(void **state) {
    (void)state;
    for (unsigned bit = 0; 1u << bit < PN_CMD_ALL; bit++) {
        unsigned cmd = 1u << bit;
        char *text = printed(print_help, &cmd);
        for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
            const struct row *r = &rows[i];
            char word[80];
            snprintf(word, sizeof word, "%s%s%s", r->flag ? "--" : "  ", r->flag ? r->flag : r->env,
                     r->arg ? " " : "\n");
            if (!r->arg) word[strlen(word) - 1] = ' ';
            assert_int_equal(strstr(text, word) != NULL, (r->cmds & cmd) != 0);
            if ((r->cmds & cmd) && r->env) assert_non_null(strstr(text, r->env));
        }
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            assert_true(strlen(line) <= 100);
        free(text);
    }
}

static void test_list_says_where_values_come_from(void **state) {
    (void)state;
    struct pn_settings s;
    struct pn_detail d;
    char *env[] = {"PN_CTX=4096", NULL};
    char *argv[] = {"--threads=2"};
    PN_ASSERT_OK(pn__settings_init(&s, env, &d), &d);
    PN_ASSERT_OK(pn__settings_parse(&s, PN_CMD_PLAN, 1, argv, &d), &d);
    char *text = printed(print_list, &s);
    size_t line_n = 0;
    for (char *at = text; *at; at++)
        line_n += *at == '\n';
    assert_int_equal(line_n, PN_SET_N);
    assert_non_null(strstr(text, "ctx                      4096             environment\n"));
    assert_non_null(strstr(text, "threads                  2                flag\n"));
    assert_non_null(strstr(text, "chunk                    512              default\n"));
    assert_non_null(strstr(text, "json                     off              default\n"));
    assert_non_null(strstr(text, "root                     -                not set\n"));
    free(text);
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const words[] = {"run", "logits", "bench", "a"};
    assert_string_equal(pn__nearest("rnu", words, 4), "run");
    assert_string_equal(pn__nearest("logit", words, 4), "logits");
    assert_null(pn__nearest("quantize", words, 4));
    assert_null(pn__nearest("", words, 4));
    char endless[200];
    memset(endless, 'r', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_null(pn__nearest(endless, words, 4));
    assert_string_equal(pn__cmd_name(PN_CMD_TOKENIZE), "tokenize");
    assert_string_equal(pn__cmd_name(PN_CMD_ALL), "?");
}

int main(void) {
#define LOGGED(f) cmocka_unit_test_setup_teardown(f, log_setup, log_teardown)
    const struct CMUnitTest tests[] = {
        LOGGED(test_defaults_parse_as_values),
        LOGGED(test_table_is_consistent),
        LOGGED(test_every_flag_takes_its_value),
        LOGGED(test_every_variable_is_read),
        LOGGED(test_unknown_variable_is_a_warning),
        LOGGED(test_flag_beats_environment),
        LOGGED(test_unknown_flags_are_refused),
        LOGGED(test_numbers),
        LOGGED(test_bytes),
        LOGGED(test_lists),
        LOGGED(test_positional_arguments),
        LOGGED(test_help_wins),
        LOGGED(test_help_names_every_row),
        LOGGED(test_list_says_where_values_come_from),
        LOGGED(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
