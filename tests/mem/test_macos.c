/* The figures of macOS, compiled against stub headers and fed with scripted values: what becomes of
 * them, and of calls that fail or tell what can't be. */
#include <errno.h>
#include <mach/mach.h>
#include <sys/sysctl.h>

#include "core/mem/pn_level.h"
#include "core/mem/pn_macos.h"
#include "support/pn_test.h"

#define GIB (1ull << 30)
#define MIB (1ull << 20)

/* ---- the machine that is played -------------------------------------------------------------- */

static struct {
    int sysctl_errno; /* 0: works */
    uint64_t memsize;
    size_t memsize_len;
    kern_return_t page_rc;
    vm_size_t page;
    kern_return_t vm_rc;
    mach_msg_type_number_t vm_count; /* 0: all of it */
    vm_statistics64_data_t vm;
    kern_return_t task_rc;
    task_vm_info_data_t task;
    int rights; /* taken and not given back */
} mac;

int sysctlbyname(const char *name, void *old, size_t *old_len, void *new_value, size_t new_len) {
    assert_string_equal(name, "hw.memsize");
    assert_true(*old_len == 8 && !new_value && new_len == 0);
    if (mac.sysctl_errno) {
        errno = mac.sysctl_errno;
        return -1;
    }
    memcpy(old, &mac.memsize, mac.memsize_len);
    *old_len = mac.memsize_len;
    return 0;
}

mach_port_t mach_host_self(void) {
    mac.rights++;
    return 11;
}

mach_port_t mach_task_self(void) {
    return 12;
}

kern_return_t mach_port_deallocate(mach_port_t task, mach_port_t name) {
    assert_true(task == 12 && name == 11);
    mac.rights--;
    return KERN_SUCCESS;
}

kern_return_t host_page_size(mach_port_t host, vm_size_t *out) {
    assert_int_equal(host, 11);
    *out = mac.page;
    return mac.page_rc;
}

kern_return_t host_statistics64(mach_port_t host, int flavor, host_info64_t out,
                                mach_msg_type_number_t *count) {
    assert_true(host == 11 && flavor == HOST_VM_INFO64 && *count == HOST_VM_INFO64_COUNT);
    if (mac.vm_rc) return mac.vm_rc;
    if (mac.vm_count) *count = mac.vm_count;
    memcpy(out, &mac.vm, *count * sizeof(integer_t));
    return KERN_SUCCESS;
}

kern_return_t task_info(mach_port_t task, unsigned flavor, task_info_t out,
                        mach_msg_type_number_t *count) {
    assert_true(task == 12 && flavor == TASK_VM_INFO && *count == TASK_VM_INFO_COUNT);
    if (mac.task_rc) return mac.task_rc;
    memcpy(out, &mac.task, sizeof mac.task);
    return KERN_SUCCESS;
}

/* 16 GiB in pages of 16 KiB: 2 GiB free, 6 inactive, 5 backed by files. */
static int setup(void **state) {
    (void)state;
    memset(&mac, 0, sizeof mac);
    mac.memsize = 16 * GIB;
    mac.memsize_len = 8;
    mac.page = 16384;
    mac.vm = (vm_statistics64_data_t){.free_count = 2 * GIB / 16384,
                                      .inactive_count = 6 * GIB / 16384,
                                      .active_count = 7 * GIB / 16384,
                                      .wire_count = 1 * GIB / 16384,
                                      .purgeable_count = 3 * GIB / 16384,
                                      .external_page_count = 5 * GIB / 16384,
                                      .internal_page_count = 8 * GIB / 16384};
    mac.task = (task_vm_info_data_t){
        .virtual_size = 400 * GIB, .internal = 300 * MIB, .external = 40 * MIB, .compressed = MIB};
    return 0;
}

static pn_host_sample sample(void) {
    static struct pn_probe p;
    pn_host_sample s;
    p.root = "";
    memset(&s, 0xff, sizeof s);
    pn__macos_sample(&p, &s);
    assert_int_equal(mac.rights, 0); /* else a poll every 250 ms would use them up */
    assert_string_equal(p.group_psi, "");
    return s;
}

