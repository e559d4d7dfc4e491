/* `pannier bench MODEL -p 512 -n 64 -t 2 [--streams S] [--tokens FILE]`: speed of prompts and of
 * decoding, beside the memory bandwidth that the machine gives in the same run. Prompts of all
 * streams are computed first, then all decode together; tokens are given, not sampled, so that two
 * programs fed the same file do the same work. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/engine_cli.h"
#include "core/mem/pn_block.h"
#include "ops/ops.h"

/* Stream s starts this many ids further in the file. */
#define STREAM_STEP 97u

struct bench {
    pn_engine *engine;
    struct pn_ids file; /* what the streams draw from, wrapping around */
    uint32_t prompt_n;
    uint32_t decode_n;
    uint32_t stream_n;
    pn_session **sessions; /* [stream_n] */
    int32_t *ids;          /* [max(prompt_n, decode_n + 1)] */
    struct pn_done last;   /* of the last request that ended badly, else of any */
    double prefill_s;
    double decode_s;
    struct pn_engine_stats prefill; /* of that part alone */
    struct pn_engine_stats decode;
    double dram_gb_s;
    uint64_t huge_bytes; /* of the process, after the run */
};

static void on_done(void *user, const struct pn_done *done) {
    struct bench *b = user;
    if (b->last.stop != PN_STOP_ERROR) b->last = *done;
}

static int read_ids(const char *path, struct pn_ids *out, struct pn_detail *d) {
    FILE *f = fopen(path, "r");
    if (!f) return pn__fail(d, PN_E_IO, "--tokens %s: %s", path, strerror(errno));
    int rc = 0;
    int id;
    while (rc == 0 && fscanf(f, "%d", &id) == 1) {
        if (out->n == out->cap) {
            size_t cap = out->cap ? 2 * out->cap : 4096;
            int32_t *bigger = pn__realloc_array(out->ids, cap, sizeof *bigger);
            if (!bigger) rc = pn__fail(d, PN_E_NOMEM, "%zu token ids", cap);
            if (bigger) out->ids = bigger;
            if (bigger) out->cap = cap;
        }
        if (rc == 0) out->ids[out->n++] = id;
    }
    if (rc == 0 && !feof(f)) {
        rc = pn__fail(d, PN_E_FORMAT, "--tokens %s: what follows the first %zu ids is no number",
                      path, out->n);
    }
    if (rc == 0 && out->n == 0) rc = pn__fail(d, PN_E_FORMAT, "--tokens %s: no ids in it", path);
    fclose(f);
    return rc;
}

/* Without a file: ids spread over the vocabulary, the same in every run. */
static int make_ids(uint32_t vocab_n, struct pn_ids *out, struct pn_detail *d) {
    out->cap = 4096;
    out->ids = pn__calloc(out->cap, sizeof *out->ids);
    if (!out->ids) return pn__fail(d, PN_E_NOMEM, "%zu token ids", out->cap);
    uint64_t x = 1;
    for (; out->n < out->cap; out->n++) {
        x = x * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
        out->ids[out->n] = (int32_t)((x >> 33) % vocab_n);
    }
    return 0;
}

static int32_t id_at(const struct bench *b, uint32_t stream, uint64_t i) {
    return b->file.ids[(i + (uint64_t)STREAM_STEP * stream) % b->file.n];
}

/* Submits one request a stream, drives them to the end and times it. */
static int timed(struct bench *b, bool decode, double *seconds, struct pn_engine_stats *stats,
                 struct pn_detail *d) {
    pn_engine_stats_reset(b->engine);
    for (uint32_t s = 0; s < b->stream_n; s++) {
        uint32_t n = decode ? b->decode_n + 1 : b->prompt_n;
        uint64_t from = decode ? b->prompt_n : 0;
        for (uint32_t i = 0; i < n; i++) {
            b->ids[i] = id_at(b, s, from + i);
        }
        struct pn_request r = {.tokens = b->ids,
                               .token_n = decode ? 1 : n,
                               .max_new = decode ? b->decode_n : 0,
                               .script = decode ? b->ids + 1 : NULL,
                               .script_n = decode ? b->decode_n : 0,
                               .on_done = on_done,
                               .user = b};
        int rc = pn_session_submit(b->sessions[s], &r, d);
        if (rc) return rc;
    }
    uint64_t start = pn__clock_ns();
    int rc = pn__cli_drive(b->engine, d);
    *seconds = pn__clock_s(start, pn__clock_ns());
    if (rc == 0) rc = pn__cli_done(&b->last, d);
    pn_engine_stats(b->engine, stats);
    return rc;
}

