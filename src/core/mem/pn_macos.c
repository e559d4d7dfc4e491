/* What macOS says about memory: the machine's size by sysctl, its pages by host_statistics64, our
 * own by task_info. There are no control groups and no PSI, and limits on address space are not
 * enforced: those sources are ABSENT, their figures 0.
 *
 * Available is what can be had without compressing or swapping anybody: free pages (which include
 * the speculative ones) and, of the inactive ones, at most as many as are backed by files. The
 * system doesn't say how many inactive pages are file pages; anonymous ones would have to be
 * compressed first, so where the figures leave it open the lower one is taken. Purgeable pages
 * stand in the queues already and are not counted again. */
#include "core/mem/pn_macos.h"

#include <errno.h>
#include <mach/mach.h>
#include <string.h>
#include <sys/sysctl.h>

#include "base/checked.h"
#include "core/mem/pn_hot.h"

static enum pn_source_status read_total(struct pn_probe *p, uint64_t *out) {
    uint64_t total = 0;
    size_t len = sizeof total;
    if (sysctlbyname("hw.memsize", &total, &len, NULL, 0) != 0) {
        return pn__probe_fail(p, "hw.memsize: %s", strerror(errno));
    }
    if (len != sizeof total || total == 0 || total > PN_PROBE_BYTES_MAX) {
        return pn__probe_fail(p, "hw.memsize: %llu in %zu bytes is no memory size",
                              (unsigned long long)total, len);
    }
    *out = total;
    return PN_SOURCE_UP;
}

static enum pn_source_status read_pages(struct pn_probe *p, mach_port_t host, uint64_t *out) {
    vm_size_t page = 0;
    vm_statistics64_data_t vm;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    memset(&vm, 0, sizeof vm);
    kern_return_t kr = host_page_size(host, &page);
    if (kr != KERN_SUCCESS || page == 0 || (page & (page - 1)) != 0 || page > (1u << 24)) {
        return pn__probe_fail(p, "host_page_size: %llu, error %d", (unsigned long long)page,
                              (int)kr);
    }
    kr = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&vm, &count);
    if (kr != KERN_SUCCESS) return pn__probe_fail(p, "host_statistics64: error %d", (int)kr);
    /* Older systems fill in less, and the file pages are near the end. */
    if (count < HOST_VM_INFO64_COUNT) {
        return pn__probe_fail(p, "host_statistics64: %u words of %u", (unsigned)count,
                              (unsigned)HOST_VM_INFO64_COUNT);
    }
    uint64_t droppable = pn__min_u64(vm.inactive_count, vm.external_page_count);
    *out = ((uint64_t)vm.free_count + droppable) * page; /* below 2^33 pages of at most 2^24 */
    return PN_SOURCE_UP;
}

static enum pn_source_status sample_host(struct pn_probe *p, pn_host_sample *out) {
    uint64_t total = 0;
    uint64_t avail = 0;
    mach_port_t host = mach_host_self();
    enum pn_source_status s = read_total(p, &total);
    if (s == PN_SOURCE_UP) s = read_pages(p, host, &avail);
    mach_port_deallocate(mach_task_self(), host); /* mach_host_self gives a right each time */
    if (s != PN_SOURCE_UP) return s;
    if (avail > total) {
        return pn__probe_fail(p, "host_statistics64: %llu bytes available of %llu",
                              (unsigned long long)avail, (unsigned long long)total);
    }
    out->host_total_bytes = total;
    out->host_avail_bytes = avail;
    return s;
}

/* internal: anonymous pages in memory; external: file pages; compressed: what was taken from us. */
static enum pn_source_status sample_self(struct pn_probe *p, pn_host_sample *out) {
    task_vm_info_data_t vm;
    mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
    memset(&vm, 0, sizeof vm);
    kern_return_t kr = task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&vm, &count);
    if (kr != KERN_SUCCESS) return pn__probe_fail(p, "task_info: error %d", (int)kr);
    if (vm.internal > PN_PROBE_BYTES_MAX || vm.external > PN_PROBE_BYTES_MAX ||
        vm.compressed > PN_PROBE_BYTES_MAX) {
        return pn__probe_fail(p, "task_info: sizes that no machine has");
    }
    out->rss_anon_bytes = vm.internal;
    out->rss_file_bytes = vm.external;
    out->swap_bytes = vm.compressed;
    return PN_SOURCE_UP;
}

void pn__macos_sample(struct pn_probe *p, pn_host_sample *out) {
    /* All others stay ABSENT. HOT looks at SELF. */
    static const struct {
        enum pn_mem_source source;
        enum pn_source_status (*sample)(struct pn_probe *, pn_host_sample *);
    } steps[] = {
        {PN_SOURCE_MEMINFO, sample_host},
        {PN_SOURCE_SELF, sample_self},
        {PN_SOURCE_HOT, pn__hot_sample},
    };
    p->group_psi[0] = '\0';
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < PN_ARRAY_N(steps); i++) {
        p->state = &out->sources[steps[i].source];
        p->state->status = steps[i].sample(p, out);
    }
}
