/* What changes a page's entry in the page table, or who may use it, and raises no event: freed lazily, collapsed, sealed,
 * keyed, tracked, moved between nodes, advised on by another process. */
#include "calls.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define QUARTER (PAGES / 4)
#define HUGE_PAGES (2 * MB / PAGE)

static bool is_zeros(const unsigned char *page) {
    for (size_t i = 0; i < PAGE; i++)
        if (page[i])
            return false;
    return true;
}

/* The kernel may have dropped any of them. */
static void expect_all_or_nothing(struct region r, uint64_t seed, const char *who) {
    for (size_t i = 0; i < r.pages; i++)
        if (!is_zeros(page_at(r, i)))
            expect_pages(page_at(r, i), i, 1, seed, who);
}

/* By the system call itself, which the kernel tells nobody of. */
void call_freeraw(void) {
    struct region r = filled_region(PAGES, 1);
    must(syscall(SYS_madvise, page_at(r, 0), PAGES / 2 * PAGE, MADV_FREE) == 0);
    fill_pages(page_at(r, 0), 0, QUARTER, 2);
    press();
    expect(part(r, 0, QUARTER), 2, "freed and written again");
    for (size_t i = QUARTER; i < 2 * QUARTER; i++)
        if (!is_zeros(page_at(r, i)))
            expect_pages(page_at(r, i), i, 1, 1, "freed");
    expect_pages(page_at(r, 2 * QUARTER), 2 * QUARTER, 2 * QUARTER, 1, "behind what was freed");
    must(syscall(SYS_madvise, page_at(r, 2 * QUARTER), QUARTER * PAGE, MADV_FREE) == 0);
    fill_pages(page_at(r, 2 * QUARTER), 0, QUARTER, 3);
    press();
    expect_pages(page_at(r, 2 * QUARTER), 0, QUARTER, 3, "freed while away and written again");
}

void call_dontneedlocked(void) {
    struct region r = away(1);
    if (mlock(page_at(r, QUARTER), QUARTER * PAGE) != 0)
        skip("nothing may be locked (%s)", strerror(errno));
    if (madvise(page_at(r, QUARTER), QUARTER * PAGE, MADV_DONTNEED_LOCKED) == 0)
        expect_zeros(page_at(r, QUARTER), QUARTER, "given up while locked");
    must(munlock(page_at(r, QUARTER), QUARTER * PAGE) == 0);
    press();
    expect(part(r, 0, QUARTER), 1, "before what was given up");
    expect_pages(page_at(r, 2 * QUARTER), 2 * QUARTER, 2 * QUARTER, 1, "behind it");
}

