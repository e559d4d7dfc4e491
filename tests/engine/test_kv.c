/* The page pool: window pages go back exactly when no later token sees them, no page belongs to two
 * sequences, and the ledger knows each page from its first use on. */
#include "base/alloc.h"
#include "kv/pages.h"
#include "support/pn_test.h"

#define CTX 1500u
#define SLOTS 2u

static struct pn_kv_spec spec_of(uint32_t window, uint32_t chunk, enum pn_kv_format format) {
    struct pn_kv_spec s = {.state_bytes = 5000, .ctx = CTX, .slot_n = SLOTS, .chunk = chunk};
    struct pn_kv_shape shape = {.head_n = 2, .k_dim = 24, .v_dim = 8};
    s.kinds[PN_PAGE_FULL] = (struct pn_page_spec){.layer_n = 1, .shape = shape, .format = format};
    s.kinds[PN_PAGE_WINDOW] =
        (struct pn_page_spec){.layer_n = 3, .window = window, .shape = shape, .format = format};
    return s;
}

/* Pays for all that one sequence can hold. */
static void pay(struct pn_kv *kv, const struct pn_kv_spec *spec, uint32_t seq_i) {
    uint64_t kv_bytes;
    uint64_t state_bytes;
    pn_booking pages;
    pn_booking state;
    assert_true(pn__kv_bytes(spec, &kv_bytes, &state_bytes));
    assert_int_equal(
        pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, kv_bytes / spec->slot_n, &pages, NULL), 0);
    assert_int_equal(
        pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_STATE, state_bytes / spec->slot_n, &state, NULL),
        0);
    pn__kv_pay(kv, seq_i, &pages, &state);
    assert_int_equal(pages.reserved_bytes + state.reserved_bytes, 0);
    assert_int_equal(pn_ledger_release(&pages), 0);
    assert_int_equal(pn_ledger_release(&state), 0);
}

static struct pn_kv *new_kv(const struct pn_kv_spec *spec) {
    struct pn_detail d = {{0}};
    struct pn_kv *kv;
    PN_ASSERT_OK(pn__kv_new(spec, &d, &kv), &d);
    for (uint32_t i = 0; i < spec->slot_n; i++)
        pay(kv, spec, i);
    return kv;
}

static pn_ledger_row booked(unsigned owner) {
    pn_ledger_view v;
    pn_ledger_read(&v);
    return v.cells[PN_PLACE_HOST][owner];
}

/* What a page's first bytes are to say about who holds it. */
struct mark {
    uint32_t seq_i;
    uint32_t kind;
    uint32_t page_i;
};

