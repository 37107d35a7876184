/* Preloaded into a process under test. The file named by CAMPAIGN_SHIM holds three int64 in host order, which the nemesis
 * changes while the process runs:
 *   [0] microseconds that each fsync and fdatasync takes longer
 *   [1] errno that they fail with, 0 for none
 *   [2] nanoseconds added to the wall clock (CLOCK_REALTIME); the steady clocks stay as they are
 * CAMPAIGN_BOOT_ID names the file that is read instead of the kernel's boot id, so that a power cut is another boot.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *control;
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void open_control(void) {
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CAMPAIGN_SHIM");
    int handle = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (handle < 0) return;
    void *map = mmap(0, 24, PROT_READ, MAP_SHARED, handle, 0);
    close(handle);
    if (map != MAP_FAILED) control = map;
}

static int slow_or_failing(int handle, int (*real)(int)) {
    if (control && control[0]) usleep((useconds_t)control[0]);
    if (control && control[1]) { errno = (int)control[1]; return -1; }
    return real(handle);
}

int fsync(int handle) { return slow_or_failing(handle, real_fsync); }
int fdatasync(int handle) { return slow_or_failing(handle, real_fdatasync); }

int clock_gettime(clockid_t which, struct timespec *out) {
    if (!real_clock_gettime) real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(which, out);
    if (!result && control && control[2] && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + control[2];
        out->tv_sec = nanos / 1000000000;
        out->tv_nsec = nanos % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

static const char *redirected(const char *path) {
    const char *boot = getenv("CAMPAIGN_BOOT_ID");
    return boot && path && !strcmp(path, "/proc/sys/kernel/random/boot_id") ? boot : path;
}

#define OPEN_LIKE(name)                                                  \
    int name(const char *path, int flags, ...) {                         \
        static int (*real)(const char *, int, ...);                      \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list rest;                                                    \
        va_start(rest, flags);                                           \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                    \
        return real(redirected(path), flags, mode);                      \
    }
OPEN_LIKE(open)
OPEN_LIKE(open64)
