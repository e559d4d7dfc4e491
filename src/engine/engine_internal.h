/* The engine's insides, shared by its files.
 *
 *   kv_choice.c the format of the KV cache, and what four bits cost a family
 *   plan.c      what loading a model would take, exactly, and what fits
 *   load.c      the binder: tensors of the file become weights in memory or in the map
 *   load_copy.c the weights' bytes into a copy, by all threads
 *   engine.c    opening and closing, and who owns which block
 *   admit.c     what a request takes, and its ticket (any thread)
 *   session.c   sessions, requests and the command queue (any thread)
 *   turn.c      the driver: commands, one step, results (one thread at a time)
 *   pressure.c  the driver under pressure: the ladder's rungs, waiting for memory
 *   sampler.c   logits to a token
 *
 * How memory is promised and taken. Loading reserves and commits what doesn't depend on requests
 * (weights, vectors, the buffers of a step) and maps address space for all KV pages and states that
 * the plan allows; those it doesn't reserve. Submit gets a ticket: prompt and answer, less what the
 * session holds already, are reserved in the ledger or the request is refused with the numbers.
 * When the driver starts the request, the ticket's bytes move to the sequence, and each page taken
 * is committed against them. An open answer extends its ticket page by page; where that is refused
 * the request is parked: it keeps what it has, takes part in no step, and asks again at each
 * snapshot and release. The oldest ticket's way to its end is always reserved, so one request can
 * always go on. At a request's end what no page took is released; the session keeps its pages, paid
 * by its own booking, until it is freed. So committed <= reserved holds page by page, and the plan
 * is the most that all slots together can reserve, to the byte.
 *
 * With kv auto a session's format is chosen by the submit that finds it without pages, by the
 * newest snapshot, and stays until it holds none again; its ticket is charged by that format's
 * table, and the plan counts the one that takes more.
 */
#ifndef PN_ENGINE_INTERNAL_H
#define PN_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/mem/pn_block.h"
#include "engine/sampler.h"
#include "kv/pages.h"
#include "models/model.h"
#include "pannier.h"

#define CHUNK_DEFAULT 512u
#define SLOTS_DEFAULT 4u
#define SLOTS_MAX 1024u

/* ---- plan ---- */

enum part_i { PART_WEIGHTS, PART_VECTORS, PART_KV, PART_STATE, PART_WORK, PART_BACKEND };

/* A model's header, read and checked: everything that planning and loading need. */
struct model_file {
    struct pn_gguf *g;
    const struct pn_family *family;
    struct pn_hparams h;
    /* For each tensor of the file: its offset in a copy of the weights (64-aligned, in file order
     * of use), or one of the two marks below. */
    uint64_t *places;      /* [tensor_n] */
    uint64_t copy_bytes;   /* of a copy, gaps included */
    uint64_t weight_bytes; /* of weight tensors, without gaps */
    uint64_t expert_bytes; /* of them: experts' matrices */
    uint32_t expert_acts;  /* kinds of the experts' weights, see pn_cpu_config */
    uint64_t vector_bytes; /* of vectors as floats, each 64-aligned */
    uint32_t unused_blocks;
    uint64_t unused_bytes;
};
#define PLACE_UNUSED UINT64_MAX
#define PLACE_VECTOR (UINT64_MAX - 1)

/* What the plan fixes beyond the public part. */
struct engine_shape {
    struct pn_cpu_config cpu;
    struct pn_kv_spec kv;
    uint32_t row_max; /* rows of a step: chunk + slots */
    uint32_t out_max; /* rows of logits of a step */
    uint32_t chunk;
};

/* Checks the options too: PN_E_INVALID. */
int pn__model_file_open(const struct pn_engine_options *o, struct pn_detail *d,
                        struct model_file *out) PN_MUST_CHECK;
void pn__model_file_close(struct model_file *f);

