/* threads: as many threads as told touch one word in pages at random.
 *
 *   threads MB THREADS RATIO ROUNDS
 *
 * RATIO is roughly how well the content compresses. One round is as many touches, over all threads, as
 * there are pages; the first half of the rounds warms up, the time per touch of the rest is printed as
 * FIGURE us_per_page.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, RECORD = 256, THREADS_MAX = 256 };

static char *memory;
static size_t pages;
static int threads, rounds;
static pthread_barrier_t warm;
static double began;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Records with a random head of RECORD / ratio bytes, the rest a letter for each record. */
static void fill(char *page, double ratio, uint64_t *state)
{
    size_t head = (size_t)(RECORD / ratio);
    for (int r = 0; r < PAGE; r += RECORD) {
        memset(page + r, 'a' + r / RECORD, RECORD);
        for (size_t i = 0; i < head; i++)
            page[r + i] = (char)next(state);
    }
}

static void *touch(void *number)
{
    uint64_t state = 0x9e3779b97f4a7c15u + (uint64_t)(uintptr_t)number * 2654435761u, sum = 0;
    size_t touches = pages / (size_t)threads;
    for (int r = 0; r < rounds; r++) {
        if (r == rounds / 2 && pthread_barrier_wait(&warm) == PTHREAD_BARRIER_SERIAL_THREAD)
            began = now();
        for (size_t i = 0; i < touches; i++) {
            size_t p = next(&state) % pages;
            /* In the fixed part of a record, whose letter tells which one it is. */
            char *word = memory + p * PAGE + (p % 16) * RECORD + RECORD - 8;
            sum += (unsigned char)__atomic_load_n(word, __ATOMIC_RELAXED) - 'a' - p % 16;
            __atomic_store_n(word + 1, word[1], __ATOMIC_RELAXED);
        }
    }
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: threads MB THREADS RATIO ROUNDS\n");
        return 2;
    }
    pages = strtoull(argv[1], 0, 10) * 256;
    threads = atoi(argv[2]);
    double ratio = atof(argv[3]);
    rounds = atoi(argv[4]);
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || !pages || rounds < 2 || threads < 1 || threads > THREADS_MAX || ratio < 1.1) {
        fprintf(stderr, "threads: bad arguments, or no memory\n");
        return 1;
    }
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < pages; i++)
        fill(memory + i * PAGE, ratio, &state);
    pthread_t ids[THREADS_MAX];
    pthread_barrier_init(&warm, 0, (unsigned)threads);
    for (int t = 0; t < threads; t++)
        if (pthread_create(&ids[t], 0, touch, (void *)(uintptr_t)t)) {
            fprintf(stderr, "threads: cannot start a thread\n");
            return 1;
        }
    uintptr_t wrong = 0;
    for (int t = 0; t < threads; t++) {
        void *sum;
        pthread_join(ids[t], &sum);
        wrong |= (uintptr_t)sum;
    }
    double us = (now() - began) * 1e6 / ((double)(rounds - rounds / 2) * (double)pages);
    printf("CHECK %s\nFIGURE us_per_page %.4f us\n", wrong ? "WRONG" : "right", us);
    return wrong != 0;
}
