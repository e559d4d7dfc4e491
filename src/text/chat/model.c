/* What a model file brings to its chat template: the template's text, and its special tokens. */
#include "text/chat/chat.h"

int pn__chat_template_find(const struct pn_gguf *g, bool with_tools, struct pn_str *out,
                           struct pn_detail *d) {
    static const char *const keys[] = {"tokenizer.chat_template.tool_use",
                                       "tokenizer.chat_template",
                                       "tokenizer.chat_template.default"};
    for (size_t i = with_tools ? 0 : 1; i < PN_ARRAY_N(keys); i++) {
        int rc = pn__gguf_get_str(g, keys[i], out, d);
        if (rc < 0) return rc;
        if (rc > 0) return 0;
    }
    return pn__fail(d, PN_E_NOTFOUND, "%s: the model has no chat template (key '%s')",
                    pn__gguf_path(g), keys[1]);
}

static int set_token(json_t *vars, const char *key, const struct pn_vocab *v, int32_t id) {
    if (id == PN_TOKEN_NONE || json_object_get(vars, key)) return 0;
    struct pn_str piece = pn__vocab_piece(v, id, true);
    /* A text that is not UTF-8 is no string: the variable stays undefined. */
    json_t *text = json_stringn(piece.data, piece.len);
    return text ? json_object_set_new(vars, key, text) : 0;
}

int pn__chat_vars(const struct pn_vocab *v, json_t *vars, struct pn_detail *d) {
    if (set_token(vars, "bos_token", v, pn__vocab_bos(v)) ||
        set_token(vars, "eos_token", v, pn__vocab_eos(v)))
        return pn__fail(d, PN_E_NOMEM, "chat template: no memory for its variables");
    return 0;
}
