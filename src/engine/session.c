/* Sessions as their callers see them: taking a slot, queueing requests. Everything that touches the
 * cache or a step happens in turn.c, on the driving thread. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine_internal.h"

int pn_session_new(pn_engine *e, struct pn_detail *d, pn_session **out) {
    *out = NULL;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->plan.slots && !*out; i++) {
        if (e->sessions[i].taken) continue;
        e->sessions[i].taken = true;
        *out = &e->sessions[i];
    }
    pthread_mutex_unlock(&e->lock);
    if (*out) return 0;
    return pn__fail(d, PN_E_BUSY, "all %u slots are taken", e->plan.slots);
}

void pn_session_free(pn_session *s) {
    if (!s) return;
    pn_engine *e = s->engine;
    pn__kv_reset(e->kv, s->slot_i);
    pthread_mutex_lock(&e->lock);
    *s = (struct pn_session){.engine = e, .slot_i = s->slot_i, .kv = e->plan.kv};
    pthread_mutex_unlock(&e->lock);
}

uint32_t pn_session_length(const pn_session *s) {
    return s->length;
}

enum pn_kv_choice pn_session_kv(const pn_session *s) {
    return s->kv;
}

int pn_session_truncate(pn_session *s, uint32_t length, struct pn_detail *d, uint32_t *kept) {
    pn_engine *e = s->engine;
    *kept = s->length;
    pthread_mutex_lock(&e->lock);
    bool busy = s->busy;
    pthread_mutex_unlock(&e->lock);
    if (busy) return pn__fail(d, PN_E_STATE, "a request is under way in this session");
    if (length > s->length) {
        return pn__fail(d, PN_E_INVALID, "cutting back to %u tokens: the session holds %u", length,
                        s->length);
    }
    uint32_t left = pn__kv_truncate(e->kv, s->slot_i, s->length, length);
    /* Under the lock as submit reads them from any thread. */
    pthread_mutex_lock(&e->lock);
    s->length = left;
    s->pending_n = 0;
    pthread_mutex_unlock(&e->lock);
    *kept = left;
    return 0;
}

/* Written so that NaN fails each of them. */
static int check_sampling(const struct pn_sampling *p, struct pn_detail *d) {
    const char *what = NULL;
    if (!(p->temp >= 0.0f && p->temp < INFINITY)) what = "temp must be 0 or more";
    if (p->top_k < 0) what = "top_k must be 0 or more";
    if (!(p->top_p >= 0.0f && p->top_p <= 1.0f)) what = "top_p must be 0 to 1";
    if (!(p->min_p >= 0.0f && p->min_p <= 1.0f)) what = "min_p must be 0 to 1";
    if (!what) return 0;
    return pn__fail(d, PN_E_INVALID, "temp %g, top_k %d, top_p %g, min_p %g: %s", (double)p->temp,
                    p->top_k, (double)p->top_p, (double)p->min_p, what);
}

static int check_request(const struct pn_engine *e, const struct pn_request *r,
                         struct pn_detail *d) {
    if (r->token_n == 0 || !r->tokens) {
        return pn__fail(d, PN_E_INVALID, "empty prompt: 0 tokens");
    }
    if (r->script_n && !r->script) return pn__fail(d, PN_E_INVALID, "a script without tokens");
    uint32_t vocab = e->file.h.vocab;
    for (uint32_t i = 0; i < r->token_n; i++) {
        if (r->tokens[i] < 0 || (uint32_t)r->tokens[i] >= vocab) {
            return pn__fail(d, PN_E_INVALID, "token %d at position %u: the vocabulary has 0 to %u",
                            r->tokens[i], i, vocab - 1);
        }
    }
    for (uint32_t i = 0; i < r->script_n; i++) {
        if (r->script[i] < 0 || (uint32_t)r->script[i] >= vocab) {
            return pn__fail(d, PN_E_INVALID,
                            "token %d at place %u of the script: the vocabulary has 0 to %u",
                            r->script[i], i, vocab - 1);
        }
    }
    return check_sampling(&r->sampling, d);
}

static struct request *copy_request(const struct pn_request *r) {
    size_t ids = (size_t)r->token_n + r->script_n;
    struct request *copy = pn__calloc(1, sizeof *copy + ids * sizeof(int32_t));
    if (!copy) return NULL;
    int32_t *tokens = (int32_t *)(copy + 1);
    copy->r = *r;
    memcpy(tokens, r->tokens, r->token_n * sizeof *tokens);
    if (r->script_n) memcpy(tokens + r->token_n, r->script, r->script_n * sizeof *tokens);
    copy->r.tokens = tokens;
    copy->r.script = tokens + r->token_n;
    return copy;
}

