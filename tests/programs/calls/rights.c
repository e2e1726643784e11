/* Programs that give up rights, or forbid themselves calls, and one that has a userfaultfd itself. */
#include "calls.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static void needs_root(void) {
    if (geteuid() != 0)
        skip("needs root");
}

static void become_nobody(void) {
    must(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

/* Whether a process that has become another user may fork depends on what it may do (README.md): where it may, the
 * child finds everything. */
static void fork_if_allowed(struct region r) {
    pid_t child = fork();
    if (child == 0) {
        expect(r, 1, "in the child of another user");
        _exit(0);
    }
    if (child > 0)
        reap(child, "the child of another user");
    else
        must(errno == ENOMEM);
}

void call_setuid(void) {
    needs_root();
    struct region r = away(1);
    become_nobody();
    press();
    expect(r, 1, "as another user");
    fork_if_allowed(r);
    press();
    expect(r, 1, "as another user, again");
}

void call_setuidearly(void) {
    needs_root();
    become_nobody();
    expect(away(1), 1, "as another user from the start");
}

void call_seteuid(void) {
    needs_root();
    must(seteuid(NOBODY) == 0);
    struct region r = away(1);
    fork_if_allowed(r);
    must(seteuid(0) == 0);
    expect(r, 1, "as root again");
}

void call_nodump(void) {
    must(prctl(PR_SET_DUMPABLE, 0) == 0);
    struct region r = away(1);
    expect_in_child(r, 1, "a child that cannot be dumped");
    expect(r, 1, "that cannot be dumped");
}

void call_nnp(void) {
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    expect(away(1), 1, "without new privileges");
}

/* Nothing but read, write, exit and sigreturn from here on: so it ends by exit(2) itself. */
void call_seccompstrict(void) {
    struct region r = away(1);
    static uint64_t words[PAGES];
    for (size_t i = 0; i < PAGES; i++)
        words[i] = *(uint64_t *)page_at(r, i);
    press();
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
            syscall(SYS_exit, 0);
        int wrong = 0;
        for (size_t i = 0; i < PAGES; i++)
            wrong |= *(volatile uint64_t *)page_at(r, i) != words[i];
        syscall(SYS_exit, wrong);
    }
    reap(child, "the child in strict mode");
    expect(r, 1, "in the parent");
}

static void register_with(int uffd, struct region r) {
    struct uffdio_register range = {
        .range = {(uintptr_t)r.base, r.pages * PAGE},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    must(ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
}

/* A range has one userfaultfd: the program's own, where it has one. */
void call_ownuffd(void) {
    int uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (uffd < 0)
        skip("no userfaultfd for the program (%s)", strerror(errno));
    struct uffdio_api api = {.api = UFFD_API};
    must(ioctl(uffd, UFFDIO_API, &api) == 0);
    struct region r = map_region(PAGES), source = filled_region(PAGES / 8, 1);
    register_with(uffd, r);
    for (size_t i = 0; i < 8; i++) {
        struct uffdio_copy copy = {
            .dst = (uintptr_t)page_at(r, i * source.pages),
            .src = (uintptr_t)source.base,
            .len = source.pages * PAGE,
        };
        must(ioctl(uffd, UFFDIO_COPY, &copy) == 0);
    }
    press();
    for (size_t i = 0; i < 8; i++)
        expect(part(r, i * source.pages, source.pages), 1, "put in place by the program");
}
