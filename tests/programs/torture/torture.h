/* What every torture test shares: verifiable page patterns, regions made of them, and the
 * ways to fail. A test works on a region larger than its memory budget and walks through all
 * of it, so that under pleat most pages are away whenever it comes back to them. Without
 * pleat every test must pass too: nothing here knows that it is being paged. */
#ifndef TORTURE_H
#define TORTURE_H

#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#define PAGE ((size_t)4096)
#define MB ((size_t)1 << 20)

/* Private anonymous memory whose page number i counts from `base`. */
struct region {
    unsigned char *base;
    size_t pages;
};

/* What the mixed pattern is made of. */
enum data { DATA_MIXED, DATA_RANDOM, DATA_COMPRESSIBLE };
extern enum data pattern_data; /* DATA_MIXED unless a test asks otherwise */

/* Writes the page that (seed, number) stands for: about one in sixteen is zero, one in
 * sixteen one repeated word, one in eight incompressible, the rest packs 2:1 to 5:1. */
void pattern(unsigned char *out, uint64_t seed, size_t number);
uint64_t mix(uint64_t x);
uint64_t next_random(uint64_t *state);

struct region map_region(size_t pages);
void unmap_region(struct region r);
struct region part(struct region r, size_t first, size_t count);
unsigned char *page_at(struct region r, size_t number);

/* Fill and check whole regions; page numbers count from the region's base. */
void fill(struct region r, uint64_t seed);
void expect(struct region r, uint64_t seed, const char *when);
struct region filled_region(size_t pages, uint64_t seed);

/* The same for `count` pages at `at` that stand for numbers first, first + 1, ... */
void fill_pages(unsigned char *at, size_t first, size_t count, uint64_t seed);
void expect_pages(const unsigned char *at, size_t first, size_t count, uint64_t seed,
                  const char *when);
void expect_zeros(const unsigned char *at, size_t count, const char *when);

/* Reads one word of every page, so that what was in memory before gives way. */
void push_out(struct region r);

/* The test under way: the NAME in what is printed. */
extern const char *running;
/* Ends this process with `FAIL NAME why` on stdout, from any thread or child. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the test with `SKIP NAME why` and status 0: this machine cannot run it. */
_Noreturn void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define must(condition)                                                                  \
    do {                                                                                 \
        if (!(condition))                                                                \
            fail("%s:%d: %s (%s)", __FILE__, __LINE__, #condition, strerror(errno));     \
    } while (0)

/* Helpers on processes, threads and files (support.c). */
void reap(pid_t child, const char *who);             /* fails unless it exited with 0 */
int wait_status(pid_t child);
void start_threads(int count, void *(*body)(void *), void *args, size_t arg_size);
int temporary_file(int extra_flags);                 /* unlinked, in TMPDIR */
void pwrite_all(int fd, const void *from, size_t len, off_t at);
void pread_all(int fd, void *to, size_t len, off_t at);
void write_pattern_file(int fd, size_t pages, uint64_t seed);
void expect_file(int fd, size_t pages, uint64_t seed, const char *when);

/* A thread that keeps pushing a region through memory until it is stopped. */
struct pusher {
    struct region region;
    unsigned long thread;
    int stop;
};
void start_pusher(struct pusher *p, struct region r);
void stop_pusher(struct pusher *p);

/* The tests; `pages` is the size of the region to work on. */
void test_read(size_t pages);
void test_write(size_t pages);
void test_socket(size_t pages);
void test_odirect(size_t pages);
void test_iouring(size_t pages);
void test_fork(size_t pages);
void test_forkexec(size_t pages);
void test_exitstatus(size_t pages);
void test_mremap(size_t pages);
void test_munmap(size_t pages);
void test_madvise(size_t pages);
void test_mprotect(size_t pages);
void test_closefds(size_t pages);
void test_sigsegv(size_t pages);
void test_sigalrm(size_t pages);
void test_threads(size_t pages);
void test_upheaval(size_t pages);
void test_dropback(size_t pages);
void test_heap(size_t pages);
void test_stackdeep(size_t pages);
void test_shared(size_t pages);
void test_mlock(size_t pages);
void test_prefault(size_t pages);
void test_populate(size_t pages);

#endif
