/* Tables that grow large with what is in a file or a request, in the ledger. */
#ifndef PN_CORE_MEM_ACCOUNT_H
#define PN_CORE_MEM_ACCOUNT_H

/* From now on allocations of base/alloc.h of PN_ALLOC_LARGE_BYTES and more are booked at host under
 * scratch before they are made: GGUF headers and tables, vocabularies, the arenas of chat
 * templates. Where the ledger has no room they may borrow PN_ACCOUNT_DEBT_BYTES of what is kept
 * free, all together, so that a plan which takes all that fits leaves room to name what it answers;
 * beyond that they are refused. Idempotent, any thread. */
void pn__account_allocations(void);

/* A quarter of the smallest default reserve. */
#define PN_ACCOUNT_DEBT_BYTES (16ull << 20)

#endif
