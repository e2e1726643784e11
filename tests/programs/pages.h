/* Pages with contents that can be checked, for programs that are short of memory. */
#include <stddef.h>
#include <stdint.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15;
	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9;
}

/* Half of each page is noise: it compresses about 2:1. */
static void write_page(uint64_t *page, uint64_t number)
{
	for (size_t word = 0; word < WORDS / 2; word++)
		page[word] = mix(number * WORDS + word);
}
