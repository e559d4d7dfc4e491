/* `pannier run MODEL -p TEXT -n N`: continues a text, streaming. Without -p every line of standard
 * input is a prompt of its own. The answer goes to stdout, its speed to stderr. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/engine_cli.h"
#include "text/utf8.h"

#define LINE_MAX_BYTES (16u << 20)

struct run {
    const struct pn_settings *s;
    pn_engine *engine;
    struct pn_vocab *vocab;
    struct pn_decoder decoder;
    char *piece; /* [decoder_max] */
    bool stream;
    bool ended; /* an end-of-generation token came */
    struct pn_ids tokens;
    char *text; /* everything decoded, for --json */
    size_t text_len;
    size_t text_cap;
    int rc; /* trouble inside a callback */
    struct pn_detail *d;
    struct pn_done done;
    struct pn_progress progress;
    uint64_t seed;
};

static int keep_text(struct run *r, const char *bytes, size_t n) {
    if (r->text_len + n > r->text_cap) {
        size_t cap = 2 * (r->text_len + n) + 256;
        char *bigger = pn__realloc_array(r->text, cap, 1);
        if (!bigger) return pn__fail(r->d, PN_E_NOMEM, "%zu bytes of text", cap);
        r->text = bigger;
        r->text_cap = cap;
    }
    memcpy(r->text + r->text_len, bytes, n);
    r->text_len += n;
    return 0;
}

static int keep_token(struct run *r, int32_t token) {
    struct pn_ids *l = &r->tokens;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 256;
        int32_t *bigger = pn__realloc_array(l->ids, cap, sizeof *l->ids);
        if (!bigger) return pn__fail(r->d, PN_E_NOMEM, "%zu token ids", cap);
        l->ids = bigger;
        l->cap = cap;
    }
    l->ids[l->n++] = token;
    return 0;
}

static void on_prompt(void *user, uint32_t done, uint32_t total) {
    struct run *r = user;
    pn__progress(&r->progress, "reading the prompt", done, total, "tokens");
}

static bool on_token(void *user, int32_t token) {
    struct run *r = user;
    if (pn__vocab_is_eog(r->vocab, token)) {
        r->ended = true;
        return false;
    }
    size_t n =
        pn__decoder_feed(&r->decoder, r->vocab, token, false, r->piece, pn__decoder_max(r->vocab));
    if (r->stream) {
        fwrite(r->piece, 1, n, stdout);
        r->rc = pn__out_check(r->d);
    } else {
        r->rc = keep_token(r, token);
        if (r->rc == 0) r->rc = keep_text(r, r->piece, n);
    }
    return r->rc == 0;
}

static void on_done(void *user, const struct pn_done *done) {
    struct run *r = user;
    r->done = *done;
}

static int report(struct run *r) {
    const struct pn_done *done = &r->done;
    double prefill = pn__rate(done->prompt_n, done->prefill_s);
    /* The first token comes with the prompt's last step; the others take decode_s. */
    double decode = pn__rate(done->decode_n > 0 ? done->decode_n - 1 : 0, done->decode_s);
    if (r->stream) {
        fputc('\n', stdout);
        int rc = pn__out_check(r->d);
        if (rc) return rc;
        fprintf(stderr, "[%u prompt tokens at %.1f tok/s, %u tokens at %.1f tok/s, %s]\n",
                done->prompt_n, prefill, done->decode_n, decode,
                r->ended ? "end" : pn__stop_name(done->stop));
        return 0;
    }
    struct pn_engine_stats stats;
    pn_engine_stats(r->engine, &stats);
    json_t *ids = json_array();
    for (size_t i = 0; i < r->tokens.n; i++) {
        json_array_append_new(ids, json_integer(r->tokens.ids[i]));
    }
    json_t *j = json_pack("{s:o, s:o, s:s, s:i, s:i, s:f, s:f, s:I, s:s}", "text",
                          json_stringn(r->text ? r->text : "", r->text_len), "tokens", ids, "stop",
                          r->ended ? "end" : pn__stop_name(done->stop), "prompt_tokens",
                          (int)done->prompt_n, "decode_tokens", (int)done->decode_n,
                          "prefill_tok_s", prefill, "decode_tok_s", decode, "seed",
                          (json_int_t)r->seed, "isa", pn_engine_isa(r->engine));
    if (j) json_object_update_new(j, pn__stats_json(&stats));
    return pn__print_json(j, r->d);
}

