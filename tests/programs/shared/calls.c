/* What a worker does with its spare pages, of which it knows every byte: it has the kernel read and write them by
 * address and by descriptor, gives them up, and forbids itself to write. */
#include "shared.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

/* A spare page, what it must hold, and where it is in the segment. */
struct spare {
    struct knowledge *k;
    unsigned char *at;
    size_t number;
    off_t offset;
};

/* Version 0 is zeros. */
static void bytes_of(unsigned char *out, size_t number, uint32_t version) {
    if (version == 0)
        memset(out, 0, PAGE);
    else
        pattern(out, version, number);
}

static void expect_spare(const struct spare *s, const unsigned char *bytes, const char *when) {
    unsigned char right[PAGE];
    uint32_t version = s->k->spare[s->number];
    bytes_of(right, s->number, version);
    for (size_t i = 0; i < PAGE; i++)
        if (bytes[i] != right[i])
            fail("spare page %zu, version %u, %s: byte %zu is %02x, not %02x", s->number, version, when, i,
                 bytes[i], right[i]);
}

/* The next version's bytes, which are about to be put there. */
static void next_bytes(const struct spare *s, unsigned char *out) {
    bytes_of(out, s->number, ++s->k->spare[s->number]);
}

static void write_spare(const struct spare *s) {
    unsigned char bytes[PAGE];
    next_bytes(s, bytes);
    memcpy(s->at, bytes, PAGE);
}

static void through_a_pipe(const struct spare *s) {
    int ends[2];
    unsigned char bytes[PAGE];
    must(pipe(ends) == 0);
    must(write(ends[1], s->at, PAGE) == PAGE && read(ends[0], bytes, PAGE) == PAGE);
    expect_spare(s, bytes, "written to a pipe");
    next_bytes(s, bytes);
    must(write(ends[1], bytes, PAGE) == PAGE && read(ends[0], s->at, PAGE) == PAGE);
    struct iovec part = {s->at, PAGE};
    must(vmsplice(ends[1], &part, 1, 0) == PAGE && read(ends[0], bytes, PAGE) == PAGE);
    expect_spare(s, bytes, "spliced into a pipe");
    close(ends[0]);
    close(ends[1]);
}

static void through_a_file(const struct spare *s) {
    static int file = -1;
    if (file < 0)
        file = temporary_file(O_DIRECT);
    unsigned char *bytes = aligned_alloc(PAGE, PAGE);
    must(bytes);
    must(pwrite(file, s->at, PAGE, 0) == PAGE && pread(file, bytes, PAGE, 0) == PAGE);
    expect_spare(s, bytes, "written to a file");
    next_bytes(s, bytes);
    must(pwrite(file, bytes, PAGE, 0) == PAGE && pread(file, s->at, PAGE, 0) == PAGE);
    free(bytes);
}

static void by_process_id(const struct spare *s) {
    unsigned char bytes[PAGE];
    struct iovec here = {bytes, PAGE}, there = {s->at, PAGE};
    must(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == PAGE);
    expect_spare(s, bytes, "read by another process");
    next_bytes(s, bytes);
    must(process_vm_writev(getpid(), &here, 1, &there, 1, 0) == PAGE);
}

static void by_descriptor(const struct spare *s) {
    int file = s->k->segment->file;
    unsigned char bytes[PAGE];
    must(pread(file, bytes, PAGE, s->offset) == PAGE);
    expect_spare(s, bytes, "read by descriptor");
    next_bytes(s, bytes);
    must(pwrite(file, bytes, 1000, s->offset) == 1000);
    must(pwrite(file, bytes + 1000, PAGE - 1000, s->offset + 1000) == PAGE - 1000);
    expect_spare(s, s->at, "after a write by descriptor");
    int ends[2];
    must(pipe(ends) == 0);
    off_t from = s->offset;
    must(sendfile(ends[1], file, &from, PAGE) == PAGE && read(ends[0], bytes, PAGE) == PAGE);
    expect_spare(s, bytes, "sent by descriptor");
    close(ends[0]);
    close(ends[1]);
}

static void give_up(const struct spare *s) {
    /* The memory is shared: what one process does not need now, all have still. */
    must(madvise(s->at, PAGE, MADV_DONTNEED) == 0);
    expect_spare(s, s->at, "after MADV_DONTNEED");
    if (s->k->segment->file >= 0) {
        must(fallocate(s->k->segment->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, s->offset, PAGE) == 0);
        must(s->at[100] == 0);
        must(fallocate(s->k->segment->file, 0, s->offset, PAGE) == 0);
    } else {
        must(madvise(s->at, PAGE, MADV_REMOVE) == 0);
    }
    s->k->spare[s->number] = 0;
    expect_spare(s, s->at, "after it was removed");
    /* So that the next version is one that no page had. */
    s->k->spare[s->number] = (uint32_t)next_random(&s->k->random) | 1;
    write_spare(s);
}

static void forbid(const struct spare *s) {
    must(mprotect(s->at, PAGE, PROT_READ) == 0);
    expect_spare(s, s->at, "read-only");
    must(mprotect(s->at, PAGE, PROT_READ | PROT_WRITE) == 0);
    write_spare(s);
}

static void map_privately(const struct spare *s) {
    /* A private view of an anonymous segment cannot be made. */
    int file = s->k->segment->file;
    unsigned char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, s->offset);
    must(own != MAP_FAILED);
    expect_spare(s, own, "by a private mapping");
    own[7]++;
    expect_spare(s, s->at, "after a write to a private mapping");
    must(munmap(own, PAGE) == 0);
}

void use_spare_page(struct knowledge *k) {
    static const struct {
        void (*use)(const struct spare *);
        const char *when;
    } uses[] = {
        {write_spare, "after it was written"},
        {through_a_pipe, "after a read from a pipe"},
        {through_a_file, "after a direct read from a file"},
        {by_process_id, "after another process wrote to it"},
        {give_up, "after it was given up and written"},
        {forbid, "after it was read-only, and written"},
        /* with a descriptor only: */
        {by_descriptor, "after a write by descriptor"},
        {map_privately, "after it was mapped privately"},
    };
    size_t count = sizeof uses / sizeof uses[0] - (k->segment->file >= 0 ? 0 : 2);
    size_t each = k->segment->spare / LANES;
    if (each == 0)
        return;
    size_t number = next_random(&k->random) % each * LANES + (size_t)k->slot;
    struct spare s = {.k = k, .number = number};
    s.at = (unsigned char *)(k->segment->at + k->segment->pages + number);
    s.offset = (off_t)((k->segment->pages + number) * PAGE);
    expect_spare(&s, s.at, "as it was left");
    size_t chosen = next_random(&k->random) % count;
    uses[chosen].use(&s);
    expect_spare(&s, s.at, uses[chosen].when);
}
