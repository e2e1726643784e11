/* What the test of shared memory is made of: a segment that several processes map, its pages, and who writes what.
 *
 *   a page:  15 lanes of 256 bytes, each written by one worker and read by all
 *            a common part: counters that all add to, and a robust lock with what it guards
 *
 * Of everything some process knows in its private memory what must be there, so a write that is lost, a page that
 * reads as zeros and one that shows what it was some time ago are all seen, by the writer or by a reader.
 * Nothing here knows that it is being paged. */
#ifndef SHARED_H
#define SHARED_H

#include "../torture/torture.h"

#include <pthread.h>

#define LANES 15
#define WORDS 30
#define COUNTERS 4

/* How the memory is made. */
enum kind {
    ANONYMOUS,  /* MAP_SHARED and MAP_ANONYMOUS */
    CLOSED,     /* a memfd whose descriptor is closed once it is mapped */
    OPEN,       /* a memfd whose descriptor is used beside the mapping */
    NAMED,      /* a file of /dev/shm, unlinked once it is mapped */
    SYSV,       /* shmget and shmat */
};

/* `head` is raised before the words are written and `tail` after: where they are equal the words are those of that
 * version. Version 0 is all zeros. */
struct lane {
    _Atomic uint64_t head;
    uint64_t words[WORDS];
    _Atomic uint64_t tail;
};

struct common {
    _Atomic uint64_t counters[COUNTERS];
    _Atomic uint32_t ball; /* a futex: whose turn it is */
    uint32_t unused;
    pthread_mutex_t lock;
    uint64_t left, right; /* equal, unless who has the lock changes them */
};

struct shared_page {
    struct lane lanes[LANES];
    union {
        struct common common;
        unsigned char room[256];
    };
};
_Static_assert(sizeof(struct shared_page) == 4096, "a page");

/* The segment as this process sees it. `pages` have the structure above; `spare` pages behind them belong to one
 * worker each, who knows every byte. */
struct segment {
    enum kind kind;
    struct shared_page *at;
    size_t pages, spare;
    int file; /* -1 where there is no descriptor */
};

struct segment make_segment(enum kind kind, size_t pages, size_t spare);
size_t segment_bytes(const struct segment *s);
/* Maps the segment a second time, checks that both are the same memory, and gives up the first. */
void move_segment(struct segment *s, uint64_t *random);

/* What one process knows of the segment. */
struct knowledge {
    struct segment *segment;
    int slot;           /* whose lane is ours; -1 of a reader */
    uint64_t random;
    uint32_t *seen;     /* the newest version seen of each lane of each page */
    uint32_t *added;    /* what we have added to each page's counters */
    uint32_t *spare;    /* the version of each spare page that is ours */
};

struct knowledge begin_knowledge(struct segment *s, int slot, uint64_t seed);
void check_lane(struct knowledge *k, size_t page, int lane);
void write_lane(struct knowledge *k, size_t page);
/* Who had our lane before was killed: one lane may be half written. */
void recover_lanes(struct knowledge *k);
void check_everything(struct knowledge *k);
void add_to_counters(struct knowledge *k, size_t page);

void begin_locks(struct segment *s);
/* Takes a page's lock, changes what it guards, now and then slowly. */
void use_lock(struct knowledge *k, size_t page);
/* Throws a ball to and fro by futexes until `until`; `side` is 0 or 1. */
void play_ball(struct segment *s, int side, double until);

/* Something with a spare page of ours: system calls from and to it, advice, protection. */
void use_spare_page(struct knowledge *k);

/* Does to the memory what a bad pager would, until it is killed: `what` is lost, zeros, or stale. */
_Noreturn void sabotage(struct segment *s, const char *what);

double seconds(void);
/* Whether the first process still waits for us: it does not once somebody has failed. */
int is_judged(void);

#endif