static pn_mem_level level_of(const pn_host_sample *s) {
    struct pn_verdict v;
    pn_mem_state none = {0};
    pn__level_derive(s, 0, 0, &none, &v);
    return v.raw;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_figures(void **state) {
    (void)state;
    pn_host_sample s = sample();
    assert_true(s.host_total_bytes == 16 * GIB);
    assert_true(s.host_avail_bytes == 7 * GIB); /* 2 free and 5 of the 6 inactive */
    assert_true(s.rss_anon_bytes == 300 * MIB && s.rss_file_bytes == 40 * MIB);
    assert_true(s.swap_bytes == MIB && s.rss_shmem_bytes == 0);
    assert_true(s.host_psi_some_avg10 == 0.0 && s.host_psi_full_avg10 == 0.0);
    assert_true(s.cgroup_current_bytes == 0 && s.cgroup_max_bytes == 0 && s.cgroup_limit_n == 0);
    assert_int_equal(s.rlimit_bytes, 0);
    for (unsigned i = 0; i < PN_SOURCE_N; i++) {
        bool up = i == PN_SOURCE_MEMINFO || i == PN_SOURCE_SELF;
        assert_int_equal(s.sources[i].status, up ? PN_SOURCE_UP : PN_SOURCE_ABSENT);
        assert_string_equal(s.sources[i].why, "");
    }
    assert_int_equal(level_of(&s), PN_MEM_LEVEL_OK);
    /* Inactive pages that are anonymous are nobody's to give. */
    mac.vm.external_page_count = 0;
    s = sample();
    assert_true(s.host_avail_bytes == 2 * GIB);
    assert_int_equal(level_of(&s), PN_MEM_LEVEL_CRITICAL); /* 15 % of 16 GiB are kept free */
    mac.vm.external_page_count = mac.vm.inactive_count * 2;
    s = sample();
    assert_true(s.host_avail_bytes == 8 * GIB);
}

static void expect_failed(const char *what) {
    pn_host_sample s = sample();
    if (!strstr(s.sources[PN_SOURCE_MEMINFO].why, what)) {
        print_error("'%s' isn't in '%s'\n", what, s.sources[PN_SOURCE_MEMINFO].why);
    }
    assert_int_equal(s.sources[PN_SOURCE_MEMINFO].status, PN_SOURCE_FAILED);
    assert_non_null(strstr(s.sources[PN_SOURCE_MEMINFO].why, what));
    assert_true(s.host_total_bytes == 0 && s.host_avail_bytes == 0);
    assert_true(level_of(&s) >= PN_MEM_LEVEL_TIGHT);
    unsigned domain;
    assert_true(pn_host_eff_avail(&s, &domain) == 0 && domain == PN_DOMAIN_HOST);
    setup(NULL);
}

static void test_failures(void **state) {
    (void)state;
    mac.sysctl_errno = ENOENT;
    expect_failed("hw.memsize: No such file");
    mac.sysctl_errno = EPERM;
    expect_failed("hw.memsize: Operation not permitted");
    mac.memsize = 0;
    expect_failed("hw.memsize: 0 in 8 bytes");
    mac.memsize = UINT64_MAX;
    expect_failed("is no memory size");
    mac.memsize_len = 4;
    expect_failed("in 4 bytes is no memory size");
    mac.page_rc = 5;
    expect_failed("host_page_size: 16384, error 5");
    mac.page = 0;
    expect_failed("host_page_size: 0");
    mac.page = 3000;
    expect_failed("host_page_size: 3000");
    mac.page = (vm_size_t)1 << 40;
    expect_failed("host_page_size: 1099511627776");
    mac.vm_rc = 4;
    expect_failed("host_statistics64: error 4");
    mac.vm_count = 3;
    expect_failed("host_statistics64: 3 words of 8");
    mac.vm.free_count = UINT32_MAX;
    expect_failed("bytes available of 17179869184");
}

static void test_self_fails(void **state) {
    (void)state;
    mac.task_rc = 4;
    pn_host_sample s = sample();
    assert_int_equal(s.sources[PN_SOURCE_SELF].status, PN_SOURCE_FAILED);
    assert_string_equal(s.sources[PN_SOURCE_SELF].why, "task_info: error 4");
    assert_int_equal(s.rss_anon_bytes, 0);
    assert_int_equal(level_of(&s), PN_MEM_LEVEL_TIGHT);
    setup(NULL);
    mac.task.internal = UINT64_MAX;
    s = sample();
    assert_int_equal(s.sources[PN_SOURCE_SELF].status, PN_SOURCE_FAILED);
}

#define T(f) cmocka_unit_test_setup(f, setup)

int main(void) {
    const struct CMUnitTest tests[] = {T(test_figures), T(test_failures), T(test_self_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
