/* Makes the n-th call that changes files below a directory fail, or kills the process at it.
 *
 * Loaded with LD_PRELOAD. FAULT_BELOW: the directory, without a slash at its end. FAULT_AT: the number of the call, from 1;
 * 0 for none. FAULT_KIND: "kill" (half of the bytes are written, then SIGKILL), "eio" (this call fails), "enospc" (this
 * write and all later ones fail, as on a full disk). FAULT_COUNT: the file that receives the number of calls when the
 * process exits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { NONE, KILL, EIO_ONCE, FULL };

static char below[PATH_MAX];
static size_t below_bytes;
static long at;
static enum kind kind;
static atomic_long calls;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void start(void) {
    const char *directory = getenv("FAULT_BELOW"), *number = getenv("FAULT_AT"), *what = getenv("FAULT_KIND");
    if (directory == NULL || strlen(directory) >= sizeof below) return;
    strcpy(below, directory);
    below_bytes = strlen(below);
    at = number ? atol(number) : 0;
    kind = what == NULL ? NONE : !strcmp(what, "kill") ? KILL : !strcmp(what, "eio") ? EIO_ONCE : FULL;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAULT_COUNT");
    FILE *file = path && calls > 0 ? fopen(path, "w") : NULL;
    if (file == NULL) return;
    fprintf(file, "%ld\n", (long)calls);
    fclose(file);
}

static int is_below(const char *path) {
    return below_bytes > 0 && !strncmp(path, below, below_bytes) && (path[below_bytes] == '/' || path[below_bytes] == 0);
}

static int fd_is_below(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    if (bytes < 0) return 0;
    path[bytes] = 0;
    return is_below(path);
}

/* Reports whether this call must fail. */
static int strikes(int takes_space) {
    int before = errno;
    long call = atomic_fetch_add(&calls, 1) + 1;
    errno = before;
    if (at == 0 || kind == NONE || call < at) return 0;
    return kind == FULL ? takes_space : call == at;
}

static int fail(void) {
    if (kind == KILL) kill(getpid(), SIGKILL);
    errno = kind == FULL ? ENOSPC : EIO;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    if (fd_is_below(fd) && strikes(1)) {
        (void)!REAL(write)(fd, bytes, count / 2);
        return fail();
    }
    return REAL(write)(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    if (fd_is_below(fd) && strikes(1)) return fail();
    return REAL(writev)(fd, pieces, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    if (fd_is_below(fd) && strikes(1)) {
        (void)!REAL(pwrite)(fd, bytes, count / 2, offset);
        return fail();
    }
    return REAL(pwrite)(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    if (fd_is_below(fd) && strikes(1)) {
        (void)!REAL(pwrite64)(fd, bytes, count / 2, offset);
        return fail();
    }
    return REAL(pwrite64)(fd, bytes, count, offset);
}

int ftruncate64(int fd, off64_t bytes) {
    if (fd_is_below(fd) && strikes(0)) return fail();
    return REAL(ftruncate64)(fd, bytes);
}

int fsync(int fd) {
    if (fd_is_below(fd) && strikes(0)) return fail();
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    if (fd_is_below(fd) && strikes(0)) return fail();
    return REAL(fdatasync)(fd);
}

int rename(const char *from, const char *to) {
    if (is_below(to) && strikes(0)) return fail();
    return REAL(rename)(from, to);
}
