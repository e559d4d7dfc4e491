#include "core/mem/pn_decision.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/compiler.h"

/* Sync: under ring_lock. */
static pn_decision ring[PN_DECISION_N];
static uint64_t noted_n;
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;

void pn__decide(pn_decision e) {
    e.ns = pn__clock_ns();
    pthread_mutex_lock(&ring_lock);
    e.seq = ++noted_n;
    ring[e.seq % PN_DECISION_N] = e;
    pthread_mutex_unlock(&ring_lock);
}

size_t pn_decisions_read(pn_decision *out, size_t cap) {
    pthread_mutex_lock(&ring_lock);
    uint64_t n = noted_n < PN_DECISION_N ? noted_n : PN_DECISION_N;
    if (n > cap) n = cap;
    for (uint64_t i = 0; i < n; i++)
        out[i] = ring[(noted_n - n + 1 + i) % PN_DECISION_N];
    pthread_mutex_unlock(&ring_lock);
    return (size_t)n;
}

const char *pn_decision_text(const pn_decision *e, char *buf, size_t cap) {
    static const char *const formats[] = {
        [PN_DECISION_ADMIT] = "admitted",  [PN_DECISION_CAP] = "capped",
        [PN_DECISION_REJECT] = "rejected", [PN_DECISION_EXTEND] = "extended",
        [PN_DECISION_PARK] = "parked",     [PN_DECISION_SHORTEN] = "shortened",
        [PN_DECISION_SHED] = "shed",       [PN_DECISION_LEVEL] = "level",
    };
    const char *what = (size_t)e->kind < PN_ARRAY_N(formats) ? formats[e->kind] : "?";
    unsigned long long c = e->c;
    unsigned long long d = e->d;
    switch (e->kind) {
    case PN_DECISION_ADMIT:
        snprintf(buf, cap, "%s: prompt %d, answer %d, %llu bytes", what, e->a, e->b, c);
        break;
    case PN_DECISION_CAP:
    case PN_DECISION_REJECT:
        snprintf(buf, cap, "%s: prompt %d, fits %d, needs %llu, has %llu%s%s", what, e->a, e->b, c,
                 d, e->name[0] ? " in " : "", e->name);
        break;
    case PN_DECISION_EXTEND:
        snprintf(buf, cap, "%s: to %d tokens, %llu bytes", what, e->a, c);
        break;
    case PN_DECISION_PARK:
        snprintf(buf, cap, "%s: at %d tokens, needs %llu, has %llu", what, e->a, c, d);
        break;
    case PN_DECISION_SHORTEN:
        snprintf(buf, cap, "%s: end %d -> %d tokens", what, e->a, e->b);
        break;
    case PN_DECISION_SHED:
        snprintf(buf, cap, "%s: %s asked for %llu, gave %llu bytes", what, e->name, c, d);
        break;
    case PN_DECISION_LEVEL:
        snprintf(buf, cap, "%s: %s -> %s, deficit %llu bytes", what,
                 pn_mem_level_name((unsigned)e->a), pn_mem_level_name((unsigned)e->b), c);
        break;
    default:
        snprintf(buf, cap, "%s", what);
    }
    return buf;
}
