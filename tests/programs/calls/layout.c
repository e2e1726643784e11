/* Where memory is: grown, moved, protected, reserved, replaced; and by many threads at once. */
#include "calls.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define HALF (PAGES / 2)
#define QUARTER (PAGES / 4)
/* How long threads change mappings. */
#define STORM_SECONDS 0.5
#define STORM_THREADS 4

static void *map(size_t pages, int protection, int flags) {
    void *at = mmap(NULL, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    must(at != MAP_FAILED);
    return at;
}

static void *moved(void *at, size_t from, size_t to, int flags, void *place) {
    void *result = mremap(at, from * PAGE, to * PAGE, MREMAP_MAYMOVE | flags, place);
    must(result != MAP_FAILED);
    return result;
}

void call_mremap(void) {
    const size_t megabyte = MB / PAGE;
    unsigned char *at = filled_region(HALF, 1).base;
    press();
    for (size_t i = 0; i < 200; i++) {
        size_t from = HALF + i % 3 * megabyte, to = HALF + (i + 1) % 3 * megabyte;
        at = moved(at, from, to, 0, NULL);
        if (i % 7 == 0) {
            unsigned char *place = map(2 * PAGES, PROT_READ | PROT_WRITE, 0);
            at = moved(at, to, to, MREMAP_FIXED, place + MB);
            must(munmap(place, MB) == 0);
        }
        if (i % 50 == 0)
            press();
        if (to > HALF) {
            if (to > from)
                expect_zeros(at + from * PAGE, to - from, "grown");
            memset(at + HALF * PAGE, 0, (to - HALF) * PAGE);
        }
        expect_pages(at, 0, HALF, 1, "grown, shrunk and moved");
    }
}

void call_dontunmap(void) {
    struct region r = away(1);
    struct region there = {moved(r.base, PAGES, PAGES, MREMAP_DONTUNMAP, NULL), PAGES};
    press();
    expect(there, 1, "moved");
    expect_zeros(r.base, PAGES, "left behind");
}

void call_protnone(void) {
    struct region r = away(1);
    must(mprotect(r.base, r.pages * PAGE, PROT_NONE) == 0);
    press();
    must(signal_of_reading(r.base) == SIGSEGV);
    must(mprotect(r.base, r.pages * PAGE, PROT_READ) == 0);
    expect(r, 1, "readable again");
}

/* Much more address space than memory: parts of it made accessible, and all of it. */
void call_reserve(void) {
    const size_t all = (1ul << 40) / PAGE, parts = 200, part = 16, pages = 2000;
    unsigned char *at = map(all, PROT_NONE, MAP_NORESERVE);
    for (int round = 0; round < 3; round++, press())
        for (size_t i = 0; i < parts; i++) {
            unsigned char *here = at + all / parts * i * PAGE;
            if (round == 0) {
                must(mprotect(here, part * PAGE, PROT_READ | PROT_WRITE) == 0);
                fill_pages(here, i * part, part, 1);
            } else
                expect_pages(here, i * part, part, 1, "a part of much address space");
        }
    must(munmap(at, all * PAGE) == 0);
    at = mmap(NULL, all * PAGE, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return; /* the system does not overcommit so much */
    for (int round = 0; round < 2; round++, press())
        for (size_t i = 0; i < pages; i++) {
            unsigned char *here = at + all / pages * i * PAGE;
            if (round == 0)
                fill_pages(here, i, 1, 2);
            else
                expect_pages(here, i, 1, 2, "a page far from every other");
        }
}

static unsigned char *grow_heap(long bytes) {
    void *before = sbrk(bytes);
    must(before != (void *)-1);
    return (unsigned char *)(((uintptr_t)before + PAGE - 1) & ~(PAGE - 1));
}

void call_brk(void) {
    const size_t pages = 2 * PAGES;
    unsigned char *at = grow_heap((pages + 1) * PAGE);
    fill_pages(at, 0, pages, 1);
    press();
    expect_pages(at, 0, pages, 1, "heap");
    grow_heap(-(long)(PAGES * PAGE));
    press();
    unsigned char *again = grow_heap(PAGES * PAGE);
    expect_zeros(again, PAGES - 1, "given back and taken again");
    expect_pages(at, 0, PAGES - 1, 1, "heap that has stayed");
}

void call_fixedover(void) {
    struct region r = away(1);
    void *place = page_at(r, QUARTER);
    must(mmap(place, QUARTER * PAGE, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place);
    expect_zeros(place, QUARTER, "mapped over");
    fill_pages(place, 0, QUARTER, 2);
    press();
    expect(part(r, 0, QUARTER), 1, "beside what was mapped over");
    expect_pages(place, 0, QUARTER, 2, "mapped over, and filled");
}

void call_stackdeep(void) {
    unsigned char deep[(QUARTER * 2 + 1) * PAGE];
    unsigned char *at = (unsigned char *)(((uintptr_t)deep + PAGE - 1) & ~(PAGE - 1));
    fill_pages(at, 0, QUARTER * 2, 1);
    press();
    expect_pages(at, 0, QUARTER * 2, 1, "deep in the stack");
}

void call_rlimitas(void) {
    struct rlimit limit = {200 * MB, 200 * MB};
    must(setrlimit(RLIMIT_AS, &limit) == 0);
    expect(away(1), 1, "in little address space");
}

static int stop;

/* Threads change mappings while everything is pushed out again and again. */
static void storm(void *(*body)(void *), struct region kept) {
    pthread_t threads[STORM_THREADS];
    double end = seconds() + STORM_SECONDS;
    for (long i = 0; i < STORM_THREADS; i++)
        must(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    while (seconds() < end) {
        press();
        expect(kept, 1, "what nobody changes");
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < STORM_THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
}

static bool goes_on(void) {
    return !__atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static void *map_and_unmap(void *argument) {
    const size_t drop = 16;
    for (size_t i = 0, seed = 10 + (long)argument; goes_on(); i++, seed += 10) {
        struct region r = map_region(drop * (1 + (mix(seed) & 3)));
        fill(r, seed);
        if (i % 3 == 0)
            sched_yield();
        if (i % 16 == 0)
            usleep(500);
        expect(r, seed, "just mapped");
        if (i % 2) {
            must(madvise(r.base, drop * PAGE, MADV_DONTNEED) == 0);
            expect_zeros(r.base, drop, "just given up");
        }
        unmap_region(r);
    }
    return NULL;
}

void call_storm(void) {
    storm(map_and_unmap, filled_region(PAGES, 1));
}

static void *grow_and_move(void *argument) {
    const size_t least = 64;
    uint64_t seed = 10 + (long)argument;
    unsigned char *at = filled_region(least, seed).base;
    for (size_t i = 0, from = least; goes_on(); i++) {
        size_t to = least + 16 * (mix(i * 5 + seed) & 7);
        at = moved(at, from, to, 0, NULL);
        if (to > from)
            expect_zeros(at + from * PAGE, to - from, "grown");
        if (to > least)
            memset(at + least * PAGE, 0, (to - least) * PAGE);
        from = to;
        expect_pages(at, 0, least, seed, "grown and moved");
        if (i % 64 == 0)
            unmap_region(map_region(128));
    }
    return NULL;
}

void call_mrstorm(void) {
    storm(grow_and_move, filled_region(QUARTER, 1));
}

static void *protect_and_read(void *argument) {
    uint64_t seed = 10 + (long)argument;
    struct region r = filled_region(QUARTER * 2, seed);
    for (size_t i = 0; goes_on(); i++) {
        unsigned char *at = page_at(r, mix(i + seed) % 60 * 16);
        size_t len = 16 * (1 + i % 4) * PAGE;
        must(mprotect(at, len, PROT_READ) == 0);
        expect(part(r, 0, 256), seed, "partly read-only");
        must(mprotect(at, len, PROT_READ | PROT_WRITE) == 0);
        *(volatile unsigned char *)at = *at;
    }
    expect(r, seed, "protected again and again");
    return NULL;
}

void call_protstorm(void) {
    storm(protect_and_read, filled_region(QUARTER, 1));
}
