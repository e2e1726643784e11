/* The kernel reads and writes pages that are away, on the program's behalf: files, vectors,
 * pipes and sockets. */
#include "torture.h"

#include <netinet/in.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK 64       /* pages moved by one call */
#define FILE_BLOCKS 16 /* blocks in the file that is read again and again */

enum way { WAY_PLAIN, WAY_VECTOR, WAY_AT, WAY_VECTOR_AT, WAYS };
static const char *const read_way[WAYS] = {"read", "readv", "pread", "preadv"};
static const char *const write_way[WAYS] = {"write", "writev", "pwrite", "pwritev"};

/* A block in three uneven pieces that do not end on page boundaries. */
static void split_block(struct iovec v[3], unsigned char *at) {
    const size_t one = 100, two = 5 * PAGE + 7;
    v[0] = (struct iovec){at, one};
    v[1] = (struct iovec){at + one, two};
    v[2] = (struct iovec){at + one + two, BLOCK * PAGE - one - two};
}

static ssize_t read_block(enum way way, int fd, unsigned char *to, off_t at) {
    struct iovec v[3];
    split_block(v, to);
    if (way == WAY_AT)
        return pread(fd, to, BLOCK * PAGE, at);
    if (way == WAY_VECTOR_AT)
        return preadv(fd, v, 3, at);
    must(lseek(fd, at, SEEK_SET) == at);
    return way == WAY_PLAIN ? read(fd, to, BLOCK * PAGE) : readv(fd, v, 3);
}

static ssize_t write_block(enum way way, int fd, unsigned char *from, off_t at) {
    struct iovec v[3];
    split_block(v, from);
    if (way == WAY_AT)
        return pwrite(fd, from, BLOCK * PAGE, at);
    if (way == WAY_VECTOR_AT)
        return pwritev(fd, v, 3, at);
    must(lseek(fd, at, SEEK_SET) == at);
    return way == WAY_PLAIN ? write(fd, from, BLOCK * PAGE) : writev(fd, v, 3);
}

static void read_whole_region(struct region r, int fd, enum way way) {
    for (size_t b = 0; b < r.pages / BLOCK; b++) {
        off_t at = (b % FILE_BLOCKS) * BLOCK * PAGE;
        ssize_t n = read_block(way, fd, page_at(r, b * BLOCK), at);
        if (n != (ssize_t)(BLOCK * PAGE))
            fail("%s into block %zu moved %zd bytes (%s)", read_way[way], b, n, strerror(errno));
    }
    for (size_t b = 0; b < r.pages / BLOCK; b++)
        expect_pages(page_at(r, b * BLOCK), (b % FILE_BLOCKS) * BLOCK, BLOCK, 2, read_way[way]);
}

/* A read that covers parts of two pages must leave their other bytes as they were. */
static void read_across_a_boundary(struct region r, int fd) {
    unsigned char wanted[2 * 4096];
    fill(r, 5);
    for (size_t p = 0; p + 1 < r.pages; p += 16) {
        fill_pages(wanted, p, 2, 5);
        pread_all(fd, wanted + 3000, 3000, p * 8);
        must(pread(fd, page_at(r, p) + 3000, 3000, p * 8) == 3000);
        if (memcmp(page_at(r, p), wanted, 2 * PAGE) != 0)
            fail("pread of 3000 bytes across the end of page %zu left wrong bytes", p);
    }
}

void test_read(size_t pages) {
    struct region r = filled_region(pages, 1);
    int fd = temporary_file(0);
    must(fd >= 0);
    write_pattern_file(fd, FILE_BLOCKS * BLOCK, 2);
    for (enum way way = 0; way < WAYS; way++) {
        fill(r, 3);
        read_whole_region(r, fd, way);
    }
    read_across_a_boundary(r, fd);
}

/* The pipe holds references to our pages while everything else pushes them out. */
static void vmsplice_away_pages(struct region r) {
    const size_t count = 8;
    static unsigned char got[8 * 4096];
    int ends[2];
    must(pipe(ends) == 0);
    for (size_t p = 0; p + count <= r.pages; p += r.pages / 8) {
        struct iovec v = {page_at(r, p), count * PAGE};
        must(vmsplice(ends[1], &v, 1, 0) == (ssize_t)(count * PAGE));
        push_out(r);
        for (size_t n = 0; n < sizeof got;) {
            ssize_t more = read(ends[0], got + n, sizeof got - n);
            must(more > 0);
            n += more;
        }
        expect_pages(got, p, count, 1, "vmsplice");
    }
    close(ends[0]);
    close(ends[1]);
}

void test_write(size_t pages) {
    struct region r = filled_region(pages, 1);
    for (enum way way = 0; way < WAYS; way++) {
        int fd = temporary_file(0);
        must(fd >= 0);
        for (size_t b = 0; b < r.pages / BLOCK; b++) {
            ssize_t n = write_block(way, fd, page_at(r, b * BLOCK), b * BLOCK * PAGE);
            if (n != (ssize_t)(BLOCK * PAGE))
                fail("%s of block %zu moved %zd bytes (%s)", write_way[way], b, n,
                     strerror(errno));
        }
        expect_file(fd, r.pages / BLOCK * BLOCK, 1, write_way[way]);
        close(fd);
    }
    vmsplice_away_pages(r);
    expect(r, 1, "after writing");
}

struct wire {
    int fd;
    struct region region;
};

static void *send_region(void *arg) {
    struct wire *w = arg;
    const size_t total = w->region.pages * PAGE;
    for (size_t done = 0; done < total;) {
        const size_t want = total - done < 100000 ? total - done : 100000;
        ssize_t n = send(w->fd, w->region.base + done, want, MSG_NOSIGNAL);
        must(n > 0 || (n < 0 && errno == EINTR));
        done += n > 0 ? n : 0;
    }
    return NULL;
}

/* Odd sizes, so that most calls begin and end inside a page; recvmsg in two pieces. */
static void receive_region(struct wire w) {
    const size_t total = w.region.pages * PAGE;
    for (size_t done = 0; done < total;) {
        size_t want = total - done < 70001 ? total - done : 70001;
        struct iovec v[2] = {{w.region.base + done, want / 3},
                             {w.region.base + done + want / 3, want - want / 3}};
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        ssize_t n = recvmsg(w.fd, &m, done % 2 ? MSG_WAITALL : 0);
        must(n > 0 || (n < 0 && errno == EINTR));
        done += n > 0 ? n : 0;
    }
}

static void tcp_pair(int ends[2]) {
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(listener >= 0 && bind(listener, (struct sockaddr *)&here, len) == 0);
    must(listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&here, &len) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(ends[0] >= 0 && connect(ends[0], (struct sockaddr *)&here, len) == 0);
    must((ends[1] = accept(listener, NULL, NULL)) >= 0);
    close(listener);
}

static void send_half_to_half(struct region r, int ends[2], const char *what) {
    const size_t half = r.pages / 2;
    struct wire out = {ends[0], part(r, 0, half)}, in = {ends[1], part(r, half, half)};
    pthread_t sender;
    fill(in.region, 7);
    must(pthread_create(&sender, NULL, send_region, &out) == 0);
    receive_region(in);
    must(pthread_join(sender, NULL) == 0);
    expect(in.region, 1, what);
    expect(out.region, 1, what);
    close(ends[0]);
    close(ends[1]);
}

void test_socket(size_t pages) {
    struct region r = filled_region(pages, 1);
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    send_half_to_half(r, ends, "unix socket");
    tcp_pair(ends);
    send_half_to_half(r, ends, "tcp socket");
}
