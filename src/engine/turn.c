/* The driver. One turn: the newest snapshot is followed; commands are carried out; a batch is made
 * of every session with work (each decoding session brings its last token, prompts share the
 * chunk); one step computes it; results go out. Sessions and their cache change here only, and
 * never while a step is in progress. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine_internal.h"

void pn__session_finish(struct pn_session *s, enum pn_stop stop, int error) {
    pn_engine *e = s->engine;
    uint64_t now = pn__clock_ns();
    struct request *request = s->request;
    s->done.stop = stop;
    s->done.error = error;
    if (s->prompt_end_ns) {
        s->done.prefill_s = pn__clock_s(s->start_ns, s->prompt_end_ns);
        s->done.decode_s = pn__clock_s(s->prompt_end_ns, now);
    } else if (s->start_ns) {
        s->done.prefill_s = pn__clock_s(s->start_ns, now);
    }
    struct pn_done done = s->done;
    s->request = NULL;
    s->phase = PHASE_IDLE;
    s->parked = false;
    /* What was promised and not needed; the pages stay the session's. */
    pn__kv_change(e->kv, s->slot_i);
    pn_admit_release(&s->ticket);
    pthread_mutex_lock(&e->lock);
    s->busy = false;
    s->cancel = false;
    pthread_mutex_unlock(&e->lock);
    /* Last: the callback may submit the session's next request. */
    if (request->r.on_done) request->r.on_done(request->r.user, &done);
    pn__free(request);
}

static void start_request(struct pn_session *s, struct request *request) {
    s->request = request;
    s->phase = PHASE_PREFILL;
    s->fed_n = 0;
    s->prompt_pending = s->pending_n != 0;
    s->prompt_n = s->pending_n + request->r.token_n;
    s->rng = request->r.sampling.seed;
    s->start_ns = 0;
    s->prompt_end_ns = 0;
    memset(&s->done, 0, sizeof s->done);
    s->done.kv = s->kv;
    pn__kv_begin(s->engine->kv, s->slot_i, s->kv != PN_KV_CHOICE_Q4);
    pn__kv_pay(s->engine->kv, s->slot_i, &s->ticket.kv, &s->ticket.state);
}

static void run_commands(pn_engine *e) {
    struct command c;
    while (pn__queue_pop(e, pn__pressure_may_start(e), &c)) {
        start_request(c.session, c.request);
    }
    pn__pressure_tell_held(e, pn__queue_n(e));
    for (uint32_t i = 0; i < e->plan.slots; i++) {
        struct pn_session *s = &e->sessions[i];
        /* One that was submitted and cancelled since the queue was empty is still idle here. */
        if (s->phase != PHASE_IDLE && pn__session_cancelled(s)) {
            pn__session_finish(s, PN_STOP_CANCELLED, 0);
        }
    }
}

static int32_t prompt_token(const struct pn_session *s, uint32_t i) {
    if (s->prompt_pending && i == 0) return s->pending;
    return s->request->r.tokens[i - (s->prompt_pending ? 1 : 0)];
}

/* Rows that a session brings to this step. */
static uint32_t rows_wanted(const pn_engine *e, const struct pn_session *s, uint32_t share) {
    if (s->phase == PHASE_DECODE) return 1;
    uint32_t left = s->prompt_n - s->fed_n;
    if (s->request->r.all_logits) share = share < e->shape.out_max ? share : e->shape.out_max;
    return left < share ? left : share;
}

/* Appends the session's rows. Its last row gets logits when a token is to be chosen or seen there.
 */
