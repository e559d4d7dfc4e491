/* Right answers of a reference engine, and running a model against them.
 *
 * Goldens lie in tests/data/models (small ones, part of the project) or ../shared/goldens/models
 * (all of them, absent in a fresh clone); the first is tried first. */
#ifndef PN_TESTS_ENGINE_GOLDEN_H
#define PN_TESTS_ENGINE_GOLDEN_H

#include "pannier.h"
#include "support/pn_test.h"

struct ids {
    int32_t *ids;
    size_t n;
};

struct golden {
    char model_path[512];
    uint32_t vocab;
    struct ids prompt;
    struct ids greedy;
    double *margins; /* [greedy.n] before each greedy token */
    float *rows;     /* [row_n, vocab] */
    size_t row_n;
    double kl; /* reference_engine_kl; 0 where the model is float */
    bool exact_weights;
    bool mixture; /* of experts */
};

/* One entry, or its "long" part. Returns false when it isn't in either place; a broken file fails
 * the test. The caller frees. */
bool golden_load(const char *name, bool is_long, struct golden *out);
void golden_free(struct golden *g);
/* For main: ends the program as skipped when there is no such golden. */
void golden_require(const char *name, bool is_long);

/* A case for one format of KV, which its function finds in *state. */
#define GOLDEN_KV_CASE(f, format)                             \
    {                                                         \
#f " " #format, f, NULL, NULL, &(enum pn_kv_choice) { \
            PN_KV_CHOICE_##format                             \
        }                                                     \
    }

struct run_options {
    uint32_t threads;
    uint32_t chunk;
    uint32_t beside; /* other sequences in the same steps */
    enum pn_kv_choice kv;
    enum pn_isa_choice isa;
    enum pn_weights_choice weights;
};

struct run_result {
    float *rows; /* [row_n, vocab]: every prompt position, then one after each scripted token */
    size_t row_n;
    uint32_t vocab;
    struct pn_engine_stats stats;
};

/* Feeds the prompt, then the script's tokens one by one. Fails the test on any error. */
void run_model(const char *path, const struct ids *prompt, const struct ids *script,
               const struct run_options *o, struct run_result *out);
void run_free(struct run_result *r);

/* KL(p || q) of two rows of logits, in nats. */
double row_kl(const float *p, const float *q, uint32_t n);
/* The largest difference, as a share of the row's largest value. */
double row_off(const double *want, const float *got, uint32_t n);
uint32_t row_argmax(const float *row, uint32_t n);

/* `n` ids spread over the vocabulary above the control tokens, the same for each seed. */
struct ids make_ids(uint32_t vocab, size_t n, uint64_t seed);

#endif
