/* Making the segment in each of the ways that programs do, and mapping it again. */
#include "shared.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

#define READ_WRITE (PROT_READ | PROT_WRITE)

double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

size_t segment_bytes(const struct segment *s) { return (s->pages + s->spare) * PAGE; }

static int named_file(void) {
    char name[64];
    snprintf(name, sizeof name, "/dev/shm/shared-%d", getpid());
    int file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0)
        skip("no /dev/shm (%s)", strerror(errno));
    must(unlink(name) == 0);
    return file;
}

static void *attach(size_t bytes) {
    int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    if (id < 0)
        skip("no System V shared memory (%s)", strerror(errno));
    void *at = shmat(id, NULL, 0);
    /* It lives as long as somebody has it attached. */
    must(shmctl(id, IPC_RMID, NULL) == 0 && at != (void *)-1);
    return at;
}

struct segment make_segment(enum kind kind, size_t pages, size_t spare) {
    struct segment s = {.kind = kind, .pages = pages, .spare = spare, .file = -1};
    size_t bytes = segment_bytes(&s);
    if (kind == SYSV) {
        s.at = attach(bytes);
        return s;
    }
    if (kind == ANONYMOUS) {
        s.at = mmap(NULL, bytes, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        must(s.at != MAP_FAILED);
        return s;
    }
    s.file = kind == NAMED ? named_file() : memfd_create("shared", MFD_CLOEXEC);
    must(s.file >= 0 && ftruncate(s.file, (off_t)bytes) == 0);
    s.at = mmap(NULL, bytes, READ_WRITE, MAP_SHARED, s.file, 0);
    must(s.at != MAP_FAILED);
    if (kind == CLOSED) {
        must(close(s.file) == 0);
        s.file = -1;
    }
    return s;
}

void move_segment(struct segment *s, uint64_t *random) {
    size_t bytes = segment_bytes(s);
    void *second = s->file >= 0 ? mmap(NULL, bytes, READ_WRITE, MAP_SHARED, s->file, 0)
                                : mremap(s->at, 0, bytes, MREMAP_MAYMOVE);
    must(second != MAP_FAILED);
    /* A process that maps it twice sees one memory: what is added by the one shows by the other. */
    struct shared_page *page = (struct shared_page *)second + next_random(random) % s->pages;
    struct shared_page *same = s->at + (page - (struct shared_page *)second);
    for (int i = 0; i < COUNTERS; i++) {
        uint64_t before = same->common.counters[i];
        uint64_t now = page->common.counters[i];
        if (now < before)
            fail("a second mapping shows counter %d as %lu, after %lu", i, now, before);
        if (same->common.counters[i] < now)
            fail("the first mapping does not show what the second does");
    }
    /* In two steps, as programs give memory back in parts. */
    size_t half = bytes / PAGE / 2 * PAGE;
    if (s->kind == SYSV) {
        must(shmdt(s->at) == 0);
    } else {
        must(munmap((char *)s->at + half, bytes - half) == 0 && munmap(s->at, half) == 0);
    }
    s->at = second;
}
