/* Signals and descriptors: a program's own SIGSEGV handler, timers that fire in the middle of
 * faults, and a program that closes every descriptor it did not open. */
#include "torture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define GUARD_EVERY 64 /* pages; one of so many is a guard page */

static struct region guarded;
static volatile unsigned long guard_hits, alarms, sum;

/* As a garbage collector does: opens the guard page that was hit, looking at other pages
 * (which may be away) on the way. */
static void open_guard(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    unsigned char *at = (unsigned char *)((uintptr_t)info->si_addr & ~(PAGE - 1));
    const size_t p = (at - guarded.base) / PAGE;
    if (at < guarded.base || p >= guarded.pages || p % GUARD_EVERY != 0)
        fail("SIGSEGV at %p, which is no guard page", info->si_addr);
    sum += *page_at(guarded, (p + guarded.pages / 2 + 1) % guarded.pages);
    guard_hits++;
    must(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
}

/* The signal stack is part of the region's neighbourhood and goes away like the rest. */
static void use_signal_stack(void) {
    struct region stack = map_region(64);
    stack_t alternate = {.ss_sp = stack.base, .ss_size = stack.pages * PAGE};
    must(sigaltstack(&alternate, NULL) == 0);
}

void test_sigsegv(size_t pages) {
    struct sigaction old, catch = {.sa_sigaction = open_guard, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    const int rounds = 3;
    guarded = filled_region(pages, 1);
    use_signal_stack();
    must(sigaction(SIGSEGV, &catch, &old) == 0);
    for (int round = 0; round < rounds; round++) {
        for (size_t p = 0; p < pages; p += GUARD_EVERY)
            must(mprotect(page_at(guarded, p), PAGE, PROT_NONE) == 0);
        expect(guarded, 1, "through guard pages");
    }
    const size_t guards = (pages + GUARD_EVERY - 1) / GUARD_EVERY;
    if (guard_hits != rounds * guards)
        fail("%lu guard pages were hit, not %zu", guard_hits, rounds * guards);
    must(sigaction(SIGSEGV, &old, NULL) == 0);
}

static void touch_somewhere(int signal) {
    (void)signal;
    uint64_t random = alarms++;
    sum += *page_at(guarded, next_random(&random) % guarded.pages);
}

static void set_alarm(suseconds_t every_us) {
    struct itimerval timer = {{0, every_us}, {0, every_us}};
    must(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* Interrupted reads of a pipe start again where they stopped. */
static void through_a_pipe(struct region r) {
    int ends[2];
    must(pipe(ends) == 0);
    for (size_t p = 0; p + 1 < r.pages; p += 8) {
        size_t sent = 0, got = 0;
        while (sent < PAGE) {
            ssize_t n = write(ends[1], page_at(r, p) + sent, PAGE - sent);
            must(n > 0 || errno == EINTR);
            sent += n > 0 ? n : 0;
        }
        while (got < PAGE) {
            ssize_t n = read(ends[0], page_at(r, p) + got, PAGE - got);
            must(n > 0 || errno == EINTR);
            got += n > 0 ? n : 0;
        }
    }
    close(ends[0]);
    close(ends[1]);
}

void test_sigalrm(size_t pages) {
    struct sigaction catch = {.sa_handler = touch_somewhere, .sa_flags = SA_ONSTACK};
    guarded = filled_region(pages, 1);
    use_signal_stack();
    must(sigaction(SIGALRM, &catch, NULL) == 0);
    set_alarm(1000);
    for (int round = 0; round < 6; round++) {
        expect(guarded, 1, "under alarms");
        through_a_pipe(guarded);
    }
    set_alarm(0);
    if (alarms == 0)
        fail("no alarm went off");
}

static void close_one_by_one(void) {
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const rlim_t last = limit.rlim_cur < 65536 ? limit.rlim_cur : 65536;
    for (rlim_t fd = 3; fd < last; fd++)
        close(fd);
}

/* The lowest free descriptor is 3 again, as it is for any program that just closed all. */
static void expect_descriptor_three(void) {
    int fd = open("/dev/null", O_RDONLY);
    if (fd != 3)
        fail("after closing everything open() gave descriptor %d", fd);
    close(fd);
}

static void expect_memory_still_served(struct region r, uint64_t seed) {
    expect(r, seed, "after closing all descriptors");
    fill(r, seed + 1);
    push_out(r);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        expect(r, seed + 1, "child after closing all descriptors");
        _exit(0);
    }
    expect(r, seed + 1, "parent after closing all descriptors");
    reap(child, "child");
}

void test_closefds(size_t pages) {
    struct region r = filled_region(pages, 1);
    must(syscall(SYS_close_range, 3u, ~0u, 0u) == 0 || errno == ENOSYS);
    expect_descriptor_three();
    expect_memory_still_served(r, 1);
    close_one_by_one();
    expect_descriptor_three();
    expect_memory_still_served(r, 2);
}
