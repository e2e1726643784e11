/* Fills one block of malloc() as fast as it can, so many MiB, of which three quarters compress, and checks it. Ends with
 * STATUS (0) if all is right.
 *
 *     fill MIB ROUNDS [STATUS]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 512, NOISE_WORDS = 128 };

static uint64_t mixed(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	return x * 0xc4ceb9fe1a85ec53ULL;
}

static uint64_t expected(size_t page, int word)
{
	return word < NOISE_WORDS ? mixed(page * WORDS + word) : page + word;
}

int main(int argc, char **argv)
{
	size_t pages = argc > 1 ? strtoul(argv[1], NULL, 10) * 256 : 0;
	int rounds = argc > 2 ? atoi(argv[2]) : 1;
	uint64_t *block = malloc(pages * WORDS * sizeof *block);
	if (!pages || !block) {
		fprintf(stderr, "usage: fill MIB ROUNDS [STATUS]\n");
		return 2;
	}
	for (size_t page = 0; page < pages; page++)
		for (int word = 0; word < WORDS; word++)
			block[page * WORDS + word] = expected(page, word);
	for (int round = 0; round < rounds; round++)
		for (size_t page = 0; page < pages; page++)
			for (int word = 0; word < WORDS; word++)
				if (block[page * WORDS + word] != expected(page, word)) {
					printf("page %zu word %d is wrong\n", page, word);
					return 3;
				}
	puts("ok");
	return argc > 3 ? atoi(argv[3]) : 0;
}
