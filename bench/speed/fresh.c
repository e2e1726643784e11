/* fresh: fills fresh memory at full speed, then reads it once.
 *
 *   fresh MB RATIO
 *
 * RATIO is roughly how well the content compresses. Prints the time per page as FIGURE us_per_page.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, RECORD = 256 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    size_t pages = argc == 3 ? strtoull(argv[1], 0, 10) * 256 : 0;
    double ratio = argc == 3 ? atof(argv[2]) : 0;
    if (!pages || ratio < 1.1) {
        fprintf(stderr, "usage: fresh MB RATIO\n");
        return 2;
    }
    double start = now();
    char *memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "fresh: no memory\n");
        return 1;
    }
    uint64_t state = 88172645463325252u, sum = 0;
    size_t words = (size_t)(RECORD / ratio) / 8;
    for (char *r = memory; r < memory + pages * PAGE; r += RECORD) {
        uint64_t *record = (uint64_t *)r;
        for (size_t i = 0; i < RECORD / 8; i++) {
            if (i < words) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
            }
            record[i] = i < words ? state : 0x2020202020202020u;
        }
    }
    for (size_t i = 0; i < pages * PAGE / 8; i++)
        sum = sum * 31 + ((uint64_t *)memory)[i];
    printf("CHECK %016llx\nFIGURE us_per_page %.4f us\n", (unsigned long long)sum,
           (now() - start) * 1e6 / (double)pages);
    return 0;
}
