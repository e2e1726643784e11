/* Devices and the kernel's own threads reach our pages by pinning them: O_DIRECT and io_uring.
 * A page that is taken away while it is pinned would send the data into nowhere, so a second
 * thread pushes memory around all the while. */
#include "torture.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK 256 /* pages moved by one O_DIRECT call */

static void write_blocks(int fd, struct region r) {
    for (size_t p = 0; p + BLOCK <= r.pages; p += BLOCK)
        must(pwrite(fd, page_at(r, p), BLOCK * PAGE, p * PAGE) == (ssize_t)(BLOCK * PAGE));
}

static void read_blocks_backwards(int fd, struct region r) {
    for (size_t p = r.pages / BLOCK * BLOCK; p >= BLOCK; p -= BLOCK)
        must(pread(fd, page_at(r, p - BLOCK), BLOCK * PAGE, (p - BLOCK) * PAGE) ==
             (ssize_t)(BLOCK * PAGE));
}

void test_odirect(size_t pages) {
    int fd = temporary_file(O_DIRECT);
    if (fd < 0)
        skip("the file system of TMPDIR refuses O_DIRECT (%s)", strerror(errno));
    struct region r = filled_region(pages / BLOCK * BLOCK, 1);
    struct pusher pusher;
    start_pusher(&pusher, part(r, 0, r.pages / 2));
    write_blocks(fd, r);
    expect(r, 1, "after O_DIRECT writes");
    fill(r, 2);
    read_blocks_backwards(fd, r);
    stop_pusher(&pusher);
    expect(r, 1, "after O_DIRECT reads");
    close(fd);
}

/* Just enough of io_uring: one entry in flight, no polling, no liburing. */
struct ring {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
};

static void *map_ring(int fd, size_t len, off_t what) {
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
    must(at != MAP_FAILED);
    return at;
}

static struct ring open_ring(void) {
    struct io_uring_params p = {0};
    struct ring ring = {.fd = syscall(SYS_io_uring_setup, 8, &p)};
    if (ring.fd < 0)
        skip("io_uring is not allowed here (%s)", strerror(errno));
    char *sq = map_ring(ring.fd, p.sq_off.array + p.sq_entries * 4, IORING_OFF_SQ_RING);
    char *cq = map_ring(ring.fd, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
                        IORING_OFF_CQ_RING);
    ring.entries = map_ring(ring.fd, p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    ring.sq_tail = (unsigned *)(sq + p.sq_off.tail);
    ring.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(sq + p.sq_off.array);
    ring.cq_head = (unsigned *)(cq + p.cq_off.head);
    ring.cq_tail = (unsigned *)(cq + p.cq_off.tail);
    ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    ring.results = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
    return ring;
}

static void submit(struct ring *ring, struct io_uring_sqe entry) {
    const unsigned tail = *ring->sq_tail, slot = tail & *ring->sq_mask;
    ring->entries[slot] = entry;
    ring->sq_array[slot] = slot;
    __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
    must(syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0) == 1);
}

static int finish(struct ring *ring) {
    const unsigned head = *ring->cq_head;
    while (__atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) == head) {
        long n = syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        must(n >= 0 || errno == EINTR);
    }
    int result = ring->results[head & *ring->cq_mask].res;
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

#define URING_BLOCK 32 /* pages of one io_uring operation */

static void expect_whole_block(int result, const char *what) {
    if (result != (int)(URING_BLOCK * PAGE))
        fail("%s moved %d bytes (%s)", what, result, result < 0 ? strerror(-result) : "short");
}

static struct io_uring_sqe operation(int opcode, int fd, void *at, size_t file_page) {
    return (struct io_uring_sqe){.opcode = opcode,
                                 .fd = fd,
                                 .addr = (uintptr_t)at,
                                 .len = URING_BLOCK * PAGE,
                                 .off = file_page * PAGE};
}

/* Plain reads and writes; IOSQE_ASYNC makes a worker thread of the kernel touch our pages. Synced now and
 * then: the kernel holds back no such worker, and when all it could drop of a group with a limit and without
 * swap waits for the disk it kills (with 4 MiB left to the page cache, in one of four runs on a disk of
 * 20 MB/s without pleat). */
static void plain_operations(struct ring *ring, struct region r, int fd, unsigned char flags,
                             const char *what) {
    for (size_t p = 0; p + URING_BLOCK <= r.pages; p += URING_BLOCK) {
        struct io_uring_sqe write = operation(IORING_OP_WRITE, fd, page_at(r, p), p);
        write.flags = flags;
        submit(ring, write);
        expect_whole_block(finish(ring), what);
        if (p / URING_BLOCK % 16 == 15)
            must(fdatasync(fd) == 0);
    }
    fill(r, 2);
    for (size_t p = 0; p + URING_BLOCK <= r.pages; p += URING_BLOCK) {
        struct io_uring_sqe read = operation(IORING_OP_READ, fd, page_at(r, p), p);
        read.flags = flags;
        submit(ring, read);
        expect_whole_block(finish(ring), what);
    }
    expect(r, 1, what);
}

/* Registered buffers stay pinned between operations: they must stay where they are, however
 * long nobody touches them, or the next read goes into a page that is no longer ours. */
static void fixed_buffers(struct ring *ring, struct region r, int fd) {
    const int rounds = 12;
    int written = temporary_file(0);
    struct region buffers = filled_region(8 * URING_BLOCK, 3);
    struct iovec all = {buffers.base, buffers.pages * PAGE};
    push_out(r);
    if (syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS, &all, 1) != 0)
        skip("io_uring works, but registering buffers does not (%s)", strerror(errno));
    expect(buffers, 3, "after registering buffers");
    for (size_t p = 0; p < buffers.pages; p += URING_BLOCK) {
        submit(ring, operation(IORING_OP_WRITE_FIXED, written, page_at(buffers, p), p));
        expect_whole_block(finish(ring), "fixed write");
    }
    expect_file(written, buffers.pages, 3, "fixed write");
    close(written);
    for (int round = 0; round < rounds; round++) {
        push_out(r);
        for (size_t p = 0; p < buffers.pages; p += URING_BLOCK) {
            size_t from = (p + round * URING_BLOCK) % (r.pages - URING_BLOCK);
            submit(ring, operation(IORING_OP_READ_FIXED, fd, page_at(buffers, p), from));
            push_out(part(r, 0, r.pages / 4));
            expect_whole_block(finish(ring), "fixed read");
            expect_pages(page_at(buffers, p), from, URING_BLOCK, 1, "fixed buffer");
        }
    }
}

void test_iouring(size_t pages) {
    struct ring ring = open_ring();
    struct region r = filled_region(pages / URING_BLOCK * URING_BLOCK, 1);
    struct pusher pusher;
    int plain = temporary_file(0), direct = temporary_file(O_DIRECT);
    must(plain >= 0);
    plain_operations(&ring, r, plain, 0, "io_uring");
    plain_operations(&ring, r, plain, IOSQE_ASYNC, "io_uring worker");
    start_pusher(&pusher, part(r, 0, r.pages / 2));
    if (direct >= 0)
        plain_operations(&ring, r, direct, 0, "io_uring with O_DIRECT");
    stop_pusher(&pusher);
    fixed_buffers(&ring, r, direct >= 0 ? direct : plain);
    expect(r, 1, "after io_uring");
    close(ring.fd);
}