void call_collapse(void) {
    struct region r = away(1);
    must(madvise(r.base, r.pages * PAGE, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    (void)madvise(r.base, r.pages * PAGE, MADV_COLLAPSE); /* where all is there */
    expect(r, 1, "collapsed while away");
    (void)madvise(r.base, r.pages * PAGE, MADV_COLLAPSE);
    expect(r, 1, "collapsed");
    press();
    fill_pages(page_at(r, QUARTER), QUARTER, HUGE_PAGES / 2, 1);
    (void)madvise(r.base, r.pages * PAGE, MADV_COLLAPSE);
    expect(r, 1, "collapsed in part");
}

/* By another process, which is this one's child. */
void call_foreignadvice(void) {
    static const int advices[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_COLLAPSE};
    struct region r = away(1);
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    must(self >= 0);
    pid_t child = vfork();
    must(child >= 0);
    if (child == 0) {
        struct iovec all = {r.base, r.pages * PAGE};
        for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
            (void)syscall(SYS_process_madvise, self, &all, 1, advices[i], 0); /* where it may */
        _exit(0);
    }
    reap(child, "who advises");
    expect(r, 1, "advised on by another process");
    press();
    expect(r, 1, "and later");
    close(self);
}

void call_mseal(void) {
    struct region r = away(1);
    if (syscall(SYS_mseal, r.base, r.pages * PAGE, 0) != 0)
        skip("the kernel seals nothing (%s)", strerror(errno));
    must(munmap(r.base, PAGE) != 0 && errno == EPERM);
    must(mprotect(r.base, PAGE, PROT_READ) != 0 && errno == EPERM);
    expect(r, 1, "sealed while away");
    fill(r, 2);
    press();
    expect(r, 2, "sealed");
    expect_in_child(r, 2, "sealed, in a child");
}

void call_pkeys(void) {
    struct region r = away(1);
    int key = pkey_alloc(0, 0);
    if (key < 0)
        skip("there are no protection keys (%s)", strerror(errno));
    must(pkey_mprotect(page_at(r, QUARTER), QUARTER * PAGE, PROT_READ | PROT_WRITE, key) == 0);
    must(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
    must(signal_of_reading(page_at(r, QUARTER)) == SIGSEGV);
    press();
    must(pkey_set(key, 0) == 0);
    expect(r, 1, "behind a key");
    fill(r, 2);
    must(pkey_set(key, PKEY_DISABLE_WRITE) == 0);
    press();
    expect(r, 2, "written behind a key, and read");
    must(pkey_mprotect(page_at(r, QUARTER), QUARTER * PAGE, PROT_READ | PROT_WRITE, 0) == 0);
    must(pkey_free(key) == 0);
    press();
    fill(r, 3);
    expect(r, 3, "without a key again");
}

static void clear_refs(const char *what) {
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    if (fd < 0)
        skip("no clear_refs (%s)", strerror(errno));
    must(write(fd, what, strlen(what)) == (ssize_t)strlen(what));
    close(fd);
}

static bool is_said_to_be_written(int pagemap, const unsigned char *page) {
    uint64_t entry;
    off_t at = (off_t)((uintptr_t)page / PAGE * sizeof entry);
    must(pread(pagemap, &entry, sizeof entry, at) == sizeof entry);
    bool is_there = entry >> 63;
    return !is_there || entry >> 55 & 1;
}

/* As collectors and virtual machines find what was written to: a page that was is always among them. */
void call_softdirty(void) {
    enum { EVERY = 7 };
    struct region r = away(1);
    int pagemap = open("/proc/self/pagemap", O_RDONLY);
    must(pagemap >= 0);
    clear_refs("4");
    fill_pages(page_at(r, 0), 0, 1, 2);
    if (!is_said_to_be_written(pagemap, page_at(r, 0)))
        skip("the kernel does not track what is written to");
    for (size_t i = 0; i < PAGES; i += EVERY)
        fill_pages(page_at(r, i), i, 1, 2);
    press();
    for (size_t i = 0; i < PAGES; i++) {
        bool is_written = i % EVERY == 0;
        if (is_written && !is_said_to_be_written(pagemap, page_at(r, i)))
            fail("page %zu was written to and is not said to be", i);
        expect_pages(page_at(r, i), i, 1, is_written ? 2 : 1, "tracked");
    }
    close(pagemap);
}

void call_clearrefs(void) {
    struct region r = away(1);
    clear_refs("1");
    clear_refs("2");
    clear_refs("3");
    clear_refs("5");
    expect(r, 1, "references cleared");
    press();
    clear_refs("1");
    expect(r, 1, "references cleared again");
}

void call_vmaname(void) {
    struct region r = away(1);
    /* EINVAL: this kernel has no names. */
    int named = prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, page_at(r, QUARTER), QUARTER * PAGE, "named");
    must(named == 0 || errno == EINVAL);
    expect(r, 1, "named in part");
    press();
    expect(r, 1, "and later");
    must(munmap(page_at(r, QUARTER), QUARTER * PAGE) == 0);
    expect(part(r, 0, QUARTER), 1, "before what was unmapped");
}

void call_mbind(void) {
    enum { BIND = 2, MOVE = 2 };
    struct region r = away(1);
    unsigned long node = 1;
    if (syscall(SYS_mbind, r.base, r.pages * PAGE / 2, BIND, &node, 8 * sizeof node, MOVE) != 0)
        skip("memory cannot be bound (%s)", strerror(errno));
    expect(r, 1, "bound to a node");
    press();
    void *pages[2] = {page_at(r, 0), page_at(r, PAGES - 1)};
    int nodes[2] = {0, 0}, status[2];
    (void)syscall(SYS_move_pages, 0, 2, pages, nodes, status, MOVE);
    expect(r, 1, "moved to a node");
}

void call_droppable(void) {
    void *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        skip("the kernel knows no memory that it may drop (%s)", strerror(errno));
    struct region r = {at, PAGES};
    fill(r, 1);
    press();
    expect_all_or_nothing(r, 1, "that may be dropped");
    fill(r, 2);
    press();
    expect_all_or_nothing(r, 2, "that may be dropped, written again");
}
