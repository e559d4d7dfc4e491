/* Weights into a copy in memory, by all threads of the backend.
 *
 * The copy is cut into pieces of a few huge pages, handed out as threads come free. A thread reads
 * its piece into pages that nobody has touched yet, so they are zeroed by the thread that fills
 * them next, while they are in its cache, and on its NUMA node. Then it books them as committed: a
 * load of minutes never promises much more than is still to come. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/io.h"
#include "engine/engine_internal.h"

#define PIECE_BYTES (4ull << 20)

/* Where a tensor lies in the copy. */
struct placed {
    uint64_t at;
    const struct pn_gguf_tensor *tensor;
};

struct copy_job {
    const struct model_file *f;
    const struct pn_engine_options *o;
    struct placed *placed; /* [n], ascending by `at` */
    uint64_t n;
    /* Sync: relaxed counters; the pool's hand-over orders the data. */
    _Atomic uint64_t next; /* piece */
    _Atomic uint64_t done; /* bytes read */
    _Atomic bool stop;
    uint64_t told; /* of `done`: by thread 0 alone */

    pthread_mutex_t lock;
    struct pn_block *block; /* its booking, under lock */
    int rc;                 /* of the lowest piece that failed, under lock */
    uint64_t failed_at;
    struct pn_detail detail;
};

static int by_place(const void *a, const void *b) {
    const struct placed *x = a;
    const struct placed *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* The first tensor that ends after `at`. */
static uint64_t first_after(const struct copy_job *j, uint64_t at) {
    uint64_t lo = 0;
    uint64_t hi = j->n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (j->placed[mid].at + j->placed[mid].tensor->bytes > at) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

/* The callback is for the caller's thread, and each call says more than the last. */
static void tell(struct copy_job *j, uint32_t thread_i) {
    uint64_t done = atomic_load_explicit(&j->done, memory_order_relaxed);
    if (thread_i != 0 || !j->o->progress || done <= j->told) return;
    j->told = done;
    j->o->progress(j->o->progress_user, done, j->f->weight_bytes);
}

static int read_piece(struct copy_job *j, uint64_t from, uint64_t to, uint32_t thread_i,
                      struct pn_detail *d) {
    const struct pn_gguf *g = j->f->g;
    for (uint64_t i = first_after(j, from); i < j->n && j->placed[i].at < to; i++) {
        const struct placed *p = &j->placed[i];
        const struct pn_gguf_tensor *t = p->tensor;
        uint64_t lo = p->at > from ? p->at : from;
        uint64_t hi = pn__min_u64(p->at + t->bytes, to);
        int rc = pn__io_read_exact(pn__gguf_shard_fd(g, t->shard), pn__gguf_shard_path(g, t->shard),
                                   j->block->data + lo, hi - lo, t->offset + (lo - p->at), d);
        if (rc) return rc;
        atomic_fetch_add_explicit(&j->done, hi - lo, memory_order_relaxed);
        tell(j, thread_i);
    }
    return 0;
}

static void note_failure(struct copy_job *j, uint64_t at, int rc, const struct pn_detail *d) {
    pthread_mutex_lock(&j->lock);
    if (j->rc == 0 || at < j->failed_at) {
        j->rc = rc;
        j->failed_at = at;
        j->detail = *d;
    }
    pthread_mutex_unlock(&j->lock);
    atomic_store_explicit(&j->stop, true, memory_order_relaxed);
}

static int commit_piece(struct copy_job *j, uint64_t from, uint64_t to, struct pn_detail *d) {
    pthread_mutex_lock(&j->lock);
    int rc = pn__block_commit(j->block, from, to - from);
    pthread_mutex_unlock(&j->lock);
    return rc ? pn__fail(d, rc, "committing the copy of the weights at byte %llu of %llu",
                         (unsigned long long)from, (unsigned long long)j->block->bytes)
              : 0;
}

static void copy_pieces(void *user, uint32_t thread_i, uint32_t thread_n) {
    struct copy_job *j = user;
    (void)thread_n;
    while (!atomic_load_explicit(&j->stop, memory_order_relaxed)) {
        uint64_t from = PIECE_BYTES * atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (from >= j->block->bytes) return;
        uint64_t to = pn__min_u64(from + PIECE_BYTES, j->block->bytes);
        struct pn_detail d = {0};
        int rc = read_piece(j, from, to, thread_i, &d);
        if (rc == 0) rc = commit_piece(j, from, to, &d);
        if (rc) note_failure(j, from, rc, &d);
    }
}

static int list_placed(struct copy_job *j, struct pn_detail *d) {
    const struct model_file *f = j->f;
    uint64_t tensor_n = pn__gguf_tensor_n(f->g);
    j->placed = pn__calloc(tensor_n, sizeof *j->placed);
    if (!j->placed) {
        return pn__fail(d, PN_E_NOMEM, "table of %llu tensors", (unsigned long long)tensor_n);
    }
    for (uint64_t i = 0; i < tensor_n; i++) {
        if (f->places[i] == PLACE_UNUSED || f->places[i] == PLACE_VECTOR) continue;
        j->placed[j->n++] = (struct placed){f->places[i], pn__gguf_tensor(f->g, i)};
    }
    qsort(j->placed, j->n, sizeof *j->placed, by_place);
    return 0;
}

int pn__load_copy(const struct model_file *f, struct pn_cpu *cpu, struct pn_block *block,
                  const struct pn_engine_options *o, struct pn_detail *d) {
    struct copy_job j = {.f = f, .o = o, .block = block};
    int rc = list_placed(&j, d);
    if (rc == 0 && pthread_mutex_init(&j.lock, NULL) != 0) {
        rc = pn__fail(d, PN_E_NOMEM, "lock of a load");
    }
    if (rc) {
        pn__free(j.placed);
        return rc;
    }
    pn__cpu_run(cpu, copy_pieces, &j);
    pthread_mutex_destroy(&j.lock);
    pn__free(j.placed);
    if (j.rc) {
        *d = j.detail;
        return j.rc;
    }
    tell(&j, 0);
    return 0;
}