/* The mean KL at 1,000 tokens up to which a family is on the Q4-safe list. */
#define PN_KV_Q4_KL_MAX 0.05
/* Whether four bits have been measured for the family and stay below that. */
bool pn__kv_q4_safe(const struct pn_family *family);

/* The format of a cache that is allocated now: `asked`, or for auto f16, but q4 when the ladder
 * asks for it (rung 4a) and the family is on the Q4-safe list. An explicit choice is carried out.
 * `why` says which it was, and what is known against it. */
enum pn_kv_choice pn__kv_choose(enum pn_kv_choice asked, const struct pn_family *family,
                                bool ladder_asks_q4, char why[160]);

/* The format of a session that begins now: the engine's, or where each session has its own what the
 * newest snapshot asks for. Any thread. */
enum pn_kv_choice pn__kv_now(const pn_engine *e);
/* Logs that sessions begin in another format than those before. Any thread. */
void pn__kv_tell(pn_engine *e, enum pn_kv_choice kv);
/* What a session of that format takes. */
const pn_admit_cost *pn__kv_cost_of(const pn_engine *e, enum pn_kv_choice kv);

/* Fills plan and shape; PN_E_NOFIT (with the plan filled in) when it doesn't fit. */
int pn__plan_make(const struct model_file *f, const struct pn_engine_options *o,
                  struct pn_plan *plan, struct engine_shape *shape,
                  struct pn_detail *d) PN_MUST_CHECK;

/* Buffers of a step, carved from one arena: run on a counting arena by the plan and on the block by
 * the engine. */
struct step_buffers {
    struct pn_work work;
    int32_t *ids;                    /* [row_max] */
    uint32_t *positions;             /* [row_max] */
    uint32_t *out_rows;              /* [out_max] */
    struct pn_seq *seqs;             /* [slot_n] */
    float *logits;                   /* [vocab] one row on the host */
    struct pn_candidate *candidates; /* [vocab] */
};
void pn__step_layout(const struct model_file *f, const struct engine_shape *shape,
                     struct pn_arena *a, struct step_buffers *b);

/* ---- load ---- */

/* Counts with data == NULL, binds otherwise. */
struct bind_state {
    struct model_file *f;
    const uint8_t *copy;    /* the weights' block in copy mode */
    bool map;               /* read in place */
    struct pn_arena floats; /* vectors: counting, or on the vectors' block */
    bool counting;
};
void pn__binder_init(struct pn_binder *b, struct bind_state *s);

/* Reads the weights into `block`, reserved and not yet committed, and commits it. Progress is told
 * on the caller's thread. The error is the one of the lowest place that failed. */
int pn__load_copy(const struct model_file *f, struct pn_cpu *cpu, struct pn_block *block,
                  const struct pn_engine_options *o, struct pn_detail *d) PN_MUST_CHECK;

/* ---- sessions ---- */

struct request {
    struct pn_request r; /* tokens and script point behind this struct */
};

enum phase { PHASE_IDLE, PHASE_PREFILL, PHASE_DECODE };

/* Sync: `taken`, `busy` and `cancel` under engine->lock; the rest belongs to the driver, except
 * that a thread that finds busy false under the lock may read `length` and `pending_n` (the driver
 * clears busy under the lock after its last write to them). */
struct pn_session {
    pn_engine *engine;
    uint32_t slot_i;
    bool taken;
    bool busy;   /* a request is queued or under way */
    bool cancel; /* it is to end at the next turn; never set without busy */
    /* Whose turn it is while busy: submit's until the request is queued, then the driver's. */
    pn_admit_ticket ticket;
    enum pn_kv_choice kv; /* likewise; chosen by submit while it holds no page */

