/* Threads that fault at once, on pages, locks, stacks and heap blocks that are away. */
#include "torture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAULTERS = 8 };

struct faulter {
    struct region region;
    uint64_t random;
    size_t touches;
};

/* The first word of a page counts touches; the rest keeps its pattern. */
static void expect_rest_of_page(struct region r, size_t p) {
    unsigned char wanted[4096];
    pattern(wanted, 1, p);
    if (memcmp(page_at(r, p) + 8, wanted + 8, PAGE - 8) != 0)
        fail("page %zu changed behind its counter", p);
}

static void *touch_at_random(void *arg) {
    struct faulter *f = arg;
    for (size_t i = 0; i < f->touches; i++) {
        size_t p = next_random(&f->random) % f->region.pages;
        __atomic_fetch_add((uint64_t *)page_at(f->region, p), 1, __ATOMIC_RELAXED);
        if (i % 16 == 0)
            expect_rest_of_page(f->region, p);
    }
    return NULL;
}

static void eight_threads_fault_at_once(struct region r) {
    struct faulter faulters[FAULTERS];
    uint64_t total = 0;
    for (size_t p = 0; p < r.pages; p++)
        *(uint64_t *)page_at(r, p) = 0;
    for (int i = 0; i < FAULTERS; i++)
        faulters[i] = (struct faulter){r, i * 1000003, r.pages};
    start_threads(FAULTERS, touch_at_random, faulters, sizeof faulters[0]);
    for (size_t p = 0; p < r.pages; p++) {
        total += *(uint64_t *)page_at(r, p);
        expect_rest_of_page(r, p);
    }
    if (total != (uint64_t)FAULTERS * r.pages)
        fail("%llu of %zu increments arrived", (unsigned long long)total, FAULTERS * r.pages);
}

static void *use_some_stack(void *arg) {
    const uint64_t seed = *(uint64_t *)arg;
    _Alignas(64) unsigned char pages[16 * 4096];
    fill_pages(pages, 0, 16, seed);
    expect_pages(pages, 0, 16, seed, "stack of a short thread");
    return NULL;
}

static void many_short_threads(struct region r) {
    enum { AT_ONCE = 6 };
    for (size_t round = 0; round < 60; round++) {
        uint64_t seeds[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            seeds[i] = round * AT_ONCE + i;
        start_threads(AT_ONCE, use_some_stack, seeds, sizeof seeds[0]);
        if (round % 10 == 0)
            push_out(r);
    }
}

/* A bounded queue whose lock, conditions and slots each live on a page of their own, so that
 * futex words are away when the kernel looks at them. */
struct queue {
    pthread_mutex_t *lock;
    pthread_cond_t *not_empty, *not_full;
    uint64_t *slots[4];
    struct region rest;
    size_t head, tail, messages;
};

static void *produce(void *arg) {
    struct queue *q = arg;
    for (size_t i = 0; i < q->messages; i++) {
        if (i % 500 == 0)
            push_out(q->rest);
        must(pthread_mutex_lock(q->lock) == 0);
        while (q->head - q->tail == 4)
            must(pthread_cond_wait(q->not_full, q->lock) == 0);
        *q->slots[q->head++ % 4] = mix(i);
        must(pthread_cond_signal(q->not_empty) == 0);
        must(pthread_mutex_unlock(q->lock) == 0);
    }
    return NULL;
}

static void consume(struct queue *q) {
    for (size_t i = 0; i < q->messages; i++) {
        must(pthread_mutex_lock(q->lock) == 0);
        while (q->head == q->tail)
            must(pthread_cond_wait(q->not_empty, q->lock) == 0);
        uint64_t got = *q->slots[q->tail++ % 4];
        must(pthread_cond_signal(q->not_full) == 0);
        must(pthread_mutex_unlock(q->lock) == 0);
        if (got != mix(i))
            fail("message %zu of the queue is wrong", i);
    }
}

static void locks_that_are_away(struct region r) {
    struct region home = map_region(7);
    struct queue q = {.rest = r, .messages = 4000};
    pthread_t producer;
    q.lock = (void *)page_at(home, 0);
    q.not_empty = (void *)page_at(home, 1);
    q.not_full = (void *)page_at(home, 2);
    for (int i = 0; i < 4; i++)
        q.slots[i] = (void *)page_at(home, 3 + i);
    must(pthread_mutex_init(q.lock, NULL) == 0);
    must(pthread_cond_init(q.not_empty, NULL) == 0 && pthread_cond_init(q.not_full, NULL) == 0);
    must(pthread_create(&producer, NULL, produce, &q) == 0);
    consume(&q);
    must(pthread_join(producer, NULL) == 0);
}

void test_threads(size_t pages) {
    struct region r = filled_region(pages, 1);
    eight_threads_fault_at_once(r);
    locks_that_are_away(r);
    many_short_threads(r);
}

/* One thread changes the address space and forks while others fault at once: what is read for them together
 * must not be filled from before such a change. */
enum { SIDE = 256 };

static void expect_in_child(struct region r, struct region side, uint64_t seed) {
    const pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        uint64_t random = seed;
        for (int i = 0; i < 64; i++)
            expect_rest_of_page(r, next_random(&random) % r.pages);
        expect(side, seed, "in a child of a process whose threads fault");
        _exit(0);
    }
    int status;
    must(waitpid(child, &status, 0) == child);
    if (status != 0)
        fail("a child ended with status %#x", status);
}