static void add_rows(pn_engine *e, struct pn_session *s, uint32_t row_n, struct pn_batch *b) {
    const struct pn_request *r = &s->request->r;
    s->step_row_i = b->row_n;
    s->step_row_n = row_n;
    s->step_out_i = b->out_n;
    for (uint32_t i = 0; i < row_n; i++) {
        uint32_t row = b->row_n + i;
        e->b.ids[row] = s->phase == PHASE_DECODE ? s->pending : prompt_token(s, s->fed_n + i);
        e->b.positions[row] = s->length + i;
        bool last = s->phase == PHASE_DECODE || s->fed_n + i + 1 == s->prompt_n;
        if (last ? r->max_new > 0 || r->all_logits : r->all_logits) e->b.out_rows[b->out_n++] = row;
    }
    s->step_out_n = b->out_n - s->step_out_i;
    struct pn_seq *seq = &e->b.seqs[b->seq_n++];
    *seq = (struct pn_seq){.row_i = s->step_row_i,
                           .row_n = row_n,
                           .pos = s->length,
                           .state = pn__kv_seq(e->kv, s->slot_i)->state};
    pn__kv_tables(e->kv, s->slot_i, seq->tables);
    b->row_n += row_n;
    if (s->start_ns == 0) s->start_ns = pn__clock_ns();
}

/* Sees to it that positions up to `end` are paid for. PN_E_NOFIT: not yet; PN_E_CONTEXT: never. */
static int fund(pn_engine *e, struct pn_session *s, uint32_t end, struct pn_detail *d) {
    pn_admit_ticket *t = &s->ticket;
    while (end > (uint32_t)t->n_tokens) {
        int rc = pn_admit_extend(t, d);
        if (rc) return rc;
        pn__kv_pay(e->kv, s->slot_i, &t->kv, NULL);
    }
    return 0;
}

/* Makes room for the session's next `n` positions, or as many of them as fit. 0: it takes no part
 * in this step, because it is parked or has ended. A parked one asks again when the wake count has
 * moved on. */
static uint32_t make_room(pn_engine *e, struct pn_session *s, uint32_t n, uint64_t wake_n) {
    struct pn_detail why;
    if (s->parked && s->parked_seen == wake_n) return 0;
    int rc = fund(e, s, s->length + n, &why);
    s->parked = rc == PN_E_NOFIT;
    s->parked_seen = wake_n;
    if (s->parked) return 0;
    if (rc == 0) {
        n = pn__kv_room(e->kv, s->slot_i, s->length, n);
        rc = pn__kv_extend(e->kv, s->slot_i, s->length, n, &why);
    }
    if (rc == 0) return n;
    s->done.detail = why;
    if (rc == PN_E_CONTEXT) {
        pn__session_finish(s, PN_STOP_MEMORY, 0);
    } else {
        pn__session_finish(s, PN_STOP_ERROR, rc);
    }
    return 0;
}

/* Prompts share the chunk evenly, so that none waits for another's end; what doesn't divide goes to
 * each in turn. Room for logits bounds prompts that want them all. */
static void make_batch(pn_engine *e, uint64_t wake_n, struct pn_batch *b) {
    uint32_t slots = e->plan.slots;
    uint32_t prefill_n = 0;
    for (uint32_t i = 0; i < slots; i++) {
        prefill_n += e->sessions[i].phase == PHASE_PREFILL;
        e->sessions[i].step_row_n = 0;
    }
    uint32_t share = prefill_n ? e->shape.chunk / prefill_n : 0;
    uint32_t extra = prefill_n ? e->shape.chunk % prefill_n : 0;
    e->turn_i++;
    for (uint32_t k = 0; k < slots; k++) {
        struct pn_session *s = &e->sessions[(k + e->turn_i) % slots];
        if (s->phase == PHASE_IDLE) continue;
        uint32_t mine = share;
        if (s->phase == PHASE_PREFILL && extra > 0) {
            mine++;
            extra--;
        }
        uint32_t out_left = e->shape.out_max - b->out_n;
        uint32_t n = rows_wanted(e, s, mine);
        bool all = s->request->r.all_logits;
        if (all && n > out_left) n = out_left;
        if (n == 0 || out_left == 0) continue;
        n = make_room(e, s, n, wake_n);
        if (n > 0) add_rows(e, s, n, b);
    }
}

