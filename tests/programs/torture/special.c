/* Memory that is not ordinary: shared with children, locked, or filled faster than anyone can
 * watch. */
#include "torture.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Shared pages cannot be paged by pleat, so they are few; private pages press on them. */
void test_shared(size_t pages) {
    const size_t shared_pages = 4 * MB / PAGE, rounds = 6;
    unsigned char *shared = mmap(NULL, shared_pages * PAGE, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED);
    struct region r = filled_region(pages, 1);
    for (size_t round = 1; round <= rounds; round++) {
        fill_pages(shared, 0, shared_pages, round);
        push_out(r);
        pid_t child = fork();
        must(child >= 0);
        if (child == 0) {
            expect_pages(shared, 0, shared_pages, round, "child, shared memory");
            fill_pages(shared, 0, shared_pages, round + 100);
            fill(part(r, 0, pages / 8), 2);
            _exit(0);
        }
        reap(child, "child");
        expect_pages(shared, 0, shared_pages, round + 100, "what the child wrote");
    }
    expect(r, 1, "private memory beside shared");
}

static size_t lockable_pages(size_t wanted) {
    struct rlimit limit;
    must(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() == 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / PAGE > wanted)
        return wanted;
    return limit.rlim_cur / 2 / PAGE;
}

/* A quarter, because locked pages must fit the budget next to everything else. */
void test_mlock(size_t pages) {
    struct region r = filled_region(pages, 1);
    const size_t locked_pages = lockable_pages(pages / 4);
    struct region locked = part(r, 0, locked_pages);
    if (locked_pages == 0 || (mlock(locked.base, PAGE) != 0 && errno == EPERM))
        skip("locking memory is not allowed here");
    for (int round = 0; round < 3; round++) {
        must(mlock(locked.base, locked.pages * PAGE) == 0);
        expect(r, 1, "while a part is locked");
        push_out(r);
        expect(locked, 1, "locked");
        must(munlock(locked.base, locked.pages * PAGE) == 0);
        push_out(r);
        expect(r, 1, "after munlock");
    }
}

static void expect_bytes(struct region r, unsigned char value) {
    unsigned char wanted[4096];
    memset(wanted, value, PAGE);
    for (size_t p = 0; p < r.pages; p++)
        if (memcmp(page_at(r, p), wanted, PAGE) != 0)
            fail("page %zu does not hold the byte %d it was set to", p, value);
}

/* Fresh memory at the speed of memset; each mapping is new to whoever watches. */
void test_prefault(size_t pages) {
    for (int round = 1; round <= 4; round++) {
        struct region r = map_region(pages);
        memset(r.base, round, pages * PAGE);
        expect_bytes(r, round);
        fill(r, round);
        expect(r, round, "after memset");
        unmap_region(r);
    }
}

/* MAP_POPULATE asks for all pages in one call, MADV_POPULATE_WRITE (Linux 5.14) likewise. */
void test_populate(size_t pages) {
    void *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    must(at != MAP_FAILED);
    struct region r = {at, pages};
    expect_zeros(r.base, pages, "populated");
    fill(r, 1);
    expect(r, 1, "populated and filled");
    must(madvise(r.base, pages * PAGE, MADV_DONTNEED) == 0);
    must(madvise(r.base, pages * PAGE, MADV_POPULATE_WRITE) == 0 || errno == EINVAL);
    expect_zeros(r.base, pages, "populated again");
    fill(r, 2);
    must(madvise(r.base, pages * PAGE, MADV_POPULATE_WRITE) == 0 || errno == EINVAL);
    expect(r, 2, "populated over data");
}
