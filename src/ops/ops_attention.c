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

    /* Where tiles are cut by groups: a tile's parts, the first of them for all groups so far. */
    uint32_t tile_n;
    uint32_t query_n; /* of a tile, at most */
    uint32_t part_n;
    uint32_t first;   /* the first group of this round, counted from each tile's own first, */
    uint32_t round_n; /* and how many groups it has */
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

static struct pn_att_tile tile_at(const struct att_op *op, uint32_t i) {
    const struct pn_seq *seq = op->b->seqs;
    for (; i >= tiles_of(op, seq); seq++)
        i -= tiles_of(op, seq);
    uint32_t chunk = i % op->chunk_n;
    uint32_t kv_head = i / op->chunk_n % op->shape->head_n;
    struct run run = run_at(op, seq, i / op->chunk_n / op->shape->head_n);

    uint32_t per_kv = op->q.head_n / op->shape->head_n;
    uint32_t head = chunk * op->head_n; /* within the KV head's */
    return (struct pn_att_tile){
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
        .head_n = min_u32(per_kv - head, op->head_n),
        .window = op->window,
        .scale = op->scale,
        .sinks = op->sinks,
    };
}

static void attend(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct att_op *op = user;
    for (uint32_t item = lo; item < hi; item++) {
        struct pn_att_tile tile = tile_at(op, item);
        op->s->cpu->kernels.attention(&tile, &op->s->cpu->slots[thread_i].scratch);
    }
}

/* ---- by groups ---- */

/* The groups that any of a tile's rows see. */
static struct run groups_of(const struct pn_att_tile *tile) {
    uint32_t first = pn__att_span(tile, 0).lo / PN_GROUP_TOKENS;
    uint32_t last = (tile->pos + tile->row_n - 1) / PN_GROUP_TOKENS;
    return (struct run){first, last - first + 1};
}

/* Where tile `tile_i` keeps group i of a round that started with `first`: 0 is where all merge. */
static struct pn_att_part part_at(const struct att_op *op, uint32_t tile_i, uint32_t i) {
    const struct pn_cpu *cpu = op->s->cpu;
    uint64_t query = ((uint64_t)tile_i * op->part_n + i) * op->query_n;
    uint64_t value = query * cpu->config.dim_max;
    return (struct pn_att_part){cpu->parts.v + value, cpu->parts.r + value, cpu->parts.max + query,
                                cpu->parts.sum + query};
}

static void attend_group(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct att_op *op = user;
    for (uint32_t item = lo; item < hi; item++) {
        uint32_t tile_i = item % op->tile_n, i = item / op->tile_n;
        struct pn_att_tile tile = tile_at(op, tile_i);
        struct run groups = groups_of(&tile);
        if (op->first + i >= groups.row_n) continue;
        struct pn_att_part part = part_at(op, tile_i, i + (op->first > 0));
        op->s->cpu->kernels.attention_group(&tile, groups.row_i + op->first + i, &part,
                                            &op->s->cpu->slots[thread_i].scratch);
    }
}

static void merge_groups(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct att_op *op = user;
    const struct pn_kernels *k = &op->s->cpu->kernels;
    const struct pn_thread_scratch *scratch = &op->s->cpu->slots[thread_i].scratch;
    for (uint32_t tile_i = lo; tile_i < hi; tile_i++) {
        struct pn_att_tile tile = tile_at(op, tile_i);
        struct run groups = groups_of(&tile);
        struct pn_att_part all = part_at(op, tile_i, 0);
        for (uint32_t i = op->first == 0; i < op->round_n; i++) {
            if (op->first + i >= groups.row_n) break;
            struct pn_att_part part = part_at(op, tile_i, i + (op->first > 0));
            k->attention_merge(&tile, groups.row_i + op->first + i, &all, &part, scratch);
        }
        if (op->first < groups.row_n && groups.row_n <= op->first + op->round_n)
            k->attention_end(&tile, &all, scratch);
    }
}

/* As many groups at a time as there are parts for. A step's first round has one more, since the
 * first group is where the others merge. */
static void attend_by_groups(struct att_op *op, uint32_t group_n, uint64_t work) {
    uint64_t merged = (uint64_t)op->tile_n * op->query_n * op->part_n * op->shape->v_dim;
    for (op->first = 0; op->first < group_n; op->first += op->round_n) {
        op->round_n = min_u32(group_n - op->first, op->part_n - (op->first > 0));
        pn__split_dynamic(op->s, op->tile_n * op->round_n, work, attend_group, op);
        pn__split(op->s, op->tile_n, 1, merged, merge_groups, op);
    }
}

/* ---- the cut ---- */

/* What a walk costs for itself, in queries: reading K and V. Measured at decoding. */
#define WALK_COST 3

