/* Does what no process should to pleat's control socket. Each mode is one attack; none may do harm to any process but
 * this one. `hostile MODE SOCKET ...`; the socket is `-` for that of the job which it runs in.
 *
 * What it knows of the messages is repeated here on purpose: an attacker does not ask the library. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HELLO = 1, PREPARED, TAKEN, PREPARE, TAKE, RELEASE, GUARD, FILL_FILE, ASK_FILE, FILE_ANSWER, BORROW,
       MAP_STAND_IN, FREEZE, DONE, REPLACE, THAW, ASK_STAND_IN, MAP_MEMORY };
#define VERSION 18
#define PAGE 4096
#define FDS_MAX 60

struct hello { uint32_t kind, version; int32_t pid, thread; uint32_t forked, reserved; uint64_t token[2], own[4]; };
struct prepared { uint32_t kind; int32_t error; uint32_t step, reserved; uint64_t staging, beacon; };
struct request { uint32_t kind; int32_t thread; uint64_t address, len, offset; };
struct taken { uint32_t kind, count; uint8_t status[64]; uint64_t times[5]; };

static const char *name;
static uint64_t state;
static uint64_t draw(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return below ? (state >> 11) % below : state;
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void pause_ms(int ms) { usleep(ms * 1000); }

static int dial(void) {
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path + 1, name, sizeof to.sun_path - 2);
    if (s >= 0 && connect(s, (void *)&to, 3 + strlen(name)) == 0) return s;
    if (s >= 0) close(s);
    return -1;
}
static int say(int s, const void *bytes, size_t len, const int *fds, int count) {
    char space[CMSG_SPACE(FDS_MAX * sizeof(int))] = {0};
    struct iovec part = {(void *)bytes, len};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        m.msg_control = space, m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    return sendmsg(s, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}
/* The kind of the next packet within so many milliseconds, 0 if none comes; and the first descriptor that came with it. */
static uint32_t hear(int s, int ms, void *bytes, size_t len, int *fd) {
    char space[256];
    struct pollfd p = {s, POLLIN, 0};
    struct iovec part = {bytes, len};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    *fd = -1;
    if (poll(&p, 1, ms) <= 0 || recvmsg(s, &m, MSG_DONTWAIT) < 4) return 0;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    for (size_t i = 0; c && c->cmsg_type == SCM_RIGHTS && CMSG_LEN((i + 1) * sizeof *fd) <= c->cmsg_len; i++) {
        int came;
        memcpy(&came, CMSG_DATA(c) + i * sizeof came, sizeof came);
        i ? (void)close(came) : (void)(*fd = came);
    }
    return *(uint32_t *)bytes;
}
static void *memory(size_t len) {
    void *p = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(9);
    return p;
}
/* Where an agent of ours would have its staging area. */
enum { AREA = 64 * PAGE };
static char *area;
static int greet(int s, int forked, uint64_t token) {
    if (!area) area = memory(AREA);
    struct hello h = {HELLO, VERSION, getpid(), getpid(), forked, 0, {token, token ? 1 : 0}, {(uint64_t)area, (uint64_t)area + AREA}};
    return say(s, &h, sizeof h, 0, 0);
}
static int agent_thread(void) {
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; tasks && (e = readdir(tasks));) {
        char path[300], text[32] = {0};
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        int fd = open(path, O_RDONLY);
        if (fd >= 0 && read(fd, text, 31) > 0 && !strncmp(text, "pleat-agent", 11)) return atoi(e->d_name);
        close(fd);
    }
    return 0;
}