static int measure(struct bench *b, struct pn_detail *d) {
    int rc = 0;
    for (uint32_t s = 0; s < b->stream_n && rc == 0; s++) {
        rc = pn_session_new(b->engine, d, &b->sessions[s]);
    }
    if (rc == 0 && b->prompt_n) rc = timed(b, false, &b->prefill_s, &b->prefill, d);
    if (rc == 0 && b->decode_n) rc = timed(b, true, &b->decode_s, &b->decode, d);
    return rc;
}

/* ---- DRAM read bandwidth ---- */

#define DRAM_BYTES (512u << 20)
#define DRAM_ROUNDS 3

struct dram {
    const uint64_t *words;
    uint64_t word_n;
    _Atomic uint64_t sum; /* keeps the reads alive */
};

static void read_slice(void *user, uint32_t thread_i, uint32_t thread_n) {
    struct dram *m = user;
    uint64_t from = m->word_n / thread_n * thread_i / 8 * 8;
    uint64_t to = m->word_n / thread_n * (thread_i + 1) / 8 * 8;
    uint64_t sums[8] = {0};
    for (uint64_t i = from; i < to; i += 8) {
        for (int k = 0; k < 8; k++) {
            sums[k] += m->words[i + (uint64_t)k];
        }
    }
    m->sum += sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

/* Best of a few reads of a block far larger than the caches, by as many threads as the engine uses.
 * 0 where there is no memory for it. */
static double dram_read_gb_s(uint32_t thread_n) {
    struct pn_block block = {0};
    struct pn_block scratch = {0};
    struct pn_cpu *cpu = NULL;
    struct pn_cpu_config config = {
        .thread_n = thread_n, .isa = PN_ISA_REF, .row_max = 1, .col_max = 256, .dim_max = 32};
    double best = 0.0;
    if (pn__block_new(PN_OWNER_SCRATCH, DRAM_BYTES, PN_BLOCK_COMMIT | PN_BLOCK_HUGE, NULL,
                      &block) == 0 &&
        pn__block_new(PN_OWNER_SCRATCH, pn__cpu_scratch_bytes(&config), PN_BLOCK_COMMIT, NULL,
                      &scratch) == 0 &&
        pn__cpu_new(&config, scratch.data, NULL, &cpu) == 0) {
        memset(block.data, 1, block.bytes);
        struct dram m = {.words = (const uint64_t *)(const void *)block.data,
                         .word_n = block.bytes / sizeof(uint64_t)};
        for (int i = 0; i < DRAM_ROUNDS; i++) {
            uint64_t start = pn__clock_ns();
            pn__cpu_run(cpu, read_slice, &m);
            double rate = (double)block.bytes / pn__clock_s(start, pn__clock_ns()) * 1e-9;
            if (rate > best) best = rate;
        }
    }
    pn__cpu_free(cpu);
    pn__block_free(&scratch);
    pn__block_free(&block);
    return best;
}

/* ---- report ---- */

static json_t *part_json(const struct pn_engine_stats *t, double seconds) {
    json_t *j = pn__stats_json(t);
    if (j) json_object_set_new(j, "seconds", json_real(seconds));
    return j;
}

static int report(const struct bench *b, const struct pn_settings *s, struct pn_detail *d) {
    uint64_t prompt_total = (uint64_t)b->prompt_n * b->stream_n;
    uint64_t decode_total = (uint64_t)b->decode_n * b->stream_n;
    double prefill = pn__rate(prompt_total, b->prefill_s);
    double decode = pn__rate(decode_total, b->decode_s);
    double per_token = decode_total ? (double)b->decode.weight_bytes / (double)decode_total : 0.0;
    double gb_s = b->decode_s > 0 ? (double)b->decode.weight_bytes / b->decode_s * 1e-9 : 0.0;
    double share = b->dram_gb_s > 0 ? gb_s / b->dram_gb_s : 0.0;
    uint32_t threads = pn_engine_thread_n(b->engine);
    if (pn__set_flag(s, PN_SET_JSON)) {
        json_t *j = json_pack(
            "{s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}",
            "n_prompt", (int)b->prompt_n, "n_decode", (int)b->decode_n, "streams", (int)b->stream_n,
            "threads", (int)threads, "pinned", (int)pn_engine_pinned_n(b->engine), "isa",
            pn_engine_isa(b->engine), "weights",
            pn_engine_plan_used(b->engine)->weights == PN_WEIGHTS_COPY ? "copy" : "map",
            "huge_page_bytes", (json_int_t)b->huge_bytes, "prefill_tok_s", prefill, "decode_tok_s",
            decode, "bytes_per_token", per_token, "decode_gb_s", gb_s, "dram_read_gb_s",
            b->dram_gb_s, "dram_share", share, "prefill", part_json(&b->prefill, b->prefill_s),
            "decode", part_json(&b->decode, b->decode_s));
        return pn__print_json(j, d);
    }
    printf("%u stream%s, %u thread%s, %s\n", b->stream_n, b->stream_n == 1 ? "" : "s", threads,
           threads == 1 ? "" : "s", pn_engine_isa(b->engine));
    printf("prompt  %6u tokens  %9.2f tok/s\n", b->prompt_n, prefill);
    printf("decode  %6u tokens  %9.2f tok/s   %.1f MB of weights a token, %.1f GB/s", b->decode_n,
           decode, per_token * 1e-6, gb_s);
    if (b->dram_gb_s > 0)
        printf(", %.0f %% of a plain read (%.1f GB/s)", 100 * share, b->dram_gb_s);
    putchar('\n');
    return pn__out_check(d);
}

static int prepare(struct bench *b, const struct pn_settings *s, struct pn_detail *d) {
    struct pn_engine_options o;
    pn__cli_options(s, &o);
    uint64_t need = (uint64_t)b->prompt_n + b->decode_n;
    if (need == 0) return pn__fail(d, PN_E_USAGE, "-p 0 -n 0: nothing to measure");
    if (o.ctx == 0) o.ctx = (uint32_t)need;
    if (need > o.ctx) {
        return pn__fail(d, PN_E_CONTEXT, "%u prompt and %u decoded tokens don't fit --ctx %u",
                        b->prompt_n, b->decode_n, o.ctx);
    }
    o.slots = b->stream_n;
    int rc = pn_engine_open(&o, d, &b->engine);
    if (rc) return rc;
    const char *path = pn__set_text(s, PN_SET_TOKENS);
    rc = path ? read_ids(path, &b->file, d) : make_ids(pn_engine_vocab_n(b->engine), &b->file, d);
    if (rc) return rc;
    uint32_t most = b->prompt_n > b->decode_n + 1 ? b->prompt_n : b->decode_n + 1;
    b->ids = pn__calloc(most, sizeof *b->ids);
    b->sessions = pn__calloc(b->stream_n, sizeof(pn_session *));
    return b->ids && b->sessions ? 0 : pn__fail(d, PN_E_NOMEM, "%u token ids", most);
}

int pn__cmd_bench(const struct pn_settings *s, struct pn_detail *d) {
    struct bench b = {.prompt_n = (uint32_t)pn__set_int(s, PN_SET_BENCH_P),
                      .decode_n = (uint32_t)pn__set_int(s, PN_SET_BENCH_N),
                      .stream_n = (uint32_t)pn__set_int(s, PN_SET_STREAMS)};
    int rc = prepare(&b, s, d);
    if (rc == 0) rc = measure(&b, d);
    if (rc == 0) {
        b.huge_bytes = pn__self_huge_bytes();
        if (!pn__set_flag(s, PN_SET_NO_DRAM))
            b.dram_gb_s = dram_read_gb_s(pn_engine_thread_n(b.engine));
        rc = report(&b, s, d);
    }
    pn__free(b.ids);
    pn__free(b.sessions);
    pn__ids_free(&b.file);
    pn_engine_free(b.engine);
    return rc;
}