/* Makes the session busy with a request of `token_n` tokens and keeps a place in the queue for it;
 * says what it holds, which nobody changes from then on. Under the lock. */
static int claim(pn_session *s, uint32_t token_n, struct admit_from *from, struct pn_detail *d) {
    pn_engine *e = s->engine;
    if (s->busy) return pn__fail(d, PN_E_STATE, "a request is under way in this session");
    uint64_t need = (uint64_t)s->length + s->pending_n + token_n;
    if (need > e->plan.ctx) {
        return pn__fail(d, PN_E_CONTEXT,
                        "%u tokens behind the %u that the session holds are more than the context "
                        "of %u",
                        token_n, s->length + s->pending_n, e->plan.ctx);
    }
    if (e->queue_n + e->claim_n >= QUEUE_MAX) {
        return pn__fail(d, PN_E_BUSY, "%u commands are waiting already", QUEUE_MAX);
    }
    const struct pn_seq_kv *seq = pn__kv_seq(e->kv, s->slot_i);
    *from = (struct admit_from){.length = s->length,
                                .pending_n = s->pending_n,
                                .kv_bytes = seq->pages_paid.committed_bytes,
                                .state_bytes = seq->state_paid.committed_bytes};
    s->busy = true;
    e->claim_n++;
    return 0;
}

/* Ends a claim: the request takes its place in the queue, or (NULL) the session is free again. */
static void settle(pn_session *s, struct request *copy) {
    pn_engine *e = s->engine;
    pthread_mutex_lock(&e->lock);
    e->claim_n--;
    if (copy) {
        e->queue[(e->queue_first + e->queue_n++) % QUEUE_MAX] =
            (struct command){.session = s, .request = copy};
    } else {
        s->busy = false;
        s->cancel = false;
    }
    pthread_mutex_unlock(&e->lock);
    if (copy) pn_mem_wake();
}

int pn_session_submit(pn_session *s, const struct pn_request *request, struct pn_detail *d) {
    pn_engine *e = s->engine;
    int rc = check_request(e, request, d);
    if (rc) return rc;
    struct request *copy = copy_request(request);
    if (!copy) return pn__fail(d, PN_E_NOMEM, "a request of %u tokens", request->token_n);
    struct admit_from from;
    pthread_mutex_lock(&e->lock);
    rc = claim(s, request->token_n, &from, d);
    pthread_mutex_unlock(&e->lock);
    if (rc) {
        pn__free(copy);
        return rc;
    }
    /* Not under the lock: it samples and logs. */
    rc = pn__admit_request(s, request, &from, d);
    if (rc) {
        pn__free(copy);
        copy = NULL;
    }
    settle(s, copy);
    return rc;
}

/* A flag and no command: it can't find the queue full. */
int pn_session_cancel(pn_session *s, struct pn_detail *d) {
    (void)d;
    pthread_mutex_lock(&s->engine->lock);
    s->cancel = s->busy;
    pthread_mutex_unlock(&s->engine->lock);
    pn_mem_wake();
    return 0;
}

bool pn__session_cancelled(pn_session *s) {
    pthread_mutex_lock(&s->engine->lock);
    bool cancel = s->cancel;
    pthread_mutex_unlock(&s->engine->lock);
    return cancel;
}

bool pn__queue_pop(pn_engine *e, bool any, struct command *out) {
    uint32_t i = 0;
    pthread_mutex_lock(&e->lock);
    while (i < e->queue_n && !any && !e->queue[(e->queue_first + i) % QUEUE_MAX].session->cancel) {
        i++;
    }
    bool found = i < e->queue_n;
    if (found) {
        *out = e->queue[(e->queue_first + i) % QUEUE_MAX];
        /* Those before it move up by one; mostly there are none. */
        for (; i > 0; i--) {
            e->queue[(e->queue_first + i) % QUEUE_MAX] =
                e->queue[(e->queue_first + i - 1) % QUEUE_MAX];
        }
        e->queue_first = (e->queue_first + 1) % QUEUE_MAX;
        e->queue_n--;
    }
    pthread_mutex_unlock(&e->lock);
    return found;
}

uint32_t pn__queue_n(pn_engine *e) {
    pthread_mutex_lock(&e->lock);
    uint32_t n = e->queue_n;
    pthread_mutex_unlock(&e->lock);
    return n;
}
