/* Pannier: an engine that runs GGUF language models in the memory a machine really has.
 *
 * An engine is one loaded model with its cache. Sessions are sequences inside it. Work is asked for
 * with pn_session_submit and done by pn_engine_turn: one thread at a time drives an engine, by
 * calling turn until it says that nothing is left. The other calls may come from any thread unless
 * said otherwise. Several engines may live in a process.
 *
 * Nothing here exits, reads the environment or installs a signal handler. Functions return 0 or a
 * negative PN_E_* (pn_err.h) with the reason in the caller's pn_detail.
 */
#ifndef PANNIER_H
#define PANNIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pn_err.h"
#include "pn_mem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pn_engine pn_engine;
typedef struct pn_session pn_session;

/* ---- what to load, and what it will take --------------------------------------------------- */

enum pn_kv_choice {
    PN_KV_CHOICE_F32 = 0,
    PN_KV_CHOICE_F16 = 1,
    PN_KV_CHOICE_Q8_0 = 2,
    PN_KV_CHOICE_Q4 = 3, /* f16, and four bits for all but the first and the newest pages */
    /* f16; q4 for sessions that begin while memory is short, where the family bears it */
    PN_KV_CHOICE_AUTO = 4,
};
enum pn_weights_choice { PN_WEIGHTS_AUTO = 0, PN_WEIGHTS_MAP = 1, PN_WEIGHTS_COPY = 2 };
enum pn_isa_choice {
    PN_ISA_CHOICE_AUTO = 0,
    PN_ISA_CHOICE_REF,
    PN_ISA_CHOICE_AVX2,
    PN_ISA_CHOICE_AVX512,
    PN_ISA_CHOICE_AMX, /* AVX-512, and int8 tiles for many rows at once */
    PN_ISA_CHOICE_NEON,
};

/* Binding worker threads to CPUs. Auto: when there is a thread for every usable CPU, so that there
 * is nothing to choose wrongly; the driving thread is never bound. */
enum pn_pin_choice { PN_PIN_AUTO = 0, PN_PIN_ON = 1, PN_PIN_OFF = 2 };

/* Zeroed except for model_path, this asks for sensible defaults. */
struct pn_engine_options {
    const char *model_path;
    uint32_t ctx;      /* tokens a session can hold; 0: trained length, or what fits */
    uint32_t slots;    /* sessions at once; 0: what fits, at most 4 */
    uint32_t chunk;    /* prompt tokens a step; 0: 512 */
    uint32_t threads;  /* 0: one for each usable CPU */
    uint32_t out_rows; /* rows of logits one step can give; 0: one for each slot */
    /* Longest prompt that is taken at once while memory is ample, in tokens; 0: the context. */
    uint32_t prefill_window;
    /* Start the process's memory watch (a thread, see pn_mem.h) if it doesn't run; it goes on when
     * the engine is freed. While it runs, whoever started it, the engine follows the ladder. */
    bool watch;
    enum pn_kv_choice kv;
    enum pn_weights_choice weights;
    enum pn_isa_choice isa;
    enum pn_pin_choice pin;
    const char *root; /* in front of /proc and /sys when memory is probed; NULL: the real ones */
    /* Called from pn_engine_open as loading goes on; `done` of `total` bytes. May be NULL. */
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *progress_user;
};

#define PN_PLAN_PART_N 6
struct pn_plan_part {
    const char *name; /* "weights", "vectors", "kv", "state", "work", "backend" */
    enum pn_mem_owner owner;
    enum pn_mem_place place;
    uint64_t bytes; /* exactly what is reserved when this plan is carried out */
};

/* The cache of the layers of one kind: "full" and "window" hold keys and values, "latent" one row a
 * token for all heads. layer_n 0: the model has none. The part "kv" is what the slots' pages take
 * together, at most slots * page_n * page_bytes of each kind: a window is at its largest only
 * before the rest is. */
#define PN_PLAN_PAGES_N 3
struct pn_plan_pages {
    const char *kind;
    uint32_t layer_n;
    uint32_t window;      /* tokens that a layer looks back, itself included; 0: all */
    uint64_t token_bytes; /* of one token in all layers of the kind */
    uint64_t page_bytes;  /* of 64 tokens, rounded up to the system's page */
    uint32_t page_n;      /* of a slot, at most */
    /* The same of the form in q4 that pages have besides, the first excepted; 0: none. Then most of
     * page_n's pages go back as a sequence grows, see docs/KERNELS.md. With kv_per_session, of the
     * sessions that are in q4. */
    uint64_t narrow_token_bytes;
    uint64_t narrow_page_bytes;
    uint32_t narrow_page_n;
};

