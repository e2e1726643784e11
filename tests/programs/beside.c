/* A small process that uses all it has, again and again, beside a large one that goes through far more than memory
 * holds, at random.
 *
 *     beside LARGE_MB SMALL_MB SECONDS
 *
 * Prints how many page faults the small one had while both ran, and how often it touched each of its pages, as
 * "FAULTS faults ROUNDS rounds PAGES pages". Ends with 1 if any page does not hold what was written to it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pages.h"

static int is_right(const uint64_t *page, uint64_t number)
{
	size_t word = number % (WORDS / 2);
	return page[word] == mix(number * WORDS + word);
}

static uint64_t *filled(size_t pages)
{
	uint64_t *area = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	for (size_t page = 0; page < pages; page++)
		write_page(area + page * WORDS, page);
	return area;
}

static void check(const uint64_t *area, size_t page)
{
	if (!is_right(area + page * WORDS, page)) {
		printf("page %zu is wrong\n", page);
		exit(1);
	}
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Tells that it is full through `full`, and goes on for ever. */
static void be_large(size_t pages, int full)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	uint64_t *area = filled(pages);
	if (write(full, "", 1) != 1)
		exit(2);
	for (uint64_t turn = 0;; turn++)
		check(area, mix(turn) % pages);
}

static long faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	size_t large = strtoul(argv[1], NULL, 10) * 256, small = strtoul(argv[2], NULL, 10) * 256;
	double seconds = strtod(argv[3], NULL);
	int full[2];
	if (pipe(full) != 0)
		return 2;
	pid_t child = fork();
	if (child == 0)
		be_large(large, full[1]);
	/* Or a child that dies would be waited for. */
	close(full[1]);
	uint64_t *area = filled(small);
	char told;
	if (child < 0 || read(full[0], &told, 1) != 1)
		return 2;
	long before = faults(), rounds = 0;
	for (double end = now() + seconds; now() < end; rounds++) {
		for (size_t page = 0; page < small; page++)
			check(area, page);
		usleep(2000);
	}
	printf("%ld faults %ld rounds %zu pages\n", faults() - before, rounds, small);
	int status;
	int is_wrong = waitpid(child, &status, WNOHANG) != 0;
	kill(child, SIGKILL);
	return is_wrong;
}
