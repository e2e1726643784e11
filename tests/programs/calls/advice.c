/* What a program says about its memory: given up, wiped in children, locked, huge, guarded. */
#include "calls.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

#define QUARTER (PAGES / 4)

static int advise(struct region r, size_t first, size_t count, int advice) {
    return madvise(page_at(r, first), count * PAGE, advice);
}

void call_dontneed(void) {
    struct region r = away(1);
    must(advise(r, QUARTER, QUARTER, MADV_DONTNEED) == 0);
    expect_zeros(page_at(r, QUARTER), QUARTER, "given up");
    expect(part(r, 0, QUARTER), 1, "before what was given up");
    expect_pages(page_at(r, 2 * QUARTER), 2 * QUARTER, 2 * QUARTER, 1, "behind it");
}

void call_mfree(void) {
    struct region r = away(1);
    must(advise(r, QUARTER, QUARTER, MADV_FREE) == 0);
    fill_pages(page_at(r, QUARTER), 0, QUARTER / 2, 2);
    press();
    expect_pages(page_at(r, QUARTER), 0, QUARTER / 2, 2, "freed and written again");
    expect(part(r, 0, QUARTER), 1, "before what was freed");
}

void call_hugep(void) {
    struct region r = map_region(2 * PAGES);
    must(advise(r, 0, r.pages, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    fill(r, 1);
    press();
    expect(r, 1, "huge pages");
    must(advise(r, 0, r.pages, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    press();
    (void)advise(r, 0, r.pages, MADV_COLLAPSE); /* where it can be */
    expect(r, 1, "huge pages again");
}

void call_dontfork(void) {
    struct region r = away(1);
    must(advise(r, PAGES / 2, PAGES / 2, MADV_DONTFORK) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        unsigned char there;
        expect(part(r, 0, PAGES / 2), 1, "in the child");
        must(mincore(page_at(r, PAGES / 2), PAGE, &there) != 0);
        _exit(0);
    }
    reap(child, "the child");
    expect(r, 1, "in the parent");
}

void call_wipeonfork(void) {
    struct region r = away(1);
    must(advise(r, PAGES / 2, PAGES / 2, MADV_WIPEONFORK) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        expect(part(r, 0, PAGES / 2), 1, "in the child");
        expect_zeros(page_at(r, PAGES / 2), PAGES / 2, "wiped in the child");
        _exit(0);
    }
    reap(child, "the child");
    expect(r, 1, "in the parent");
}

void call_keeponfork(void) {
    struct region r = map_region(PAGES);
    must(advise(r, PAGES / 2, PAGES / 2, MADV_WIPEONFORK) == 0);
    must(advise(r, PAGES / 2, PAGES / 2, MADV_KEEPONFORK) == 0);
    fill(r, 1);
    press();
    expect_in_child(r, 1, "kept in the child");
}

void call_mergeable(void) {
    struct region r = map_region(PAGES);
    (void)advise(r, 0, PAGES, MADV_MERGEABLE); /* where it is built in */
    for (size_t i = 0; i < PAGES; i++)
        fill_pages(page_at(r, i), 7, 1, 1);
    press();
    usleep(200000);
    for (size_t i = 0; i < PAGES; i++)
        expect_pages(page_at(r, i), 7, 1, 1, "one of many that are the same");
}

void call_populate(void) {
    struct region r = away(1);
    must(advise(r, 0, PAGES, MADV_POPULATE_READ) == 0 || errno == EINVAL);
    must(advise(r, 0, PAGES, MADV_POPULATE_WRITE) == 0 || errno == EINVAL);
    expect(r, 1, "populated");
}

void call_mappopulate(void) {
    void *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    must(at != MAP_FAILED);
    struct region r = {at, PAGES};
    must(advise(r, 0, PAGES, MADV_POPULATE_WRITE) == 0 || errno == EINVAL);
    fill(r, 1);
    press();
    must(advise(r, 0, PAGES, MADV_POPULATE_WRITE) == 0 || errno == EINVAL);
    expect(r, 1, "mapped populated, and populated again");
}

void call_guard(void) {
    struct region r = away(1);
    if (advise(r, QUARTER, QUARTER, MADV_GUARD_INSTALL) != 0)
        skip("the kernel has no guards (%s)", strerror(errno));
    must(signal_of_reading(page_at(r, QUARTER)) == SIGSEGV);
    press();
    must(signal_of_reading(page_at(r, QUARTER + 1)) == SIGSEGV);
    must(advise(r, QUARTER, QUARTER, MADV_GUARD_REMOVE) == 0);
    expect_zeros(page_at(r, QUARTER), QUARTER, "guards removed");
    expect(part(r, 0, QUARTER), 1, "before the guards");
    expect_pages(page_at(r, 2 * QUARTER), 2 * QUARTER, 2 * QUARTER, 1, "behind the guards");
}

/* A way to advise that is not the program's madvise. */
typedef int (*advise_t)(void *, size_t, int);

static int advise_by_number(void *start, size_t len, int advice) {
    return syscall(SYS_madvise, start, len, advice);
}

/* Every 16th page of memory that is away, of memory that nobody has touched, and of stacks as the C library makes them from
 * 2.42 on: nothing that comes along with another page takes a guard's place. */
static void guard_by(advise_t way) {
    enum { STRIDE = 16, STACKS = 8 };
    struct region r = away(1), fresh = map_region(PAGES);
    unsigned char *stacks[STACKS];
    for (size_t i = 0; i < PAGES; i += STRIDE) {
        if (way(page_at(r, i), PAGE, MADV_GUARD_INSTALL) != 0)
            skip("the kernel has no guards (%s)", strerror(errno));
        must(way(page_at(fresh, i), PAGE, MADV_GUARD_INSTALL) == 0);
    }
    for (int i = 0; i < STACKS; i++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
        stacks[i] = mmap(NULL, MB, PROT_READ | PROT_WRITE, flags, -1, 0);
        must(stacks[i] != MAP_FAILED);
        must(way(stacks[i], PAGE, MADV_GUARD_INSTALL) == 0);
    }
    press();
    for (size_t i = 0; i < PAGES; i++) {
        if (i % STRIDE == 0)
            continue;
        expect_pages(page_at(r, i), i, 1, 1, "beside a guard");
        fill_pages(page_at(fresh, i), i, 1, 2);
    }
    for (int i = 0; i < STACKS; i++)
        expect_zeros(stacks[i] + PAGE, MB / PAGE - 1, "a stack");
    for (size_t i = 0; i < PAGES; i += STRIDE) {
        must(signal_of_reading(page_at(r, i)) == SIGSEGV);
        must(signal_of_reading(page_at(fresh, i)) == SIGSEGV);
    }
    for (int i = 0; i < STACKS; i++)
        must(signal_of_reading(stacks[i]) == SIGSEGV);
    must(way(r.base, PAGES * PAGE, MADV_GUARD_REMOVE) == 0);
    for (size_t i = 0; i < PAGES; i += STRIDE)
        expect_zeros(page_at(r, i), 1, "a guard removed");
    press();
    for (size_t i = 1; i < PAGES; i += STRIDE) {
        expect_pages(page_at(r, i), i, STRIDE - 1, 1, "between guards");
        expect_pages(page_at(fresh, i), i, STRIDE - 1, 2, "between guards, and new");
    }
}

void call_guards(void) {
    guard_by(madvise);
}

void call_guardsraw(void) {
    guard_by(advise_by_number);
}

/* As the C library calls it: past whoever stands in front of it. */
void call_guardsinner(void) {
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    must(library != NULL);
    advise_t inner = (advise_t)dlsym(library, "madvise");
    must(inner != NULL);
    guard_by(inner);
}

void call_cold(void) {
    struct region r = filled_region(PAGES, 1);
    (void)advise(r, 0, PAGES, MADV_COLD);
    (void)advise(r, 0, PAGES, MADV_PAGEOUT);
    press();
    (void)advise(r, 0, PAGES, MADV_PAGEOUT);
    (void)advise(r, 0, PAGES, MADV_WILLNEED);
    expect(r, 1, "said to be cold");
}

void call_mlock(void) {
    struct region r = away(1);
    must(mlock(r.base, r.pages * PAGE) == 0 || errno == EPERM || errno == ENOMEM);
    press();
    expect(r, 1, "locked");
    must(munlock(r.base, r.pages * PAGE) == 0);
    press();
    expect(r, 1, "unlocked again");
}

/* All of it, without what the agent has: that is to go on as before. */
void call_mlockall(void) {
    struct region r = away(1);
    relieve();
    must(mlockall(0) != 0 && errno == EINVAL);
    must(mlockall(MCL_CURRENT) == 0 || errno == EPERM || errno == ENOMEM);
    must(syscall(SYS_mlockall, 0) == -1 && errno == EINVAL);
    must(syscall(SYS_mlockall, MCL_CURRENT) == 0 || errno == EPERM || errno == ENOMEM);
    expect(r, 1, "all locked");
    must(mlockall(MCL_CURRENT | MCL_FUTURE) == 0 || errno == EPERM || errno == ENOMEM);
    struct region more = filled_region(PAGES, 2);
    must(munlockall() == 0);
    press();
    expect(r, 1, "all unlocked again");
    expect(more, 2, "mapped while all was locked");
    expect_in_child(r, 1, "in a child");
}

/* Which pages are in memory is not told: those that are away are none of the kernel's. */
void call_mincore(void) {
    struct region r = away(1);
    static unsigned char there[PAGES];
    must(mincore(r.base, r.pages * PAGE, there) == 0);
    must(msync(r.base, r.pages * PAGE, MS_SYNC) == 0);
    expect(r, 1, "looked at by mincore and msync");
}