static void change_mappings(struct region r, uint64_t seed) {
    struct region side = filled_region(SIDE, seed), target = map_region(SIDE);
    push_out(part(r, 0, r.pages / 2));
    must(mremap(side.base, SIDE * PAGE, SIDE * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target.base) == target.base);
    expect(target, seed, "moved while threads fault");
    if (seed % 4 == 0)
        expect_in_child(r, target, seed);
    must(madvise(target.base, SIDE / 2 * PAGE, MADV_DONTNEED) == 0);
    expect_zeros(target.base, SIDE / 2, "dropped while threads fault");
    unmap_region(target);
}

static void *disturb(void *arg) {
    struct faulter *f = arg;
    for (uint64_t seed = 0; seed < 40; seed++)
        change_mappings(f->region, seed);
    return NULL;
}

static void *touch_or_disturb(void *arg) {
    struct faulter *f = arg;
    return f->touches ? touch_at_random(f) : disturb(f);
}

void test_upheaval(size_t pages) {
    struct region r = filled_region(pages - 2 * SIDE, 1);
    struct faulter faulters[FAULTERS];
    for (size_t p = 0; p < r.pages; p++)
        *(uint64_t *)page_at(r, p) = 0;
    for (int i = 0; i < FAULTERS; i++)
        faulters[i] = (struct faulter){r, i * 1000003, i ? 2 * r.pages : 0};
    start_threads(FAULTERS, touch_or_disturb, faulters, sizeof faulters[0]);
    uint64_t total = 0;
    for (size_t p = 0; p < r.pages; p++) {
        total += *(uint64_t *)page_at(r, p);
        expect_rest_of_page(r, p);
    }
    if (total != (FAULTERS - 1) * 2 * (uint64_t)r.pages)
        fail("%llu of %zu increments arrived", (unsigned long long)total, (FAULTERS - 1) * 2 * r.pages);
}

/* Threads that drop, move and share with a child pages that have just come back: whoever filled them may not have
 * taken note of it yet. Each thread has every eighth page for itself. */
static void check_and_drop(struct region r, size_t p, uint64_t random) {
    unsigned char *at = page_at(r, p);
    expect_pages(at, p, 1, 1, "just come back");
    if (random % 4 == 0) {
        must(madvise(at, PAGE, MADV_DONTNEED) == 0);
        expect_zeros(at, 1, "dropped as soon as it was back");
        fill_pages(at, p, 1, 1);
    }
    if (random % 4096 == 1) {
        const pid_t child = fork();
        must(child >= 0);
        if (child == 0) {
            expect_pages(at, p, 1, 1, "in a child, just come back");
            _exit(0);
        }
        reap(child, "child of a thread whose page has just come back");
    }
}

static void *drop_at_random(void *arg) {
    struct faulter *f = arg;
    const size_t own = f->random % FAULTERS;
    for (size_t i = 0; i < f->touches; i++) {
        const size_t p = next_random(&f->random) % (f->region.pages / FAULTERS) * FAULTERS + own;
        check_and_drop(f->region, p, next_random(&f->random));
    }
    return NULL;
}

void test_dropback(size_t pages) {
    struct region r = filled_region(pages / FAULTERS * FAULTERS, 1);
    struct faulter faulters[FAULTERS];
    for (int i = 0; i < FAULTERS; i++)
        faulters[i] = (struct faulter){r, FAULTERS * 1000003 + i, r.pages / 2};
    start_threads(FAULTERS, drop_at_random, faulters, sizeof faulters[0]);
    expect(r, 1, "after threads that dropped what came back");
}

/* Random malloc, realloc and free against a model of what every block must hold. */
enum { ALLOCATORS = 3, SLOTS = 2048 };