struct pn_plan {
    struct pn_plan_part parts[PN_PLAN_PART_N];
    struct pn_plan_pages pages[PN_PLAN_PAGES_N];
    uint64_t total_bytes;        /* of all parts */
    uint64_t host_bytes;         /* of those that a domain can refuse */
    uint64_t file_weights_bytes; /* of the tensors that run, in the file */
    uint64_t expert_bytes;       /* of them: experts' matrices; 0: no mixture of experts */
    uint32_t unused_blocks;      /* trailing blocks that are neither loaded nor planned */
    uint64_t unused_bytes;       /* their tensors' */
    uint32_t ctx;
    uint32_t slots;
    uint32_t ctx_train;
    uint32_t ctx_fit;       /* longest context that would fit with these slots; 0: none */
    uint32_t slots_fit;     /* most slots that would fit with this context; 0: none */
    uint64_t lacking_bytes; /* what `domain` lacks for it; 0 when it fits */
    enum pn_kv_choice kv;   /* what is used, never auto: by sessions that begin now, with: */
    bool kv_per_session;    /* auto: each is f16 or q4 from its start; bytes are of the larger */
    char kv_why[160];
    enum pn_weights_choice weights; /* map or copy */
    char weights_why[160];
    uint64_t headroom_bytes; /* of the domain that binds */
    char domain[PN_DOMAIN_NAME_BYTES];
    bool fits;
};

/* Reads the model's header and says what loading it would take. PN_E_NOFIT when it doesn't fit,
 * with the plan filled in all the same. Nothing is loaded. */
int pn_engine_plan(const struct pn_engine_options *options, struct pn_detail *d,
                   struct pn_plan *out);

/* Plans, reserves, loads. PN_E_NOFIT before anything is taken. The engine is the caller's. */
int pn_engine_open(const struct pn_engine_options *options, struct pn_detail *d, pn_engine **out);

/* Ends all sessions and gives everything back. Takes NULL. Not while another thread drives. A
 * request under way ends without its on_done. */
void pn_engine_free(pn_engine *engine);

/* The plan that was carried out; the model's vocabulary size; threads and instruction set in use.
 */
const struct pn_plan *pn_engine_plan_used(const pn_engine *engine);
uint32_t pn_engine_vocab_n(const pn_engine *engine);
/* Experts of the layer that has most of them; 0: no mixture of experts. */
uint32_t pn_engine_expert_n(const pn_engine *engine);
uint32_t pn_engine_thread_n(const pn_engine *engine);
uint32_t pn_engine_pinned_n(const pn_engine *engine); /* worker threads bound to a CPU */
const char *pn_engine_isa(const pn_engine *engine);

/* ---- sessions ------------------------------------------------------------------------------ */

struct pn_sampling {
    float temp;    /* 0: greedy, the lowest id among equals */
    int32_t top_k; /* 0: all */
    float top_p;   /* 1: all */
    float min_p;   /* 0: none dropped */
    uint64_t seed;
};

/* max_new of an answer of unknown length: to the end of the context. PN_ADMIT_NEW_TOKENS of it are
 * booked at first, then page by page. */
#define PN_NEW_OPEN UINT32_MAX

enum pn_stop {
    PN_STOP_LENGTH = 0,  /* max_new tokens */
    PN_STOP_CONTEXT = 1, /* the context is full */
    PN_STOP_CALLER = 2,  /* on_token asked for it */
    PN_STOP_CANCELLED = 3,
    PN_STOP_ERROR = 4,
    PN_STOP_MEMORY = 5, /* an open answer came to where there is no memory for more; see detail */
};

struct pn_done {
    enum pn_stop stop;
    int error;               /* PN_E_*, with PN_STOP_ERROR */
    enum pn_kv_choice kv;    /* the format of the session's cache, never auto */
    struct pn_detail detail; /* with PN_STOP_ERROR and PN_STOP_MEMORY */
    uint32_t prompt_n;       /* prompt tokens computed */
    uint32_t decode_n;       /* tokens produced */
    double prefill_s;        /* from the first step of the prompt to its last */
    double decode_s;         /* from the end of the prompt to the last token */
};

/* What a session is asked: compute `tokens` after what it holds, then produce up to max_new tokens.
 * Callbacks run on the driving thread inside pn_engine_turn, never under a lock; they may submit
 * and cancel, not free. */
struct pn_request {
    const int32_t *tokens; /* copied by submit */
    uint32_t token_n;      /* at least 1 */
    uint32_t max_new;      /* 0: only compute the prompt */
    struct pn_sampling sampling;
    /* Tokens to follow instead of sampled ones (copied): the script of a test or a benchmark. */
    const int32_t *script;
    uint32_t script_n;
    bool all_logits; /* on_logits for every prompt row, not only where a token is chosen */

    /* After each step of the prompt: done of total tokens. */
    void (*on_prompt)(void *user, uint32_t done, uint32_t total);
    /* Return false to stop after this token. */
    bool (*on_token)(void *user, int32_t token);
    /* Logits of the row after `position`; valid during the call. */
    void (*on_logits)(void *user, uint32_t position, const float *logits, uint32_t vocab_n);
    /* The experts that a mixture's layer chose for the row at `position`, best first. Called inside
     * the step, before its other callbacks, for every row and layer with experts; a request whose
     * row has none because of values that aren't finite ends with PN_E_NUMERIC. */
    void (*on_experts)(void *user, uint32_t position, uint32_t layer, const int32_t *experts,
                       uint32_t n);
    /* Last call of a request. */
    void (*on_done)(void *user, const struct pn_done *done);
    void *user;
};

