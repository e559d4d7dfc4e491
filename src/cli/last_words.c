#include "cli/last_words.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "cli/state_folder.h"

#define TEXT_BYTES 1024

/* Sync: set by open while one thread runs; then constant, but for fd, which is the writer's. */
static char path[PN_STATE_PATH_BYTES];
static char tmp_path[PN_STATE_PATH_BYTES];
static char command_name[32];
static int fd = -1; /* the file as it is now; holds the lock */

/* ---- who was here before ----------------------------------------------------------------- */

/* The value of a line "key value"; "" when there is none. Cut to `cap`. */
static void field(const char *text, const char *key, char *out, size_t cap) {
    size_t len = strlen(key);
    out[0] = '\0';
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        if (n > len && line[len] == ' ' && memcmp(line, key, len) == 0) {
            snprintf(out, cap, "%.*s", (int)(n - len - 1), line + len + 1);
            return;
        }
        line += n + (line[n] == '\n');
    }
}

/* The text of a file that nobody who lives has locked; false: it isn't one. The file is gone then.
 * A writer renames a new inode over the old one and then lets go of the old: so a lock says
 * something only of the inode that has the name. */
static bool take_orphan(const char *name, char text[TEXT_BYTES], time_t *when) {
    struct stat mine;
    struct stat named;
    bool taken = false;
    int file = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return false;
    if (fstat(file, &mine) == 0 && S_ISREG(mine.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0 &&
        stat(name, &named) == 0 && named.st_ino == mine.st_ino && named.st_dev == mine.st_dev) {
        *when = mine.st_mtime;
        taken = pn__io_read_text(name, text, TEXT_BYTES) >= 0 && unlink(name) == 0;
    }
    close(file);
    return taken;
}

static void tell(const char *text, int more_n) {
    char pid[16];
    char command[32];
    char at[40];
    char level[16];
    char headroom[64];
    char domain[PN_DOMAIN_NAME_BYTES];
    char more[64] = "";
    field(text, "pid", pid, sizeof pid);
    field(text, "command", command, sizeof command);
    field(text, "time", at, sizeof at);
    field(text, "level", level, sizeof level);
    field(text, "headroom", headroom, sizeof headroom);
    field(text, "domain", domain, sizeof domain);
    if (more_n > 0) snprintf(more, sizeof more, "; %d more before it", more_n);
    pn__log(PN_LOG_WARN,
            "'%s' (process %s) was ended from outside; its last snapshot, of %s: level %s, "
            "headroom %s%s%s%s",
            command, pid, at, level, headroom, domain[0] ? " in " : "", domain, more);
}

/* Of several the last to have written is told. */
static void tell_of_orphans(const char *folder) {
    char name[PN_STATE_PATH_BYTES];
    char text[TEXT_BYTES];
    char newest[TEXT_BYTES];
    time_t newest_at = 0;
    int n = 0;
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        const char *dot = strrchr(e->d_name, '.');
        time_t when = 0;
        if (strncmp(e->d_name, "last-", 5) != 0 || !dot || strcmp(dot, ".txt") != 0) continue;
        int len = snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        if (len < 0 || (size_t)len >= sizeof name || !take_orphan(name, text, &when)) continue;
        if (n++ > 0 && when < newest_at) continue;
        newest_at = when;
        memcpy(newest, text, sizeof newest);
    }
    closedir(dir);
    if (n > 0) tell(newest, n - 1);
}

/* ---- ours -------------------------------------------------------------------------------- */

bool pn__last_words_open(const struct pn_settings *s, const char *command) {
    /* A folder that was asked for is not passed over in silence. */
    enum pn_log_level loud = pn__set_given(s, PN_SET_STATE_DIR) ? PN_LOG_WARN : PN_LOG_INFO;
    char folder[PN_STATE_PATH_BYTES - 64];
    if (!pn__state_folder(s, folder, sizeof folder)) return false;
    int err = pn__state_folder_make(folder);
    if (err) {
        pn__log(loud, "--state-dir: '%.200s' can't be used, no snapshot is kept there: %s", folder,
                strerror(err));
        return false;
    }
    tell_of_orphans(folder);
    snprintf(path, sizeof path, "%s/last-%ld.txt", folder, (long)getpid());
    snprintf(tmp_path, sizeof tmp_path, "%s/last-%ld.tmp", folder, (long)getpid());
    snprintf(command_name, sizeof command_name, "%s", command);
    return true;
}

static int write_text(const pn_mem_state *s, char text[TEXT_BYTES]) {
    char at[40] = "?";
    char headroom[64] = "unlimited";
    struct tm tm;
    time_t now = time(NULL);
    if (gmtime_r(&now, &tm)) strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (s->headroom_bytes != UINT64_MAX) {
        snprintf(headroom, sizeof headroom, "%" PRIu64 " bytes (%.1f MiB)", s->headroom_bytes,
                 (double)s->headroom_bytes / 1048576.0);
    }
    return snprintf(text, TEXT_BYTES,
                    "command %s\npid %ld\ntime %s\nlevel %s\nraw_level %s\nheadroom %s\n"
                    "domain %s\nhost_avail_bytes %" PRIu64 "\nseq %" PRIu64 "\n",
                    command_name, (long)getpid(), at, pn_mem_level_name(s->level),
                    pn_mem_level_name(s->raw_level), headroom, s->headroom_domain,
                    s->host_avail_bytes, s->seq);
}

bool pn__last_words_write(const pn_mem_state *state) {
    char text[TEXT_BYTES];
    int len = write_text(state, text);
    int file = open(tmp_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0 && len > 0 &&
                write(file, text, (size_t)len) == len && rename(tmp_path, path) == 0;
    if (good) {
        if (fd >= 0) close(fd);
        fd = file;
        return true;
    }
    pn__log(PN_LOG_WARN, "'%.200s' can't be written, the last snapshot is not kept: %s", path,
            strerror(errno));
    if (file >= 0) {
        unlink(tmp_path);
        close(file);
    }
    return false;
}

void pn__last_words_remove(void) {
    if (path[0]) unlink(path);
}
