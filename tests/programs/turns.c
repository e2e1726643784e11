/* More processes than CPUs, which all compute without a break and together use more than there is memory for.
 *
 *     turns PROCESSES MB PHASES TOUCHES alone|sleep|spin|yield
 *
 * Each process fills MB of its own, and in each phase reads and changes TOUCHES pages at random. After a phase it goes on
 * (alone), or waits for all others to have come so far, asleep or looking all the time, or yielding the CPU as it looks.
 * Ends with 1 if any page does not hold what was written to it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pages.h"

/* What the processes share. */
struct meeting {
	pthread_barrier_t barrier;
	atomic_ulong arrived;
};

/* The last word counts the changes. */
static int is_right(const uint64_t *page, uint64_t name, uint32_t changes)
{
	size_t word = name % (WORDS / 2);
	return page[word] == mix(name * WORDS + word) && page[WORDS - 1] == changes;
}

static void meet(struct meeting *meeting, const char *how, unsigned long all)
{
	if (strcmp(how, "sleep") == 0) {
		pthread_barrier_wait(&meeting->barrier);
	} else if (strcmp(how, "alone") != 0) {
		int yields = strcmp(how, "yield") == 0;
		atomic_fetch_add(&meeting->arrived, 1);
		while (atomic_load(&meeting->arrived) < all) {
			/* A storm of these keeps Linux 6.18 from running its own threads, among them those that bring
			 * writes to an end. */
			if (yields)
				sched_yield();
			else
				__builtin_ia32_pause();
		}
	}
}

static int work(struct meeting *meeting, unsigned long number, char **argv)
{
	unsigned long processes = strtoul(argv[1], NULL, 0);
	size_t pages = strtoul(argv[2], NULL, 0) << 8;
	unsigned long phases = strtoul(argv[3], NULL, 0), touches = strtoul(argv[4], NULL, 0);
	uint64_t *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t *changes = calloc(pages, sizeof *changes);
	if (memory == MAP_FAILED || !changes)
		return 1;
	uint64_t first = number * pages, random = number + 1;
	for (size_t page = 0; page < pages; page++)
		write_page(memory + page * WORDS, first + page);
	for (unsigned long phase = 1; phase <= phases; phase++) {
		for (unsigned long touch = 0; touch < touches; touch++) {
			random = mix(random + touch);
			size_t page = random % pages;
			uint64_t *words = memory + page * WORDS;
			if (!is_right(words, first + page, changes[page]))
				return 1;
			words[WORDS - 1] = ++changes[page];
		}
		meet(meeting, argv[5], processes * phase);
	}
	for (size_t page = 0; page < pages; page++)
		if (!is_right(memory + page * WORDS, first + page, changes[page]))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: turns PROCESSES MB PHASES TOUCHES alone|sleep|spin|yield\n");
		return 2;
	}
	unsigned long processes = strtoul(argv[1], NULL, 0);
	struct meeting *meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t shared;
	if (meeting == MAP_FAILED || pthread_barrierattr_init(&shared) ||
	    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) ||
	    pthread_barrier_init(&meeting->barrier, &shared, processes))
		return 2;
	for (unsigned long number = 0; number < processes; number++) {
		switch (fork()) {
		case -1:
			return 2;
		case 0:
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			exit(work(meeting, number, argv));
		}
	}
	int status, wrong = 0;
	while (wait(&status) > 0)
		wrong |= status != 0;
	puts(wrong ? "wrong" : "right");
	return wrong;
}
