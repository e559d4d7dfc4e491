/* As much of macOS's sys/sysctl.h as pn_macos.c uses: see mach/mach.h beside it. */
#ifndef PN_TESTS_MACOS_STUB_SYSCTL_H
#define PN_TESTS_MACOS_STUB_SYSCTL_H

#include <stddef.h>

int sysctlbyname(const char *name, void *old, size_t *old_len, void *new_value, size_t new_len);

#endif
