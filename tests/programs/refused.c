/* Has memory that nobody else can take charge of, for it is registered with a userfaultfd of its own, and works
 * on other memory beside it.
 *
 *     refused MIB WORK_MIB SECONDS keep       to the end
 *     refused MIB WORK_MIB SECONDS release    until it is filled
 *
 * Prints how much of the first memory is resident after so many seconds of work, and what was wrong.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* By the system call itself, so that no library hears of it. */
static uint64_t *map(size_t bytes)
{
	long at = syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
	if (at == -1)
		die("mmap");
	return (uint64_t *)at;
}

static int claim(uint64_t *memory, size_t bytes)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)memory, .len = bytes},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	if (fd < 0)
		die("userfaultfd");
	if (ioctl(fd, UFFDIO_API, &api))
		die("UFFDIO_API");
	if (ioctl(fd, UFFDIO_REGISTER, &range))
		die("UFFDIO_REGISTER");
	return fd;
}

static long check(const uint64_t *memory, size_t bytes, uint64_t factor)
{
	long wrong = 0;
	for (size_t word = 0; word < bytes / 8; word++)
		wrong += memory[word] != word / 16 * factor;
	return wrong;
}

static void fill(uint64_t *memory, size_t bytes, uint64_t factor)
{
	for (size_t word = 0; word < bytes / 8; word++)
		memory[word] = word / 16 * factor;
}

static long resident(void *memory, size_t bytes)
{
	unsigned char *seen = malloc(bytes / PAGE);
	long pages = 0;
	if (!seen || mincore(memory, bytes, seen))
		die("mincore");
	for (size_t page = 0; page < bytes / PAGE; page++)
		pages += seen[page] & 1;
	free(seen);
	return pages;
}

int main(int argc, char **argv)
{
	size_t bytes = argc == 5 ? (size_t)atol(argv[1]) << 20 : 0;
	size_t work_bytes = argc == 5 ? (size_t)atol(argv[2]) << 20 : 0;
	if (!bytes || !work_bytes || (strcmp(argv[4], "keep") && strcmp(argv[4], "release"))) {
		fprintf(stderr, "usage: refused MIB WORK_MIB SECONDS keep|release\n");
		return 2;
	}
	uint64_t *memory = map(bytes);
	int fd = claim(memory, bytes);
	fill(memory, bytes, 31);
	uint64_t *work = malloc(work_bytes);
	if (!work)
		die("malloc");
	fill(work, work_bytes, 37);
	if (!strcmp(argv[4], "release"))
		close(fd);
	long wrong = 0;
	uint64_t state = 1;
	for (double end = now() + atof(argv[3]); now() < end;) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		size_t word = (state >> 33) % (work_bytes / PAGE) * WORDS;
		wrong += work[word] != word / 16 * 37;
	}
	printf("%ld of %zu pages resident\n", resident(memory, bytes), bytes / PAGE);
	wrong += check(memory, bytes, 31) + check(work, work_bytes, 37);
	printf("%ld words wrong\n", wrong);
	return wrong != 0;
}