static void count_step(pn_engine *e, const struct pn_step *step, const struct pn_batch *b) {
    struct pn_engine_stats *t = &e->stats;
    t->step_n++;
    t->weight_bytes += step->stats.weight_bytes;
    t->matmul_n += step->stats.matmul_n;
    t->sweep_n += step->stats.sweep_n;
    if (b->out_n) t->matmul_step_n = step->stats.matmul_n;
    if (step->stats.row_max > t->batch_max) t->batch_max = step->stats.row_max;
    if (step->stats.thread_n > t->thread_n) t->thread_n = step->stats.thread_n;
}

static int choose(pn_engine *e, struct pn_session *s, int32_t *token) {
    const struct pn_request *r = &s->request->r;
    if (s->done.decode_n < r->script_n) {
        *token = r->script[s->done.decode_n];
        return 0;
    }
    return pn__sample(e->cpu, &r->sampling, e->b.logits, e->file.h.vocab, e->b.candidates, &s->rng,
                      &s->done.detail, token);
}

/* The row behind which a token is chosen: hands it out and decides whether to go on. */
static void next_token(pn_engine *e, struct pn_session *s) {
    const struct pn_request *r = &s->request->r;
    if (s->phase == PHASE_PREFILL) {
        s->prompt_end_ns = pn__clock_ns();
        s->phase = PHASE_DECODE;
        if (r->max_new == 0) {
            pn__session_finish(s, PN_STOP_LENGTH, 0);
            return;
        }
    }
    int32_t token;
    int rc = choose(e, s, &token);
    if (rc) {
        pn__session_finish(s, PN_STOP_ERROR, rc);
        return;
    }
    s->pending = token;
    s->pending_n = 1;
    s->done.decode_n++;
    e->stats.decode_token_n++;
    bool go_on = r->on_token ? r->on_token(r->user, token) : true;
    if (!go_on) {
        pn__session_finish(s, PN_STOP_CALLER, 0);
    } else if (s->done.decode_n == r->max_new) {
        pn__session_finish(s, PN_STOP_LENGTH, 0);
    } else if (s->length >= e->plan.ctx) {
        pn__session_finish(s, PN_STOP_CONTEXT, 0);
    }
}

/* A router that got something else than finite numbers ends the request, also where no logits are
 * wanted: what stands in the cache behind such a row is of no use. */
static int check_routers(pn_engine *e, struct pn_session *s, struct pn_step *step) {
    if (!e->b.work.route.faults) return 0;
    for (uint32_t i = 0; i < s->step_row_n; i++) {
        uint32_t fault = pn__step_fetch_fault(step, &e->b.work.route, s->step_row_i + i);
        if (fault == 0) continue;
        return pn__fail(&s->done.detail, PN_E_NUMERIC,
                        "the router of block %u got no finite numbers at position %u", fault - 1,
                        s->length + i);
    }
    return 0;
}

/* Fetches the session's rows of logits and shows them. A row with anything but finite numbers in it
 * ends the request before anybody sees it, whoever chooses the tokens. */
static int fetch_rows(pn_engine *e, struct pn_session *s, struct pn_step *step) {
    const struct pn_request *r = &s->request->r;
    uint32_t vocab = e->file.h.vocab;
    for (uint32_t i = 0; i < s->step_out_n; i++) {
        uint32_t out_i = s->step_out_i + i;
        pn__step_fetch(step, e->b.work.logits, out_i, e->b.logits);
        uint32_t position = s->length + (e->b.out_rows[out_i] - s->step_row_i);
        for (uint32_t k = 0; k < vocab; k++) {
            if (isfinite(e->b.logits[k])) continue;
            return pn__fail(&s->done.detail, PN_E_NUMERIC,
                            "logit of token %u behind position %u is %g", k, position,
                            (double)e->b.logits[k]);
        }
        if (r->on_logits) r->on_logits(r->user, position, e->b.logits, vocab);
    }
    return 0;
}

