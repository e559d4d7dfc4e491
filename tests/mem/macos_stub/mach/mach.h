/* As much of macOS's mach/mach.h as pn_macos.c uses, so that it compiles elsewhere; test_macos.c
 * says what the calls return. Types and orders as there; fields that aren't read are left out. */
#ifndef PN_TESTS_MACOS_STUB_MACH_H
#define PN_TESTS_MACOS_STUB_MACH_H

#include <stdint.h>

typedef int kern_return_t;
typedef int integer_t;
typedef unsigned natural_t;
typedef unsigned mach_port_t;
typedef unsigned mach_msg_type_number_t;
typedef uintptr_t vm_size_t;
typedef uint64_t mach_vm_size_t;
typedef integer_t *host_info64_t;
typedef integer_t *task_info_t;

#define KERN_SUCCESS 0
#define HOST_VM_INFO64 4
#define TASK_VM_INFO 22

typedef struct vm_statistics64 {
    natural_t free_count;
    natural_t active_count;
    natural_t inactive_count;
    natural_t wire_count;
    natural_t purgeable_count;
    natural_t speculative_count;
    natural_t external_page_count;
    natural_t internal_page_count;
} vm_statistics64_data_t;
#define HOST_VM_INFO64_COUNT \
    ((mach_msg_type_number_t)(sizeof(vm_statistics64_data_t) / sizeof(integer_t)))

typedef struct task_vm_info {
    mach_vm_size_t virtual_size;
    mach_vm_size_t internal;
    mach_vm_size_t external;
    mach_vm_size_t compressed;
} task_vm_info_data_t;
#define TASK_VM_INFO_COUNT \
    ((mach_msg_type_number_t)(sizeof(task_vm_info_data_t) / sizeof(natural_t)))

mach_port_t mach_host_self(void);
mach_port_t mach_task_self(void);
kern_return_t mach_port_deallocate(mach_port_t task, mach_port_t name);
kern_return_t host_page_size(mach_port_t host, vm_size_t *out);
kern_return_t host_statistics64(mach_port_t host, int flavor, host_info64_t out,
                                mach_msg_type_number_t *count);
kern_return_t task_info(mach_port_t task, unsigned flavor, task_info_t out,
                        mach_msg_type_number_t *count);

#endif
