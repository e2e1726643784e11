/* Page patterns and regions: every page can be recomputed from (seed, number), so a test needs
 * no second copy of its data to know what must be there. */
#include "torture.h"

#include <sys/mman.h>

enum data pattern_data = DATA_MIXED;

#define CHUNK 64 /* bytes; the unit in which a compressible page repeats itself */

/* The finaliser of splitmix64. */
uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t next_random(uint64_t *state) {
    *state += 1;
    return mix(*state);
}

static void random_page(uint64_t *out, uint64_t h) {
    for (size_t i = 0; i < PAGE / 8; i++)
        out[i] = mix(h + i);
}

static void word_page(uint64_t *out, uint64_t word) {
    for (size_t i = 0; i < PAGE / 8; i++)
        out[i] = word;
}

/* Each chunk begins with 8 to 24 fresh bytes and goes on like the page's first chunk. */
static void compressible_page(uint64_t *out, uint64_t h) {
    const size_t words = CHUNK / 8, fresh = 1 + h % 3;
    for (size_t i = 0; i < words; i++)
        out[i] = mix(h + i);
    for (size_t chunk = 1; chunk < PAGE / CHUNK; chunk++)
        for (size_t i = 0; i < words; i++)
            out[chunk * words + i] = i < fresh ? mix(h + chunk * words + i) : out[i];
}

void pattern(unsigned char *out, uint64_t seed, size_t number) {
    const uint64_t h = mix(mix(seed) ^ number);
    uint64_t *words = (uint64_t *)out;
    const unsigned kind = pattern_data == DATA_RANDOM ? 2
                          : pattern_data == DATA_COMPRESSIBLE ? 4
                                                              : (h >> 60);
    if (kind == 0)
        word_page(words, 0);
    else if (kind == 1)
        word_page(words, h);
    else if (kind <= 3)
        random_page(words, h);
    else
        compressible_page(words, h);
}

struct region map_region(size_t pages) {
    void *base = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    must(base != MAP_FAILED);
    return (struct region){base, pages};
}

void unmap_region(struct region r) { must(munmap(r.base, r.pages * PAGE) == 0); }

struct region part(struct region r, size_t first, size_t count) {
    must(first + count <= r.pages);
    return (struct region){r.base + first * PAGE, count};
}

unsigned char *page_at(struct region r, size_t number) {
    must(number < r.pages);
    return r.base + number * PAGE;
}

void fill_pages(unsigned char *at, size_t first, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++)
        pattern(at + i * PAGE, seed, first + i);
}

void fill(struct region r, uint64_t seed) { fill_pages(r.base, 0, r.pages, seed); }

struct region filled_region(size_t pages, uint64_t seed) {
    struct region r = map_region(pages);
    fill(r, seed);
    return r;
}

static size_t first_difference(const unsigned char *a, const unsigned char *b) {
    size_t i = 0;
    while (i < PAGE && a[i] == b[i])
        i++;
    return i;
}

void expect_pages(const unsigned char *at, size_t first, size_t count, uint64_t seed,
                  const char *when) {
    _Alignas(64) unsigned char wanted[PAGE];
    for (size_t i = 0; i < count; i++) {
        const unsigned char *got = at + i * PAGE;
        pattern(wanted, seed, first + i);
        if (memcmp(got, wanted, PAGE) == 0)
            continue;
        size_t d = first_difference(got, wanted);
        fail("%s: page %zu of seed %llu at %p differs from byte %zu: %02x, not %02x", when,
             first + i, (unsigned long long)seed, (void *)got, d, d < PAGE ? got[d] : 0,
             d < PAGE ? wanted[d] : 0);
    }
}

void expect(struct region r, uint64_t seed, const char *when) {
    expect_pages(r.base, 0, r.pages, seed, when);
}

void expect_zeros(const unsigned char *at, size_t count, const char *when) {
    static const unsigned char zeros[PAGE];
    for (size_t i = 0; i < count; i++)
        if (memcmp(at + i * PAGE, zeros, PAGE) != 0)
            fail("%s: page %zu at %p is not zero from byte %zu on", when, i,
                 (void *)(at + i * PAGE), first_difference(at + i * PAGE, zeros));
}

void push_out(struct region r) {
    for (size_t i = 0; i < r.pages; i++)
        (void)*(volatile unsigned char *)(r.base + i * PAGE);
}
