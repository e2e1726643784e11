// Fills many small blocks of heap, all of them reachable, and checks them. Usage: small_blocks MEGABYTES
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 2000 };

struct block {
    struct block *next;
    unsigned char bytes[SIZE];
};

static struct block *volatile all;

int main(int count, char **words)
{
    long blocks = ((count > 1 ? atol(words[1]) : 50) << 20) / (long)sizeof(struct block);
    for (long i = 0; i < blocks; i++) {
        struct block *block = malloc(sizeof *block);
        if (!block) {
            perror("malloc");
            return 1;
        }
        memset(block->bytes, (int)i, SIZE);
        block->next = all;
        all = block;
    }
    long wrong = 0, i = blocks;
    for (struct block *block = all; block; block = block->next) {
        i--;
        wrong += block->bytes[0] != (unsigned char)i || block->bytes[SIZE - 1] != (unsigned char)i;
    }
    printf("%ld blocks, %ld wrong\n", blocks, wrong);
    return wrong != 0;
}
