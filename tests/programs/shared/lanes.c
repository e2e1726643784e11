/* Lanes: each is written by one worker and read by all, and shows at every moment which version it is of. */
#include "shared.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <stdatomic.h>
#include <time.h>

static uint64_t word_of(size_t page, int lane, uint64_t version, int i) {
    uint64_t word = page * 16 + (uint64_t)lane + (version << 20) + (uint64_t)i;
    return i % 4 ? word : mix(word);
}

static int is_of(const uint64_t *words, size_t page, int lane, uint64_t version) {
    for (int i = 0; i < WORDS; i++) {
        uint64_t right = version ? word_of(page, lane, version, i) : 0;
        if (words[i] != right)
            return 0;
    }
    return 1;
}

struct knowledge begin_knowledge(struct segment *s, int slot, uint64_t seed) {
    struct knowledge k = {.segment = s, .slot = slot, .random = mix(seed + 1)};
    k.seen = calloc(s->pages * LANES, sizeof *k.seen);
    k.added = calloc(s->pages, sizeof *k.added);
    k.spare = calloc(s->spare + 1, sizeof *k.spare);
    must(k.seen && k.added && k.spare);
    return k;
}

void check_lane(struct knowledge *k, size_t page, int lane) {
    struct lane *at = &k->segment->at[page].lanes[lane];
    uint32_t *seen = &k->seen[page * LANES + (size_t)lane];
    uint64_t words[WORDS];
    uint64_t tail = atomic_load(&at->tail);
    /* As volatile, for another process may write meanwhile; then `head` shows it. */
    for (int i = 0; i < WORDS; i++)
        words[i] = *(volatile uint64_t *)&at->words[i];
    atomic_thread_fence(memory_order_acquire);
    uint64_t head = atomic_load(&at->head);
    if (tail < *seen)
        fail("page %zu lane %d is of version %lu, but version %u was seen%s", page, lane, tail, *seen,
             tail == 0 ? ": it reads as zeros" : "");
    if (head < tail)
        fail("page %zu lane %d begins with version %lu and ends with %lu", page, lane, head, tail);
    if (head == tail && !is_of(words, page, lane, head))
        fail("page %zu lane %d has other words than version %lu", page, lane, head);
    int is_ours = lane == k->slot;
    if (is_ours && (head != *seen || tail != *seen))
        fail("page %zu lane %d is of version %lu to %lu, but we wrote %u", page, lane, head, tail, *seen);
    *seen = (uint32_t)tail;
}

static void write_version(struct knowledge *k, size_t page, uint64_t version) {
    struct lane *at = &k->segment->at[page].lanes[k->slot];
    atomic_store(&at->head, version);
    atomic_thread_fence(memory_order_release);
    for (int i = 0; i < WORDS; i++)
        *(volatile uint64_t *)&at->words[i] = word_of(page, k->slot, version, i);
    atomic_store(&at->tail, version);
    k->seen[page * LANES + (size_t)k->slot] = (uint32_t)version;
}

void write_lane(struct knowledge *k, size_t page) {
    check_lane(k, page, k->slot);
    write_version(k, page, k->seen[page * LANES + (size_t)k->slot] + 1);
}

void recover_lanes(struct knowledge *k) {
    int halves = 0;
    for (size_t page = 0; page < k->segment->pages; page++) {
        struct lane *at = &k->segment->at[page].lanes[k->slot];
        uint32_t *seen = &k->seen[page * LANES + (size_t)k->slot];
        uint64_t head = atomic_load(&at->head), tail = atomic_load(&at->tail);
        if (tail < *seen)
            fail("page %zu lane %d of the dead is of version %lu, but %u was seen", page, k->slot, tail, *seen);
        if (head == tail) {
            *seen = (uint32_t)tail;
            check_lane(k, page, k->slot);
        } else if (head == tail + 1 && ++halves == 1) {
            write_version(k, page, head + 1);
        } else {
            fail("page %zu lane %d of the dead is of version %lu to %lu", page, k->slot, head, tail);
        }
    }
}

void check_everything(struct knowledge *k) {
    for (size_t page = 0; page < k->segment->pages; page++)
        for (int lane = 0; lane < LANES; lane++)
            check_lane(k, page, lane);
}

void add_to_counters(struct knowledge *k, size_t page) {
    struct common *common = &k->segment->at[page].common;
    uint64_t before = atomic_fetch_add(&common->counters[next_random(&k->random) % COUNTERS], 1);
    (void)before;
    k->added[page]++;
}

/* A page in the state that a bad pager would leave it in, now and then. What is done lasts some tens of microseconds;
 * the writers do the rest. */
void sabotage(struct segment *s, const char *what) {
    uint64_t random = mix(42);
    unsigned char copy[PAGE], old[PAGE];
    size_t old_page = 0;
    memcpy(old, s->at, PAGE);
    for (;;) {
        size_t page = next_random(&random) % s->pages;
        if (!strcmp(what, "lost")) { /* bytes that were read before the page was taken */
            memcpy(copy, s->at + page, PAGE);
            for (volatile int i = 0; i < 20000; i++)
                ;
            memcpy(s->at + page, copy, PAGE);
        } else if (!strcmp(what, "zeros")) { /* a hole that nobody fills */
            must(madvise(s->at + page, PAGE, MADV_REMOVE) == 0);
        } else { /* a copy of a former absence */
            struct timespec pause = {0, 50 * 1000 * 1000};
            nanosleep(&pause, NULL);
            memcpy(s->at + old_page, old, PAGE);
            memcpy(old, s->at + page, PAGE);
            old_page = page;
        }
    }
}
