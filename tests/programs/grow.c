/* Fills a heap that grows by brk() in small pieces, so many MiB, and checks what is in it.
 *
 * No call announces such growth: the kernel extends the heap by 132 KiB at a time, each piece a mapping of
 * its own where those before are managed. It does some computing for each block, as programs do.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_WORDS = 125, ROUNDS = 12 };

static uint64_t mixed(uint64_t value)
{
    for (int round = 0; round < ROUNDS; round++)
        value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9u;
    return value;
}

int main(int argc, char **argv)
{
    long blocks = argc > 1 ? atol(argv[1]) * 1024 : 0;
    uint64_t **heap = malloc(sizeof *heap * (blocks ? blocks : 1));
    if (blocks <= 0 || !heap) {
        fprintf(stderr, "usage: grow MIB\n");
        return 2;
    }
    for (long i = 0; i < blocks; i++) {
        heap[i] = malloc(BLOCK_WORDS * sizeof **heap);
        if (!heap[i]) {
            perror("grow");
            return 2;
        }
        for (int word = 0; word < BLOCK_WORDS; word++)
            heap[i][word] = word % 8 ? (uint64_t)i : mixed(i * BLOCK_WORDS + word);
    }
    long wrong = 0;
    for (long i = 0; i < blocks; i++)
        for (int word = 0; word < BLOCK_WORDS; word++)
            wrong += heap[i][word] != (word % 8 ? (uint64_t)i : mixed(i * BLOCK_WORDS + word));
    printf("%ld of %ld words wrong\n", wrong, blocks * BLOCK_WORDS);
    return wrong != 0;
}