/* Marks pages that are new since the last call (`seen_end`) and expects older marks untouched. */
static void check_marks(struct pn_kv *kv, uint32_t seq_i, int kind, uint32_t *seen_end) {
    struct pn_page_table t[PN_PAGE_KIND_N];
    pn__kv_tables(kv, seq_i, t);
    for (uint32_t i = 0; i < t[kind].n; i++) {
        struct mark want = {seq_i, (uint32_t)kind, t[kind].first + i};
        if (want.page_i >= *seen_end) memcpy(t[kind].pages[i].data, &want, sizeof want);
        assert_memory_equal(t[kind].pages[i].data, &want, sizeof want);
    }
    *seen_end = t[kind].first + t[kind].n;
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Both sequences walk to the end of the context, the second one step behind. Returns the most
 * window pages that one of them held. */
static uint32_t walk(const struct pn_kv_spec *spec, uint32_t first_n) {
    struct pn_kv *kv = new_kv(spec);
    uint32_t window = spec->kinds[PN_PAGE_WINDOW].window;
    uint32_t pos[SLOTS] = {0};
    uint32_t seen_end[SLOTS][PN_PAGE_KIND_N] = {{0}};
    uint32_t most = 0;
    while (pos[SLOTS - 1] < CTX) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            struct pn_detail d = {{0}};
            struct pn_page_table t[PN_PAGE_KIND_N];
            uint32_t n = min_u32(pos[i] ? spec->chunk : first_n, CTX - pos[i]);
            if (n == 0) continue;
            /* As long a step as fits; from a place like a chunk's start that is all of it. */
            uint32_t room = pn__kv_room(kv, i, pos[i], n);
            assert_in_range(room, 1, n);
            if (pos[i] % spec->chunk == 0) assert_int_equal(room, n);
            n = room;
            PN_ASSERT_OK(pn__kv_extend(kv, i, pos[i], n, &d), &d);
            pn__kv_tables(kv, i, t);
            uint32_t end = (pos[i] + n + PN_PAGE_TOKENS - 1) / PN_PAGE_TOKENS;
            uint32_t lowest = pos[i] + 1 > window ? pos[i] + 1 - window : 0;
            assert_int_equal(t[PN_PAGE_WINDOW].first, lowest / PN_PAGE_TOKENS);
            assert_int_equal(t[PN_PAGE_WINDOW].first + t[PN_PAGE_WINDOW].n, end);
            assert_int_equal(t[PN_PAGE_FULL].first, 0);
            assert_int_equal(t[PN_PAGE_FULL].n, end);
            assert_true(t[PN_PAGE_WINDOW].n <= pn__page_max(spec, PN_PAGE_WINDOW));
            if (t[PN_PAGE_WINDOW].n > most) most = t[PN_PAGE_WINDOW].n;
            pos[i] += n;
            for (uint32_t k = 0; k < SLOTS; k++) {
                check_marks(kv, k, PN_PAGE_FULL, &seen_end[k][PN_PAGE_FULL]);
                check_marks(kv, k, PN_PAGE_WINDOW, &seen_end[k][PN_PAGE_WINDOW]);
            }
        }
    }
    assert_int_equal(pn__kv_used(kv, PN_PAGE_FULL, PN_PAGE_WIDE), SLOTS * ((CTX + 63) / 64));
    pn__kv_free(kv);
    return most;
}

static void window_pages(void **state) {
    (void)state;
    static const uint32_t windows[] = {1, 8, 16, 64, 65, 100};
    static const uint32_t chunks[] = {1, 7, 64, 512};
    for (size_t w = 0; w < PN_ARRAY_N(windows); w++) {
        for (size_t c = 0; c < PN_ARRAY_N(chunks); c++) {
            struct pn_kv_spec spec = spec_of(windows[w], chunks[c], PN_KV_F16);
            uint32_t most = 0;
            uint32_t firsts = min_u32(chunks[c], 64);
            for (uint32_t i = 1; i <= firsts + 1; i++) {
                uint32_t first = i > firsts ? chunks[c] : i;
                uint32_t got = walk(&spec, first);
                if (got > most) most = got;
            }
            /* The bound is reached: a page less would be too few, one more a waste. */
            if (most != pn__page_max(&spec, PN_PAGE_WINDOW)) {
                fail_msg("window %u, chunk %u: at most %u pages held, %u planned", windows[w],
                         chunks[c], most, pn__page_max(&spec, PN_PAGE_WINDOW));
            }
        }
    }
}

