/* Weights by copy and by map give the same answers, from one file or several; and a file that
 * changes while its model is loaded or runs is noticed where it matters. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/drive.h"
#include "engine/tiny.h"

static void answer_of(const struct pn_engine_options *o, struct answer *a) {
    pn_engine *e = open_engine(o);
    ask(e, new_session(e), short_request(), PN_STOP_LENGTH, a);
    assert_int_equal(a->row_n, 5);
    pn_engine_free(e);
}

static void same_answer(const struct pn_engine_options *o, const struct answer *want) {
    struct answer a;
    answer_of(o, &a);
    assert_memory_equal(a.rows, want->rows, 5 * a.vocab * sizeof(float));
    answer_free(&a);
}

static void split_files(void **state) {
    (void)state;
    struct answer want;
    struct pn_engine_options o = short_options(tiny_path("llama.gguf"), PN_WEIGHTS_COPY);
    answer_of(&o, &want);
    o.model_path = tiny_path("part-00001-of-00002.gguf");
    same_answer(&o, &want);
    o.model_path = tiny_path("part-00002-of-00002.gguf");
    o.weights = PN_WEIGHTS_MAP;
    same_answer(&o, &want);
    answer_free(&want);
}

struct progress {
    uint64_t done;
    uint64_t total;
    uint32_t calls;
};

static void on_progress(void *user, uint64_t done, uint64_t total) {
    struct progress *p = user;
    assert_true(done > p->done && done <= total);
    *p = (struct progress){done, total, p->calls + 1};
}

static void progress_is_told(void **state) {
    (void)state;
    struct progress p = {0};
    struct pn_engine_options o = short_options(tiny_path("llama.gguf"), PN_WEIGHTS_COPY);
    o.progress = on_progress;
    o.progress_user = &p;
    pn_engine *e = open_engine(&o);
    assert_int_equal(p.done, p.total);
    assert_int_equal(p.total, pn_engine_plan_used(e)->file_weights_bytes);
    assert_true(p.calls > 1);
    pn_engine_free(e);
}

/* ---- a file that changes ---- */

/* A fresh copy of the model whose last change is long ago, so that any write is seen. */
static const char *old_file(void) {
    const char *path = tiny_path("changing.gguf");
    struct timespec then[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    tiny_write(&tiny_llama, NULL, path);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    return path;
}

static void overwrite_byte(const char *path, off_t at) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\x55", 1, at), 1);
    close(fd);
}

static void copy_is_independent(void **state) {
    (void)state;
    struct answer want;
    struct answer got;
    struct pn_engine_options o = short_options(old_file(), PN_WEIGHTS_COPY);
    pn_engine *e = open_engine(&o);
    pn_session *s = new_session(e);
    ask(e, s, short_request(), PN_STOP_LENGTH, &want);
    pn_session_free(s);
    overwrite_byte(o.model_path, 5000);
    assert_int_equal(truncate(o.model_path, 0), 0);
    s = new_session(e);
    ask(e, s, short_request(), PN_STOP_LENGTH, &got);
    assert_memory_equal(want.rows, got.rows, 5 * want.vocab * sizeof(float));
    answer_free(&want);
    answer_free(&got);
    pn_engine_free(e);
}

static void map_survives_a_new_file(void **state) {
    (void)state;
    struct answer want;
    struct answer got;
    struct pn_engine_options o = short_options(old_file(), PN_WEIGHTS_MAP);
    pn_engine *e = open_engine(&o);
    pn_session *s = new_session(e);
    ask(e, s, short_request(), PN_STOP_LENGTH, &want);
    struct tiny other = tiny_llama;
    other.seed = 77;
    tiny_write(&other, NULL, o.model_path); /* renamed over it */
    for (int i = 0; i < 2; i++) {
        pn_session_free(s);
        s = new_session(e);
        ask(e, s, short_request(), PN_STOP_LENGTH, &got);
        assert_memory_equal(want.rows, got.rows, 5 * want.vocab * sizeof(float));
        answer_free(&got);
        if (i == 0) assert_int_equal(unlink(o.model_path), 0);
    }
    answer_free(&want);
    pn_engine_free(e);
}

/* Every request under way ends with the reason, none is lost, and later ones end so as well. */
static void check_changed(pn_engine *e, const char *named) {
    struct pn_detail d = {{0}};
    struct answer a[2];
    pn_session *s[2];
    bool more;
    struct pn_request r = short_request();
    for (int i = 0; i < 2; i++) {
        s[i] = new_session(e);
        answer_init(&a[i], &r);
        PN_ASSERT_OK(pn_session_submit(s[i], &r, &d), &d);
    }
    assert_int_equal(pn_engine_turn(e, &more, &d), PN_E_IO);
    assert_false(more);
    assert_non_null(strstr(d.text, named));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(a[i].done_n, 1);
        assert_int_equal(a[i].row_n, 0);
        assert_int_equal(a[i].done.stop, PN_STOP_ERROR);
        assert_int_equal(a[i].done.error, PN_E_IO);
        assert_non_null(strstr(a[i].done.detail.text, "changing.gguf"));
        assert_non_null(strstr(a[i].done.detail.text, named));
    }
    answer_init(&a[0], &r);
    PN_ASSERT_OK(pn_session_submit(s[0], &r, &d), &d);
    assert_int_equal(pn_engine_turn(e, &more, &d), PN_E_IO);
    assert_int_equal(a[0].done.stop, PN_STOP_ERROR);
    PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
}

static void map_notices_changes(void **state) {
    (void)state;
    struct pn_engine_options o = short_options(old_file(), PN_WEIGHTS_MAP);
    o.slots = 2;
    pn_engine *e = open_engine(&o);
    overwrite_byte(o.model_path, 5000);
    check_changed(e, "written to");
    pn_engine_free(e);

    o.model_path = old_file();
    e = open_engine(&o);
    assert_int_equal(truncate(o.model_path, 4096), 0);
    check_changed(e, "4096 bytes now");
    pn_engine_free(e);
}

static void write_while_loading(void *user, uint64_t done, uint64_t total) {
    (void)total;
    if (done > 10000) overwrite_byte(user, 9000);
}

static void changed_while_loading(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    uint64_t before = ledger_reserved();
    char path[128];
    snprintf(path, sizeof path, "%s", old_file());
    struct pn_engine_options o = short_options(path, PN_WEIGHTS_COPY);
    o.progress = write_while_loading;
    o.progress_user = path;
    pn_engine *e;
    assert_int_equal(pn_engine_open(&o, &d, &e), PN_E_IO);
    assert_null(e);
    assert_non_null(strstr(d.text, "changed"));
    assert_int_equal(ledger_reserved(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_files),         cmocka_unit_test(progress_is_told),
        cmocka_unit_test(copy_is_independent), cmocka_unit_test(map_survives_a_new_file),
        cmocka_unit_test(map_notices_changes), cmocka_unit_test(changed_while_loading),
    };
    return cmocka_run_group_tests(tests, tiny_files_setup, tiny_tree_teardown);
}
