/* Errors of Pannier and libpnmem: one table, shared by both public headers.
 *
 * A fallible function returns 0 or one of these negative codes; what exactly was wrong (names,
 * values, offsets, bytes) is written as one line of text into the caller's pn_detail.
 */
#ifndef PN_ERR_H
#define PN_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, text, http_status, retryable) */
#define PN_ERR_TABLE(X)                                     \
    X(PN_E_INVALID, -1, "invalid argument", 400, 0)         \
    X(PN_E_NOMEM, -2, "allocation failed", 503, 1)          \
    X(PN_E_NOFIT, -3, "would not fit", 503, 1)              \
    X(PN_E_IO, -4, "input/output error", 500, 0)            \
    X(PN_E_NOTFOUND, -5, "not found", 404, 0)               \
    X(PN_E_FORMAT, -6, "malformed file", 400, 0)            \
    X(PN_E_UNSUPPORTED, -7, "not supported", 400, 0)        \
    X(PN_E_CONTEXT, -8, "longer than the context", 400, 0)  \
    X(PN_E_BUSY, -9, "busy", 503, 1)                        \
    X(PN_E_CANCELLED, -10, "cancelled", 499, 0)             \
    X(PN_E_STATE, -11, "wrong state for this call", 500, 0) \
    X(PN_E_NUMERIC, -12, "non-finite result", 500, 0)       \
    X(PN_E_USAGE, -13, "usage error", 400, 0)

enum pn_err {
    PN_OK = 0,
#define PN_ERR_ENUM(name, value, text, http, retry) name = value,
    PN_ERR_TABLE(PN_ERR_ENUM)
#undef PN_ERR_ENUM
};

/* Longest detail line, terminator included. Longer text is cut at a UTF-8 boundary. */
#define PN_DETAIL_BYTES 512

/* Where a failing function writes what was wrong. The caller owns it; a NULL pointer is accepted
 * everywhere and loses the text only. */
struct pn_detail {
    char text[PN_DETAIL_BYTES];
};

/* Name ("PN_E_NOFIT"), one-line meaning, HTTP status and whether trying again later can help.
 * Unknown codes give "PN_E_?", "unknown error", 500, 0. The strings are static. */
const char *pn_err_name(int code);
const char *pn_err_text(int code);
int pn_err_http(int code);
int pn_err_retryable(int code);

#ifdef __cplusplus
}
#endif
#endif