static void exact_bytes(void **state) {
    (void)state;
    for (int format = 0; format < PN_KV_FORMAT_N; format++) {
        struct pn_kv_spec spec = spec_of(100, 64, (enum pn_kv_format)format);
        uint64_t kv_bytes;
        uint64_t state_bytes;
        assert_true(pn__kv_bytes(&spec, &kv_bytes, &state_bytes));
        /* 64 tokens of 2 heads, 24 keys and 8 values; parts to 64 bytes, pages to 4096. */
        static const uint64_t head_bytes[PN_KV_FORMAT_N][2] = {
            {96, 32}, {48, 16}, {26, 10}, {14, 6}};
        uint64_t layer = 128 * (head_bytes[format][0] + head_bytes[format][1]);
        uint64_t full = (layer + 4095) / 4096 * 4096;
        uint64_t window = (3 * layer + 4095) / 4096 * 4096;
        /* The 100 tokens that are seen from a page's start lie in 3 pages; 1500 are 24. */
        assert_int_equal(pn__page_bytes(&spec.kinds[PN_PAGE_FULL], PN_PAGE_WIDE), full);
        assert_int_equal(kv_bytes, SLOTS * (24 * full + 3 * window));
        assert_int_equal(state_bytes, SLOTS * 8192);

        struct pn_kv *kv = new_kv(&spec);
        assert_int_equal(booked(PN_OWNER_KV).reserved_bytes, kv_bytes);
        assert_int_equal(booked(PN_OWNER_KV).committed_bytes, 0);
        assert_int_equal(booked(PN_OWNER_STATE).reserved_bytes, state_bytes);
        assert_int_equal(booked(PN_OWNER_STATE).committed_bytes, 0);
        struct pn_detail d = {{0}};
        for (uint32_t i = 0; i < SLOTS; i++)
            PN_ASSERT_OK(pn__kv_extend(kv, i, 0, 1, &d), &d);
        assert_int_equal(booked(PN_OWNER_STATE).committed_bytes, state_bytes);
        pn__kv_free(kv);
        assert_int_equal(booked(PN_OWNER_KV).reserved_bytes, 0);
        assert_int_equal(booked(PN_OWNER_STATE).reserved_bytes, 0);
    }
}

/* ---- pages in two forms ---- */

static bool held(const struct pn_page_view *views, uint32_t i) {
    return views && views[i].data != NULL;
}

static struct pn_kv_spec narrow_spec(uint32_t window, uint32_t chunk) {
    struct pn_kv_spec spec = spec_of(window, chunk, PN_KV_F16);
    spec.kinds[PN_PAGE_FULL].narrow = true;
    spec.kinds[PN_PAGE_WINDOW].narrow = true;
    return spec;
}

/* Before rows from `pos` on: wide are the first page and those that rows of this and later steps
 * read so, narrow all but the first. Counts both. */
static void check_forms(const struct pn_page_table *t, uint32_t pos, uint32_t n[PN_PAGE_FORM_N]) {
    n[PN_PAGE_WIDE] = n[PN_PAGE_NARROW] = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t page = t->first + i;
        bool wide = page == 0 || page + PN_KV_WIDE_PAGES > pos / PN_PAGE_TOKENS;
        assert_int_equal(held(t->pages, i), wide);
        assert_int_equal(held(t->narrow, i), page > 0);
        if (wide) assert_int_equal(t->pages[i].format, PN_KV_F16);
        if (page > 0) assert_int_equal(t->narrow[i].format, PN_KV_Q4);
        n[PN_PAGE_WIDE] += wide;
        n[PN_PAGE_NARROW] += page > 0;
    }
}

/* Writes both forms' first bytes and expects those written before. */
static void mark_forms(const struct pn_page_table *t, uint32_t seq_i, uint32_t kind,
                       uint32_t *seen_end) {
    for (uint32_t i = 0; i < t->n; i++) {
        for (int form = 0; form < PN_PAGE_FORM_N; form++) {
            const struct pn_page_view *views = form == PN_PAGE_WIDE ? t->pages : t->narrow;
            struct mark want = {seq_i, kind * PN_PAGE_FORM_N + (uint32_t)form, t->first + i};
            if (!held(views, i)) continue;
            if (want.page_i >= *seen_end) memcpy(views[i].data, &want, sizeof want);
            assert_memory_equal(views[i].data, &want, sizeof want);
        }
    }
    *seen_end = t->first + t->n;
}

/* Both sequences to the end of the context, in whole steps after the first. The most bytes that one
 * of them held. */
