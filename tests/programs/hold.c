/* Fills memory, so many MiB, of which three quarters compress, says so, and checks it again and again until FILE is there.
 *
 *     hold MIB FILE
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORDS = 512, NOISE_WORDS = 128 };

static uint64_t expected(size_t page, int word)
{
	uint64_t x = page * WORDS + word;
	if (word >= NOISE_WORDS)
		return page + word;
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
	return (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
}

static int is_right(const uint64_t *block, size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		for (int word = 0; word < WORDS; word++)
			if (block[page * WORDS + word] != expected(page, word)) {
				printf("page %zu word %d is wrong\n", page, word);
				return 0;
			}
	return 1;
}

int main(int argc, char **argv)
{
	size_t pages = argc > 2 ? strtoul(argv[1], NULL, 10) * 256 : 0;
	uint64_t *block = malloc(pages * WORDS * sizeof *block);
	if (!pages || !block) {
		fprintf(stderr, "usage: hold MIB FILE\n");
		return 2;
	}
	for (size_t page = 0; page < pages; page++)
		for (int word = 0; word < WORDS; word++)
			block[page * WORDS + word] = expected(page, word);
	puts("filled");
	fflush(stdout);
	do
		if (!is_right(block, pages))
			return 3;
	while (access(argv[2], F_OK));
	puts("ok");
	return 0;
}
