/* A chat request's conversation as a template expects it. Clients spell some things in more ways
 * than templates understand; what a template fails on is given to it in the other spelling. */
#include "text/chat/chat.h"

#include <string.h>

#include "text/chat/eval.h"

/* Spellings, as bits. */
enum {
    PLAIN_CONTENT = 1,  /* text parts joined; null beside a tool call as "" */
    TEXT_ARGUMENTS = 2, /* a tool call's arguments as JSON text */
};

static int no_memory(struct pn_detail *d) {
    return pn__fail(d, PN_E_NOMEM, "conversation: no memory for a copy");
}

static int check_message(size_t i, const json_t *m, struct pn_detail *d) {
    const json_t *role = json_object_get(m, "role");
    const json_t *content = json_object_get(m, "content");
    const json_t *calls = json_object_get(m, "tool_calls");
    if (!json_is_object(m))
        return pn__fail(d, PN_E_INVALID, "conversation: messages[%zu] is no object", i);
    if (!json_is_string(role))
        return pn__fail(d, PN_E_INVALID, "conversation: messages[%zu] has no %s", i,
                        role ? "role that is a string" : "role");
    if (json_is_number(content) || json_is_boolean(content))
        return pn__fail(d, PN_E_INVALID,
                        "conversation: messages[%zu].content is neither text, parts nor null", i);
    if (calls && !json_is_null(calls) && !json_is_array(calls))
        return pn__fail(d, PN_E_INVALID, "conversation: messages[%zu].tool_calls is no array", i);
    return 0;
}

static int check(const json_t *conversation, struct pn_detail *d) {
    const json_t *messages = json_object_get(conversation, "messages");
    if (!json_is_object(conversation))
        return pn__fail(d, PN_E_INVALID, "conversation: the JSON is no object");
    if (!json_is_array(messages))
        return pn__fail(d, PN_E_INVALID, "conversation: 'messages' is %s",
                        messages ? "no array" : "missing");
    const json_t *tools = json_object_get(conversation, "tools");
    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return pn__fail(d, PN_E_INVALID, "conversation: 'tools' is no array");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        int rc = check_message(i, json_array_get(messages, i), d);
        if (rc) return rc;
    }
    return 0;
}

/* The parts' texts one after the other; NULL when one is no text (or there is no memory). */
static json_t *join_parts(const json_t *parts, struct pn_detail *d, int *rc) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        if (!json_is_string(text)) return NULL;
        n += json_string_length(text);
    }
    struct pn_jarena a = {.bytes_max = UINT64_MAX};
    char *joined = pn__jarena_take(&a, n + 1, 1);
    json_t *j = NULL;
    if (joined) {
        size_t at = 0;
        for (size_t i = 0; i < json_array_size(parts); i++) {
            const json_t *text = json_object_get(json_array_get(parts, i), "text");
            memcpy(joined + at, json_string_value(text), json_string_length(text));
            at += json_string_length(text);
        }
        j = json_stringn(joined, n);
    }
    pn__jarena_free(&a);
    if (!j) *rc = no_memory(d);
    return j;
}

/* As json.dumps prints it, which jansson does not (its numbers have 17 digits). */
static json_t *dump(const struct pn_template *t, const json_t *j, struct pn_detail *d, int *rc) {
    static const struct pn_jstr comma = {.p = ", ", .n = 2};
    static const struct pn_jstr colon = {.p = ": ", .n = 2};
    const struct pn_jdump how = {.item = &comma, .colon = &colon};
    struct pn_jctx c = {.t = t, .d = d, .arena.bytes_max = t->limits.memory_bytes_max};
    struct pn_jbuf text = {0};
    struct pn_jval v;
    json_t *out = NULL;
    *rc = pn__j_from_json(&c, j, PN_J_CONVERSATION, &v);
    if (*rc == 0) *rc = pn__j_put_json(&c, &text, &v, &how, 0);
    if (*rc == 0) {
        out = json_stringn(text.p, text.n);
        if (!out) *rc = no_memory(d);
    }
    pn__jarena_free(&c.arena);
    return out;
}

/* One tool call's arguments in the other spelling, an object unless `as_text`; NULL: they stay.
 * *changed: they are not what they would be otherwise. */
static json_t *other_arguments(const struct pn_template *t, const json_t *arguments, bool as_text,
                               bool *changed, struct pn_detail *d, int *rc) {
    if (as_text && (json_is_object(arguments) || json_is_string(arguments))) {
        *changed = true;
        return json_is_object(arguments) ? dump(t, arguments, d, rc) : NULL;
    }
    if (!as_text && json_is_string(arguments)) {
        json_t *j = json_loadb(json_string_value(arguments), json_string_length(arguments),
                               JSON_ALLOW_NUL, NULL);
        if (json_is_object(j)) return j;
        json_decref(j);
    }
    return NULL;
}

