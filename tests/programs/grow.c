/* Fills a heap that grows by brk(), so many MiB, and checks what is in it.
 *
 *     grow MIB             by malloc(), in small blocks
 *     grow MIB moving      by brk() itself, whose end moves up and down on the way
 *
 * No call announces such growth: the kernel extends the heap a little at a time, each piece a mapping of
 * its own where those before are managed.
 */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK_WORDS = 125, STAY = 48 };

static uint64_t state = 1;

static long random_below(long limit)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (long)((state >> 33) % (uint64_t)limit);
}

static int report(long wrong, long words)
{
	printf("%ld of %ld words wrong\n", wrong, words);
	return wrong != 0;
}

static int in_blocks(long bytes)
{
	long blocks = bytes / 1024;
	uint64_t **heap = malloc(sizeof *heap * blocks);
	for (long i = 0; heap && i < blocks; i++) {
		heap[i] = malloc(BLOCK_WORDS * sizeof **heap);
		if (!heap[i])
			return 2;
		for (int word = 0; word < BLOCK_WORDS; word++)
			heap[i][word] = (uint64_t)(i * 31 + word / 8);
	}
	long wrong = 0;
	for (long i = 0; heap && i < blocks; i++)
		for (int word = 0; word < BLOCK_WORDS; word++)
			wrong += heap[i][word] != (uint64_t)(i * 31 + word / 8);
	return heap ? report(wrong, blocks * BLOCK_WORDS) : 2;
}

static int moving(long bytes)
{
	char *start = (char *)(((uintptr_t)sbrk(0) + PAGE - 1) & ~(uintptr_t)(PAGE - 1)), *end = start;
	for (long moves = 0; end - start < bytes; moves++) {
		char *top = end + (64 + random_below(192)) * PAGE;
		if (brk(top))
			return 2;
		for (; end < top; end += 8)
			*(uint64_t *)end = (uintptr_t)end * 31;
		long down = random_below(318) * PAGE;
		if (moves % STAY)
			end -= down < end - start ? down : end - start;
		if (brk(end))
			return 2;
	}
	long wrong = 0;
	for (char *at = start; at < end; at += 8)
		wrong += *(uint64_t *)at != (uintptr_t)at * 31;
	return report(wrong, (end - start) / 8);
}

int main(int argc, char **argv)
{
	long bytes = argc > 1 ? atol(argv[1]) << 20 : 0;
	int is_moving = argc > 2 && !strcmp(argv[2], "moving");
	if (bytes <= 0 || (argc > 2 && !is_moving)) {
		fprintf(stderr, "usage: grow MIB [moving]\n");
		return 2;
	}
	int status = is_moving ? moving(bytes) : in_blocks(bytes);
	if (status == 2)
		perror("grow");
	return status;
}