static uint64_t walk_forms(const struct pn_kv_spec *spec, uint32_t first_n) {
    struct pn_kv *kv = new_kv(spec);
    uint32_t pos[SLOTS] = {0};
    uint32_t seen_end[SLOTS][PN_PAGE_KIND_N] = {{0}};
    uint64_t most = 0;
    while (pos[SLOTS - 1] < CTX) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            struct pn_detail d = {{0}};
            struct pn_page_table t[PN_PAGE_KIND_N];
            uint64_t bytes = 0;
            uint32_t n = min_u32(pos[i] ? spec->chunk : first_n, CTX - pos[i]);
            if (n == 0) continue;
            n = pn__kv_room(kv, i, pos[i], n);
            PN_ASSERT_OK(pn__kv_extend(kv, i, pos[i], n, &d), &d);
            pn__kv_tables(kv, i, t);
            for (uint32_t kind = 0; kind < PN_PAGE_KIND_N; kind++) {
                uint32_t got[PN_PAGE_FORM_N];
                if (spec->kinds[kind].layer_n == 0) continue;
                check_forms(&t[kind], pos[i], got);
                mark_forms(&t[kind], i, kind, &seen_end[i][kind]);
                for (int form = 0; form < PN_PAGE_FORM_N; form++) {
                    assert_true(got[form] <= pn__page_form_max(spec, (enum pn_page_kind)kind,
                                                               (enum pn_page_form)form));
                    bytes +=
                        got[form] * pn__page_bytes(&spec->kinds[kind], (enum pn_page_form)form);
                }
            }
            assert_int_equal(pn__kv_seq(kv, i)->pages_paid.committed_bytes, bytes);
            if (bytes > most) most = bytes;
            pos[i] += n;
        }
    }
    pn__kv_free(kv);
    return most;
}

/* Steps from the start hold at their most what a ticket for the context books, to the byte; others
 * are cut to what is paid. */
static void two_forms(void **state) {
    (void)state;
    static const uint32_t windows[] = {512, 700, 1024};
    static const uint32_t chunks[] = {1, 7, 64, 200, 512};
    for (size_t w = 0; w < PN_ARRAY_N(windows); w++) {
        for (size_t c = 0; c < PN_ARRAY_N(chunks); c++) {
            struct pn_kv_spec spec = narrow_spec(windows[w], chunks[c]);
            uint64_t kv_bytes, state_bytes;
            assert_true(pn__kv_bytes(&spec, &kv_bytes, &state_bytes));
            assert_int_equal(walk_forms(&spec, chunks[c]), kv_bytes / SLOTS);
            for (uint32_t first = 1; first < min_u32(chunks[c], 64); first++) {
                assert_true(walk_forms(&spec, first) <= kv_bytes / SLOTS);
            }
        }
    }
}

/* A context of 24 pages, in steps of 64 tokens: of a sequence two pages are wide (the first, and
 * the one that a step fills) and 23 narrow, where all 24 would be wide. */
static void two_forms_take_less(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_kv_spec spec = narrow_spec(512, 64);
    struct pn_kv_spec wide_spec = spec_of(512, 64, PN_KV_F16);
    spec.kinds[PN_PAGE_WINDOW].layer_n = wide_spec.kinds[PN_PAGE_WINDOW].layer_n = 0;
    for (int i = 0; i < 2; i++) {
        struct pn_kv_spec *s = i ? &wide_spec : &spec;
        s->kinds[PN_PAGE_FULL].layer_n = 32;
        s->kinds[PN_PAGE_FULL].shape = (struct pn_kv_shape){.head_n = 2, .k_dim = 64, .v_dim = 64};
    }
    uint64_t kv_bytes, wide_bytes, state_bytes;
    assert_true(pn__kv_bytes(&spec, &kv_bytes, &state_bytes));
    assert_true(pn__kv_bytes(&wide_spec, &wide_bytes, &state_bytes));
    /* 64 tokens of two heads, K and V: 128 or 2 * 2 + 32 bytes each. */
    uint64_t wide = 32 * 64 * 2 * 2 * 128, narrow = 32 * 64 * 2 * 2 * 36;
    assert_int_equal(pn__page_bytes(&spec.kinds[PN_PAGE_FULL], PN_PAGE_WIDE), wide);
    assert_int_equal(pn__page_bytes(&spec.kinds[PN_PAGE_FULL], PN_PAGE_NARROW), narrow);
    assert_int_equal(wide_bytes, SLOTS * 24 * wide);
    assert_int_equal(kv_bytes, SLOTS * (2 * wide + 23 * narrow));

    struct pn_kv *kv = new_kv(&spec);
    assert_int_equal(booked(PN_OWNER_KV).reserved_bytes, kv_bytes);
    for (uint32_t pos = 0; pos < CTX; pos += 64) {
        PN_ASSERT_OK(pn__kv_extend(kv, 0, pos, min_u32(64, CTX - pos), &d), &d);
    }
    assert_int_equal(booked(PN_OWNER_KV).committed_bytes, 2 * wide + 23 * narrow);
    assert_int_equal(pn__kv_used(kv, PN_PAGE_FULL, PN_PAGE_WIDE), 2);
    assert_int_equal(pn__kv_used(kv, PN_PAGE_FULL, PN_PAGE_NARROW), 23);
    assert_int_equal(pn__kv_extend(kv, 1, 0, 300, &d), PN_E_NOFIT);
    assert_non_null(strstr(d.text, "take 5 KV pages; a sequence has 3"));
    pn__kv_reset(kv, 0);
    assert_int_equal(pn__kv_used(kv, PN_PAGE_FULL, PN_PAGE_WIDE), 0);
    assert_int_equal(pn__kv_used(kv, PN_PAGE_FULL, PN_PAGE_NARROW), 0);
    pn__kv_free(kv);
}

