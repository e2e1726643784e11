/* Maps a file privately and checks every page of it, in the ways in which programs use such mappings.
 *
 *     mappings make FILE MIB [EXTRA_BYTES]     writes a file whose every word is known
 *     mappings check|write|dontneed|unmap|remap|fork|threads|churn FILE
 *     mappings tail|truncate|shared|errors|locked FILE
 *
 * Prints "ok" and ends with 0, or says what is wrong and ends with 1. Each check runs in random order
 * and then in order, so that with a small budget every page leaves and comes back several times.
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
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 8 };

static const char *path;
static int file;
static size_t bytes, pages;

static void fail(const char *what, size_t page) {
    printf("%s: page %zu\n", what, page);
    exit(1);
}

static void expect(int holds, const char *what) {
    if (!holds) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Half of the words compress, half do not. */
static uint64_t word(size_t page, size_t at) {
    return at % 2 ? mix(page * WORDS + at + 1) : page;
}

static void make(size_t mib, size_t extra) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    expect(fd >= 0, "open");
    uint64_t buffer[WORDS];
    size_t whole = (mib << 20) / PAGE;
    for (size_t page = 0; page <= whole; page++) {
        size_t len = page < whole ? PAGE : extra;
        for (size_t at = 0; at < WORDS; at++) buffer[at] = word(page, at);
        expect(write(fd, buffer, len) == (ssize_t)len, "write");
    }
    close(fd);
}

/* One page as the file has it, but for its first word if that was written. */
static void check_page(const uint64_t *memory, size_t page, uint64_t first) {
    const volatile uint64_t *at = memory + page * WORDS;
    if (at[0] != first) fail("first word", page);
    for (size_t w = 1; w < WORDS; w++)
        if (at[w] != word(page, w)) fail("wrong word", page);
}

static void check_all(const uint64_t *memory, size_t from, size_t to, uint64_t (*first)(size_t)) {
    size_t count = to - from;
    for (size_t n = 0; n < count; n++) {
        size_t page = from + mix(n + 77) % count;
        check_page(memory, page, first(page));
    }
    for (size_t page = from; page < to; page++) check_page(memory, page, first(page));
}

static uint64_t as_in_file(size_t page) { return word(page, 0); }
static uint64_t written(size_t page) { return page % 3 ? word(page, 0) : ~page; }

static void write_some(uint64_t *memory, size_t from, size_t to) {
    for (size_t page = from; page < to; page++)
        if (page % 3 == 0) memory[page * WORDS] = ~page;
}

static uint64_t *map_bytes(size_t len) {
    uint64_t *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    expect(memory != MAP_FAILED, "mmap");
    return memory;
}

static uint64_t *map(void) { return map_bytes(bytes); }

static void run_check(void) { check_all(map(), 0, pages, as_in_file); }

static void run_write(void) {
    uint64_t *memory = map();
    write_some(memory, 0, pages);
    check_all(memory, 0, pages, written);
    check_all(memory, 0, pages, written);
    /* The file is as it was. */
    uint64_t first;
    for (size_t page = 0; page < pages; page += 97) {
        expect(pread(file, &first, 8, page * PAGE) == 8, "pread");
        if (first != word(page, 0)) fail("written to the file", page);
    }
}

static void run_dontneed(void) {
    uint64_t *memory = map();
    write_some(memory, 0, pages);
    check_all(memory, 0, pages, written);
    size_t from = pages / 4, to = pages / 2;
    expect(madvise(memory + from * WORDS, (to - from) * PAGE, MADV_DONTNEED) == 0, "madvise");
    check_all(memory, from, to, as_in_file);
    check_all(memory, 0, from, written);
    check_all(memory, to, pages, written);
}