/* How long threads are busy with tile_n tiles of head_n queries and pos_n positions. */
static uint64_t time_of(uint32_t tile_n, uint32_t head_n, uint64_t pos_n, uint32_t thread_n) {
    return up_div(tile_n, thread_n) * (WALK_COST + (uint64_t)head_n) * pos_n;
}

/* The same when each tile's groups are apart: whole ones are shared out evenly, and parts of some
 * fill gaps. */
static uint64_t time_by_groups(uint32_t tile_n, uint32_t head_n, struct pn_att_span s,
                               uint32_t thread_n) {
    uint32_t first = up_div(s.lo, PN_GROUP_TOKENS), end = (s.hi + 1) / PN_GROUP_TOKENS;
    uint64_t longest = min_u32(s.hi + 1, first * PN_GROUP_TOKENS) - s.lo; /* part of a group */
    uint64_t last = s.hi + 1 - end * PN_GROUP_TOKENS;
    uint64_t busiest = (longest > last ? longest : last) * up_div(tile_n, thread_n);
    uint64_t even = ((uint64_t)tile_n * (s.hi - s.lo + 1) + thread_n - 1) / thread_n;
    if (first < end) busiest = (uint64_t)up_div((end - first) * tile_n, thread_n) * PN_GROUP_TOKENS;
    return (WALK_COST + (uint64_t)head_n) * (busiest > even ? busiest : even);
}

static uint32_t count_tiles(const struct att_op *op) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->b->seq_n; i++)
        n += tiles_of(op, &op->b->seqs[i]);
    return n;
}

static void set_heads(struct att_op *op, uint32_t head_n) {
    op->head_n = head_n;
    op->chunk_n = up_div(op->q.head_n / op->shape->head_n, head_n);
    op->tile_rows = PN_ATT_QUERIES / head_n;
    op->tile_n = count_tiles(op);
}

/* Few tiles leave threads waiting: where sequences have one row each they are cut further, by a KV
 * head's queries or by groups, if that is done sooner. Returns the groups of the longest sequence
 * where the cut is by groups, else 0. */
static uint32_t cut(struct att_op *op) {
    uint32_t thread_n = op->s->cpu->config.thread_n;
    uint32_t per_kv = op->q.head_n / op->shape->head_n;
    struct pn_att_span longest = {0, 0};
    set_heads(op, min_u32(per_kv, PN_ATT_QUERIES));
    if (thread_n == 1 || op->tile_n % thread_n == 0) return 0;
    for (uint32_t i = 0; i < op->b->seq_n; i++) {
        const struct pn_seq *seq = &op->b->seqs[i];
        uint32_t lo = op->window && seq->pos >= op->window ? seq->pos - op->window + 1 : 0;
        if (seq->row_n > 1) return 0;
        if (seq->row_n == 1 && seq->pos - lo >= longest.hi - longest.lo)
            longest = (struct pn_att_span){lo, seq->pos};
    }
    uint64_t pos_n = longest.hi - longest.lo + 1;
    uint32_t walk_n = op->tile_n / op->chunk_n; /* of a KV head and a sequence */
    uint32_t best_n = op->head_n;
    uint64_t best = time_of(op->tile_n, op->head_n, pos_n, thread_n);
    for (uint32_t chunk_n = op->chunk_n + 1; chunk_n <= per_kv; chunk_n++) {
        uint32_t head_n = up_div(per_kv, chunk_n);
        uint64_t t = time_of(walk_n * up_div(per_kv, head_n), head_n, pos_n, thread_n);
        if (t < best) best = t, best_n = head_n;
    }
    uint32_t query_max = thread_n * PN_ATT_PARTS;
    uint32_t part_n = query_max / (op->tile_n * op->head_n);
    if (part_n >= 2 && time_by_groups(op->tile_n, op->head_n, longest, thread_n) < best) {
        uint32_t group_n = 0;
        for (uint32_t i = 0; i < op->tile_n; i++) {
            struct pn_att_tile tile = tile_at(op, i);
            uint32_t n = groups_of(&tile).row_n;
            group_n = n > group_n ? n : group_n;
        }
        op->query_n = op->head_n;
        op->part_n = part_n;
        if (group_n > 1) return group_n;
    }
    set_heads(op, best_n);
    return 0;
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
    uint32_t group_n = cut(&op);
    uint64_t work = 0;
    for (uint32_t i = 0; i < b->seq_n; i++)
        work += (uint64_t)b->seqs[i].row_n * (b->seqs[i].pos + 1) * q.head_n * q.dim;
    if (group_n > 0)
        attend_by_groups(&op, group_n, work);
    else
        pn__split_dynamic(s, op.tile_n, work, attend, &op);
}