/* Cut back to where every page that later tokens read wide is still held so. */
static void two_forms_truncated(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    static const struct {
        uint32_t length;
        uint32_t kept;
    } cases[] = {{700, 700}, {650, 650}, {640, 640}, {639, 576}, {128, 128},
                 {127, 64},  {64, 64},   {63, 63},   {0, 0}};
    for (size_t i = 0; i < PN_ARRAY_N(cases); i++) {
        struct pn_kv_spec spec = narrow_spec(512, 64);
        struct pn_page_table t[PN_PAGE_KIND_N];
        spec.kinds[PN_PAGE_WINDOW].layer_n = 0;
        spec.state_bytes = 0;
        struct pn_kv *kv = new_kv(&spec);
        for (uint32_t pos = 0; pos < 700; pos += 50) {
            PN_ASSERT_OK(pn__kv_extend(kv, 0, pos, 50, &d), &d);
        }
        /* The last step stood at 650, in page 10. */
        assert_int_equal(pn__kv_truncate(kv, 0, 700, cases[i].length), cases[i].kept);
        pn__kv_tables(kv, 0, t);
        assert_int_equal(t[PN_PAGE_FULL].n, (cases[i].kept + 63) / 64);
        pay(kv, &spec, 0); /* what was cut off went back */
        PN_ASSERT_OK(pn__kv_extend(kv, 0, cases[i].kept, 50, &d), &d);
        uint32_t got[PN_PAGE_FORM_N];
        pn__kv_tables(kv, 0, t);
        check_forms(&t[PN_PAGE_FULL], cases[i].kept, got);
        pn__kv_free(kv);
    }
}

/* One sequence to the end of the context; what it holds of full layers then. */
static void to_the_end(struct pn_kv *kv, const struct pn_kv_spec *spec, uint32_t seq_i,
                       uint32_t n[PN_PAGE_FORM_N]) {
    struct pn_detail d = {{0}};
    struct pn_page_table t[PN_PAGE_KIND_N];
    for (uint32_t pos = 0; pos < CTX; pos += spec->chunk) {
        PN_ASSERT_OK(pn__kv_extend(kv, seq_i, pos, min_u32(spec->chunk, CTX - pos), &d), &d);
    }
    pn__kv_tables(kv, seq_i, t);
    n[PN_PAGE_WIDE] = n[PN_PAGE_NARROW] = 0;
    for (uint32_t i = 0; i < t[PN_PAGE_FULL].n; i++) {
        n[PN_PAGE_WIDE] += held(t[PN_PAGE_FULL].pages, i);
        n[PN_PAGE_NARROW] += held(t[PN_PAGE_FULL].narrow, i);
    }
}

