/* `pannier plan MODEL [--ctx N --slots N] [--json]`: what loading would take, to the byte, and
 * whether it fits. Exit code 3, with the same table, when it doesn't. */
#include <stdio.h>

#include "cli/engine_cli.h"

static const char *const kv_names[] = {"f32", "f16", "q8_0", "q4"};
static const char *const weights_names[] = {"auto", "map", "copy"};

static double mib(uint64_t bytes) {
    return (double)bytes / (1 << 20);
}

static void print_text(const struct pn_plan *p) {
    printf("%-10s %-8s %14s %11s\n", "part", "place", "bytes", "MiB");
    for (int i = 0; i < PN_PLAN_PART_N; i++) {
        const struct pn_plan_part *part = &p->parts[i];
        if (part->bytes == 0) continue;
        printf("%-10s %-8s %14llu %11.1f\n", part->name, pn_mem_place_name(part->place),
               (unsigned long long)part->bytes, mib(part->bytes));
    }
    printf("%-10s %-8s %14llu %11.1f\n", "total", "", (unsigned long long)p->total_bytes,
           mib(p->total_bytes));
    printf("\n%-10s %-8s %6s %14s %14s %12s\n", "cache", "layers", "back", "bytes/token",
           "bytes/page", "pages/slot");
    for (int i = 0; i < PN_PLAN_PAGES_N; i++) {
        const struct pn_plan_pages *k = &p->pages[i];
        char back[16] = "all";
        if (k->layer_n == 0) continue;
        if (k->window) snprintf(back, sizeof back, "%u", k->window);
        printf("%-10s %-8u %6s %14llu %14llu %12u\n", k->kind, k->layer_n, back,
               (unsigned long long)k->token_bytes, (unsigned long long)k->page_bytes, k->page_n);
        if (k->narrow_page_n == 0) continue;
        printf("%-10s %-8s %6s %14llu %14llu %12u\n", "  in q4", "", "",
               (unsigned long long)k->narrow_token_bytes, (unsigned long long)k->narrow_page_bytes,
               k->narrow_page_n);
    }
    printf("\ncontext    %u tokens (trained for %u, longest that fits %u)\n", p->ctx, p->ctx_train,
           p->ctx_fit);
    printf("slots      %u (most that fit with this context %u)\n", p->slots, p->slots_fit);
    printf("kv         %s: %s%s\n", kv_names[p->kv], p->kv_why,
           p->kv_per_session ? "; chosen as each session begins" : "");
    printf("weights    %s: %s\n", weights_names[p->weights], p->weights_why);
    if (p->expert_bytes) {
        printf("experts    %llu bytes of the weights (%.1f MiB)\n",
               (unsigned long long)p->expert_bytes, mib(p->expert_bytes));
    }
    if (p->unused_blocks) {
        printf(
            "not run    %u multi-token-prediction block%s, %.1f MiB neither loaded nor planned\n",
            p->unused_blocks, p->unused_blocks == 1 ? "" : "s", mib(p->unused_bytes));
    }
    printf("headroom   %.1f MiB (%s)\n", mib(p->headroom_bytes), p->domain);
    printf("dies       no die backend in this build: CPU only\n");
    if (p->fits) {
        printf("fits       yes, with %.1f MiB to spare\n", mib(p->headroom_bytes - p->host_bytes));
    } else {
        printf("fits       no: %s lacks %llu bytes (%.1f MiB)\n", p->domain,
               (unsigned long long)p->lacking_bytes, mib(p->lacking_bytes));
    }
}

static json_t *parts_json(const struct pn_plan *p) {
    json_t *parts = json_array();
    for (int i = 0; i < PN_PLAN_PART_N && parts; i++) {
        const struct pn_plan_part *part = &p->parts[i];
        json_array_append_new(parts, json_pack("{s:s, s:s, s:s, s:I}", "name", part->name, "owner",
                                               pn_mem_owner_name(part->owner), "place",
                                               pn_mem_place_name(part->place), "bytes",
                                               (json_int_t)part->bytes));
    }
    return parts;
}

static json_t *pages_json(const struct pn_plan *p) {
    json_t *pages = json_array();
    for (int i = 0; i < PN_PLAN_PAGES_N && pages; i++) {
        const struct pn_plan_pages *k = &p->pages[i];
        if (k->layer_n == 0) continue;
        json_array_append_new(
            pages, json_pack("{s:s, s:i, s:i, s:I, s:I, s:i, s:I, s:I, s:i}", "kind", k->kind,
                             "layers", (int)k->layer_n, "window", (int)k->window, "token_bytes",
                             (json_int_t)k->token_bytes, "page_bytes", (json_int_t)k->page_bytes,
                             "pages_per_slot", (int)k->page_n, "q4_token_bytes",
                             (json_int_t)k->narrow_token_bytes, "q4_page_bytes",
                             (json_int_t)k->narrow_page_bytes, "q4_pages_per_slot",
                             (int)k->narrow_page_n));
    }
    return pages;
}

static int print_json(const struct pn_plan *p, struct pn_detail *d) {
    json_t *j = json_pack(
        "{s:b, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:b, s:s, s:s, s:I, s:s, s:I, s:[], "
        "s:i, "
        "s:I, "
        "s:I, s:o, s:o}",
        "fits", p->fits, "total_bytes", (json_int_t)p->total_bytes, "host_bytes",
        (json_int_t)p->host_bytes, "ctx", (int)p->ctx, "slots", (int)p->slots, "ctx_train",
        (int)p->ctx_train, "ctx_fit", (int)p->ctx_fit, "slots_fit", (int)p->slots_fit, "kv",
        kv_names[p->kv], "kv_why", p->kv_why, "kv_per_session", p->kv_per_session, "weights",
        weights_names[p->weights], "weights_why", p->weights_why, "headroom_bytes",
        (json_int_t)p->headroom_bytes, "domain", p->domain, "lacking_bytes",
        (json_int_t)p->lacking_bytes, "dies", "unused_blocks", (int)p->unused_blocks,
        "unused_bytes", (json_int_t)p->unused_bytes, "expert_bytes", (json_int_t)p->expert_bytes,
        "parts", parts_json(p), "pages", pages_json(p));
    return pn__print_json(j, d);
}

int pn__cmd_plan(const struct pn_settings *s, struct pn_detail *d) {
    struct pn_engine_options o;
    struct pn_plan p;
    pn__cli_options(s, &o);
    o.slots = (uint32_t)pn__set_int(s, PN_SET_SLOTS);
    int rc = pn_engine_plan(&o, d, &p);
    if (rc != 0 && rc != PN_E_NOFIT) return rc;
    if (p.total_bytes == 0) return rc;
    if (pn__set_flag(s, PN_SET_JSON)) {
        struct pn_detail lost;
        int printed = print_json(&p, &lost);
        return rc ? rc : printed ? pn__fail(d, printed, "%s", lost.text) : 0;
    }
    print_text(&p);
    return rc;
}