static int answer(struct run *r, const char *text, size_t len) {
    const struct pn_settings *s = r->s;
    struct pn_ids prompt = {0};
    pn_session *session = NULL;
    unsigned flags = pn__vocab_add_bos(r->vocab) ? PN_TOKENIZE_BOS : 0;
    if (pn__set_flag(s, PN_SET_SPECIAL)) flags |= PN_TOKENIZE_SPECIAL;
    if (len == 0) return pn__fail(r->d, PN_E_INVALID, "empty prompt: there is nothing to continue");
    int rc = pn__tokenize(r->vocab, text, len, flags, &prompt, r->d);
    if (rc == 0) rc = pn_session_new(r->engine, r->d, &session);
    if (rc == 0) {
        r->decoder = (struct pn_decoder){0};
        r->progress = (struct pn_progress){.start_ns = pn__clock_ns()};
        r->tokens.n = 0;
        r->text_len = 0;
        r->ended = false;
        struct pn_request request = {.tokens = prompt.ids,
                                     .token_n = (uint32_t)prompt.n,
                                     .max_new = (uint32_t)pn__set_int(s, PN_SET_PREDICT),
                                     .sampling = {.temp = (float)pn__set_float(s, PN_SET_TEMP),
                                                  .top_k = (int32_t)pn__set_int(s, PN_SET_TOP_K),
                                                  .top_p = (float)pn__set_float(s, PN_SET_TOP_P),
                                                  .min_p = (float)pn__set_float(s, PN_SET_MIN_P),
                                                  .seed = r->seed},
                                     .on_prompt = on_prompt,
                                     .on_token = on_token,
                                     .on_done = on_done,
                                     .user = r};
        rc = pn_session_submit(session, &request, r->d);
    }
    if (rc == 0) rc = pn__cli_drive(r->engine, r->d);
    if (rc == 0) rc = r->rc;
    if (rc == 0) rc = pn__cli_done(&r->done, r->d);
    if (rc == 0) rc = report(r);
    pn_session_free(session);
    pn__ids_free(&prompt);
    return rc;
}

static int answer_lines(struct run *r) {
    char *line = NULL;
    size_t cap = 0;
    size_t line_i = 0;
    bool terminal = isatty(STDIN_FILENO) == 1 && pn__err_is_terminal();
    int rc = 0;
    while (rc == 0) {
        if (terminal) fputs("> ", stderr);
        errno = 0;
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) {
            if (ferror(stdin)) {
                rc = pn__fail(r->d, PN_E_IO, "standard input: %s", strerror(errno));
            }
            break;
        }
        line_i++;
        size_t len = (size_t)n;
        if (len > 0 && line[len - 1] == '\n') len--;
        if (len == 0) continue;
        if (len > LINE_MAX_BYTES) {
            rc = pn__fail(r->d, PN_E_INVALID, "line %zu is %zu bytes long, at most %u are taken",
                          line_i, len, LINE_MAX_BYTES);
            break;
        }
        size_t bad = pn__utf8_valid_len(line, len);
        if (bad < len) {
            rc = pn__fail(r->d, PN_E_INVALID,
                          "standard input, line %zu: byte 0x%02x at column %zu is not UTF-8",
                          line_i, (unsigned char)line[bad], bad + 1);
            break;
        }
        rc = answer(r, line, len);
    }
    free(line);
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

int pn__cmd_run(const struct pn_settings *s, struct pn_detail *d) {
    struct run r = {
        .s = s, .d = d, .stream = !pn__set_flag(s, PN_SET_JSON), .seed = choose_seed(s)};
    struct pn_engine_options o;
    pn__cli_options(s, &o);
    const char *prompt = pn__set_text(s, PN_SET_PROMPT);
    if (prompt && !*prompt) {
        return pn__fail(d, PN_E_INVALID, "empty prompt: there is nothing to continue");
    }
    int rc = pn_engine_open(&o, d, &r.engine);
    if (rc == 0) rc = pn__cli_vocab(s, d, &r.vocab);
    if (rc == 0) {
        r.piece = pn__calloc(pn__decoder_max(r.vocab), 1);
        if (!r.piece) rc = pn__fail(d, PN_E_NOMEM, "text buffer");
    }
    if (rc == 0) rc = prompt ? answer(&r, prompt, strlen(prompt)) : answer_lines(&r);
    pn__free(r.piece);
    pn__free(r.text);
    pn__ids_free(&r.tokens);
    pn__vocab_free(r.vocab);
    pn_engine_free(r.engine);
    return rc;
}