/* Any user: says hello, and that it cannot be made ready. */
static int end(void) {
    int s = dial(), fd;
    char bytes[4096];
    if (s < 0) return 3;
    greet(s, 0, 0);
    uint32_t kind = hear(s, 300, bytes, sizeof bytes, &fd);
    struct prepared p = {PREPARED, 1, 1, 0, 0, 0};
    say(s, &p, sizeof p, 0, 0);
    printf("heard %u\n", kind);
    return 0;
}
/* Any user: has a process connect that ends, and speaks in its name when another has its number. */
static int name_of_the_dead(void) {
    int s = socket(AF_UNIX, SOCK_SEQPACKET, 0), p = fork();
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path + 1, name, sizeof to.sun_path - 2);
    if (!p) _exit(connect(s, (void *)&to, 3 + strlen(name)) != 0);
    waitpid(p, 0, 0);
    printf("%d\n", p), fflush(stdout);
    getchar();
    struct hello h = {HELLO, VERSION, p, p, 0, 0, {0}, {0}};
    struct prepared no = {PREPARED, 1, 1, 0, 0, 0};
    say(s, &h, sizeof h, 0, 0), pause_ms(300), say(s, &no, sizeof no, 0, 0);
    pause_ms(500);
    return 0;
}
/* Says for so many seconds that it is a forked child, and guesses its token. */
static int steal(double seconds) {
    long tries = 0;
    char bytes[4096];
    for (double until = now() + seconds; now() < until; tries++) {
        int s = dial(), fd;
        if (s < 0) { usleep(200); continue; }
        greet(s, 1, 1 + tries % 300);
        hear(s, 20, bytes, sizeof bytes, &fd);
        if (fd >= 0) return printf("STOLEN: kind %u\n", *(uint32_t *)bytes), 1;
        close(s);
    }
    printf("tries %ld\n", tries);
    return 0;
}
/* In a process that has given up root: has a file read that it may not read, by its name alone (O_PATH). */
static int read_secret(const char *file, int budget_mib) {
    size_t len = (size_t)budget_mib << 19;
    int fd = open(file, O_PATH), got;
    char bytes[64];
    memset(memory(4 << 20), 5, 4 << 20), pause_ms(2000); /* it is managed by now */
    int thread = agent_thread();
    if (fd < 0 || !thread || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) return 3;
    if (open(file, O_RDONLY) >= 0) return 4;
    unsigned char *p = memory(len);
    int s = dial();
    if (s < 0) return 5;
    struct request r = {FILL_FILE, thread, (uint64_t)p, len, 0};
    say(s, &r, sizeof r, &fd, 1);
    uint32_t kind = hear(s, 5000, bytes, sizeof bytes, &got), yes = ((uint32_t *)bytes)[1];
    printf("kind %u yes %u\n", kind, kind == FILE_ANSWER ? yes : 0);
    if (kind == FILE_ANSWER && yes) printf("READ: %.20s\n", p);
    return 0;
}
/* An agent whose userfaultfd is a pipe of its own making: it tells of forks, and names descriptors of pleat's. */
static int forge(double seconds) {
    memset(memory(8 << 20), 7, 8 << 20);
    char bytes[4096];
    int s = dial(), fd, pipes[2];
    if (s < 0 || pipe2(pipes, O_NONBLOCK)) return 3;
    greet(s, 0, 0);
    uint32_t kind = hear(s, seconds * 1000, bytes, sizeof bytes, &fd);
    if (kind != PREPARE) return printf("heard %u\n", kind), 4;
    for (int n = 3; n < 40; n++) {
        struct uffd_msg m = {.event = UFFD_EVENT_FORK};
        m.arg.fork.ufd = n;
        if (write(pipes[1], &m, sizeof m) < 0) break;
    }
    struct prepared p = {PREPARED, 0, 0, 0, (uint64_t)area, 1 << 20};
    say(s, &p, sizeof p, pipes, 1);
    kind = hear(s, 3000, bytes, sizeof bytes, &fd);
    printf("forged, heard %u\n", kind);
    return 0;
}
/* Fills memory, gives up root for good, and lives on for so many seconds. */
static int drop(int mib, double seconds) {
    memset(memory((size_t)mib << 20), 5, (size_t)mib << 20);
    printf("filled\n"), fflush(stdout), pause_ms(2000);
    if (setgroups(0, 0) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) return 3;
    printf("dropped\n"), fflush(stdout);
    for (double until = now() + seconds; now() < until;) pause_ms(50);
    return 0;
}
/* Connections that say nothing, as many as there may be. */
static int idle(int count, double seconds) {
    struct rlimit most = {0};
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    int open = 0;
    for (double until = now() + seconds; now() < until && open < count;) dial() >= 0 ? (void)open++ : (void)usleep(500);
    printf("open %d\n", open), fflush(stdout);
    sleep(2);
    return 0;
}

/* ---- misbehaving once it is managed */

