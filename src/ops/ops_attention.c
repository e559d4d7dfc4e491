/* K and V into pages, and attention over them: how the work is cut. */
#include <assert.h>

#include "ops/cpu/cpu.h"

struct att_op {
    struct pn_step *s;
    const struct pn_batch *b;
    const struct pn_kv_shape *shape;
    struct pn_heads q; /* or k */
    struct pn_heads v; /* or out */
    enum pn_page_kind kind;
    uint32_t layer_i;
    uint32_t window;
    float scale;
    const float *sinks;

    uint32_t head_n;  /* query heads of a tile */
    uint32_t chunk_n; /* tiles that the heads of one KV head take */
    uint32_t tile_rows;
};

/* ---- write ---- */

/* K and V of a row to their place in one form of its page. */
static void write_form(const struct att_op *op, const struct pn_page_view *page, uint32_t pos,
                       uint32_t row) {
    uint64_t k_bytes = pn__kv_row_bytes(page->format, op->shape->k_dim);
    uint64_t v_bytes = pn__kv_row_bytes(page->format, op->shape->v_dim);
    uint64_t k_part = pn__kv_v_offset(page->format, op->shape);
    uint8_t *layer = page->data + op->layer_i * pn__kv_layer_bytes(page->format, op->shape);
    for (uint32_t h = 0; h < op->shape->head_n; h++) {
        uint64_t index = (uint64_t)h * PN_PAGE_TOKENS + pos % PN_PAGE_TOKENS;
        op->s->cpu->kernels.kv_store[page->format](pn__head_at(&op->q, row, h),
                                                   layer + index * k_bytes, op->shape->k_dim);
        if (op->shape->v_in_k) continue;
        op->s->cpu->kernels.kv_store[page->format](
            pn__head_at(&op->v, row, h), layer + k_part + index * v_bytes, op->shape->v_dim);
    }
}

static void write_row(const struct att_op *op, const struct pn_seq *seq, uint32_t row) {
    const struct pn_page_table *table = &seq->tables[op->kind];
    uint32_t pos = seq->pos + (row - seq->row_i);
    uint32_t page_i = pos / PN_PAGE_TOKENS;
    assert(page_i >= table->first && page_i - table->first < table->n);
    write_form(op, &table->pages[page_i - table->first], pos, row);
    if (table->narrow && table->narrow[page_i - table->first].data)
        write_form(op, &table->narrow[page_i - table->first], pos, row);
}

static void write_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct att_op *op = user;
    (void)thread_i;
    for (uint32_t i = 0; i < op->b->seq_n; i++) {
        const struct pn_seq *seq = &op->b->seqs[i];
        uint32_t end = seq->row_i + seq->row_n;
        for (uint32_t r = seq->row_i > lo ? seq->row_i : lo; r < (end < hi ? end : hi); r++)
            write_row(op, seq, r);
    }
}

void pn__op_kv_write(struct pn_step *s, const struct pn_batch *b, enum pn_page_kind kind,
                     uint32_t layer_i, const struct pn_kv_shape *shape, struct pn_heads k,
                     struct pn_heads v) {
    assert(k.head_n == shape->head_n && k.dim == shape->k_dim);
    assert(shape->v_in_k ? shape->v_dim <= shape->k_dim
                         : v.head_n == shape->head_n && v.dim == shape->v_dim);
    struct att_op op = {
        .s = s, .b = b, .kind = kind, .layer_i = layer_i, .shape = shape, .q = k, .v = v};
    pn__split(s, b->row_n, 1, (uint64_t)b->row_n * shape->head_n * (shape->k_dim + shape->v_dim),
              write_rows, &op);
}

/* ---- attention ---- */

/* A run of a sequence's rows: row_i counts from its first. */
struct run {
    uint32_t row_i;
    uint32_t row_n;
};

