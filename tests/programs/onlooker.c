/* A process that is looked at by another, as debuggers, gcore and profilers do it: `onlooker MIB ROUNDS`.
 *
 * Two threads check MIB MiB of pages for ever and write to them what is there. Meanwhile another program stops all
 * threads, ROUNDS times, reads pages from all over the memory, checks them too, and lets the threads go on. Prints "ok". */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pages.h"

enum { THREADS = 2, TASKS_MAX = 64, RUN = 16, RUNS = 8 };

static uint64_t *pages;
static size_t count;
static atomic_int is_over;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void check(const uint64_t *page, uint64_t number, const char *who)
{
	uint64_t expected[WORDS] = { 0 };
	write_page(expected, number);
	if (memcmp(page, expected, PAGE)) {
		printf("FAIL: page %llu is wrong for the %s\n", (unsigned long long)number, who);
		exit(1);
	}
}

static void *walk(void *from)
{
	for (size_t at = (size_t)from; !is_over; at++) {
		uint64_t *page = pages + at % count * WORDS;
		check(page, at % count, "program");
		*(volatile uint64_t *)page = *page;
	}
	return NULL;
}

/* The first of them holds up no other: those that are made meanwhile are stopped in the next round. */
static int stop_all(pid_t pid, pid_t *tasks)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *directory = opendir(path);
	int stopped = 0;
	for (struct dirent *entry; directory && (entry = readdir(directory)) && stopped < TASKS_MAX;) {
		pid_t task = atoi(entry->d_name);
		if (task <= 0 || ptrace(PTRACE_SEIZE, task, 0, 0))
			continue;
		if (ptrace(PTRACE_INTERRUPT, task, 0, 0) || waitpid(task, NULL, __WALL) != task)
			fail("stopping a thread");
		tasks[stopped++] = task;
	}
	closedir(directory);
	return stopped;
}

static int look(pid_t pid, char *base, size_t pages_there, int rounds)
{
	static uint64_t found[RUN * WORDS];
	uint64_t state = 1;
	for (int round = 0; round < rounds; round++) {
		usleep((state = mix(state + 1)) % 4000);
		pid_t tasks[TASKS_MAX];
		int stopped = stop_all(pid, tasks);
		if (stopped < THREADS + 1) {
			fprintf(stderr, "only %d threads could be stopped: %s\n", stopped, strerror(errno));
			return 1;
		}
		for (int run = 0; run < RUNS; run++) {
			size_t first = (state = mix(state + 1)) % (pages_there - RUN);
			struct iovec to = { found, sizeof found }, from = { base + first * PAGE, sizeof found };
			if (process_vm_readv(pid, &to, 1, &from, 1, 0) != sizeof found)
				fail("reading");
			for (size_t at = 0; at < RUN; at++)
				check(found + at * WORDS, first + at, "onlooker");
		}
		for (int task = 0; task < stopped; task++)
			ptrace(PTRACE_DETACH, tasks[task], 0, 0);
	}
	return 0;
}

static int is_looked_at(const char *self, const char *rounds)
{
	char pid[16], base[24], pages_there[24];
	snprintf(pid, sizeof pid, "%d", getpid());
	snprintf(base, sizeof base, "%zu", (size_t)pages);
	snprintf(pages_there, sizeof pages_there, "%zu", count);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	pid_t child = vfork();
	if (child == 0) {
		execl(self, self, "look", pid, base, pages_there, rounds, (char *)NULL);
		_exit(127);
	}
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child)
		fail("the onlooker");
	return status;
}

int main(int argc, char **argv)
{
	if (argc == 6)
		return look(atoi(argv[2]), (char *)strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), atoi(argv[5]));
	count = strtoull(argv[1], NULL, 10) * (1 << 20) / PAGE;
	pages = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		fail("mmap");
	for (size_t at = 0; at < count; at++)
		write_page(pages + at * WORDS, at);
	pthread_t threads[THREADS];
	for (size_t at = 0; at < THREADS; at++)
		if (pthread_create(&threads[at], NULL, walk, (void *)(at * count / THREADS)))
			fail("pthread_create");
	int status = is_looked_at(argv[0], argv[2]);
	is_over = 1;
	for (size_t at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	if (status)
		return 1;
	puts("ok");
	return 0;
}
