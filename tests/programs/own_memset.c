// A program with a memset of its own that keeps count in its heap, as sanitizers, profilers and checkers of heaps do:
// whoever else calls it touches the program's memory, wherever that is. Usage: own_memset MEGABYTES
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, ROUNDS = 4, KINDS = 256 };

struct counts {
    unsigned char pad[1 << 20];
    long calls[KINDS];
};

static struct counts *counts;

__attribute__((noinline, optimize("no-tree-loop-distribute-patterns")))
void *memset(void *target, int byte, size_t length)
{
    if (counts)
        counts->calls[(length >> 4) % KINDS]++;
    volatile char *at = target;
    for (size_t i = 0; i < length; i++)
        at[i] = byte;
    return target;
}

static void *memory(size_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return start;
}

int main(int count, char **words)
{
    size_t bytes = (count > 1 ? atol(words[1]) : 100) << 20;
    counts = memory(sizeof *counts);
    counts->calls[0] = 1;
    unsigned char *bulk = memory(bytes);
    unsigned long sum = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < bytes; i += PAGE) {
            bulk[i] += i / PAGE;
            sum += bulk[i];
        }
    printf("%lu\n", sum);
    return 0;
}
