/* The kernel reads and writes pages that are away: pipes, files, sockets, other processes; and memory that is shared,
 * which stays as it is. */
#include "calls.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK 65536

static void read_all(int fd, void *to, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, (char *)to + done, len - done);
        must(n > 0);
        done += n;
    }
}

/* What is shared between parent and child, and is written to by the child. */
static void expect_shared(struct region r) {
    fill(r, 1);
    press();
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        expect(r, 1, "shared, in the child");
        fill(part(r, 0, PAGES / 8), 2);
        _exit(0);
    }
    reap(child, "the child");
    expect(part(r, 0, PAGES / 8), 2, "shared, written to by the child");
}

void call_sysvshm(void) {
    int id = shmget(IPC_PRIVATE, PAGES * PAGE, IPC_CREAT | 0600);
    if (id < 0)
        skip("no shared memory of System V (%s)", strerror(errno));
    void *at = shmat(id, NULL, 0);
    must(at != (void *)-1);
    must(shmctl(id, IPC_RMID, NULL) == 0);
    expect_shared((struct region){at, PAGES});
}

void call_shanon(void) {
    void *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED);
    expect_shared((struct region){at, PAGES});
}

void call_memfd(void) {
    int fd = memfd_create("calls", 0);
    must(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
    struct region of[3];
    const int kinds[] = {MAP_SHARED, MAP_PRIVATE, MAP_SHARED};
    for (int i = 0; i < 3; i++) {
        int protection = PROT_READ | (i < 2 ? PROT_WRITE : 0);
        void *at = mmap(NULL, PAGES * PAGE, protection, kinds[i], fd, 0);
        must(at != MAP_FAILED);
        of[i] = (struct region){at, PAGES};
    }
    fill(of[0], 1);
    press();
    fill(of[1], 2);
    press();
    expect(of[1], 2, "private pages of a memory file");
    expect(of[2], 1, "shared and read only");
    expect(of[0], 1, "shared");
}

/* Another process reads: what it finds is right; a page that it cannot have is an error. */
void peek(pid_t process, const unsigned char *at) {
    static unsigned char page[4096];
    for (size_t i = 0; i < PAGES; i++) {
        struct iovec here = {page, PAGE}, there = {(void *)(at + i * PAGE), PAGE};
        if (process_vm_readv(process, &here, 1, &there, 1, 0) == (ssize_t)PAGE)
            expect_pages(page, i, 1, 1, "read by another process");
    }
}

void call_vmreadv(void) {
    struct region r = away(1);
    char process[32], at[32];
    snprintf(process, sizeof process, "%d", getpid());
    snprintf(at, sizeof at, "%lx", (unsigned long)r.base);
    pid_t child = vfork();
    must(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "calls", "peek", process, at, (char *)NULL);
        _exit(127);
    }
    reap(child, "the reader");
    expect(r, 1, "read by another process");
}

void call_procmem(void) {
    struct region r = away(1);
    int fd = open("/proc/self/mem", O_RDWR);
    must(fd >= 0);
    unsigned char *copy = malloc(PAGES * PAGE);
    must(copy);
    ssize_t n = pread(fd, copy, PAGES * PAGE, (off_t)r.base);
    must(n > 0 || errno == EIO); /* a page that is away; what was read before it is right */
    expect_pages(copy, 0, n > 0 ? n / PAGE : 0, 1, "read by /proc/self/mem");
    memcpy(copy, r.base, 16);
    must(pwrite(fd, copy, 16, (off_t)r.base) == 16 || errno == EIO);
    expect(r, 1, "written by /proc/self/mem");
}

static void expect_in_pipe(int fd, const unsigned char *wanted, size_t len) {
    static unsigned char got[CHUNK];
    read_all(fd, got, len);
    must(memcmp(got, wanted, len) == 0);
}

void call_splice(void) {
    struct region r = away(1);
    int first[2], second[2];
    must(pipe(first) == 0 && pipe(second) == 0);
    for (size_t done = 0; done < PAGES * PAGE;) {
        unsigned char *at = r.base + done;
        struct iovec from = {at, CHUNK};
        ssize_t n = vmsplice(first[1], &from, 1, 0);
        must(n > 0);
        for (ssize_t seen = 0; seen < n;) {
            ssize_t both = tee(first[0], second[1], n - seen, 0);
            must(both > 0);
            expect_in_pipe(first[0], at + seen, both);
            expect_in_pipe(second[0], at + seen, both);
            seen += both;
        }
        done += n;
    }
    expect(r, 1, "spliced into pipes");
}

