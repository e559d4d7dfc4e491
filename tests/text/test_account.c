/* What grows with a file or a conversation is in the ledger: a GGUF's header and tables, a chat
 * template's arenas. Booked while it lives, refused as a value where there is no room, gone after.
 */
#include <unistd.h>

#include "base/alloc.h"
#include "core/mem/pn_account.h"
#include "gguf/gguf.h"
#include "gguf/gguf_writer.h"
#include "pn_mem.h"
#include "text/chat.h"

#define MIB (1ull << 20)
#define STRING_N 100000

static pn_ledger_row scratch(void) {
    static pn_ledger_view v;
    pn_ledger_read(&v);
    return v.cells[PN_PLACE_HOST][PN_OWNER_SCRATCH];
}

/* No room at all, and nothing left to borrow. To be freed. */
static void *take_all(void) {
    pn_ledger_set_domain(PN_DOMAIN_HOST, "host", 0, 0);
    void *p = pn__calloc(1, PN_ACCOUNT_DEBT_BYTES - PN_ALLOC_LARGE_BYTES / 2);
    assert_non_null(p);
    return p;
}

static int setup(void **state) {
    (void)state;
    pn__account_allocations();
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, UINT64_MAX, 0);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return scratch().reserved_bytes == 0 ? 0 : -1;
}

/* A file with a vocabulary's worth of strings in its header. */
static void write_model(const char *path) {
    struct pn_gguf_writer *w;
    struct pn_detail d;
    struct pn_str *strings = pn__calloc(STRING_N, sizeof *strings);
    assert_non_null(strings);
    for (int i = 0; i < STRING_N; i++)
        strings[i] = (struct pn_str){.data = "some token", .len = 10};
    PN_ASSERT_OK(pn__gguf_writer_new(&w, &d), &d);
    pn__gguf_w_str(w, "general.architecture", "llama");
    pn__gguf_w_strings(w, "tokenizer.ggml.tokens", strings, STRING_N);
    const uint64_t dims[1] = {4};
    pn__gguf_w_tensor(w, "t", PN_TYPE_F32, 1, dims, NULL);
    PN_ASSERT_OK(pn__gguf_w_file(w, path, &d), &d);
    pn__gguf_writer_free(w);
    pn__free(strings);
}

static void test_gguf(void **state) {
    (void)state;
    char path[] = "/tmp/pn-account-XXXXXX";
    struct pn_detail d;
    struct pn_gguf *g;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_model(path);
    assert_int_equal(scratch().reserved_bytes, 0);
    PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
    /* 18 bytes a string in the header, and 4 for where it lies. */
    assert_in_range(scratch().reserved_bytes, 22 * STRING_N, 23 * STRING_N + MIB / 2);
    pn__gguf_close(g);
    assert_int_equal(scratch().reserved_bytes, 0);
    /* No room: refused before it is taken, as a value. */
    void *all = take_all();
    assert_int_equal(pn__gguf_open(path, &d, &g), PN_E_NOMEM);
    pn__free(all);
    unlink(path);
}

static void test_template(void **state) {
    (void)state;
    const char *text = "{% set ns = namespace(s='0123456789') %}"
                       "{% for i in range(16) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
                       "{{ ns.s }}";
    struct pn_template *t = chat_parse(text);
    json_t *none = json_object();
    struct pn_chat_text out = {0};
    struct pn_detail d;
    uint64_t before = scratch().reserved_peak_bytes;
    PN_ASSERT_OK(pn__template_render(t, none, NULL, chat_now(), &out, &d), &d);
    assert_int_equal(out.len, 655360);
    assert_true(scratch().reserved_peak_bytes >= before + 655360);
    assert_in_range(scratch().reserved_bytes, 655360, 2 * MIB); /* the answer; its arena is gone */
    pn__chat_text_free(&out);
    void *all = take_all();
    assert_int_equal(pn__template_render(t, none, NULL, chat_now(), &out, &d), PN_E_NOMEM);
    pn__chat_text_free(&out);
    pn__free(all);
    json_decref(none);
    pn__template_free(t);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {T(test_template), T(test_gguf)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
