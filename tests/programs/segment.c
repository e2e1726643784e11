/* Memory that processes share by forks, much of which is away: all read what was written last, by whomever.
 *
 *     segment MB PROCESSES ROUNDS
 *
 * The first process fills the memory; then each of the others reads all of it again and again, checks what must not change, and
 * adds to a counter in each page. In the end every counter is known. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / sizeof(uint64_t) };

/* Compresses to about a quarter. */
static uint64_t word(uint64_t at) {
    return at % 4 ? at / WORDS : at * 0x9e3779b97f4a7c15u;
}

static int work(uint64_t *memory, size_t pages, int rounds) {
    for (int round = 0; round < rounds; round++)
        for (size_t page = 0; page < pages; page++) {
            uint64_t *at = memory + page * WORDS;
            atomic_fetch_add((_Atomic uint64_t *)at, 1);
            for (size_t n = 1; n < WORDS; n++)
                if (at[n] != word(page * WORDS + n)) {
                    printf("page %zu word %zu is %llx\n", page, n, (unsigned long long)at[n]);
                    return 1;
                }
        }
    return 0;
}

int main(int count, char **words) {
    if (count != 4)
        return 2;
    size_t bytes = (size_t)atoi(words[1]) << 20, pages = bytes / PAGE;
    int processes = atoi(words[2]), rounds = atoi(words[3]), bad = 0, status;
    uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (size_t at = 0; at < pages * WORDS; at++)
        memory[at] = at % WORDS ? word(at) : 0;
    for (int n = 0; n < processes; n++)
        if (fork() == 0) {
            int failed = work(memory, pages, rounds);
            fflush(stdout);
            _exit(failed);
        }
    while (wait(&status) > 0)
        bad |= status;
    for (size_t page = 0; page < pages; page++)
        if (memory[page * WORDS] != (uint64_t)processes * rounds) {
            printf("page %zu counts %llu\n", page, (unsigned long long)memory[page * WORDS]);
            bad = 1;
        }
    puts(bad ? "FAIL segment" : "ok segment");
    return bad != 0;
}
