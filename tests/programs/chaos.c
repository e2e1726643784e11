/* Work for tests/chaos.py: processes with threads that fork, map, give up and protect memory, and write files, and know
 * every byte that they ought to read.
 *
 *     chaos SECONDS MIB SEED DIR
 *
 * The first process has CHILDREN others by fork, and another one for each that is killed. Each has THREADS threads with a
 * region of their own, MIB in all, and a file in DIR. A thread chooses a page at random and checks it, and writes it anew,
 * gives it up, maps it anew, protects it, writes it to its file and reads it from there, or forks a child that checks pages. What is
 * wrong is told on stderr in a line with WRONG, and ends the whole with status 9. At the end: "ok chaos N operations".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, CHILDREN = 3, THREADS = 2, FILE_PAGES = 256, WRONG_STATUS = 9 };

static double seconds;
static size_t mib;
static uint64_t seed;
static const char *dir;
static struct timespec began;

struct part {
    uint64_t random;
    uint64_t *memory;
    uint32_t *version; /* of each page; 0: zeros */
    size_t pages;
    uint32_t in_file[FILE_PAGES]; /* version of each page of the file; 0: not written */
    int file;
    int number;
    uint64_t operations;
};

static double elapsed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
}

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void fatal(const char *what)
{
    perror(what);
    exit(1);
}

/* The word of a page of that version: every other version is one that nothing compresses. */
static uint64_t first_word(const struct part *part, size_t page, uint32_t version)
{
    return (seed * 31 + (uint64_t)part->number) * 0x9E3779B97F4A7C15u ^ (page << 32) ^ version ^ 0x5DEECE66Du;
}

static void fill(const struct part *part, uint64_t *at, size_t page, uint32_t version)
{
    uint64_t word = first_word(part, page, version);
    for (int nth = 0; nth < WORDS; nth++)
        at[nth] = version % 2 ? word : next(&word);
}

static void check(const struct part *part, const uint64_t *at, size_t page, uint32_t version, const char *where)
{
    uint64_t word = first_word(part, page, version);
    for (int nth = 0; nth < WORDS; nth++) {
        uint64_t wanted = version == 0 ? 0 : version % 2 ? word : next(&word);
        uint64_t found = at[nth];
        if (found == wanted)
            continue;
        char line[256];
        int length = snprintf(line, sizeof line, "WRONG: process %d, part %d, page %zu, version %u, word %d in %s: %016lx instead of %016lx\n",
                              getpid(), part->number, page, version, nth, where, (unsigned long)found, (unsigned long)wanted);
        if (write(2, line, (size_t)length) != length)
            abort();
        _exit(WRONG_STATUS);
    }
}

static uint64_t *at(const struct part *part, size_t page) { return part->memory + page * WORDS; }

static void check_own(const struct part *part, size_t page)
{
    check(part, at(part, page), page, part->version[page], "memory");
}

/* A child has what its parent had, whatever becomes of both. */
static void fork_one(struct part *part)
{
    pid_t child = fork();
    if (child < 0)
        return; /* no memory: the next time */
    if (child == 0) {
        for (int nth = 0; nth < 60; nth++) {
            size_t page = next(&part->random) % part->pages;
            check_own(part, page);
            part->version[page]++;
            fill(part, at(part, page), page, part->version[page]);
        }
        _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == WRONG_STATUS)
        _exit(WRONG_STATUS);
}

static void use_file(struct part *part, size_t page)
{
    size_t block = page % FILE_PAGES;
    off_t place = (off_t)(block * PAGE);
    static __thread uint64_t buffer[WORDS];
    if (part->in_file[block]) {
        if (pread(part->file, buffer, PAGE, place) != PAGE)
            fatal("read");
        check(part, buffer, block, part->in_file[block], "file");
    }
    /* A page of its own kind, written from memory that may be away. */
    uint32_t version = part->in_file[block] + 1;
    fill(part, at(part, page), block, version);
    part->in_file[block] = pwrite(part->file, at(part, page), PAGE, place) == PAGE ? version : 0;
    part->version[page]++;
    fill(part, at(part, page), page, part->version[page]);
}