/* Pages that a pipe holds do not leave; or if they do, the pipe has what they held. */
void call_vmspliceheld(void) {
    struct region r = away(1);
    int ends[2];
    must(pipe(ends) == 0);
    struct iovec from = {r.base, CHUNK};
    must(vmsplice(ends[1], &from, 1, 0) == CHUNK);
    press();
    press();
    expect_in_pipe(ends[0], r.base, CHUNK);
    expect(r, 1, "held by a pipe");
}

void call_odirect(void) {
    struct region r = away(1);
    int fd = temporary_file(O_DIRECT);
    if (fd < 0)
        skip("no O_DIRECT in TMPDIR (%s)", strerror(errno));
    must(pwrite(fd, r.base, PAGES * PAGE, 0) == (ssize_t)(PAGES * PAGE));
    struct region other = away(2);
    must(pread(fd, other.base, PAGES * PAGE, 0) == (ssize_t)(PAGES * PAGE));
    expect(other, 1, "written and read directly");
}

void call_sendfile(void) {
    struct region r = away(1), other = away(2);
    int fd = temporary_file(0), ends[2];
    must(write(fd, r.base, PAGES * PAGE) == (ssize_t)(PAGES * PAGE));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    off_t from = 0;
    for (size_t done = 0; done < PAGES * PAGE;) {
        ssize_t n = sendfile(ends[0], fd, &from, CHUNK);
        must(n > 0);
        read_all(ends[1], other.base + done, n);
        done += n;
    }
    expect(other, 1, "sent from a file");
}

static void submit_all(aio_context_t context, int opcode, int fd, struct region r) {
    enum { REQUESTS = 8 };
    const size_t each = PAGES / REQUESTS * PAGE;
    struct iocb requests[REQUESTS] = {0}, *list[REQUESTS];
    struct io_event events[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        requests[i].aio_lio_opcode = opcode;
        requests[i].aio_fildes = fd;
        requests[i].aio_buf = (uintptr_t)r.base + i * each;
        requests[i].aio_nbytes = each;
        requests[i].aio_offset = i * each;
        list[i] = &requests[i];
    }
    must(syscall(SYS_io_submit, context, REQUESTS, list) == REQUESTS);
    press();
    must(syscall(SYS_io_getevents, context, REQUESTS, REQUESTS, events, NULL) == REQUESTS);
    for (int i = 0; i < REQUESTS; i++)
        must(events[i].res == (long long)each);
}

void call_aio(void) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 8, &context) != 0)
        skip("no asynchronous I/O (%s)", strerror(errno));
    int fd = temporary_file(O_DIRECT);
    if (fd < 0)
        skip("no O_DIRECT in TMPDIR (%s)", strerror(errno));
    submit_all(context, IOCB_CMD_PWRITE, fd, away(1));
    struct region other = away(2);
    submit_all(context, IOCB_CMD_PREAD, fd, other);
    expect(other, 1, "written and read by asynchronous I/O");
}

void call_readinto(void) {
    static unsigned char page[4096];
    struct region r = away(1);
    int ends[2];
    must(pipe(ends) == 0);
    fill_pages(page, 5, 1, 2);
    for (size_t i = 0; i < PAGES; i++) {
        must(write(ends[1], page, PAGE) == (ssize_t)PAGE);
        must(read(ends[0], page_at(r, i), PAGE) == (ssize_t)PAGE);
    }
    press();
    for (size_t i = 0; i < PAGES; i++)
        expect_pages(page_at(r, i), 5, 1, 2, "read into what was away");
}

void call_socket(void) {
    struct region r = away(1);
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        struct region got = map_region(PAGES);
        read_all(ends[1], got.base, PAGES * PAGE);
        expect(got, 1, "received");
        _exit(0);
    }
    for (size_t done = 0; done < PAGES * PAGE;) {
        ssize_t n = write(ends[0], r.base + done, PAGES * PAGE - done);
        must(n > 0);
        done += n;
    }
    reap(child, "the receiver");
}

void call_writefull(void) {
    struct region r = away(1);
    int fd = open("/dev/full", O_WRONLY);
    must(fd >= 0);
    must(write(fd, r.base, PAGES * PAGE) < 0 && errno == ENOSPC);
    expect(r, 1, "not written for want of room");
}

void call_closeall(void) {
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    (void)syscall(SYS_close_range, 3, ~0u, 0);
    expect(away(1), 1, "without descriptors");
}
