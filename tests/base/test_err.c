/* The error table, and what detail lines are cleaned of. */
#include "support/pn_test.h"

#include "base/log.h"

static const int codes[] = {
#define CODE(name, value, text, http, retry) value,
    PN_ERR_TABLE(CODE)
#undef CODE
};

static void test_table(void **state) {
    (void)state;
    for (size_t i = 0; i < PN_ARRAY_N(codes); i++) {
        assert_true(codes[i] < 0);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(codes[i], codes[j]);
            assert_string_not_equal(pn_err_name(codes[i]), pn_err_name(codes[j]));
            assert_string_not_equal(pn_err_text(codes[i]), pn_err_text(codes[j]));
        }
        assert_int_equal(strncmp(pn_err_name(codes[i]), "PN_E_", 5), 0);
        assert_string_not_equal(pn_err_name(codes[i]), "PN_E_?");
        assert_in_range(pn_err_http(codes[i]), 400, 599);
        assert_in_range(pn_err_retryable(codes[i]), 0, 1);
    }
    assert_string_equal(pn_err_name(PN_E_NOFIT), "PN_E_NOFIT");
    assert_int_equal(pn_err_http(PN_E_NOFIT), 503);
    assert_int_equal(pn_err_retryable(PN_E_NOFIT), 1);
    assert_int_equal(pn_err_retryable(PN_E_FORMAT), 0);
    assert_string_equal(pn_err_name(0), "PN_OK");
    assert_int_equal(pn_err_http(0), 200);
}

static void test_unknown_code(void **state) {
    (void)state;
    static const int unknown[] = {1, -99, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < PN_ARRAY_N(unknown); i++) {
        assert_string_equal(pn_err_name(unknown[i]), "PN_E_?");
        assert_string_equal(pn_err_text(unknown[i]), "unknown error");
        assert_int_equal(pn_err_http(unknown[i]), 500);
        assert_int_equal(pn_err_retryable(unknown[i]), 0);
    }
}

static void test_fail_formats(void **state) {
    (void)state;
    struct pn_detail d;
    assert_int_equal(pn__fail(&d, PN_E_IO, "%s at %d", "x", 7), PN_E_IO);
    assert_string_equal(d.text, "x at 7");
    assert_int_equal(pn__fail(NULL, PN_E_IO, "%s", "lost"), PN_E_IO);
    assert_int_equal(pn__fail_in(&d, PN_E_FORMAT, "file"), PN_E_FORMAT);
    assert_string_equal(d.text, "file: x at 7");
    assert_int_equal(pn__fail_in(NULL, PN_E_FORMAT, "file"), PN_E_FORMAT);
}

static void test_clean(void **state) {
    (void)state;
    static const struct {
        const char *in;
        const char *out;
    } rows[] = {
        {"plain", "plain"},
        {"", ""},
        {"a\nb\rc\td\x1b[31m\x7f", "a?b?c?d?[31m?"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x85 next line", "?? next line"},   /* C1 control */
        {"\xc2\xa0", "\xc2\xa0"},                 /* the first that isn't */
        {"\x80 \xff \xfe", "? ? ?"},              /* never starts a character */
        {"\xc0\xaf", "??"},                       /* overlong '/' */
        {"\xe0\x80\xaf", "???"},                  /* overlong, three bytes */
        {"\xed\xa0\x80", "???"},                  /* surrogate */
        {"\xf4\x90\x80\x80", "????"},             /* above U+10FFFF */
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"}, /* U+10FFFF */
        {"\xe2\x82", "??"},                       /* cut, but not by the buffer */
        {"\xe2\x82\n", "???"},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct pn_detail d;
        pn__fail(&d, PN_E_IO, "%s", rows[i].in);
        assert_string_equal(d.text, rows[i].out);
    }
}

/* Every way in which the end of the buffer can cut a character of 1 to 4 bytes. */
static void test_clean_cut(void **state) {
    (void)state;
    static const char *const chars[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t c = 0; c < PN_ARRAY_N(chars); c++) {
        size_t n = strlen(chars[c]);
        for (size_t pad = PN_DETAIL_BYTES - 8; pad < PN_DETAIL_BYTES; pad++) {
            char in[PN_DETAIL_BYTES + 16];
            struct pn_detail d;
            memset(in, '.', pad);
            strcpy(in + pad, chars[c]);
            pn__fail(&d, PN_E_IO, "%s", in);
            size_t fits = pad + n <= PN_DETAIL_BYTES - 1 ? pad + n : pad;
            assert_int_equal(strlen(d.text), fits);
            assert_memory_equal(d.text, in, fits);
        }
    }
    struct pn_detail d;
    char prefix[2 * PN_DETAIL_BYTES];
    memset(prefix, 'p', sizeof prefix - 1);
    prefix[sizeof prefix - 1] = '\0';
    pn__fail(&d, PN_E_IO, "kept");
    pn__fail_in(&d, PN_E_IO, prefix);
    assert_non_null(strstr(d.text, "p: kept"));
}

struct lines {
    int n;
    enum pn_log_level level;
    char last[2048];
};

static void keep_line(void *user, enum pn_log_level level, const char *line) {
    struct lines *l = user;
    l->n++;
    l->level = level;
    snprintf(l->last, sizeof l->last, "%s", line);
}

static void test_log(void **state) {
    (void)state;
    struct lines l = {0};
    pn__log(PN_LOG_ERROR, "nobody listens");
    pn_log_set(keep_line, &l, PN_LOG_WARN);
    pn__log(PN_LOG_INFO, "too talkative");
    assert_int_equal(l.n, 0);
    pn__log(PN_LOG_WARN, "path '%s'", "/x\nforged line");
    assert_int_equal(l.n, 1);
    assert_int_equal(l.level, PN_LOG_WARN);
    assert_string_equal(l.last, "path '/x?forged line'");
    pn__log(PN_LOG_ERROR, "%01500d", 7);
    assert_int_equal(l.n, 2);
    assert_int_equal(strlen(l.last), 1023);
    pn_log_set(NULL, NULL, PN_LOG_DEBUG);
    pn__log(PN_LOG_ERROR, "silenced");
    assert_int_equal(l.n, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),        cmocka_unit_test(test_unknown_code),
        cmocka_unit_test(test_fail_formats), cmocka_unit_test(test_clean),
        cmocka_unit_test(test_clean_cut),    cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
