/* prefork fork|map|neighbour SECONDS
 *
 * fork, map: eight forked workers with 40 MB in common, which they only read, shared since the fork or because
 * all map it, and 2 MB each that they fill and free again and again; some 65 MB in all. Prints "done".
 * neighbour: another job's process, which fills 400 MB and frees them, several times a second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 8, COMMON = 40 << 20, OWN = 2 << 20, OTHERS = 400 << 20 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static char *memory(size_t bytes, int kind)
{
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return start;
}

static int work(const char *common, unsigned seed, double until)
{
    for (unsigned round = 0; now() < until; round++) {
        char *own = malloc(OWN);
        memset(own, (char)round, OWN);
        for (int look = 0; look < 200; look++) {
            unsigned at = (rand_r(&seed) * 4096u + rand_r(&seed)) % (COMMON / 4) * 4;
            if (*(const unsigned *)(common + at) != at)
                return 1;
        }
        for (size_t at = 0; at < OWN; at += 4096)
            if (own[at] != (char)round)
                return 1;
        free(own);
        usleep(5000);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: prefork fork|map|neighbour SECONDS\n");
        return 2;
    }
    double until = now() + atof(argv[2]);
    if (strcmp(argv[1], "neighbour") == 0) {
        while (now() < until) {
            char *filled = memory(OTHERS, MAP_PRIVATE);
            memset(filled, 1, OTHERS);
            usleep(100000);
            munmap(filled, OTHERS);
            usleep(50000);
        }
        return 0;
    }
    char *common = memory(COMMON, strcmp(argv[1], "map") == 0 ? MAP_SHARED : MAP_PRIVATE);
    for (unsigned at = 0; at < COMMON; at += 4)
        *(unsigned *)(common + at) = at;
    for (unsigned worker = 0; worker < WORKERS; worker++)
        if (fork() == 0)
            _exit(work(common, worker, until));
    int failed = 0, status;
    while (wait(&status) > 0)
        failed |= status;
    puts(failed ? "failed" : "done");
    return failed != 0;
}
