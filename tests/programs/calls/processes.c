/* Children by every way to make one, and who looks into them. */
#include "calls.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct region seen;

void call_vfork(void) {
    struct region r = away(1);
    for (int i = 0; i < 20; i++) {
        pid_t child = vfork();
        must(child >= 0);
        if (child == 0) {
            expect(part(r, 0, PAGES / 8), 1, "in a child of vfork");
            page_at(r, PAGES - 1)[0] = i;
            _exit(0);
        }
        reap(child, "a child of vfork");
        must(page_at(r, PAGES - 1)[0] == i);
    }
}

static int look(void *argument) {
    (void)argument;
    expect(seen, 1, "in a child that shares memory");
    return 0;
}

static void share_memory(int flags) {
    struct region stack = map_region(MB / PAGE);
    pid_t child = clone(look, stack.base + MB, CLONE_VM | flags | SIGCHLD, NULL);
    must(child > 0);
    press();
    reap(child, "a child that shares memory");
    unmap_region(stack);
}

void call_clonevm(void) {
    seen = away(1);
    for (int i = 0; i < 5; i++)
        share_memory(0);
}

void call_clonevmfiles(void) {
    seen = away(1);
    share_memory(CLONE_FILES | CLONE_FS | CLONE_SIGHAND);
}

static pid_t raw_fork(void) {
    return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Ways to fork of which the C library's handlers do not hear. */
static void fork_unheard(pid_t (*way)(void)) {
    struct region r = away(1);
    for (int i = 0; i < 5; i++) {
        pid_t child = way();
        must(child >= 0);
        if (child == 0) {
            expect(r, 1, "in the child");
            syscall(SYS_exit_group, 0);
        }
        reap(child, "the child");
    }
    expect(r, 1, "in the parent");
}

void call_rawfork(void) {
    fork_unheard(raw_fork);
}

/* A child of which the C library's handlers do not hear, and memory that it has wiped in its own children. */
void call_rawwiped(void) {
    struct region r = away(1);
    for (int i = 0; i < 3; i++) {
        pid_t child = raw_fork();
        must(child >= 0);
        if (child == 0) {
            must(madvise(page_at(r, PAGES / 2), PAGES / 2 * PAGE, MADV_WIPEONFORK) == 0);
            pid_t grandchild = fork();
            must(grandchild >= 0);
            if (grandchild == 0) {
                expect_pages(r.base, 0, PAGES / 2, 1, "kept in the child's child");
                expect_zeros(page_at(r, PAGES / 2), PAGES / 2, "wiped in the child's child");
                _exit(0);
            }
            reap(grandchild, "the child's child");
            expect(r, 1, "in the child");
            syscall(SYS_exit_group, 0);
        }
        reap(child, "the child");
    }
    expect(r, 1, "in the parent");
}

#if __GLIBC_PREREQ(2, 34)
void call_underfork(void) {
    fork_unheard(_Fork);
}
#else
void call_underfork(void) {
    skip("the C library has no _Fork");
}
#endif

void call_forkpress(void) {
    enum { CHILDREN = 3, ROUNDS = 2 };
    struct region r = away(1);
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        must(children[i] >= 0);
        if (children[i] == 0) {
            for (int round = 0; round < ROUNDS; round++)
                expect(r, 1, "the parent's");
            fill(r, 10 + i);
            press();
            expect(r, 10 + i, "the child's own");
            _exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++)
        reap(children[i], "a child");
    expect(r, 1, "in the parent");
}

static void *fill_own(void *argument) {
    struct region own = filled_region(PAGES, 2);
    press();
    press();
    expect(own, 2, "the child's own");
    return argument;
}

/* Children that map memory, in a thread's stack and otherwise, and need more than there is, from their first instruction
 * on. */
void call_bornmaps(void) {
    struct region r = away(1);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        must(child >= 0);
        if (child == 0) {
            pthread_t thread;
            must(pthread_create(&thread, NULL, fill_own, NULL) == 0);
            must(pthread_join(thread, NULL) == 0);
            expect(r, 1, "the parent's");
            _exit(0);
        }
        reap(child, "a child");
    }
}

static void nest(struct region r, int depth) {
    if (depth > 0) {
        pid_t child = fork();
        must(child >= 0);
        if (child == 0) {
            nest(r, depth - 1);
            _exit(0);
        }
        reap(child, "a child of a child");
    }
    expect(r, 1, "in a child of a child");
}

void call_nestfork(void) {
    nest(away(1), 6);
}

static void *execute(void *argument) {
    (void)argument;
    execl("/proc/self/exe", "calls", "cold", (char *)NULL);
    fail("exec: %s", strerror(errno));
}

/* A thread that is not the first executes, while the first goes on. */
void call_execthread(void) {
    press();
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        pthread_t thread;
        must(pthread_create(&thread, NULL, execute, NULL) == 0);
        for (;;)
            press();
    }
    reap(child, "what was executed");
}

void call_daemonize(void) {
    struct region r = away(1);
    int ends[2];
    char word = 0;
    must(pipe(ends) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        must(daemon(1, 1) == 0);
        press();
        expect(r, 1, "in the daemon");
        must(write(ends[1], "y", 1) == 1);
        _exit(0);
    }
    reap(child, "the parent of the daemon");
    close(ends[1]);
    must(read(ends[0], &word, 1) == 1 && word == 'y');
}

void call_coredump(void) {
    away(1);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        /* What is dumped is a program's own affair; that it ends is tested. */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        abort();
    }
    int status = wait_status(child);
    must(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Whoever traces a process that is stopped finds what is right, or an error. */
void call_ptracepeek(void) {
    struct region r = filled_region(PAGES, 1);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        must(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
        press();
        raise(SIGSTOP);
        expect(r, 1, "in the child that was traced");
        _exit(0);
    }
    int status = wait_status(child);
    must(WIFSTOPPED(status));
    for (size_t i = 0; i < PAGES; i += 16) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKDATA, child, page_at(r, i), 0);
        if (errno == 0)
            must(memcmp(&word, page_at(r, i), sizeof word) == 0);
    }
    must(ptrace(PTRACE_CONT, child, 0, 0) == 0);
    reap(child, "the child that was traced");
}