/* Takes a free slot. PN_E_BUSY when all are taken. */
int pn_session_new(pn_engine *engine, struct pn_detail *d, pn_session **out);

/* Books what the request will take and queues it. It then runs to its end, whatever comes: where a
 * step needs memory that isn't there yet it waits, and goes on with the same bits. PN_E_INVALID (no
 * token, a token outside the vocabulary, a sampling value out of its range); PN_E_CONTEXT when the
 * prompt can never be taken: it doesn't fit behind what the session holds, or is longer than the
 * prefill window; PN_E_NOFIT when it can't be now and may be later: bytes, a window clamped by the
 * ladder, or stalls, with the numbers; PN_E_STATE while a request is under way, PN_E_BUSY when the
 * queue is full, PN_E_NOMEM. On failure no callback runs and nothing stays booked. */
int pn_session_submit(pn_session *session, const struct pn_request *request, struct pn_detail *d);

/* Ends the request under way at the next turn, if any; its on_done says PN_STOP_CANCELLED. Always
 * 0: it can't be lost in a full queue. */
int pn_session_cancel(pn_session *session, struct pn_detail *d);

/* Tokens that the session holds. Driving thread only. */
uint32_t pn_session_length(const pn_session *session);

/* The format of its cache, never auto: chosen when a request was admitted while the session held
 * nothing, and the same until it holds nothing again. Before the first one, the plan's. Driving
 * thread only, no request being submitted. */
enum pn_kv_choice pn_session_kv(const pn_session *session);

/* Cuts the session back to its first `length` tokens, or to none where the model can't go back
 * there (recurrent state, or a window whose older pages are gone). With a cache in q4 a cut into an
 * older page goes back to that page's start, at most 63 tokens further. *kept: how many it holds
 * then, `length` or less. What follows them is asked for with the next request. A last token that
 * was handed out and isn't in the cache yet is forgotten. Driving thread only. PN_E_STATE while a
 * request is under way, PN_E_INVALID when the session holds fewer tokens; nothing is changed then.
 */
int pn_session_truncate(pn_session *session, uint32_t length, struct pn_detail *d, uint32_t *kept);

/* Gives the slot and its cache back. Driving thread only, no request under way (cancel and turn
 * first). Takes NULL. */
void pn_session_free(pn_session *session);

/* Drives: carries out queued commands, follows the ladder, then at most one step over all sessions
 * with work, then hands out results. *more says whether another turn has something to do. Where
 * every request waits for memory it waits too, 100 ms at most. Errors of a request end that request
 * only; PN_E_* here means that the engine itself can't go on.
 *
 * A driver with nothing to do can sleep in pn_mem_wait: submit, cancel and every new snapshot end
 * that. It should turn at each snapshot, for caches are asked to give memory back in turns. */
int pn_engine_turn(pn_engine *engine, bool *more, struct pn_detail *d);

/* ---- memory --------------------------------------------------------------------------------- */

/* What one sequence of this engine takes that begins now, by its length: exactly what will be
 * allocated. For pn_admit_cost_bytes and pn_admit_request_cost. Weights and the buffers of a step
 * are there already. */
void pn_engine_cost(const pn_engine *engine, pn_admit_cost *out);

enum pn_admit_status {
    PN_ADMIT_ADMITTED = 0,
    PN_ADMIT_CAPPED = 1, /* longer than can ever be: `fit` tokens could */
    PN_ADMIT_DENIED = 2, /* not at present: `fit` tokens could, or 0; later more */
};

/* Would a prompt of `n_tokens` be admitted, by the newest snapshot and the ladder? Decides only:
 * submit decides and books. Admits what the window allows while the watch doesn't run. Any thread.
 */
enum pn_admit_status pn_admit(const pn_engine *engine, uint32_t n_tokens, uint32_t *fit);

struct pn_engine_pressure {
    pn_ladder_plan ladder; /* as of the last turn */
    uint32_t running_n;    /* requests that take part in steps */
    uint32_t parked_n;     /* that wait for memory in the middle */
    uint32_t held_n;       /* that wait in the queue */
};
/* Driving thread only. */
void pn_engine_pressure(pn_engine *engine, struct pn_engine_pressure *out);

struct pn_engine_stats {
    uint64_t step_n;
    uint64_t prefill_token_n;
    uint64_t decode_token_n;
    uint64_t weight_bytes; /* bytes of weights that steps read */
    uint64_t matmul_n;     /* weight matrices applied */
    uint64_t sweep_n; /* times a matrix was read from end to end; equal when each is read once */
    uint64_t matmul_step_n; /* weight matrices of one step with logits */
    uint32_t batch_max;     /* widest batch of one sweep */
    uint32_t thread_n;      /* most threads that took part in an operation */
};
/* Since the start or the last reset. Driving thread only. */
void pn_engine_stats(const pn_engine *engine, struct pn_engine_stats *out);
void pn_engine_stats_reset(pn_engine *engine);

const char *pn_version(void);

#ifdef __cplusplus
}
#endif
#endif
