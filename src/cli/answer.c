#include "cli/answer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/interrupt.h"
#include "text/segment.h"

static int keep_text(struct pn_answer *a, const char *bytes, size_t n) {
    if (n == 0) return 0;
    if (a->text_len + n > a->text_cap) {
        size_t cap = 2 * (a->text_len + n) + 256;
        char *bigger = pn__realloc_array(a->text, cap, 1);
        if (!bigger) return pn__fail(a->d, PN_E_NOMEM, "%zu bytes of text", cap);
        a->text = bigger;
        a->text_cap = cap;
    }
    memcpy(a->text + a->text_len, bytes, n);
    a->text_len += n;
    return 0;
}

static void on_prompt(void *user, uint32_t done, uint32_t total) {
    struct pn_answer *a = user;
    pn__progress(&a->progress, "reading the prompt", done, total, "tokens");
}

static bool on_token(void *user, int32_t token) {
    struct pn_answer *a = user;
    if (a->trace) pn__route_trace_token(a->trace);
    a->rc = pn__ids_push(&a->tokens, token, a->d);
    if (a->rc == 0 && pn__vocab_is_eog(a->vocab, token)) {
        a->ended = true;
        return false;
    }
    size_t n =
        pn__decoder_feed(&a->decoder, a->vocab, token, false, a->piece, pn__decoder_max(a->vocab));
    if (a->rc == 0) a->rc = keep_text(a, a->piece, n);
    if (token == a->think_end && a->think_len == 0) a->think_len = a->text_len;
    if (a->rc == 0 && a->stream) {
        fwrite(a->piece, 1, n, stdout);
        a->rc = pn__out_check(a->d);
    }
    return a->rc == 0;
}

static void on_experts(void *user, uint32_t position, uint32_t layer, const int32_t *experts,
                       uint32_t n) {
    struct pn_answer *a = user;
    (void)position;
    pn__route_trace_add(a->trace, layer, experts, n);
}

static void on_done(void *user, const struct pn_done *done) {
    struct pn_answer *a = user;
    a->done = *done;
}

/* Drives to the end; Ctrl-C ends the request at the next turn. */
static int drive(struct pn_answer *a, pn_session *session, struct pn_detail *d) {
    bool more = true;
    int rc = 0;
    while (rc == 0 && more) {
        if (pn__interrupted()) rc = pn_session_cancel(session, d);
        if (rc == 0) rc = pn_engine_turn(a->engine, &more, d);
    }
    return rc;
}

static uint64_t choose_seed(const struct pn_settings *s) {
    uint64_t seed = (uint64_t)pn__set_int(s, PN_SET_SEED);
    if (seed) return seed;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    /* Positive in JSON's integers. */
    return ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) >> 1;
}

int pn__answer_init(struct pn_answer *a, const struct pn_settings *s, pn_engine *engine,
                    const struct pn_vocab *vocab, struct pn_detail *d) {
    *a = (struct pn_answer){.s = s,
                            .engine = engine,
                            .vocab = vocab,
                            .seed = choose_seed(s),
                            .think_end = PN_TOKEN_NONE,
                            .stream = !pn__set_flag(s, PN_SET_JSON)};
    a->piece = pn__calloc(pn__decoder_max(vocab), 1);
    if (!a->piece) return pn__fail(d, PN_E_NOMEM, "text buffer");
    return 0;
}

void pn__answer_deinit(struct pn_answer *a) {
    pn__free(a->piece);
    pn__free(a->text);
    pn__ids_free(&a->tokens);
}

int pn__answer_ask(struct pn_answer *a, pn_session *session, uint32_t kept_n, const int32_t *tokens,
                   uint32_t token_n, uint32_t max_new, struct pn_detail *d) {
    const struct pn_settings *s = a->s;
    a->tokens.n = 0;
    a->text_len = 0;
    a->think_len = 0;
    a->kept_n = kept_n;
    a->ended = false;
    a->done = (struct pn_done){0};
    a->decoder = (struct pn_decoder){0};
    a->progress = (struct pn_progress){.start_ns = pn__clock_ns()};
    a->rc = 0;
    a->d = d;
    struct pn_request request = {.tokens = tokens,
                                 .token_n = token_n,
                                 .max_new = max_new,
                                 .sampling = {.temp = (float)pn__set_float(s, PN_SET_TEMP),
                                              .top_k = (int32_t)pn__set_int(s, PN_SET_TOP_K),
                                              .top_p = (float)pn__set_float(s, PN_SET_TOP_P),
                                              .min_p = (float)pn__set_float(s, PN_SET_MIN_P),
                                              .seed = a->seed},
                                 .on_prompt = on_prompt,
                                 .on_token = on_token,
                                 .on_done = on_done,
                                 .user = a};
    if (a->trace) {
        pn__route_trace_begin(a->trace);
        request.on_experts = on_experts;
    }
    int rc = pn_session_submit(session, &request, d);
    if (rc == 0) rc = drive(a, session, d);
    pn__progress_end(&a->progress);
    if (rc == 0) rc = a->rc;
    return rc ? rc : pn__cli_done(&a->done, d);
}

static const char *why(const struct pn_answer *a) {
    return a->ended ? "end" : pn__stop_name(a->done.stop);
}

/* The first token comes with the prompt's last step; the others take decode_s. */
static double decode_rate(const struct pn_done *done) {
    return pn__rate(done->decode_n > 0 ? done->decode_n - 1 : 0, done->decode_s);
}

static int report_json(const struct pn_answer *a, struct pn_detail *d) {
    const struct pn_done *done = &a->done;
    struct pn_engine_stats stats;
    pn_engine_stats(a->engine, &stats);
    json_t *ids = json_array();
    size_t shown_n = a->tokens.n - (a->ended ? 1 : 0);
    for (size_t i = 0; i < shown_n; i++) {
        json_array_append_new(ids, json_integer(a->tokens.ids[i]));
    }
    json_t *j =
        json_pack("{s:o, s:o, s:s, s:i, s:i, s:i, s:f, s:f, s:I, s:s}", "text",
                  json_stringn(a->text ? a->text : "", a->text_len), "tokens", ids, "stop", why(a),
                  "prompt_tokens", (int)done->prompt_n, "kept_tokens", (int)a->kept_n,
                  "decode_tokens", (int)done->decode_n, "prefill_tok_s",
                  pn__rate(done->prompt_n, done->prefill_s), "decode_tok_s", decode_rate(done),
                  "seed", (json_int_t)a->seed, "isa", pn_engine_isa(a->engine));
    if (j) json_object_update_new(j, pn__stats_json(&stats));
    return pn__print_json(j, d);
}

int pn__answer_report(const struct pn_answer *a, struct pn_detail *d) {
    const struct pn_done *done = &a->done;
    if (!a->stream) return report_json(a, d);
    fputc('\n', stdout);
    int rc = pn__out_check(d);
    if (rc || !pn__set_flag(a->s, PN_SET_STATS)) return rc;
    char kept[48] = "";
    if (a->kept_n) snprintf(kept, sizeof kept, " (%u kept)", a->kept_n);
    fprintf(stderr, "[%u prompt tokens%s at %.1f tok/s, %u tokens at %.1f tok/s, %s]\n",
            done->prompt_n, kept, pn__rate(done->prompt_n, done->prefill_s), done->decode_n,
            decode_rate(done), why(a));
    return 0;
}
