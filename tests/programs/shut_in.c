/* A process that shuts itself in before it fills memory: `shut_in HOW MIB [AGAIN]`.
 *
 * HOW is what it may not do any more, before it executes itself, so that its agent starts so bound:
 *   none      nothing is refused
 *   single    the same, and no child is forked
 *   errno     userfaultfd, memfd_create and ioctl fail with EPERM (a filter)
 *   kill      userfaultfd and memfd_create end the process (a filter); ioctl is allowed
 *   mmap      shared mappings of files fail with EPERM (a filter)
 *   late      as errno, but set for all threads when half of the memory is filled, and without exec
 *   uid       root is given up with setuid(), without exec
 *   euid      root is put aside with seteuid(), then the process forks
 * Fills MIB MiB, looks at every page twice, forks a child that looks too (unless HOW is single, errno, mmap or late),
 * and prints "ok". */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define HAS(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), (yes), (no))
#define SAY(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)

static void filter(struct sock_filter *code, unsigned short length, unsigned flags) {
    struct sock_fprog program = { length, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program)) {
        perror("seccomp");
        exit(3);
    }
}

static void shut_in(const char *how) {
    struct sock_filter refuse[] = {
        LOAD(nr), IS(SYS_userfaultfd, 2, 0), IS(SYS_memfd_create, 1, 0), IS(SYS_ioctl, 0, 1),
        SAY(REFUSE), SAY(SECCOMP_RET_ALLOW),
    };
    struct sock_filter kill[] = {
        LOAD(nr), IS(SYS_userfaultfd, 1, 0), IS(SYS_memfd_create, 0, 1),
        SAY(SECCOMP_RET_KILL_PROCESS), SAY(SECCOMP_RET_ALLOW),
    };
    struct sock_filter shared[] = {
        LOAD(nr), IS(SYS_mmap, 0, 4), LOAD(args[3]), HAS(MAP_SHARED, 0, 2), HAS(MAP_PRIVATE | MAP_ANONYMOUS, 1, 0),
        SAY(REFUSE), SAY(SECCOMP_RET_ALLOW),
    };
    if (!strcmp(how, "errno"))
        filter(refuse, sizeof refuse / sizeof *refuse, 0);
    if (!strcmp(how, "late"))
        filter(refuse, sizeof refuse / sizeof *refuse, SECCOMP_FILTER_FLAG_TSYNC);
    if (!strcmp(how, "kill"))
        filter(kill, sizeof kill / sizeof *kill, 0);
    if (!strcmp(how, "mmap"))
        filter(shared, sizeof shared / sizeof *shared, 0);
    if (!strcmp(how, "uid") && (setgid(65534) || setuid(65534)))
        exit(3);
    if (!strcmp(how, "euid") && (setegid(65534) || seteuid(65534)))
        exit(3);
}

/* Words that compress about two to one, different in every page. */
static void fill(unsigned long *page, unsigned long number) {
    unsigned long x = number * 0x9e3779b97f4a7c15ul + 1;
    for (int i = 0; i < 512; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        page[i] = i % 2 ? number : x;
    }
}

static long wrong(unsigned long *memory, unsigned long pages) {
    unsigned long expected[512];
    long count = 0;
    for (unsigned long at = 0; at < pages; at++) {
        fill(expected, at);
        count += memcmp(expected, memory + at * 512, 4096) != 0;
    }
    return count;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    const char *how = argv[1];
    int is_late = !strcmp(how, "late");
    int stays = is_late || !strcmp(how, "uid") || !strcmp(how, "euid");
    if (argc == 3 && !stays) {
        shut_in(how);
        execl(argv[0], argv[0], how, argv[2], "again", NULL);
        return 3;
    }
    unsigned long pages = strtoul(argv[2], NULL, 10) << 8;
    unsigned long *memory = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 3;
    if (stays && !is_late)
        shut_in(how);
    for (unsigned long at = 0; at < pages; at++) {
        if (at == pages / 2 && is_late)
            shut_in(how);
        fill(memory + at * 512, at);
    }
    long bad = wrong(memory, pages) + wrong(memory, pages);
    if (strcmp(how, "single") && strcmp(how, "errno") && strcmp(how, "mmap") && !is_late) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(wrong(memory, pages / 4) != 0);
        bad += child < 0 || waitpid(child, &status, 0) < 0 || status != 0;
    }
    printf("%s %ld\n", bad ? "wrong" : "ok", bad);
    return bad != 0;
}