/* Sequences of both ways side by side, then each the other way, then both one way: a sequence holds
 * what one of a cache of its way only does, pages suffice, and what is taken is what is paid. */
static void either_way(void **state) {
    (void)state;
    static const uint32_t chunks[] = {64, 512};
    for (size_t c = 0; c < PN_ARRAY_N(chunks); c++) {
        struct pn_kv_spec spec = narrow_spec(512, chunks[c]);
        spec.either = true;
        struct pn_kv_spec ways[2] = {pn__kv_way(&spec, false), pn__kv_way(&spec, true)};
        uint64_t most, wide, narrow, state_bytes;
        assert_true(pn__kv_bytes(&spec, &most, &state_bytes));
        assert_true(pn__kv_bytes(&ways[0], &wide, &state_bytes));
        assert_true(pn__kv_bytes(&ways[1], &narrow, &state_bytes));
        assert_int_equal(most, wide > narrow ? wide : narrow);
        struct pn_detail d = {{0}};
        struct pn_kv *kv;
        PN_ASSERT_OK(pn__kv_new(&spec, &d, &kv), &d);
        for (uint32_t round = 0; round < 4; round++) {
            for (uint32_t i = 0; i < SLOTS; i++) {
                bool is_wide = round < 2 ? (i + round) % 2 : round == 2;
                uint32_t n[PN_PAGE_FORM_N];
                pn__kv_begin(kv, i, is_wide);
                pay(kv, &ways[!is_wide], i);
                to_the_end(kv, &spec, i, n);
                pn__kv_begin(kv, i, is_wide); /* as every further request says */
                assert_int_equal(n[PN_PAGE_NARROW], is_wide ? 0 : 23);
                assert_true(is_wide ? n[PN_PAGE_WIDE] == 24 : n[PN_PAGE_WIDE] <= 10);
            }
            for (uint32_t i = 0; i < SLOTS; i++)
                pn__kv_reset(kv, i);
            assert_int_equal(booked(PN_OWNER_KV).reserved_bytes, 0);
            for (int k = 0; k < PN_PAGE_KIND_N * PN_PAGE_FORM_N; k++) {
                assert_int_equal(pn__kv_used(kv, (enum pn_page_kind)(k / PN_PAGE_FORM_N),
                                             (enum pn_page_form)(k % PN_PAGE_FORM_N)),
                                 0);
            }
        }
        pn__kv_free(kv);
    }
}

static void sizes_that_wrap(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_kv *kv;
    uint64_t kv_bytes;
    uint64_t state_bytes;
    struct pn_kv_spec spec = spec_of(8, 64, PN_KV_F32);
    spec.slot_n = 1u << 20; /* 2^32 full pages and more */
    spec.ctx = 1u << 24;
    assert_false(pn__kv_bytes(&spec, &kv_bytes, &state_bytes));
    assert_int_equal(pn__kv_new(&spec, &d, &kv), PN_E_INVALID);
    assert_null(kv);
    spec = spec_of(8, 64, PN_KV_F32);
    spec.kinds[PN_PAGE_FULL].layer_n = UINT32_MAX;
    spec.kinds[PN_PAGE_FULL].shape.head_n = 1u << 12;
    spec.kinds[PN_PAGE_FULL].shape.k_dim = 1u << 11;
    spec.ctx = 1u << 24;
    assert_false(pn__kv_bytes(&spec, &kv_bytes, &state_bytes));
    spec = spec_of(8, 64, PN_KV_F32);
    spec.state_bytes = UINT64_MAX - 5000;
    assert_false(pn__kv_bytes(&spec, &kv_bytes, &state_bytes));
    spec = spec_of(8, 0, PN_KV_F32);
    assert_int_equal(pn__kv_new(&spec, &d, &kv), PN_E_INVALID);
}

