/* torture TEST [MB]: one self-checking test, on a region of MB megabytes (64 unless told).
 * Prints `ok TEST`, `SKIP TEST why` or `FAIL TEST why`; the status is 1 after a FAIL.
 *
 *   torture list                      the names of the tests
 *   torture all [MB]                  every test, each in a process of its own
 *   torture walk MB PASSES DATA       fills and checks a region PASSES times (0: for ever),
 *                                     printing `pass N`; DATA is mixed, random or compressible
 *   torture shuffle MB SECONDS        checks and writes anew pages of a region, at random, some next
 *                                     to each other; every other page is incompressible
 *   torture twins MB                  a parent and its forked child both walk for ever
 *   torture burn MILLIONS             CPU-bound work that needs little memory
 *   torture exit CODE | kill SIGNAL   ends like that, after touching memory */
#include "torture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    void (*run)(size_t pages);
} tests[] = {
    {"read", test_read},         {"write", test_write},       {"socket", test_socket},
    {"odirect", test_odirect},   {"iouring", test_iouring},   {"fork", test_fork},
    {"forkexec", test_forkexec}, {"exitstatus", test_exitstatus},
    {"mremap", test_mremap},     {"munmap", test_munmap},     {"madvise", test_madvise},
    {"mprotect", test_mprotect}, {"closefds", test_closefds}, {"sigsegv", test_sigsegv},
    {"sigalrm", test_sigalrm},   {"threads", test_threads},   {"heap", test_heap},
    {"stackdeep", test_stackdeep}, {"shared", test_shared},   {"mlock", test_mlock},
    {"prefault", test_prefault}, {"populate", test_populate}, {"upheaval", test_upheaval},
    {"dropback", test_dropback},
};
#define TESTS (sizeof tests / sizeof tests[0])

static int run_in_child(const char *name, const char *megabytes) {
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "torture", name, megabytes, (char *)NULL);
        _exit(127);
    }
    int status = wait_status(child);
    if (WIFSIGNALED(status))
        dprintf(STDOUT_FILENO, "FAIL %s killed by signal %d\n", name, WTERMSIG(status));
    return status != 0;
}

static int run_all(const char *megabytes) {
    int failed = 0;
    for (size_t i = 0; i < TESTS; i++)
        failed += run_in_child(tests[i].name, megabytes);
    return failed != 0;
}

static int list(void) {
    for (size_t i = 0; i < TESTS; i++)
        puts(tests[i].name);
    return 0;
}

static int run_test(const char *name, size_t megabytes) {
    for (size_t i = 0; i < TESTS; i++) {
        if (strcmp(tests[i].name, name) != 0)
            continue;
        running = name;
        tests[i].run(megabytes * MB / PAGE);
        dprintf(STDOUT_FILENO, "ok %s\n", name);
        return 0;
    }
    fprintf(stderr, "torture: no test named %s; try: torture list\n", name);
    return 2;
}

static int walk(size_t megabytes, unsigned long passes, const char *data) {
    running = "walk";
    pattern_data = strcmp(data, "random") == 0         ? DATA_RANDOM
                   : strcmp(data, "compressible") == 0 ? DATA_COMPRESSIBLE
                                                       : DATA_MIXED;
    struct region r = filled_region(megabytes * MB / PAGE, 1);
    for (unsigned long pass = 1; passes == 0 || pass <= passes; pass++) {
        expect(r, pass, "walking");
        fill(r, pass + 1);
        dprintf(STDOUT_FILENO, "pass %lu\n", pass);
    }
    dprintf(STDOUT_FILENO, "ok walk\n");
    return 0;
}

/* Page `number` as it is after so many times of writing. */
static void shuffle_page(struct region r, size_t number, uint32_t *times) {
    pattern_data = number % 2 == 0 ? DATA_RANDOM : DATA_MIXED;
    expect_pages(page_at(r, number), number, 1, times[number], "shuffling");
    fill_pages(page_at(r, number), number, 1, ++times[number]);
}

/* What is away of such a region becomes void in no order, so that the swap file fills with holes. */
static int shuffle(size_t megabytes, time_t seconds) {
    running = "shuffle";
    const time_t end = time(NULL) + seconds;
    struct region r = map_region(megabytes * MB / PAGE);
    uint32_t *times = calloc(r.pages, sizeof *times);
    must(times != NULL);
    for (size_t i = 0; i < r.pages; i++) {
        pattern_data = i % 2 == 0 ? DATA_RANDOM : DATA_MIXED;
        fill_pages(page_at(r, i), i, 1, 0);
    }
    uint64_t state = megabytes;
    while (time(NULL) < end) {
        const uint64_t h = next_random(&state);
        const size_t run = h >> 62 == 0 ? 1 + (h >> 32) % 16 : 1;
        for (size_t i = 0, at = h % r.pages; i < run && at + i < r.pages; i++)
            shuffle_page(r, at + i, times);
    }
    for (size_t i = 0; i < r.pages; i++)
        shuffle_page(r, i, times);
    dprintf(STDOUT_FILENO, "ok shuffle\n");
    return 0;
}

/* Both share the pages of the moment of fork, and each goes on alone. */
static int twins(size_t megabytes) {
    struct region r = filled_region(megabytes * MB / PAGE, 1);
    pid_t child = fork();
    must(child >= 0);
    running = child == 0 ? "child" : "parent";
    for (unsigned long pass = 1;; pass++) {
        expect(r, child == 0 && pass > 1 ? pass + 1000 : pass, "walking");
        fill(r, child == 0 ? pass + 1001 : pass + 1);
        dprintf(STDOUT_FILENO, "%s pass %lu\n", running, pass);
    }
}

static int burn(unsigned long millions) {
    static uint64_t table[1 << 15];
    uint64_t state = 1, sum = 0;
    for (unsigned long i = 0; i < millions * 1000000; i++) {
        state = mix(state);
        table[state >> 49] += state;
        sum ^= table[(state >> 30) & 0x7fff];
    }
    printf("burn %016llx\n", (unsigned long long)sum);
    return 0;
}

static int end_like(const char *how, int number) {
    struct region r = filled_region(4 * MB / PAGE, 1);
    expect(r, 1, "before the end");
    if (strcmp(how, "exit") == 0)
        exit(number);
    kill(getpid(), number);
    return 99; /* a signal that does not end us */
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const char *first = argc > 2 ? argv[2] : "64";
    if (argc == 5 && strcmp(what, "walk") == 0)
        return walk(strtoul(first, NULL, 10), strtoul(argv[3], NULL, 10), argv[4]);
    if (argc == 4 && strcmp(what, "shuffle") == 0)
        return shuffle(strtoul(first, NULL, 10), atol(argv[3]));
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: torture TEST|all [MB], or torture list\n");
        return 2;
    }
    if (strcmp(what, "list") == 0)
        return list();
    if (strcmp(what, "all") == 0)
        return run_all(first);
    if (strcmp(what, "twins") == 0)
        return twins(strtoul(first, NULL, 10));
    if (strcmp(what, "burn") == 0)
        return burn(strtoul(first, NULL, 10));
    if (strcmp(what, "exit") == 0 || strcmp(what, "kill") == 0)
        return end_like(what, atoi(first));
    return run_test(what, strtoul(first, NULL, 10));
}