static void hand_out(pn_engine *e, struct pn_session *s, struct pn_step *step) {
    int rc = fetch_rows(e, s, step);
    /* Says more than the logits that it spoilt. */
    int router_rc = check_routers(e, s, step);
    if (router_rc) rc = router_rc;
    s->length += s->step_row_n;
    s->pending_n = 0;
    bool at_end = true;
    if (s->phase == PHASE_PREFILL) {
        s->fed_n += s->step_row_n;
        s->done.prompt_n = s->fed_n;
        e->stats.prefill_token_n += s->step_row_n;
        at_end = s->fed_n == s->prompt_n;
        const struct pn_request *r = &s->request->r;
        if (r->on_prompt) r->on_prompt(r->user, s->fed_n, s->prompt_n);
    }
    if (rc) {
        pn__session_finish(s, PN_STOP_ERROR, rc);
    } else if (at_end) {
        next_token(e, s);
    }
}

static bool any_work(pn_engine *e) {
    for (uint32_t i = 0; i < e->plan.slots; i++) {
        if (e->sessions[i].phase != PHASE_IDLE) return true;
    }
    pthread_mutex_lock(&e->lock);
    bool queued = e->queue_n != 0;
    pthread_mutex_unlock(&e->lock);
    return queued;
}

/* Weights read in place are only as good as the file: one that was cut or rewritten ends every
 * request with that reason. */
static int check_map(pn_engine *e, struct pn_detail *d) {
    struct pn_detail why;
    if (e->plan.weights != PN_WEIGHTS_MAP) return 0;
    int rc = pn__gguf_check_unchanged(e->file.g, &why);
    if (rc == 0) return 0;
    for (uint32_t i = 0; i < e->plan.slots; i++) {
        struct pn_session *s = &e->sessions[i];
        if (s->phase == PHASE_IDLE) continue;
        s->done.detail = why;
        pn__session_finish(s, PN_STOP_ERROR, rc);
    }
    return pn__fail(d, rc, "%s", why.text);
}

/* Hands a layer's routing to the requests that want it. */
static void on_route(void *user, struct pn_step *step, uint32_t layer_i,
                     const struct pn_route *route) {
    pn_engine *e = user;
    int32_t ids[PN_TOP_K_MAX];
    for (uint32_t i = 0; i < e->plan.slots; i++) {
        struct pn_session *s = &e->sessions[i];
        if (s->phase == PHASE_IDLE || !s->request->r.on_experts) continue;
        for (uint32_t r = 0; r < s->step_row_n; r++) {
            pn__step_fetch_experts(step, route, s->step_row_i + r, ids);
            if (ids[0] < 0) continue;
            s->request->r.on_experts(s->request->r.user, s->length + r, layer_i, ids, route->top_k);
        }
    }
}

static bool any_on_experts(const pn_engine *e) {
    for (uint32_t i = 0; i < e->plan.slots; i++) {
        const struct pn_session *s = &e->sessions[i];
        if (s->phase != PHASE_IDLE && s->request->r.on_experts) return true;
    }
    return false;
}

int pn_engine_turn(pn_engine *e, bool *more, struct pn_detail *d) {
    *more = false;
    uint64_t wake_n = pn_mem_wake_count(); /* before any look at what is there */
    pn__pressure_follow(e);
    run_commands(e);
    struct pn_batch b = {
        .seqs = e->b.seqs, .ids = e->b.ids, .positions = e->b.positions, .out_rows = e->b.out_rows};
    make_batch(e, wake_n, &b);
    if (b.row_n > 0) {
        int rc = check_map(e, d);
        if (rc) {
            *more = any_work(e);
            return rc;
        }
        struct pn_step step;
        e->b.work.on_route = any_on_experts(e) ? on_route : NULL;
        e->b.work.on_route_user = e;
        pn__step_begin(&step, e->cpu);
        pn__model_forward(&e->model, &step, &b, &e->b.work);
        for (uint32_t i = 0; i < e->plan.slots; i++) {
            struct pn_session *s = &e->sessions[i];
            if (s->phase != PHASE_IDLE && s->step_row_n > 0) hand_out(e, s, &step);
        }
        pn__step_end(&step);
        count_step(e, &step, &b);
    }
    *more = any_work(e);
    if (*more && b.row_n == 0) pn__pressure_wait(e, wake_n);
    return 0;
}