/* What a page takes is booked while somebody holds it, and is the system's again afterwards. */
static void commits_are_booked(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_kv_spec spec = spec_of(64, 64, PN_KV_F16);
    struct pn_kv *kv = new_kv(&spec);
    uint64_t full = pn__page_bytes(&spec.kinds[PN_PAGE_FULL], PN_PAGE_WIDE);
    uint64_t window = pn__page_bytes(&spec.kinds[PN_PAGE_WINDOW], PN_PAGE_WIDE);
    PN_ASSERT_OK(pn__kv_extend(kv, 0, 0, 1, &d), &d);
    assert_int_equal(booked(PN_OWNER_KV).committed_bytes, full + window);
    PN_ASSERT_OK(pn__kv_extend(kv, 0, 1, 63, &d), &d);
    assert_int_equal(booked(PN_OWNER_KV).committed_bytes, full + window);
    PN_ASSERT_OK(pn__kv_extend(kv, 0, 64, 64, &d), &d);
    assert_int_equal(booked(PN_OWNER_KV).committed_bytes, 2 * (full + window));
    /* Token 128 sees back to 65: page 0 goes back and another takes its place. */
    PN_ASSERT_OK(pn__kv_extend(kv, 0, 128, 1, &d), &d);
    assert_int_equal(booked(PN_OWNER_KV).committed_bytes, 3 * full + 2 * window);
    pn__kv_reset(kv, 0);
    assert_int_equal(pn__kv_used(kv, PN_PAGE_FULL, PN_PAGE_WIDE), 0);
    assert_int_equal(pn__kv_used(kv, PN_PAGE_WINDOW, PN_PAGE_WIDE), 0);
    assert_int_equal(booked(PN_OWNER_KV).committed_bytes, 0);
    PN_ASSERT_OK(pn__kv_extend(kv, 1, 0, 64, &d), &d);
    PN_ASSERT_OK(pn__kv_extend(kv, 1, 64, 64, &d), &d);
    assert_int_equal(booked(PN_OWNER_KV).committed_bytes, 2 * (full + window));
    /* What is paid and not needed goes back; what pages hold stays. */
    pn__kv_change(kv, 1);
    assert_int_equal(booked(PN_OWNER_KV).reserved_bytes, 2 * (full + window));
    pn__kv_free(kv);
}

/* No page without somebody who pays; a refusal changes nothing. */
static void unpaid(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_kv_spec spec = spec_of(64, 64, PN_KV_F16);
    struct pn_kv *kv;
    PN_ASSERT_OK(pn__kv_new(&spec, &d, &kv), &d);
    assert_int_equal(pn__kv_extend(kv, 0, 0, 1, &d), PN_E_STATE);
    assert_non_null(strstr(d.text, "isn't paid for: 0 of 0"));
    pay(kv, &spec, 0);
    PN_ASSERT_OK(pn__kv_extend(kv, 0, 0, 64, &d), &d);
    pn__kv_change(kv, 0);
    assert_int_equal(pn__kv_extend(kv, 0, 64, 1, &d), PN_E_STATE);
    assert_non_null(strstr(d.text, "a KV page of "));
    pay(kv, &spec, 0);
    PN_ASSERT_OK(pn__kv_extend(kv, 0, 64, 1, &d), &d);
    pn__kv_free(kv);
    assert_int_equal(booked(PN_OWNER_KV).reserved_bytes, 0);
    assert_int_equal(booked(PN_OWNER_STATE).reserved_bytes, 0);
}

