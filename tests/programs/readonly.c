/* Maps a file shared, to read it only, and checks every page of it while the mapping is cut, moved,
 * inherited, and the file written to.
 *
 *     readonly MODE FILE     FILE as made by `mappings make`
 *
 * Prints "ok" and ends with 0, or says what is wrong and ends with 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 4, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS };

static const char *path;
static int file;
static size_t bytes, pages;

static void fail(const char *what, size_t page) {
    printf("FAIL %s: page %zu\n", what, page);
    fflush(stdout);
    _exit(1);
}

static void expect(int holds, const char *what) {
    if (holds) return;
    printf("FAIL %s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* As in mappings.c. */
static uint64_t word(size_t page, size_t at) { return at % 2 ? mix(page * WORDS + at + 1) : page; }
static uint64_t as_made(size_t page) { return word(page, 0); }
/* What writers put into the first word. */
static uint64_t fresh(size_t page) { return ~page; }

static void check_rest(const uint64_t *memory, size_t page) {
    const volatile uint64_t *at = memory + page * WORDS;
    size_t words = page + 1 < pages || bytes % PAGE == 0 ? WORDS : bytes % PAGE / 8;
    for (size_t w = 1; w < words; w++)
        if (at[w] != word(page, w)) fail("wrong word", page);
}

static void check_page(const uint64_t *memory, size_t page, uint64_t first) {
    const volatile uint64_t *at = memory + page * WORDS;
    if (at[0] != first) fail("first word", page);
    check_rest(memory, page);
}

static void check_all(const uint64_t *memory, size_t from, size_t to, uint64_t (*first)(size_t)) {
    size_t count = to - from;
    for (size_t n = 0; n < count; n++) {
        size_t page = from + mix(n + 77) % count;
        check_page(memory, page, first(page));
    }
    for (size_t page = from; page < to; page++) check_page(memory, page, first(page));
}

static uint64_t *map_bytes(size_t len, size_t offset) {
    uint64_t *memory = mmap(NULL, len, PROT_READ, MAP_SHARED, file, offset);
    expect(memory != MAP_FAILED, "mmap");
    return memory;
}

static uint64_t *map(void) { return map_bytes(bytes, 0); }

static void write_pages(size_t from, size_t to, size_t step) {
    int out = open(path, O_WRONLY);
    expect(out >= 0, "open for writing");
    for (size_t page = from; page < to; page += step) {
        uint64_t value = fresh(page);
        expect(pwrite(out, &value, 8, page * PAGE) == 8, "pwrite");
    }
    close(out);
}

