#include "engine/drive.h"

static void on_logits(void *user, uint32_t position, const float *logits, uint32_t vocab_n) {
    struct answer *a = user;
    assert_true(a->row_n < PN_ARRAY_N(a->positions));
    a->vocab = vocab_n;
    a->positions[a->row_n] = position;
    a->rows = realloc(a->rows, (a->row_n + 1) * vocab_n * sizeof *a->rows);
    assert_non_null(a->rows);
    memcpy(a->rows + a->row_n * vocab_n, logits, vocab_n * sizeof *logits);
    a->row_n++;
}

static bool on_token(void *user, int32_t token) {
    struct answer *a = user;
    assert_true(a->token_n < PN_ARRAY_N(a->tokens));
    a->tokens[a->token_n++] = token;
    return true;
}

static void on_done(void *user, const struct pn_done *done) {
    struct answer *a = user;
    a->done = *done;
    a->done_n++;
}

void answer_init(struct answer *a, struct pn_request *r) {
    memset(a, 0, sizeof *a);
    r->on_logits = on_logits;
    r->on_token = on_token;
    r->on_done = on_done;
    r->user = a;
}

void answer_free(struct answer *a) {
    free(a->rows);
    a->rows = NULL;
}

void drive(pn_engine *e) {
    struct pn_detail d = {{0}};
    bool more = true;
    while (more) {
        PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
    }
}

void ask(pn_engine *e, pn_session *s, struct pn_request r, enum pn_stop stop, struct answer *a) {
    struct pn_detail d = {{0}};
    answer_init(a, &r);
    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
    drive(e);
    assert_int_equal(a->done_n, 1);
    if (a->done.stop != stop) print_error("%s\n", a->done.detail.text);
    assert_int_equal(a->done.stop, stop);
}

struct pn_request short_request(void) {
    static const int32_t prompt[5] = {3, 9, 27, 14, 30};
    return (struct pn_request){.tokens = prompt, .token_n = 5, .all_logits = true};
}

struct pn_engine_options short_options(const char *path, enum pn_weights_choice weights) {
    return (struct pn_engine_options){
        .model_path = path, .ctx = 64, .slots = 1, .threads = 1, .out_rows = 8, .weights = weights};
}

pn_engine *open_engine(const struct pn_engine_options *o) {
    struct pn_detail d = {{0}};
    pn_engine *e;
    PN_ASSERT_OK(pn_engine_open(o, &d, &e), &d);
    return e;
}

pn_session *new_session(pn_engine *e) {
    struct pn_detail d = {{0}};
    pn_session *s;
    PN_ASSERT_OK(pn_session_new(e, &d, &s), &d);
    return s;
}

uint64_t ledger_reserved(void) {
    pn_ledger_view v;
    pn_ledger_read(&v);
    return v.places[PN_PLACE_HOST].reserved_bytes + v.places[PN_PLACE_FILE].reserved_bytes;
}