static void run_unmap(void) {
    uint64_t *memory = map();
    write_some(memory, 0, pages);
    size_t from = pages / 4, to = pages / 2;
    void *hole = memory + from * WORDS;
    expect(munmap(hole, (to - from) * PAGE) == 0, "munmap");
    check_all(memory, 0, from, written);
    /* Other memory in the hole has nothing of the file. */
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    expect(mmap(hole, (to - from) * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == hole, "mmap in a hole");
    for (int pass = 0; pass < 2; pass++) {
        for (size_t page = from; page < to; page++) {
            volatile uint64_t *at = memory + page * WORDS;
            for (size_t w = pass; w < WORDS; w++)
                if (at[w] != 0) fail("not zeros", page);
            at[0] = page;
        }
    }
    check_all(memory, to, pages, written);
    /* Over and over at the same place, the whole file and then memory. */
    munmap(memory, bytes);
    for (int n = 0; n < 50; n++) {
        uint64_t *again = map_bytes(4 << 20);
        check_page(again, n, word(n, 0));
        munmap(again, 4 << 20);
        again = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (again[n * WORDS] != 0) fail("not zeros in new memory", n);
        munmap(again, 4 << 20);
    }
}

static void run_remap(void) {
    uint64_t *memory = map();
    write_some(memory, 0, pages);
    size_t from = pages / 2;
    uint64_t *target = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t len = (pages - from) * PAGE;
    void *moved = mremap(memory + from * WORDS, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    expect(moved == target, "mremap");
    check_all(memory, 0, from, written);
    check_all(target - from * WORDS, from, pages, written);
    /* What it would grow by is in the file. */
    uint64_t *small = map_bytes(bytes / 4);
    uint64_t *large = mremap(small, bytes / 4, bytes / 2, MREMAP_MAYMOVE);
    if (large == MAP_FAILED)
        expect(errno == ENOMEM, "growing");
    else
        check_all(large, 0, pages / 2, as_in_file);
}

static void run_fork(void) {
    uint64_t *memory = map();
    write_some(memory, 0, pages / 2);
    pid_t child = fork();
    expect(child >= 0, "fork");
    if (child == 0) {
        check_all(memory, 0, pages / 2, written);
        check_all(memory, pages / 2, pages, as_in_file);
        write_some(memory, pages / 2, pages);
        check_all(memory, 0, pages, written);
        /* A mapping of the child's own. */
        check_all(map_bytes(8 << 20), 0, (8 << 20) / PAGE, as_in_file);
        _exit(0);
    }
    check_all(memory, pages / 2, pages, as_in_file);
    check_all(memory, 0, pages / 2, written);
    int status;
    expect(waitpid(child, &status, 0) == child, "waitpid");
    if (status != 0) fail("the child's status", status);
}

static uint64_t *shared_memory;

static void *one_thread(void *argument) {
    size_t number = (size_t)argument;
    for (size_t n = 0; n < pages; n++) {
        size_t page = mix(n * THREADS + number) % pages;
        if (page % THREADS == number) shared_memory[page * WORDS] = ~page;
        volatile uint64_t *at = shared_memory + page * WORDS;
        for (size_t w = 1; w < WORDS; w++)
            if (at[w] != word(page, w)) fail("wrong word in a thread", page);
        uint64_t first = at[0];
        if (first != word(page, 0) && first != ~page) fail("first word in a thread", page);
        if (page % THREADS == number && first != ~page) fail("a write is lost", page);
    }
    return NULL;
}

static void run_threads(void) {
    pthread_t threads[THREADS];
    shared_memory = map();
    for (size_t n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, one_thread, (void *)n);
    for (size_t n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
}

/* Mapped and unmapped over and over, files and fresh memory at the same addresses: what is told of one
 * must not be taken for the other. */
static void *one_churner(void *argument) {
    size_t number = (size_t)argument, count = (2 << 20) / PAGE;
    for (size_t n = 0; n < 60; n++) {
        size_t first = mix(n * THREADS + number) % (pages - count);
        uint64_t *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, first * PAGE);
        expect(memory != MAP_FAILED, "mmap of a file");
        for (size_t at = 0; at < count; at += 1 + n % 5) {
            check_page(memory - first * WORDS, first + at, word(first + at, 0));
            memory[at * WORDS] = 0;
        }
        munmap(memory, count * PAGE);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
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
    write_some(memory, 0, pages);
    for (size_t n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, one_churner, (void *)n);
    check_all(memory, 0, pages, written);
    for (size_t n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    check_all(memory, 0, pages, written);
}

/* With mlockall, fresh memory is there before anybody can say what it holds. */
static void run_locked(void) {
    bytes = 8 << 20, pages = bytes / PAGE;
    expect(mlockall(MCL_FUTURE) == 0, "mlockall");
    check_all(map(), 0, pages, as_in_file);
}

static sigjmp_buf escape;

static void on_sigbus(int number) {
    (void)number;
    siglongjmp(escape, 1);
}

static int raises_sigbus(const volatile uint64_t *at) {
    signal(SIGBUS, on_sigbus);
    if (sigsetjmp(escape, 1)) return 1;
    (void)*at;
    return 0;
}

static void run_tail(void) {
    size_t rest = bytes % PAGE;
    expect(rest != 0, "a file with a partial last page is needed");
    uint64_t *memory = map_bytes((pages + 4) * PAGE);
    check_all(memory, 0, pages - 1, as_in_file);
    const unsigned char *last = (const unsigned char *)(memory + (pages - 1) * WORDS);
    for (size_t at = 0; at < PAGE; at++) {
        uint64_t w = word(pages - 1, at / 8);
        unsigned char want = at < rest ? (unsigned char)(w >> (at % 8 * 8)) : 0;
        if (last[at] != want) fail("last page", at);
    }
    for (size_t page = pages; page < pages + 4; page++)
        if (!raises_sigbus(memory + page * WORDS)) fail("no SIGBUS behind the end", page);
}

static void run_truncate(void) {
    uint64_t *memory = map();
    check_all(memory, 0, pages / 4, as_in_file);
    expect(truncate(path, bytes / 2) == 0, "truncate");
    check_all(memory, 0, pages / 2, as_in_file);
    for (size_t page = pages / 2; page < pages; page += 131)
        if (!raises_sigbus(memory + page * WORDS)) fail("no SIGBUS in what was cut off", page);
    /* The kernel gets an error, and does not hang. */
    int sink[2];
    expect(pipe(sink) == 0, "pipe");
    expect(write(sink[1], memory + (pages - 1) * WORDS, 8) < 0, "a read of nothing by the kernel");
    check_all(memory, 0, pages / 2, as_in_file);
}

/* Shared and read-only: what others write to the file shows. */
static void run_shared(void) {
    uint64_t *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    expect(memory != MAP_FAILED, "mmap");
    check_all(memory, 0, pages, as_in_file);
    pid_t child = fork();
    if (child == 0) {
        int out = open(path, O_WRONLY);
        for (size_t page = 0; page < pages; page += 3) {
            uint64_t value = ~page;
            if (pwrite(out, &value, 8, page * PAGE) != 8) _exit(1);
        }
        _exit(0);
    }
    int status;
    expect(waitpid(child, &status, 0) == child && status == 0, "the writer");
    check_all(memory, 0, pages, written);
}

/* Calls that fail, fail as without pleat. */
static void run_errors(void) {
    int rw = PROT_READ | PROT_WRITE;
    expect(mmap(NULL, bytes, rw, MAP_PRIVATE, 999, 0) == MAP_FAILED && errno == EBADF, "EBADF");
    expect(mmap(NULL, bytes, rw, MAP_PRIVATE, file, 1) == MAP_FAILED && errno == EINVAL, "EINVAL");
    int out = open(path, O_WRONLY);
    expect(mmap(NULL, bytes, rw, MAP_PRIVATE, out, 0) == MAP_FAILED && errno == EACCES, "EACCES");
    /* A mapping outlives its descriptor and its file's name. */
    uint64_t *memory = map();
    close(file);
    unlink(path);
    check_all(memory, 0, pages, as_in_file);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"check", run_check},       {"write", run_write},   {"dontneed", run_dontneed},
    {"unmap", run_unmap},       {"remap", run_remap},   {"fork", run_fork},
    {"threads", run_threads},   {"tail", run_tail},     {"truncate", run_truncate},
    {"shared", run_shared},     {"errors", run_errors}, {"churn", run_churn},
    {"locked", run_locked},
};

int main(int count, char **arguments) {
    expect(count >= 3, "usage: mappings MODE FILE");
    path = arguments[2];
    if (strcmp(arguments[1], "make") == 0) {
        make(strtoul(arguments[3], NULL, 10), count > 4 ? strtoul(arguments[4], NULL, 10) : 0);
        return 0;
    }
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
