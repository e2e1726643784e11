/* Children: each must see memory as it was at the moment of fork, whoever writes afterwards,
 * and exec in all its forms must work while pages are away. */
#include "torture.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static pid_t start_child(void) {
    pid_t child = fork();
    must(child >= 0);
    return child;
}

/* Writes the pages in another order than the checker reads them. */
static void rewrite_backwards(struct region r, uint64_t seed) {
    for (size_t p = r.pages; p-- > 0;)
        pattern(page_at(r, p), seed, p);
}

static void child_and_parent_both_write(struct region r) {
    fill(r, 1);
    pid_t child = start_child();
    if (child == 0) {
        expect(r, 1, "child, while the parent writes");
        fill(r, 3);
        expect(r, 3, "child, after writing");
        _exit(0);
    }
    rewrite_backwards(r, 2);
    expect(r, 2, "parent, while the child writes");
    reap(child, "child");
    expect(r, 2, "parent, after its child");
}

/* Three generations alive at once, each with a memory of its own. */
static void nested_forks(struct region r) {
    fill(r, 1);
    pid_t child = start_child();
    if (child == 0) {
        fill(part(r, 0, r.pages / 2), 5);
        pid_t grandchild = start_child();
        if (grandchild == 0) {
            expect(part(r, 0, r.pages / 2), 5, "grandchild, first half");
            expect_pages(page_at(r, r.pages / 2), r.pages / 2, r.pages - r.pages / 2, 1,
                         "grandchild, second half");
            fill(r, 6);
            expect(r, 6, "grandchild, after writing");
            _exit(0);
        }
        fill(r, 7);
        expect(r, 7, "middle child");
        reap(grandchild, "grandchild");
        _exit(0);
    }
    expect(r, 1, "parent of a nested fork");
    reap(child, "middle child");
}

/* The middle process is gone before the grandchild looks at its memory. */
static void orphan_keeps_its_memory(struct region r) {
    int done[2];
    char word = 0;
    fill(r, 1);
    must(pipe(done) == 0);
    pid_t child = start_child();
    if (child == 0) {
        const pid_t middle = getpid();
        if (start_child() != 0)
            _exit(0);
        while (getppid() == middle)
            usleep(1000);
        expect(r, 1, "orphan");
        must(write(done[1], "y", 1) == 1);
        _exit(0);
    }
    reap(child, "middle process");
    close(done[1]);
    fill(r, 2);
    if (read(done[0], &word, 1) != 1 || word != 'y')
        fail("the orphaned grandchild did not finish its check");
    close(done[0]);
    expect(r, 2, "after the orphan");
}

/* Checks sixteen pages, then writes as many (which may be the same). */
static _Noreturn void short_life(struct region r, uint64_t random) {
    for (int k = 0; k < 16; k++) {
        size_t p = next_random(&random) % r.pages;
        expect_pages(page_at(r, p), p, 1, 1, "short child");
    }
    for (int k = 0; k < 16; k++)
        fill_pages(page_at(r, next_random(&random) % r.pages), 0, 1, 9);
    _exit(0);
}

static void many_short_children(struct region r, int count) {
    fill(r, 1);
    for (int i = 0; i < count; i++) {
        pid_t child = start_child();
        if (child == 0)
            short_life(r, i * 1000);
        reap(child, "short child");
    }
    expect(r, 1, "after short children");
}

struct counter {
    struct region region;
    volatile int stop;
};

/* Round after round, in page order: at any moment the pages read r, r, ..., r-1, r-1. */
static void *count_rounds(void *arg) {
    struct counter *c = arg;
    for (uint64_t round = 1; !c->stop; round++)
        for (size_t p = 0; p < c->region.pages && !c->stop; p++)
            __atomic_store_n((uint64_t *)page_at(c->region, p), round, __ATOMIC_SEQ_CST);
    return NULL;
}

static void expect_one_moment(struct region r) {
    const uint64_t first = *(uint64_t *)page_at(r, 0);
    uint64_t before = first;
    for (size_t p = 1; p < r.pages; p++) {
        uint64_t now = *(uint64_t *)page_at(r, p);
        if (now > before || now + 1 < first)
            fail("page %zu is of round %llu after %llu and %llu: not one moment", p,
                 (unsigned long long)now, (unsigned long long)first, (unsigned long long)before);
        before = now;
    }
}