static void operate(struct part *part)
{
    size_t page = next(&part->random) % part->pages;
    size_t run = 1 + next(&part->random) % 16;
    if (page + run > part->pages)
        run = part->pages - page;
    unsigned kind = next(&part->random) % 1000;
    check_own(part, page);
    if (kind < 10) {
        if (madvise(at(part, page), run * PAGE, MADV_DONTNEED))
            fatal("madvise");
        memset(part->version + page, 0, run * sizeof *part->version);
    } else if (kind < 16) {
        if (mmap(at(part, page), run * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            fatal("mmap");
        memset(part->version + page, 0, run * sizeof *part->version);
    } else if (kind < 22) {
        if (mprotect(at(part, page), run * PAGE, PROT_READ))
            fatal("mprotect");
        check_own(part, page);
        if (mprotect(at(part, page), run * PAGE, PROT_READ | PROT_WRITE))
            fatal("mprotect");
    } else if (kind < 40) {
        use_file(part, page);
    } else if (kind < 42) {
        fork_one(part);
    } else if (kind < 800) {
        part->version[page]++;
        fill(part, at(part, page), page, part->version[page]);
    }
    part->operations++;
}

static void *work(void *argument)
{
    struct part *part = argument;
    while (elapsed() < seconds)
        operate(part);
    for (size_t page = 0; page < part->pages; page++)
        check_own(part, page);
    return NULL;
}

static void begin(struct part *part, int number)
{
    char path[4096];
    part->number = number;
    part->random = (seed + 1) * 0x9E3779B97F4A7C15u + (uint64_t)number * 7919 + 1;
    part->pages = mib * 256 / (CHILDREN * THREADS);
    part->memory = mmap(NULL, part->pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    part->version = calloc(part->pages, sizeof *part->version);
    if (part->memory == MAP_FAILED || !part->version)
        fatal("memory");
    snprintf(path, sizeof path, "%s/part-%d-%d", dir, getpid(), number);
    part->file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (part->file < 0 || unlink(path))
        fatal(path);
}

static uint64_t be_child(int number)
{
    static struct part parts[THREADS];
    pthread_t threads[THREADS];
    /* An orphan's work is nobody's. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    uint64_t operations = 0;
    for (int nth = 0; nth < THREADS; nth++) {
        begin(&parts[nth], number * THREADS + nth);
        if (pthread_create(&threads[nth], NULL, work, &parts[nth]))
            fatal("pthread_create");
    }
    for (int nth = 0; nth < THREADS; nth++) {
        pthread_join(threads[nth], NULL);
        operations += parts[nth].operations;
    }
    return operations;
}

static pid_t start(int number, uint64_t *operations)
{
    pid_t child = fork();
    if (child == 0) {
        __atomic_add_fetch(operations, be_child(number), __ATOMIC_RELAXED);
        _exit(0);
    }
    if (child < 0)
        fatal("fork");
    return child;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: chaos SECONDS MIB SEED DIR\n");
        return 2;
    }
    seconds = atof(argv[1]);
    mib = strtoul(argv[2], NULL, 10);
    seed = strtoul(argv[3], NULL, 10);
    dir = argv[4];
    clock_gettime(CLOCK_MONOTONIC, &began);
    uint64_t *operations = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (operations == MAP_FAILED)
        fatal("mmap");
    printf("begun\n");
    fflush(stdout);
    pid_t children[CHILDREN];
    int left = CHILDREN, numbers = CHILDREN;
    for (int nth = 0; nth < CHILDREN; nth++)
        children[nth] = start(nth, operations);
    while (left > 0) {
        int status;
        pid_t ended = wait(&status);
        if (ended < 0)
            fatal("wait");
        if (WIFEXITED(status) && WEXITSTATUS(status)) {
            fprintf(stderr, "a child has ended with status %d\n", WEXITSTATUS(status));
            return WEXITSTATUS(status);
        }
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
            fprintf(stderr, "a child has ended with signal %d\n", WTERMSIG(status));
            return 1;
        }
        int is_killed = WIFSIGNALED(status);
        for (int nth = 0; nth < CHILDREN; nth++) {
            if (children[nth] != ended)
                continue;
            if (is_killed && elapsed() < seconds)
                children[nth] = start(numbers++, operations);
            else
                left--;
        }
    }
    printf("ok chaos %lu operations\n", (unsigned long)*operations);
    return 0;
}
