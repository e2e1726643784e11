/* The map of memory changes under the pager: mremap, munmap, madvise and mprotect on ranges
 * whose pages are away. What was dropped must read as zeros, everything else as it was. */
#include "torture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_unmapped(void *at) {
    unsigned char in_core;
    return mincore(at, PAGE, &in_core) != 0 && errno == ENOMEM;
}

static struct region resized(struct region r, size_t pages) {
    void *at = mremap(r.base, r.pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    must(at != MAP_FAILED);
    return (struct region){at, pages};
}

static void grow_and_shrink(size_t pages) {
    struct region r = filled_region(pages / 2, 1);
    r = resized(r, pages);
    expect(part(r, 0, pages / 2), 1, "grown, old half");
    expect_zeros(page_at(r, pages / 2), pages / 2, "grown, new half");
    fill(r, 2);
    r = resized(r, pages / 4);
    expect(r, 2, "shrunk");
    r = resized(r, pages);
    expect(part(r, 0, pages / 4), 2, "grown again, old quarter");
    expect_zeros(page_at(r, pages / 4), pages - pages / 4, "grown again, the rest");
    unmap_region(r);
}

static void *reserve(size_t pages) {
    void *at = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    must(at != MAP_FAILED);
    return at;
}

static void move_to_a_fixed_place(size_t pages) {
    struct region r = filled_region(pages, 3);
    unsigned char *old = r.base, *place = reserve(pages);
    must(mremap(old, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    r.base = place;
    must(is_unmapped(old));
    expect(r, 3, "moved to a fixed place");
    unmap_region(r);
}

/* The middle third moves out; its old place and the thirds around it stay usable. */
static void move_the_middle_out(size_t pages) {
    const size_t third = pages / 3;
    struct region r = filled_region(3 * third, 4);
    unsigned char *place = reserve(third), *middle = page_at(r, third);
    must(mremap(middle, third * PAGE, third * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) ==
         place);
    expect_pages(place, third, third, 4, "middle, moved out");
    expect(part(r, 0, third), 4, "before the moved middle");
    expect_pages(page_at(r, 2 * third), 2 * third, third, 4, "after the moved middle");
    must(munmap(place, third * PAGE) == 0 && munmap(r.base, 3 * third * PAGE) == 0);
}

static void move_and_keep_the_mapping(size_t pages) {
    struct region r = filled_region(pages, 5);
    void *at = mremap(r.base, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    must(at != MAP_FAILED);
    struct region moved = {at, pages};
    expect_zeros(r.base, pages / 2, "left behind by MREMAP_DONTUNMAP");
    expect(moved, 5, "moved by MREMAP_DONTUNMAP");
    fill(part(r, 0, pages / 2), 6);
    expect(moved, 5, "moved, while the old place fills again");
    expect(part(r, 0, pages / 2), 6, "the old place, filled again");
    unmap_region(moved);
    unmap_region(r);
}

void test_mremap(size_t pages) {
    for (int round = 0; round < 2; round++) {
        grow_and_shrink(pages);
        move_to_a_fixed_place(pages);
        move_the_middle_out(pages);
        move_and_keep_the_mapping(pages);
    }
}

/* A region and what each of its pages must hold; several threads own disjoint parts. */
enum { ZEROS = 0, LOST = UINT32_MAX };
struct ledger {
    struct region region;
    uint32_t *seeds; /* per page; ZEROS, LOST (no longer mapped by us) or a seed */
    void (*drop)(struct ledger *l, size_t first, size_t count);
    uint64_t random;
};

#define LARGEST_DROP 48 /* pages */

static void expect_entry(struct ledger *l, size_t p, const char *when) {
    if (l->seeds[p] == ZEROS)
        expect_zeros(page_at(l->region, p), 1, when);
    else if (l->seeds[p] != LOST)
        expect_pages(page_at(l->region, p), p, 1, l->seeds[p], when);
}

static void write_entry(struct ledger *l, size_t p, uint32_t seed) {
    if (l->seeds[p] == LOST)
        return;
    pattern(page_at(l->region, p), seed, p);
    l->seeds[p] = seed;
}

static void set_entries(struct ledger *l, size_t first, size_t count, uint32_t seed) {
    for (size_t p = first; p < first + count; p++)
        l->seeds[p] = seed;
}

static int any_lost(struct ledger *l, size_t first, size_t count) {
    for (size_t p = first; p < first + count; p++)
        if (l->seeds[p] == LOST)
            return 1;
    return 0;
}

/* Drops random ranges, reads some of each as zeros, writes every second page anew, and now
 * and then looks at pages that nobody dropped. */
static void *churn(void *arg) {
    struct ledger *l = arg;
    for (size_t round = 1; round <= l->region.pages / 16; round++) {
        size_t first = next_random(&l->random) % (l->region.pages - LARGEST_DROP);
        size_t count = 1 + next_random(&l->random) % LARGEST_DROP;
        if (any_lost(l, first, count))
            continue;
        l->drop(l, first, count);
        for (size_t p = first; p < first + count; p++) {
            expect_entry(l, p, "dropped");
            if (p % 2)
                write_entry(l, p, round + 1);
        }
        for (int k = 0; k < 32; k++)
            expect_entry(l, next_random(&l->random) % l->region.pages, "not dropped");
    }
    for (size_t p = 0; p < l->region.pages; p++)
        expect_entry(l, p, "at the end");
    return NULL;
}

static void churn_in_threads(size_t pages, void (*drop)(struct ledger *, size_t, size_t)) {
    enum { THREADS = 4 };
    struct region r = map_region(pages);
    struct ledger ledgers[THREADS];
    uint32_t *seeds = calloc(pages, sizeof *seeds);
    must(seeds);
    for (int i = 0; i < THREADS; i++) {
        size_t first = i * (pages / THREADS);
        ledgers[i] = (struct ledger){part(r, first, pages / THREADS), seeds + first, drop, i * 977};
        fill(ledgers[i].region, 1);
        set_entries(&ledgers[i], 0, pages / THREADS, 1);
    }
    start_threads(THREADS, churn, ledgers, sizeof ledgers[0]);
    free(seeds);
    unmap_region(r);
}

/* Somebody else's mmap may take the hole before we do: then it is theirs, and we leave it. */
static void unmap_and_map_again(struct ledger *l, size_t first, size_t count) {
    void *at = page_at(l->region, first);
    must(munmap(at, count * PAGE) == 0);
    void *got = mmap(at, count * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    must(got == at || errno == EEXIST);
    set_entries(l, first, count, got == at ? ZEROS : LOST);
}

static void map_over(struct ledger *l, size_t first, size_t count) {
    void *at = page_at(l->region, first);
    must(mmap(at, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
              -1, 0) == at);
    set_entries(l, first, count, ZEROS);
}

static void dont_need(struct ledger *l, size_t first, size_t count) {
    must(madvise(page_at(l->region, first), count * PAGE, MADV_DONTNEED) == 0);
    set_entries(l, first, count, ZEROS);
}

void test_munmap(size_t pages) {
    churn_in_threads(pages, map_over);
    churn_in_threads(pages, unmap_and_map_again);
}

/* After MADV_FREE a page holds what it held or zeros, until the next write decides. */
static void free_lazily(struct region r) {
    static const unsigned char zeros[4096];
    unsigned char wanted[4096];
    fill(r, 2);
    must(madvise(r.base, r.pages * PAGE, MADV_FREE) == 0);
    for (size_t p = 0; p < r.pages; p += 2)
        pattern(page_at(r, p), 3, p);
    for (size_t p = 0; p < r.pages; p++) {
        pattern(wanted, p % 2 ? 2 : 3, p);
        const int kept = memcmp(page_at(r, p), wanted, PAGE) == 0;
        if (!kept && (p % 2 == 0 || memcmp(page_at(r, p), zeros, PAGE) != 0))
            fail("page %zu after MADV_FREE is neither as written nor zero", p);
    }
}

static void wipe_on_fork(struct region r) {
    fill(r, 4);
    must(madvise(r.base, r.pages / 2 * PAGE, MADV_WIPEONFORK) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        expect_zeros(r.base, r.pages / 2, "child, wiped half");
        expect_pages(page_at(r, r.pages / 2), r.pages / 2, r.pages / 2, 4, "child, kept half");
        _exit(0);
    }
    expect(r, 4, "parent after MADV_WIPEONFORK");
    reap(child, "child");
    must(madvise(r.base, r.pages / 2 * PAGE, MADV_KEEPONFORK) == 0);
}

/* The child gets what was wiped at the fork, whatever was so before and is so when it looks. */
static void wipe_in_part_on_fork(struct region r) {
    const size_t quarter = r.pages / 4, bytes = quarter * PAGE;
    fill(r, 7);
    must(madvise(r.base, 2 * bytes, MADV_WIPEONFORK) == 0);
    must(madvise(page_at(r, quarter), bytes, MADV_KEEPONFORK) == 0);
    push_out(r);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        must(madvise(r.base, bytes, MADV_KEEPONFORK) == 0);
        must(madvise(page_at(r, quarter), bytes, MADV_WIPEONFORK) == 0);
        expect_zeros(r.base, quarter, "child, wiped quarter");
        expect_pages(page_at(r, quarter), quarter, r.pages - quarter, 7, "child, kept quarters");
        _exit(0);
    }
    expect(r, 7, "parent after MADV_KEEPONFORK of a part");
    reap(child, "child");
    must(madvise(r.base, bytes, MADV_KEEPONFORK) == 0);
}

static void *move_pages_to(void *from, void *to, size_t bytes) {
    void *moved = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    must(moved == to);
    return moved;
}

static void wipe_what_was_moved(struct region r) {
    const size_t half = r.pages / 2;
    void *elsewhere = mmap(NULL, half * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(elsewhere != MAP_FAILED);
    fill(r, 8);
    must(madvise(r.base, half * PAGE, MADV_WIPEONFORK) == 0);
    push_out(r);
    move_pages_to(r.base, elsewhere, half * PAGE);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        expect_zeros(elsewhere, half, "child, wiped and moved");
        expect_pages(page_at(r, half), half, half, 8, "child, beside what was moved");
        _exit(0);
    }
    expect_pages(elsewhere, 0, half, 8, "parent, wiped and moved");
    reap(child, "child");
    move_pages_to(elsewhere, r.base, half * PAGE);
    must(madvise(r.base, half * PAGE, MADV_KEEPONFORK) == 0);
}

static void dont_fork(struct region r) {
    fill(r, 5);
    must(madvise(r.base, r.pages / 2 * PAGE, MADV_DONTFORK) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        must(is_unmapped(r.base) && is_unmapped(page_at(r, r.pages / 2 - 1)));
        expect_pages(page_at(r, r.pages / 2), r.pages / 2, r.pages / 2, 5, "child, forked half");
        _exit(0);
    }
    expect(r, 5, "parent after MADV_DONTFORK");
    reap(child, "child");
    must(madvise(r.base, r.pages / 2 * PAGE, MADV_DOFORK) == 0);
}

/* Taking single pages out of huge pages splits them. EINVAL: a kernel without huge pages. */
static void huge_pages(struct region r) {
    must(madvise(r.base, r.pages * PAGE, MADV_DONTNEED) == 0);
    must(madvise(r.base, r.pages * PAGE, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    fill(r, 6);
    push_out(r);
    expect(r, 6, "huge pages");
    must(madvise(page_at(r, 3), PAGE, MADV_DONTNEED) == 0);
    expect_zeros(page_at(r, 3), 1, "dropped out of a huge page");
    expect_pages(page_at(r, 4), 4, r.pages - 4, 6, "around a page dropped out of a huge one");
}

void test_madvise(size_t pages) {
    churn_in_threads(pages, dont_need);
    struct region r = map_region(pages);
    free_lazily(r);
    wipe_on_fork(r);
    wipe_in_part_on_fork(r);
    wipe_what_was_moved(r);
    dont_fork(r);
    huge_pages(r);
}

static sigjmp_buf after_fault;

static void leave_fault(int signal) {
    (void)signal;
    siglongjmp(after_fault, 1);
}

/* Volatile: the caller's locals must survive the jump. */
static int write_faults(volatile unsigned char *at) {
    if (sigsetjmp(after_fault, 1))
        return 1;
    *at = 1;
    return 0;
}

static int read_faults(volatile unsigned char *at) {
    if (sigsetjmp(after_fault, 1))
        return 1;
    (void)*at;
    return 0;
}

static void protect(struct region r, int how) {
    must(mprotect(r.base, r.pages * PAGE, how) == 0);
}

void test_mprotect(size_t pages) {
    struct region r = filled_region(pages, 1), half = part(r, 0, pages / 2);
    struct sigaction old, catch = {.sa_handler = leave_fault};
    int ends[2];
    must(pipe(ends) == 0 && sigaction(SIGSEGV, &catch, &old) == 0);
    for (int round = 0; round < 3; round++) {
        protect(half, PROT_NONE);
        expect_pages(page_at(r, pages / 2), pages / 2, pages - pages / 2, 1, "unprotected half");
        for (size_t p = 0; p < half.pages; p += 37)
            must(read_faults(page_at(half, p)) && write_faults(page_at(half, p)));
        must(write(ends[1], half.base, 1) == -1 && errno == EFAULT);
        protect(half, PROT_READ);
        expect(half, 1, "read-only half");
        for (size_t p = 0; p < half.pages; p += 37)
            must(write_faults(page_at(half, p)));
        protect(half, PROT_READ | PROT_WRITE);
        expect(r, 1, "writable again");
    }
    must(sigaction(SIGSEGV, &old, NULL) == 0);
}