static uint32_t up_div(uint32_t n, uint32_t by) {
    return (n + by - 1) / by;
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Rows that share a tile: at most tile_rows of them and, where pages have two forms, in one page,
 * so that a page has one form for the whole tile. */
static uint32_t runs_of(const struct att_op *op, const struct pn_seq *seq) {
    if (!seq->tables[op->kind].narrow) return up_div(seq->row_n, op->tile_rows);
    uint32_t head = min_u32(seq->row_n, PN_PAGE_TOKENS - seq->pos % PN_PAGE_TOKENS);
    uint32_t rest = seq->row_n - head;
    return up_div(head, op->tile_rows) +
           rest / PN_PAGE_TOKENS * up_div(PN_PAGE_TOKENS, op->tile_rows) +
           up_div(rest % PN_PAGE_TOKENS, op->tile_rows);
}

/* Run i < runs_of. */
static struct run run_at(const struct att_op *op, const struct pn_seq *seq, uint32_t i) {
    uint32_t from = 0; /* of the page that the run is in, and its end */
    uint32_t to = seq->row_n;
    if (seq->tables[op->kind].narrow) {
        uint32_t head = min_u32(seq->row_n, PN_PAGE_TOKENS - seq->pos % PN_PAGE_TOKENS);
        uint32_t head_runs = up_div(head, op->tile_rows);
        uint32_t page_runs = up_div(PN_PAGE_TOKENS, op->tile_rows);
        to = head;
        if (i >= head_runs) {
            from = head + (i - head_runs) / page_runs * PN_PAGE_TOKENS;
            to = min_u32(seq->row_n, from + PN_PAGE_TOKENS);
            i = (i - head_runs) % page_runs;
        }
    }
    uint32_t row = from + i * op->tile_rows;
    return (struct run){row, min_u32(to - row, op->tile_rows)};
}

static uint32_t tiles_of(const struct att_op *op, const struct pn_seq *seq) {
    return runs_of(op, seq) * op->shape->head_n * op->chunk_n;
}

static void attend(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct att_op *op = user;
    for (uint32_t item = lo; item < hi; item++) {
        const struct pn_seq *seq = op->b->seqs;
        uint32_t i = item;
        for (; i >= tiles_of(op, seq); seq++)
            i -= tiles_of(op, seq);
        uint32_t chunk = i % op->chunk_n;
        uint32_t kv_head = i / op->chunk_n % op->shape->head_n;
        struct run run = run_at(op, seq, i / op->chunk_n / op->shape->head_n);

        uint32_t per_kv = op->q.head_n / op->shape->head_n;
        uint32_t head = chunk * op->head_n; /* within the KV head's */
        struct pn_att_tile tile = {
            .table = &seq->tables[op->kind],
            .shape = op->shape,
            .q = op->q,
            .out = op->v,
            .layer_i = op->layer_i,
            .kv_head = kv_head,
            .row_i = seq->row_i + run.row_i,
            .row_n = run.row_n,
            .pos = seq->pos + run.row_i,
            .head_i = kv_head * per_kv + head,
            .head_n = per_kv - head < op->head_n ? per_kv - head : op->head_n,
            .window = op->window,
            .scale = op->scale,
            .sinks = op->sinks,
        };
        op->s->cpu->kernels.attention(&tile, &op->s->cpu->slots[thread_i].scratch);
    }
}

void pn__op_attention(struct pn_step *s, const struct pn_batch *b, enum pn_page_kind kind,
                      uint32_t layer_i, const struct pn_kv_shape *shape, struct pn_heads q,
                      float scale, uint32_t window, const float *sinks, struct pn_heads out) {
    assert(q.dim == shape->k_dim && out.dim == shape->v_dim && q.head_n == out.head_n);
    assert(q.head_n % shape->head_n == 0);
    assert(q.dim <= s->cpu->config.dim_max && out.dim <= s->cpu->config.dim_max);
    struct att_op op = {.s = s,
                        .b = b,
                        .kind = kind,
                        .layer_i = layer_i,
                        .shape = shape,
                        .q = q,
                        .v = out,
                        .scale = scale,
                        .window = window,
                        .sinks = sinks};
    uint32_t per_kv = q.head_n / shape->head_n;
    op.head_n = per_kv < PN_ATT_QUERIES ? per_kv : PN_ATT_QUERIES;
    op.chunk_n = (per_kv + op.head_n - 1) / op.head_n;
    op.tile_rows = PN_ATT_QUERIES / op.head_n;
    uint32_t tile_n = 0;
    uint64_t work = 0;
    for (uint32_t i = 0; i < b->seq_n; i++) {
        tile_n += tiles_of(&op, &b->seqs[i]);
        work += (uint64_t)b->seqs[i].row_n * (b->seqs[i].pos + 1) * q.head_n * q.dim;
    }
    pn__split_dynamic(s, tile_n, work, attend, &op);
}