/* Changes what `how` asks for in a message that is the caller's own; *changed: something was. */
static int respell(const struct pn_template *t, json_t *m, unsigned how, bool *changed,
                   struct pn_detail *d) {
    json_t *content = json_object_get(m, "content");
    json_t *calls = json_object_get(m, "tool_calls");
    json_t *plain = NULL;
    int rc = 0;
    if ((how & PLAIN_CONTENT) && json_is_array(content)) plain = join_parts(content, d, &rc);
    if ((how & PLAIN_CONTENT) && json_is_null(content)) plain = json_string("");
    if (plain) {
        *changed = true;
        if (json_object_set_new(m, "content", plain)) rc = no_memory(d);
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i);
        json_t *function = json_object_get(call, "function");
        json_t *of = json_is_object(function) ? function : call;
        json_t *other = other_arguments(t, json_object_get(of, "arguments"), how & TEXT_ARGUMENTS,
                                        changed, d, &rc);
        if (other && json_object_set_new(of, "arguments", other)) rc = no_memory(d);
    }
    return rc;
}

/* A message that respell would change, so that others needn't be copied. */
static bool may_change(const json_t *m, unsigned how) {
    const json_t *content = json_object_get(m, "content");
    return json_array_size(json_object_get(m, "tool_calls")) > 0 ||
           ((how & PLAIN_CONTENT) && (json_is_array(content) || json_is_null(content)));
}

/* The conversation in another spelling, to be released by the caller. */
static int spelled(const struct pn_template *t, const json_t *conversation, unsigned how,
                   bool *changed, json_t **out, struct pn_detail *d) {
    json_t *copy = json_object();
    json_t *messages = json_array();
    const json_t *given = json_object_get(conversation, "messages");
    int rc = !copy || !messages ? no_memory(d) : 0;
    *changed = false;
    for (size_t i = 0; rc == 0 && i < json_array_size(given); i++) {
        json_t *m = json_array_get(given, i);
        bool own = may_change(m, how);
        m = own ? json_deep_copy(m) : json_incref(m);
        if (m && own) rc = respell(t, m, how, changed, d);
        if (json_array_append_new(messages, m)) rc = no_memory(d);
    }
    /* Templates may ask for tools without looking whether they are there. */
    if (rc == 0 && json_object_set_new(copy, "tools", json_null())) rc = no_memory(d);
    union {
        const json_t *in;
        json_t *iterated;
    } object = {conversation};
    if (rc == 0 && json_object_update(copy, object.iterated)) rc = no_memory(d);
    if (rc == 0 && json_object_set(copy, "messages", messages)) rc = no_memory(d);
    json_decref(messages);
    if (rc) {
        json_decref(copy);
        copy = NULL;
    }
    *out = copy;
    return rc;
}

int pn__chat_render(const struct pn_template *t, const json_t *conversation, const json_t *model,
                    const struct tm *now, struct pn_chat_text *out, struct pn_detail *d) {
    static const unsigned hows[] = {0, PLAIN_CONTENT, TEXT_ARGUMENTS,
                                    PLAIN_CONTENT | TEXT_ARGUMENTS};
    struct pn_detail first = {""};
    bool told = false; /* `first` is what the caller hears */
    bool refused = false;
    int first_rc = 0;
    int rc = check(conversation, d);
    for (size_t i = 0; rc == 0 && i < PN_ARRAY_N(hows); i++) {
        struct pn_detail detail = {""};
        json_t *copy;
        bool changed;
        bool printed_parts = false;
        rc = spelled(t, conversation, hows[i], &changed, &copy, d);
        if (rc) break;
        int render_rc = PN_E_INVALID;
        if (i == 0 || changed)
            render_rc = pn__j_render(t, copy, model, now, true, &printed_parts, out, &detail);
        json_decref(copy);
        if (render_rc == 0) return 0;
        bool said = i == 0 || changed;
        if (said && !told) {
            first = detail;
            first_rc = render_rc;
            refused = out->refused;
            told = !printed_parts; /* that one is ours: a later one says more */
        }
        pn__chat_text_free(out);
        if (render_rc != PN_E_INVALID) break; /* no other spelling helps against a limit */
    }
    out->refused = refused;
    if (rc) return pn__j_public_error(rc);
    if (d) *d = first;
    return pn__j_public_error(first_rc);
}