struct block {
    unsigned char *at;
    size_t size;
    uint64_t seed;
};

struct allocator {
    struct block blocks[SLOTS];
    size_t live, live_max; /* bytes */
    uint64_t random;
};

/* Mostly small blocks from brk, some that malloc maps on their own. */
static size_t random_size(uint64_t *random) {
    const uint64_t n = next_random(random);
    if (n % 100 < 60)
        return 1 + (n >> 8) % 2000;
    return n % 100 < 95 ? 1 + (n >> 8) % 60000 : 140000 + (n >> 8) % 700000;
}

static unsigned char byte_of(const struct block *b, size_t i) {
    return (unsigned char)(mix(b->seed + i / 64) >> (i % 8) * 4);
}

static void write_block(struct block *b, size_t from) {
    for (size_t i = from; i < b->size; i++)
        b->at[i] = byte_of(b, i);
}

static void expect_block(const struct block *b, size_t size, const char *when) {
    for (size_t i = 0; i < size; i++)
        if (b->at[i] != byte_of(b, i))
            fail("%s: byte %zu of a heap block of %zu bytes is wrong", when, i, b->size);
}

static void allocate(struct allocator *a, struct block *b) {
    *b = (struct block){.size = random_size(&a->random), .seed = next_random(&a->random)};
    must(b->at = malloc(b->size));
    write_block(b, 0);
    a->live += b->size;
}

static void release(struct allocator *a, struct block *b) {
    expect_block(b, b->size, "freeing");
    a->live -= b->size;
    free(b->at);
    b->at = NULL;
}

static void resize(struct allocator *a, struct block *b) {
    const size_t before = b->size, after = random_size(&a->random);
    must(b->at = realloc(b->at, after));
    a->live += after - before;
    b->size = after;
    expect_block(b, before < after ? before : after, "after realloc");
    write_block(b, before < after ? before : after);
}

static void *exercise_heap(void *arg) {
    struct allocator *a = arg;
    for (int step = 0; step < 12000; step++) {
        struct block *b = &a->blocks[next_random(&a->random) % SLOTS];
        if (!b->at && a->live < a->live_max)
            allocate(a, b);
        else if (b->at && (a->live >= a->live_max || step % 3))
            release(a, b);
        else if (b->at)
            resize(a, b);
    }
    for (int i = 0; i < SLOTS; i++)
        if (a->blocks[i].at)
            release(a, &a->blocks[i]);
    return NULL;
}

void test_heap(size_t pages) {
    struct allocator *allocators = calloc(ALLOCATORS, sizeof *allocators);
    must(allocators);
    for (int i = 0; i < ALLOCATORS; i++) {
        allocators[i].live_max = pages * PAGE / ALLOCATORS;
        allocators[i].random = i * 7919;
    }
    start_threads(ALLOCATORS, exercise_heap, allocators, sizeof *allocators);
    free(allocators);
}

/* Every frame keeps data that it checks when the calls below it have returned. */
static __attribute__((noinline)) uint64_t descend(size_t frames, uint64_t seed) {
    volatile uint64_t kept[120];
    for (int i = 0; i < 120; i++)
        kept[i] = mix(seed + i) & (i % 3 ? 0xff : ~(uint64_t)0);
    const uint64_t below = frames ? descend(frames - 1, seed + 120) : 0;
    for (int i = 0; i < 120; i++)
        if (kept[i] != (mix(seed + i) & (i % 3 ? 0xff : ~(uint64_t)0)))
            fail("a stack frame %zu calls above the deepest changed", frames);
    return below + 1;
}

static void *descend_in_thread(void *arg) {
    const size_t frames = *(size_t *)arg;
    for (int round = 0; round < 4; round++)
        must(descend(frames, round) == frames + 1);
    return NULL;
}

void test_stackdeep(size_t pages) {
    const size_t main_frames = 5 * MB / 1100, stack_bytes = pages / 2 * PAGE;
    size_t thread_frames = (stack_bytes - MB) / 1100;
    struct region r = filled_region(pages / 2, 1);
    pthread_attr_t attributes;
    pthread_t thread;
    must(descend(main_frames, 1) == main_frames + 1);
    must(pthread_attr_init(&attributes) == 0);
    must(pthread_attr_setstacksize(&attributes, stack_bytes) == 0);
    must(pthread_create(&thread, &attributes, descend_in_thread, &thread_frames) == 0);
    expect(r, 1, "beside a deep stack");
    must(pthread_join(thread, NULL) == 0);
    expect(r, 1, "after deep stacks");
    must(descend(main_frames, 2) == main_frames + 1);
}
