/* calls TEST: one self-checking test of system calls on pages that are away. Prints `ok TEST`, `SKIP TEST why` or
 * `FAIL TEST why`; the status is 1 after a FAIL.
 *
 *   calls list                        the names of the tests
 *   calls peek PID ADDRESS            reads memory of another process, for the test `vmreadv` */
#include "calls.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void peek(pid_t process, const unsigned char *at); /* transfers.c */

#define PRESSED (48 * MB / PAGE)

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
#define ENTRY(name) {#name, call_##name},
    CALLS(ENTRY)
#undef ENTRY
};
#define TESTS (sizeof tests / sizeof tests[0])

static struct region pressed;

void press(void) {
    static uint64_t round;
    if (!pressed.base)
        pressed = map_region(PRESSED);
    fill(pressed, 1000 + round++);
    usleep(10000); /* what is chosen now leaves a little later */
}

void relieve(void) {
    unmap_region(pressed);
    pressed = (struct region){0};
}

struct region away(uint64_t seed) {
    struct region r = filled_region(PAGES, seed);
    press();
    return r;
}

void expect_in_child(struct region r, uint64_t seed, const char *who) {
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        expect(r, seed, who);
        _exit(0);
    }
    reap(child, who);
}

static sigjmp_buf back;

static void jump_back(int signal) {
    siglongjmp(back, signal);
}

int signal_of_reading(const volatile unsigned char *at) {
    struct sigaction old[2], catch = {.sa_handler = jump_back};
    sigaction(SIGSEGV, &catch, &old[0]);
    sigaction(SIGBUS, &catch, &old[1]);
    int raised = sigsetjmp(back, 1);
    if (!raised)
        (void)*at;
    sigaction(SIGSEGV, &old[0], NULL);
    sigaction(SIGBUS, &old[1], NULL);
    return raised;
}

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int count, char **words) {
    running = "calls";
    if (count == 4 && strcmp(words[1], "peek") == 0) {
        running = words[1];
        peek(atoi(words[2]), (void *)strtoul(words[3], NULL, 16));
        return 0;
    }
    for (size_t i = 0; i < TESTS; i++) {
        if (count == 2 && strcmp(words[1], "list") == 0)
            puts(tests[i].name);
        else if (count == 2 && strcmp(words[1], tests[i].name) == 0) {
            running = tests[i].name;
            tests[i].run();
            dprintf(STDOUT_FILENO, "ok %s\n", running);
            return 0;
        }
    }
    return count == 2 && strcmp(words[1], "list") == 0 ? 0 : 2;
}