static volatile uint32_t *control;
/* It gets managed without anything that should keep it from that. */
static int is_plain;
/* Gets managed by the rules; the connection, or -1. */
static int get_managed(int ms) {
    memset(memory(4 << 20), 5, 4 << 20);
    char bytes[4096];
    int s = dial(), fd;
    if (s < 0) return -1;
    greet(s, 0, 0);
    if (hear(s, ms, bytes, sizeof bytes, &fd) != PREPARE) return -1;
    uint32_t frames = ((uint32_t *)bytes)[1];
    int uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (uffd < 0 || fd < 0) return -1;
    control = mmap(0, (1 + frames) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) return -1;
    /* It must not become smaller, and what is taken out of it is filled again. */
    if (ftruncate(fd, 0) == 0 || ftruncate(fd, 1000 * PAGE) == 0) printf("RESIZED\n"), _exit(8);
    if (draw(4) == 0) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (1 + frames) * PAGE);
    struct prepared p = {PREPARED, 0, 0, 0, (uint64_t)area, is_plain || draw(4) ? (uint64_t)memory(64 * PAGE) : draw(0)};
    say(s, &p, sizeof p, &uffd, 1);
    return s;
}
/* Is managed, keeps its own lock, and forks. */
static int keep_lock(double seconds) {
    is_plain = 1;
    int s = get_managed(20000);
    if (s < 0) return 3;
    pause_ms(300), control[0] = 2;
    printf("kept\n"), fflush(stdout);
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) syscall(SYS_exit_group, 0);
    for (double until = now() + seconds; now() < until;) pause_ms(50);
    return 0;
}
static void misbehave(int ms) {
    char bytes[4096];
    int s = get_managed(ms), fd;
    if (s < 0) _exit(7);
    if (draw(2)) hear(s, 1500, bytes, sizeof bytes, &fd);
    struct taken t = {.kind = TAKEN, .count = draw(3) ? ((uint32_t *)bytes)[1] : draw(100)};
    for (int i = 0; i < 64; i++) t.status[i] = draw(9);
    uint32_t word[2] = {draw(20), draw(2)};
    switch (draw(7)) {
        case 0: say(s, &t, sizeof t, 0, 0); break;
        case 1: say(s, &t, draw(sizeof t), 0, 0); break;
        case 2: say(s, word, sizeof word, 0, 0); break;
        case 3: close(s); break;
        case 4: control[0] = 2; break; /* the lock, for ever */
        case 5: for (int i = 0; i < 1024; i++) control[i] = draw(0); break;
        default: for (int i = 0; i < 20; i++) say(s, &t, sizeof t, 0, 0);
    }
    if (draw(3) == 0 && syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) { sleep(1); _exit(0); }
    pause_ms(ms);
    _exit(0);
}
/* Anything, in any order, by a seed. */
static size_t nonsense(char *b) {
    static const size_t sizes[] = {1, 4, 8, 16, 24, 40, 72, 88, 120, 200, 1048, 1100, 2000, 60000};
    uint64_t edges[] = {0, PAGE, 1 << 20, 1ull << 47, ~0ull, (1ull << 63) - PAGE, draw(1ull << 47) & ~4095ull};
    size_t len = sizes[draw(14)];
    for (size_t i = 0; i < len; i++) b[i] = draw(3) ? draw(256) : 0;
    if (len >= 4) *(uint32_t *)b = draw(21);
    if (draw(10) < 4) {
        uint32_t kinds[] = {FILL_FILE, ASK_FILE, BORROW, MAP_STAND_IN, ASK_STAND_IN, MAP_MEMORY};
        struct request r = {kinds[draw(6)], draw(2) ? getpid() : (int)draw(70000), edges[draw(7)], edges[draw(7)], edges[draw(7)]};
        memcpy(b, &r, len = sizeof r);
    } else if (draw(10) < 4) {
        struct hello h = {HELLO, draw(8) ? VERSION : draw(9), draw(2) ? getpid() : 1, draw(2) ? getpid() : (int)draw(9), draw(3), 0,
            {draw(2) ? draw(0) : 0, draw(2)}, {edges[draw(7)], edges[draw(7)], edges[draw(7)], edges[draw(7)]}};
        memcpy(b, &h, len = sizeof h);
    } else if (draw(10) < 2) {
        struct prepared p = {PREPARED, draw(3), draw(6), draw(2), edges[draw(7)], edges[draw(7)]};
        memcpy(b, &p, len = sizeof p);
    }
    return len;
}
static int fuzz(uint64_t seed, double seconds) {
    static char bytes[60000];
    state = seed * 0x9E3779B97F4A7C15ull + 1;
    int ring = memfd_create("a", MFD_ALLOW_SEALING), held[64], count = 0, fd;
    int pool[] = {open("/dev/null", O_RDWR), open("/etc/passwd", O_RDONLY), ring, open("/", O_PATH), socket(AF_UNIX, SOCK_DGRAM, 0)};
    long said = 0, children = 0;
    pid_t born[4096];
    int count_born = 0;
    for (double until = now() + seconds; now() < until;) {
        if (draw(60) == 0 && children < 12 && count_born < 4096) {
            uint64_t next = draw(0);
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) { state = next | 1; misbehave(4000); }
            born[count_born++] = child, children++;
        }
        for (pid_t gone; children && (gone = waitpid(-1, 0, WNOHANG)) > 0; children--)
            for (int i = 0; i < count_born; i++) if (born[i] == gone) born[i] = born[--count_born];
        int s = dial();
        if (s < 0) { usleep(500); if (count) close(held[--count]); continue; }
        for (int n = 1 + draw(4); n > 0; n--, said++) {
            int fds[FDS_MAX], with = draw(3) ? 0 : draw(10) ? draw(5) : draw(FDS_MAX);
            for (int i = 0; i < with; i++) fds[i] = pool[draw(5)];
            say(s, bytes, nonsense(bytes), fds, with);
            if (draw(8) == 0 && hear(s, 5, bytes, sizeof bytes, &fd) && fd >= 0) close(fd);
        }
        if (draw(2) && count < 64) held[count++] = s; else close(s);
        if (count == 64) while (count > 32) close(held[--count]);
    }
    /* One that keeps its lock waits for seconds, if it forks. */
    for (int i = 0; i < count_born; i++) kill(born[i], SIGKILL);
    while (wait(0) > 0) {}
    printf("said %ld\n", said);
    return 0;
}
/* A program whose forked children, made without the C library, look at their memory. */
static int victim(double seconds) {
    enum { LEN = 64 << 20 };
    unsigned char *p = memory(LEN);
    for (double until = now() + seconds; now() < until;) {
        for (long i = 0; i < LEN; i++) p[i] = i % PAGE < 1000 ? (i * 2654435761u) >> 13 : 7;
        int child = draw(2) ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork(), status;
        if (child == 0) {
            usleep(100000);
            for (long i = 0; i < LEN; i += PAGE) if (p[i] != (unsigned char)((i * 2654435761u) >> 13)) syscall(SYS_exit_group, 3);
            syscall(SYS_exit_group, 0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status) return printf("VICTIM: status %x\n", status), 1;
    }
    puts("unharmed");
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *arg[3] = {0};
    for (int i = 0; i < 3; i++) arg[i] = argc > 3 + i ? argv[3 + i] : "0";
    name = argc > 2 && strcmp(argv[2], "-") ? argv[2] : getenv("PLEAT_SOCKET");
    if (!name) return fprintf(stderr, "no socket\n"), 2;
    state = 88172645463325252ull;
    if (!strcmp(mode, "end")) return end();
    if (!strcmp(mode, "dead")) return name_of_the_dead();
    if (!strcmp(mode, "steal")) return steal(atof(arg[0]));
    if (!strcmp(mode, "secret")) return read_secret(arg[0], atoi(arg[1]));
    if (!strcmp(mode, "forge")) return forge(atof(arg[0]));
    if (!strcmp(mode, "drop")) return drop(atoi(arg[0]), atof(arg[1]));
    if (!strcmp(mode, "lock")) return keep_lock(atof(arg[0]));
    if (!strcmp(mode, "idle")) return idle(atoi(arg[0]), atof(arg[1]));
    if (!strcmp(mode, "fuzz")) return fuzz(atoll(arg[0]), atof(arg[1]));
    if (!strcmp(mode, "victim")) return victim(atof(arg[0]));
    return fprintf(stderr, "unknown mode\n"), 2;
}