    enum phase phase;
    struct request *request;
    uint32_t length;     /* positions in the cache */
    uint32_t fed_n;      /* of the request's prompt, the pending token first */
    int32_t pending;     /* the last token handed out, not yet in the cache */
    uint32_t pending_n;  /* 1 when there is one */
    uint32_t prompt_n;   /* pending_n at the start + token_n */
    bool prompt_pending; /* the prompt starts with `pending` */
    uint32_t step_row_i; /* rows in the current step */
    uint32_t step_row_n;
    uint32_t step_out_i; /* rows of logits in the current step */
    uint32_t step_out_n;
    bool parked;          /* its last extension was refused */
    uint64_t parked_seen; /* the wake count of that */
    uint64_t rng;
    uint64_t start_ns;
    uint64_t prompt_end_ns;
    struct pn_done done;
};

struct command {
    struct pn_session *session;
    struct request *request;
};
#define QUEUE_MAX 64u

struct pn_engine {
    struct model_file file;
    struct pn_plan plan;
    struct engine_shape shape;
    struct pn_model model;
    struct pn_block weights;
    int hot_ids[PN_HOT_RANGE_MAX]; /* maps read in place, not to be counted as available */
    uint32_t hot_n;
    pn_booking map_booking; /* weights in the map: counted, refused by none */
    struct pn_block vectors;
    struct pn_block work;
    struct pn_block backend;
    struct pn_cpu *cpu;
    struct pn_kv *kv;
    struct step_buffers b;
    struct pn_engine_stats stats;
    pn_admit_cost costs[2]; /* of a session without and with pages in q4 */
    _Atomic bool told_q4;   /* what pn__kv_tell said last */
    uint32_t window;        /* longest prompt taken at once, as configured */
    char *root;             /* of the options; NULL: the real machine */
    pn_ladder_plan ladder;
    uint64_t seen_seq; /* the last snapshot that caches were asked for */
    int told_ceiling;  /* the last slot ceiling that was logged; 0: none is in force */
    uint32_t turn_i;   /* which session goes first when a chunk doesn't divide evenly */

    pthread_mutex_t lock;
    bool lock_made;
    struct command queue[QUEUE_MAX]; /* ring; under lock */
    uint32_t queue_first;
    uint32_t queue_n;
    uint32_t claim_n;            /* places that submits under way will take */
    struct pn_session *sessions; /* [plan.slots] */
};

/* Whether the request under way was cancelled. */
bool pn__session_cancelled(pn_session *s);

/* Takes the oldest command, or with `any` false the oldest that was cancelled; false when there is
 * none. */
bool pn__queue_pop(pn_engine *e, bool any, struct command *out);
uint32_t pn__queue_n(pn_engine *e);

/* ---- admission and pressure ---- */

/* Where a request begins: what its session holds. */
struct admit_from {
    uint32_t length;
    uint32_t pending_n;
    uint64_t kv_bytes;
    uint64_t state_bytes;
};

/* Fills the session's ticket, or refuses as pn_session_submit says. The prompt is within the
 * context. */
int pn__admit_request(pn_session *s, const struct pn_request *r, const struct admit_from *from,
                      struct pn_detail *d) PN_MUST_CHECK;

/* The plan of the newest snapshot, or for OK where the watch doesn't run or the ladder is disabled;
 * *state is zero then. By the byte level: stalls alone take nothing away. */
void pn__ladder_now(const pn_engine *e, pn_mem_state *state, pn_ladder_plan *plan);

/* Reads the snapshot into e->ladder and asks caches for what is lacking (rung 1). */
void pn__pressure_follow(pn_engine *e);
/* Whether one more request may run (rung 2). */
bool pn__pressure_may_start(const pn_engine *e);
/* Logs that so many are held in the queue, once for each ceiling. */
void pn__pressure_tell_held(pn_engine *e, uint32_t held_n);
/* Nothing could move when the wake count was `seen`: waits until something happens. */
void pn__pressure_wait(pn_engine *e, uint64_t seen);

/* Ends the session's request: timing, on_done, and the slot is idle again. Driver only. */
void pn__session_finish(struct pn_session *s, enum pn_stop stop, int error);

#endif
