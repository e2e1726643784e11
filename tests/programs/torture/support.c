/* Ways to fail, and children, threads and files for the tests, each call checked, so that a test reads as
 * the story it tells. */
#include "torture.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

const char *running = "torture";

/* dprintf, not stdio: a failing child must not print its parent's buffered output again. */
static void say(const char *word, const char *format, va_list args) {
    char why[400];
    vsnprintf(why, sizeof why, format, args);
    dprintf(STDOUT_FILENO, "%s %s %s\n", word, running, why);
}

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("FAIL", format, args);
    va_end(args);
    _exit(1);
}

void skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("SKIP", format, args);
    va_end(args);
    _exit(0);
}

int wait_status(pid_t child) {
    int status = 0;
    pid_t got;
    do
        got = waitpid(child, &status, 0);
    while (got < 0 && errno == EINTR);
    must(got == child);
    return status;
}

void reap(pid_t child, const char *who) {
    int status = wait_status(child);
    if (WIFSIGNALED(status))
        fail("%s was killed by signal %d", who, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        fail("%s exited with %d", who, WEXITSTATUS(status));
}

void start_threads(int count, void *(*body)(void *), void *args, size_t arg_size) {
    pthread_t threads[32];
    must(count <= 32);
    for (int i = 0; i < count; i++)
        must(pthread_create(&threads[i], NULL, body, (char *)args + i * arg_size) == 0);
    for (int i = 0; i < count; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

int temporary_file(int extra_flags) {
    const char *dir = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/torture.%d.XXXXXX", dir ? dir : "/tmp", (int)getpid());
    int plain = mkstemp(path);
    must(plain >= 0);
    int fd = extra_flags ? open(path, O_RDWR | extra_flags) : dup(plain);
    int why = errno;
    unlink(path);
    close(plain);
    errno = why;
    return fd;
}

void pwrite_all(int fd, const void *from, size_t len, off_t at) {
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)from + done, len - done, at + done);
        must(n > 0 || (n < 0 && errno == EINTR));
        done += n > 0 ? n : 0;
    }
}

void pread_all(int fd, void *to, size_t len, off_t at) {
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, (char *)to + done, len - done, at + done);
        must(n > 0 || (n < 0 && errno == EINTR));
        done += n > 0 ? n : 0;
    }
}

void write_pattern_file(int fd, size_t pages, uint64_t seed) {
    static _Alignas(4096) unsigned char page[4096];
    for (size_t i = 0; i < pages; i++) {
        pattern(page, seed, i);
        pwrite_all(fd, page, PAGE, i * PAGE);
    }
}

void expect_file(int fd, size_t pages, uint64_t seed, const char *when) {
    static _Alignas(4096) unsigned char page[4096];
    for (size_t i = 0; i < pages; i++) {
        pread_all(fd, page, PAGE, i * PAGE);
        expect_pages(page, i, 1, seed, when);
    }
}

static void *push(void *arg) {
    struct pusher *p = arg;
    while (!__atomic_load_n(&p->stop, __ATOMIC_RELAXED))
        push_out(p->region);
    return NULL;
}

void start_pusher(struct pusher *p, struct region r) {
    p->region = r;
    p->stop = 0;
    must(pthread_create(&p->thread, NULL, push, p) == 0);
}

void stop_pusher(struct pusher *p) {
    __atomic_store_n(&p->stop, 1, __ATOMIC_RELAXED);
    must(pthread_join(p->thread, NULL) == 0);
}
