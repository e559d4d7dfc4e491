#include "engine/golden.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

static const char *const folders[] = {PN_TEST_DATA "/models", PN_TEST_SHARED "/goldens/models"};

static struct ids ids_of(json_t *list) {
    struct ids out = {.n = json_array_size(list)};
    out.ids = calloc(out.n ? out.n : 1, sizeof *out.ids);
    assert_non_null(out.ids);
    for (size_t i = 0; i < out.n; i++) {
        out.ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return out;
}

static float *read_floats(const char *path, size_t *n) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    float *out = malloc((size_t)st.st_size);
    FILE *f = fopen(path, "rb");
    assert_true(out && f);
    *n = (size_t)st.st_size / sizeof *out;
    assert_int_equal(fread(out, sizeof *out, *n, f), *n);
    fclose(f);
    return out;
}

static void fill(json_t *entry, json_t *part, const char *folder, struct golden *out) {
    char path[512];
    size_t n;
    snprintf(out->model_path, sizeof out->model_path, "%s/%s", folder,
             json_string_value(json_object_get(entry, "model")));
    snprintf(path, sizeof path, "%s/%s", folder,
             json_string_value(json_object_get(part, "logits")));
    out->vocab = (uint32_t)json_integer_value(json_object_get(entry, "vocab"));
    out->prompt = ids_of(json_object_get(part, "prompt"));
    out->greedy = ids_of(json_object_get(part, "greedy"));
    json_t *margins = json_object_get(part, "greedy_margin");
    out->margins = calloc(out->greedy.n + 1, sizeof *out->margins);
    for (size_t i = 0; i < out->greedy.n; i++) {
        out->margins[i] = json_number_value(json_array_get(margins, i));
    }
    out->rows = read_floats(path, &n);
    assert_int_equal(n % out->vocab, 0);
    out->row_n = n / out->vocab;
    out->kl = json_number_value(json_object_get(entry, "reference_engine_kl"));
    out->exact_weights = json_is_true(json_object_get(entry, "exact_weights"));
}

bool golden_load(const char *name, bool is_long, struct golden *out) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < PN_ARRAY_N(folders); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/golden.json", folders[i]);
        json_error_t error;
        json_t *all = json_load_file(path, 0, &error);
        if (!all) continue;
        json_t *entry = json_object_get(all, name);
        json_t *part = is_long ? json_object_get(entry, "long") : entry;
        if (part) fill(entry, part, folders[i], out);
        out->mixture = strstr(name, "moe") != NULL;
        json_decref(all);
        if (part) return true;
    }
    return false;
}

void golden_free(struct golden *g) {
    free(g->prompt.ids);
    free(g->greedy.ids);
    free(g->margins);
    free(g->rows);
}

void golden_require(const char *name, bool is_long) {
    struct golden g;
    if (!golden_load(name, is_long, &g)) {
        PN_SKIP_EXIT("golden %s is neither in tests/data nor in ../shared", name);
    }
    golden_free(&g);
}

struct collector {
    struct run_result *out;
    size_t row_max;
    struct pn_done done;
};

static void on_logits(void *user, uint32_t position, const float *logits, uint32_t n) {
    struct collector *c = user;
    assert_int_equal(position, c->out->row_n);
    assert_true(c->out->row_n < c->row_max);
    memcpy(c->out->rows + c->out->row_n * n, logits, n * sizeof *logits);
    c->out->row_n++;
}

static void on_done(void *user, const struct pn_done *done) {
    struct collector *c = user;
    c->done = *done;
}

static void submit_neighbours(pn_engine *e, const struct ids *prompt, uint32_t n, uint32_t more) {
    struct pn_detail d = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        pn_session *s;
        struct ids other = make_ids(pn_engine_vocab_n(e), 1 + prompt->n * (i + 1) / (n + 1), i + 7);
        struct pn_request r = {.tokens = other.ids, .token_n = (uint32_t)other.n, .max_new = more};
        PN_ASSERT_OK(pn_session_new(e, &d, &s), &d);
        PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
        free(other.ids);
    }
}

void run_model(const char *path, const struct ids *prompt, const struct ids *script,
               const struct run_options *o, struct run_result *out) {
    struct pn_detail d = {{0}};
    size_t script_n = script ? script->n : 0;
    struct pn_engine_options options = {.model_path = path,
                                        .ctx = (uint32_t)(prompt->n + script_n + 1),
                                        .slots = 1 + o->beside,
                                        .chunk = o->chunk,
                                        .threads = o->threads,
                                        .out_rows = 4096,
                                        .kv = o->kv,
                                        .weights = o->weights,
                                        .isa = o->isa};
    pn_engine *e;
    PN_ASSERT_OK(pn_engine_open(&options, &d, &e), &d);
    memset(out, 0, sizeof *out);
    out->vocab = pn_engine_vocab_n(e);
    struct collector c = {.out = out, .row_max = prompt->n + script_n};
    out->rows = malloc(c.row_max * out->vocab * sizeof *out->rows);
    assert_non_null(out->rows);

    pn_session *s;
    PN_ASSERT_OK(pn_session_new(e, &d, &s), &d);
    struct pn_request r = {.tokens = prompt->ids,
                           .token_n = (uint32_t)prompt->n,
                           .max_new = script_n ? (uint32_t)script_n + 1 : 0,
                           .script = script ? script->ids : NULL,
                           .script_n = (uint32_t)script_n,
                           .all_logits = true,
                           .on_logits = on_logits,
                           .on_done = on_done,
                           .user = &c};
    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
    submit_neighbours(e, prompt, o->beside, (uint32_t)script_n);
    bool more = true;
    while (more) {
        PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
    }
    if (c.done.stop == PN_STOP_ERROR) print_error("%s\n", c.done.detail.text);
    assert_int_not_equal(c.done.stop, PN_STOP_ERROR);
    assert_int_equal(out->row_n, c.row_max);
    pn_engine_stats(e, &out->stats);
    pn_engine_free(e);
}

void run_free(struct run_result *r) {
    free(r->rows);
}

static double log_sum(const float *row, uint32_t n, double *max) {
    double sum = 0.0;
    *max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        *max = fmax(*max, (double)row[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)row[i] - *max);
    }
    return log(sum);
}

double row_kl(const float *p, const float *q, uint32_t n) {
    double p_max;
    double q_max;
    double p_log = log_sum(p, n, &p_max);
    double q_log = log_sum(q, n, &q_max);
    double kl = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        double lp = (double)p[i] - p_max - p_log;
        double lq = (double)q[i] - q_max - q_log;
        kl += exp(lp) * (lp - lq);
    }
    return kl;
}

double row_off(const double *want, const float *got, uint32_t n) {
    double largest = 0.0;
    double off = 0.0;
    for (uint32_t c = 0; c < n; c++) {
        largest = fmax(largest, fabs(want[c]));
        off = fmax(off, fabs(want[c] - (double)got[c]));
    }
    return off / largest;
}

uint32_t row_argmax(const float *row, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (row[i] > row[best]) best = i;
    }
    return best;
}

struct ids make_ids(uint32_t vocab, size_t n, uint64_t seed) {
    struct ids out = {.n = n, .ids = calloc(n, sizeof(int32_t))};
    assert_non_null(out.ids);
    uint64_t x = seed;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        out.ids[i] = (int32_t)(3 + (x >> 33) % (vocab - 3));
    }
    return out;
}