static void reset_clears_state(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_kv_spec spec = spec_of(8, 64, PN_KV_Q8_0);
    struct pn_kv *kv = new_kv(&spec);
    PN_ASSERT_OK(pn__kv_extend(kv, 0, 0, 64, &d), &d);
    PN_ASSERT_OK(pn__kv_extend(kv, 1, 0, 64, &d), &d);
    uint8_t *mine = pn__kv_seq(kv, 0)->state;
    uint8_t *other = pn__kv_seq(kv, 1)->state;
    for (uint32_t i = 0; i < spec.state_bytes; i++) {
        assert_int_equal(mine[i] | other[i], 0);
    }
    memset(mine, 0xff, spec.state_bytes);
    memset(other, 0xee, spec.state_bytes);
    pn__kv_reset(kv, 0);
    for (uint32_t i = 0; i < spec.state_bytes; i++) {
        assert_int_equal(mine[i], 0);
        assert_int_equal(other[i], 0xee);
    }
    struct pn_page_table t[PN_PAGE_KIND_N];
    pn__kv_tables(kv, 0, t);
    assert_int_equal(t[PN_PAGE_FULL].n + t[PN_PAGE_WINDOW].n, 0);
    assert_int_equal(t[PN_PAGE_WINDOW].first, 0);
    pay(kv, &spec, 0);
    PN_ASSERT_OK(pn__kv_extend(kv, 0, 0, 1, &d), &d);
    pn__kv_free(kv);
}

static void refusals(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_kv_spec spec = spec_of(64, 64, PN_KV_F16);
    struct pn_kv *kv = new_kv(&spec);
    assert_int_equal(pn__kv_extend(kv, 0, 0, CTX + 1, &d), PN_E_CONTEXT);
    assert_non_null(strstr(d.text, "1501"));
    assert_non_null(strstr(d.text, "1500"));
    assert_int_equal(pn__kv_extend(kv, 0, UINT32_MAX, UINT32_MAX, &d), PN_E_CONTEXT);
    /* More tokens at once than the pool was sized for: 512 of them need 8 pages, 2 are there. */
    assert_int_equal(pn__page_max(&spec, PN_PAGE_WINDOW), 2);
    assert_int_equal(pn__kv_room(kv, 0, 0, 512), 128);
    assert_int_equal(pn__kv_extend(kv, 0, 0, 512, &d), PN_E_NOFIT);
    assert_non_null(strstr(d.text, "512 tokens"));
    assert_non_null(strstr(d.text, "8 KV pages"));
    assert_non_null(strstr(d.text, "has 2"));
    /* The other sequence can still use its own. */
    PN_ASSERT_OK(pn__kv_extend(kv, 1, 0, 64, &d), &d);
    pn__kv_free(kv);
}

static void kinds_without_layers(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_kv_spec spec = spec_of(0, 64, PN_KV_F16);
    spec.kinds[PN_PAGE_WINDOW].layer_n = 0;
    spec.kinds[PN_PAGE_FULL].layer_n = 0;
    spec.state_bytes = 0;
    struct pn_kv *kv = new_kv(&spec);
    assert_int_equal(booked(PN_OWNER_KV).reserved_bytes, 0);
    PN_ASSERT_OK(pn__kv_extend(kv, 1, 0, CTX, &d), &d);
    assert_null(pn__kv_seq(kv, 1)->state);
    pn__kv_reset(kv, 1);
    pn__kv_free(kv);
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    struct pn_kv_spec spec = narrow_spec(512, 64);
    int rc = PN_E_NOMEM;
    uint32_t n = 0;
    while (rc) {
        struct pn_kv *kv;
        pn__alloc_fail_nth(++n);
        rc = pn__kv_new(&spec, NULL, &kv);
        pn__alloc_fail_nth(0);
        if (rc) {
            assert_int_equal(rc, PN_E_NOMEM);
            assert_null(kv);
        }
        pn__kv_free(kv);
        assert_int_equal(booked(PN_OWNER_KV).reserved_bytes, 0);
        assert_int_equal(booked(PN_OWNER_STATE).reserved_bytes, 0);
    }
    assert_true(n > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_pages),
        cmocka_unit_test(exact_bytes),
        cmocka_unit_test(sizes_that_wrap),
        cmocka_unit_test(commits_are_booked),
        cmocka_unit_test(unpaid),
        cmocka_unit_test(reset_clears_state),
        cmocka_unit_test(refusals),
        cmocka_unit_test(kinds_without_layers),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(two_forms),
        cmocka_unit_test(two_forms_take_less),
        cmocka_unit_test(two_forms_truncated),
        cmocka_unit_test(either_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