static void await(pid_t child) {
    int status;
    expect(waitpid(child, &status, 0) == child, "waitpid");
    if (status != 0) fail("the child's status", status);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static sigjmp_buf escape;
static void on_signal(int number) { siglongjmp(escape, number); }

static int signal_of(const volatile uint64_t *at) {
    signal(SIGBUS, on_signal);
    signal(SIGSEGV, on_signal);
    int number = sigsetjmp(escape, 1);
    if (number == 0) (void)*at;
    return number;
}

static void run_check(void) { check_all(map(), 0, pages, as_made); }

/* Several processes, each with a mapping of its own. */
static void run_processes(void) {
    pid_t children[THREADS];
    for (size_t n = 0; n < THREADS; n++) {
        children[n] = fork();
        expect(children[n] >= 0, "fork");
        if (children[n] == 0) {
            check_all(map(), 0, pages, as_made);
            _exit(0);
        }
    }
    for (size_t n = 0; n < THREADS; n++) await(children[n]);
}

static void run_fork(void) {
    uint64_t *memory = map();
    check_all(memory, 0, pages / 2, as_made);
    pid_t child = fork();
    expect(child >= 0, "fork");
    if (child == 0) {
        check_all(memory, 0, pages, as_made);
        munmap(memory, bytes / 2);
        check_all(memory, pages / 2, pages, as_made);
        _exit(0);
    }
    check_all(memory, 0, pages, as_made);
    await(child);
    check_all(memory, 0, pages, as_made);
}

static void run_cut(void) {
    uint64_t *memory = map();
    check_all(memory, 0, pages, as_made);
    size_t from = pages / 4, to = pages / 2;
    void *hole = memory + from * WORDS;
    expect(munmap(hole, (to - from) * PAGE) == 0, "munmap");
    uint64_t *other = mmap(hole, (to - from) * PAGE, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0);
    expect(other == hole, "mmap in a hole");
    for (size_t at = 0; at < (to - from) * WORDS; at += 64) {
        if (other[at] != 0) fail("not zeros", at / WORDS);
        other[at] = at;
    }
    check_all(memory, 0, from, as_made);
    check_all(memory, to, pages, as_made);
    /* Moved, and cut short. */
    size_t len = (pages - to) * PAGE;
    uint64_t *target = mmap(NULL, len, PROT_NONE, FLAGS, -1, 0);
    void *moved = mremap(memory + to * WORDS, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    expect(moved == target, "mremap");
    check_all(target - to * WORDS, to, pages, as_made);
    expect(mremap(memory, from * PAGE, from / 2 * PAGE, 0) == memory, "shrinking");
    check_all(memory, 0, from / 2, as_made);
    /* The file comes back to all that is left, and to nothing else. */
    write_pages(0, pages, 1);
    check_all(memory, 0, from / 2, fresh);
    check_all(target - to * WORDS, to, pages, fresh);
    for (size_t at = 0; at < (to - from) * WORDS; at += 64)
        if (other[at] != at) fail("memory has changed", at / WORDS);
    expect(signal_of(memory + from / 2 * WORDS) == SIGSEGV, "what was cut off is there");
}

/* By a child, as a database does it. */
static void run_written(void) {
    uint64_t *memory = map();
    check_all(memory, 0, pages, as_made);
    pid_t child = fork();
    if (child == 0) {
        write_pages(0, pages, 1);
        check_all(memory, 0, pages, fresh);
        _exit(0);
    }
    await(child);
    check_all(memory, 0, pages, fresh);
}

/* By the same process, with the file open for writing ever after. */
static void run_written_self(void) {
    uint64_t *memory = map();
    check_all(memory, 0, pages, as_made);
    double start = now();
    int out = open(path, O_RDWR);
    expect(out >= 0, "open");
    if (now() - start > 5) fail("opening took too long", 0);
    for (size_t n = 0; n < pages; n++) {
        size_t page = mix(n) % pages;
        uint64_t value = mix(n * 3);
        expect(pwrite(out, &value, 8, page * PAGE) == 8, "pwrite");
        check_page(memory, page, value);
    }
}

/* Threads read all the time; from when a page was written on, nobody sees the page of before. */
static _Atomic size_t *written_to;
static uint64_t *shared_memory;

static void *one_reader(void *argument) {
    uint64_t seed = (size_t)argument;
    while (*written_to < pages) {
        size_t page = mix(++seed * 977) % pages;
        size_t before = *written_to;
        uint64_t first = *(volatile uint64_t *)(shared_memory + page * WORDS);
        if (first != fresh(page) && (page < before || first != as_made(page))) fail("an old page", page);
        check_rest(shared_memory, page);
    }
    return NULL;
}

static void run_race(void) {
    written_to = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_memory = map();
    check_all(shared_memory, 0, pages, as_made);
    pthread_t threads[THREADS];
    pid_t child = fork();
    expect(child >= 0, "fork");
    for (size_t n = 0; n < THREADS; n++)
        pthread_create(&threads[n], NULL, one_reader, (void *)(n << 20));
    if (child == 0) {
        usleep(300000);
        int out = open(path, O_WRONLY);
        expect(out >= 0, "open");
        for (size_t page = 0; page < pages; page++) {
            uint64_t value = fresh(page);
            expect(pwrite(out, &value, 8, page * PAGE) == 8, "pwrite");
            *written_to = page + 1;
        }
        for (size_t n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
        _exit(0);
    }
    for (size_t n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    await(child);
    check_all(shared_memory, 0, pages, fresh);
}

/* A stopped process keeps no writer waiting, and sees nothing old when it goes on. */
static void run_stopped(void) {
    pid_t child = fork();
    if (child == 0) {
        uint64_t *memory = map();
        check_all(memory, 0, pages, as_made);
        raise(SIGSTOP);
        check_all(memory, 0, pages, fresh);
        _exit(0);
    }
    int status;
    expect(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "a stopped child");
    double start = now();
    write_pages(0, pages, 1);
    if (now() - start > 10) fail("a stopped process kept the writer waiting", 0);
    kill(child, SIGCONT);
    await(child);
}

static void run_truncated(void) {
    uint64_t *memory = map();
    check_all(memory, 0, pages, as_made);
    expect(truncate(path, bytes / 2) == 0, "truncate");
    check_all(memory, 0, pages / 2, as_made);
    for (size_t page = pages / 2; page < pages; page += 131)
        if (signal_of(memory + page * WORDS) != SIGBUS) fail("no SIGBUS in what was cut off", page);
}

static void run_tail(void) {
    expect(bytes % PAGE != 0 && bytes % 8 == 0, "a file with a partial last page");
    uint64_t *memory = map_bytes((pages + 4) * PAGE, 0);
    check_all(memory, 0, pages, as_made);
    const unsigned char *last = (const unsigned char *)(memory + (pages - 1) * WORDS);
    for (size_t at = bytes % PAGE; at < PAGE; at++)
        if (last[at] != 0) fail("not zeros behind the end", at);
    for (size_t page = pages; page < pages + 4; page++)
        if (signal_of(memory + page * WORDS) != SIGBUS) fail("no SIGBUS behind the end", page);
}

static void run_protected(void) {
    uint64_t *memory = map();
    check_all(memory, 0, pages, as_made);
    errno = 0;
    expect(mprotect(memory, PAGE, PROT_READ | PROT_WRITE) != 0 && errno == EACCES, "writable");
    size_t from = pages / 4, to = pages / 2;
    expect(mprotect(memory + from * WORDS, (to - from) * PAGE, PROT_NONE) == 0, "mprotect");
    if (signal_of(memory + from * WORDS) != SIGSEGV) fail("no SIGSEGV", from);
    check_all(memory, to, pages, as_made);
    write_pages(0, pages, 1);
    if (signal_of(memory + from * WORDS) != SIGSEGV) fail("no SIGSEGV afterwards", from);
    check_all(memory, 0, from, fresh);
    check_all(memory, to, pages, fresh);
    expect(mprotect(memory + from * WORDS, (to - from) * PAGE, PROT_READ) == 0, "mprotect");
    check_all(memory, from, to, fresh);
    errno = 0;
    expect(mprotect(memory, PAGE, PROT_READ | PROT_WRITE) != 0 && errno == EACCES, "writable");
}

static void run_advice(void) {
    uint64_t *memory = map();
    size_t len = bytes / 4;
    int kinds[] = {MADV_DONTNEED, MADV_REMOVE, MADV_WILLNEED, MADV_HUGEPAGE, MADV_RANDOM};
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        check_all(memory, 0, pages / 2, as_made);
        madvise(memory, len, kinds[n]);
    }
    expect(mlock(memory, 1 << 20) == 0, "mlock");
    expect(msync(memory, len, MS_SYNC) == 0, "msync");
    check_all(memory, 0, pages, as_made);
}

static void run_locked(void) {
    expect(mlockall(MCL_FUTURE) == 0, "mlockall");
    bytes = 8 << 20, pages = bytes / PAGE;
    check_all(map(), 0, pages, as_made);
}

/* Mapped and unmapped all the time, beside fresh memory at the same addresses, while others open the
 * file for writing: what is mapped again must be what is still there. */
static _Atomic int is_over;

static void *one_churner(void *argument) {
    size_t number = (size_t)argument, count = (2 << 20) / PAGE;
    for (size_t n = 0; !is_over; n++) {
        size_t first = mix(n * THREADS + number) % (pages - count);
        uint64_t *memory = map_bytes(count * PAGE, first * PAGE);
        for (size_t at = 0; at < count; at += 1 + n % 5)
            check_page(memory - first * WORDS, first + at, as_made(first + at));
        munmap(memory, count / 2 * PAGE);
        munmap(memory + count / 2 * WORDS, (count - count / 2) * PAGE);
        memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
        expect(memory != MAP_FAILED, "mmap");
        for (size_t at = 0; at < count * WORDS; at += 128) {
            if (memory[at] != 0) fail("not zeros in fresh memory", at / WORDS);
            memory[at] = at;
        }
        for (size_t at = 0; at < count * WORDS; at += 128)
            if (memory[at] != at) fail("memory has changed", at / WORDS);
        munmap(memory, count * PAGE);
    }
    return NULL;
}

static void run_churn(void) {
    pthread_t threads[THREADS];
    uint64_t *memory = map();
    check_all(memory, 0, pages, as_made);
    for (size_t n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, one_churner, (void *)n);
    for (size_t n = 0; n < 60; n++) {
        int out = open(path, O_RDWR);
        expect(out >= 0, "open");
        uint64_t value = as_made(n);
        expect(pwrite(out, &value, 8, n * PAGE) == 8, "pwrite");
        close(out);
        usleep(100000);
    }
    is_over = 1;
    for (size_t n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    check_all(memory, 0, pages, as_made);
}

/* Growing fails by the C library; past it, what pleat cannot follow must at least not be zeros. */
static void run_grown(void) {
    uint64_t *memory = map_bytes(bytes / 2, 0);
    check_all(memory, 0, pages / 2, as_made);
    expect(mremap(memory, 0, bytes / 2, MREMAP_MAYMOVE) == MAP_FAILED, "mapped twice");
    expect(mremap(memory, bytes / 2, bytes, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM, "grown");
    long grown = syscall(SYS_mremap, memory, bytes / 2, bytes, MREMAP_MAYMOVE, 0);
    expect(grown != -1, "a raw mremap");
    puts("grown");
    fflush(stdout);
    check_all((uint64_t *)grown, 0, pages, as_made);
}

static void run_forever(void) {
    uint64_t *memory = map();
    for (size_t pass = 1;; pass++) {
        check_all(memory, 0, pages, as_made);
        printf("pass %zu\n", pass);
        fflush(stdout);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"check", run_check},     {"processes", run_processes}, {"fork", run_fork},
    {"cut", run_cut},         {"written", run_written},     {"written-self", run_written_self},
    {"race", run_race},       {"stopped", run_stopped},     {"truncated", run_truncated},
    {"tail", run_tail},       {"protected", run_protected}, {"advice", run_advice},
    {"locked", run_locked},   {"churn", run_churn},         {"forever", run_forever},
    {"grown", run_grown},
};

int main(int count, char **arguments) {
    expect(count >= 3, "usage: readonly MODE FILE");
    path = arguments[2];
    file = open(path, O_RDONLY);
    struct stat status;
    expect(file >= 0 && fstat(file, &status) == 0, path);
    bytes = status.st_size;
    pages = (bytes + PAGE - 1) / PAGE;
    for (size_t n = 0; n < sizeof modes / sizeof *modes; n++)
        if (strcmp(arguments[1], modes[n].name) == 0) {
            modes[n].run();
            puts("ok");
            return 0;
        }
    expect(0, "no such mode");
}