static void fork_while_a_thread_writes(struct region r, int count) {
    struct counter c = {.region = r};
    pthread_t writer;
    for (size_t p = 0; p < r.pages; p++)
        memset(page_at(r, p), 0, 64);
    must(pthread_create(&writer, NULL, count_rounds, &c) == 0);
    for (int i = 0; i < count; i++) {
        pid_t child = start_child();
        if (child == 0) {
            expect_one_moment(r);
            _exit(0);
        }
        reap(child, "child of a threaded parent");
    }
    c.stop = 1;
    must(pthread_join(writer, NULL) == 0);
}

static void *fork_from_here(void *arg) {
    child_and_parent_both_write(*(struct region *)arg);
    return NULL;
}

void test_fork(size_t pages) {
    struct region r = map_region(pages);
    child_and_parent_both_write(r);
    nested_forks(r);
    orphan_keeps_its_memory(r);
    many_short_children(r, 60);
    fork_while_a_thread_writes(r, 10);
    start_threads(1, fork_from_here, &r, sizeof r);
}

static void expect_exit(int status, int code, const char *who) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail("%s ended with status %#x, not with exit code %d", who, status, code);
}

/* execve reads its path and arguments out of memory that is away. */
static char **arguments_in(struct region r, size_t page) {
    char *at = (char *)page_at(r, page);
    char **argv = (char **)(at + 2048);
    strcpy(at, "/bin/sh");
    strcpy(at + 100, "-c");
    strcpy(at + 200, "exit 7");
    argv[0] = at;
    argv[1] = at + 100;
    argv[2] = at + 200;
    argv[3] = NULL;
    return argv;
}

static int spawn_by_fork(char **argv) {
    pid_t child = start_child();
    if (child == 0) {
        execv(argv[0], argv);
        _exit(126);
    }
    return wait_status(child);
}

/* vfork's child shares our memory: what it brings back stays with us. */
static int spawn_by_vfork(char **argv) {
    pid_t child = vfork();
    if (child == 0) {
        execv(argv[0], argv);
        _exit(126);
    }
    must(child > 0);
    return wait_status(child);
}

static int spawn_by_posix_spawn(char **argv) {
    pid_t child;
    must(posix_spawn(&child, argv[0], NULL, NULL, argv, environ) == 0);
    return wait_status(child);
}

static void expect_popen_line(void) {
    char line[64] = "";
    FILE *from = popen("echo 'a line'", "r");
    must(from && fgets(line, sizeof line, from));
    must(strcmp(line, "a line\n") == 0);
    expect_exit(pclose(from), 0, "popen");
}

void test_forkexec(size_t pages) {
    struct region r = filled_region(pages, 1);
    struct region rest = part(r, 1, pages - 1);
    for (int round = 0; round < 4; round++) {
        char **argv = arguments_in(r, 0);
        push_out(rest);
        expect_exit(spawn_by_fork(argv), 7, "fork and exec");
        push_out(rest);
        expect_exit(spawn_by_vfork(argv), 7, "vfork and exec");
        push_out(rest);
        expect_exit(spawn_by_posix_spawn(argv), 7, "posix_spawn");
        push_out(rest);
        expect_exit(system("exit 3"), 3, "system");
        expect_popen_line();
        expect_pages(rest.base, 1, rest.pages, 1, "after exec");
    }
}

void test_exitstatus(size_t pages) {
    static const int signals[] = {SIGTERM, SIGKILL, SIGABRT, SIGSEGV};
    struct region r = filled_region(pages, 1);
    for (int code = 0; code < 256; code += 51) {
        pid_t child = start_child();
        if (child == 0)
            _exit(code);
        expect_exit(wait_status(child), code, "child");
    }
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        pid_t child = start_child();
        if (child == 0) {
            kill(getpid(), signals[i]);
            _exit(0);
        }
        int status = wait_status(child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != signals[i])
            fail("child ended with status %#x, not by signal %d", status, signals[i]);
    }
    expect(r, 1, "after the children");
}
