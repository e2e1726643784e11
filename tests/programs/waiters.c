/* Memory that is checked all the time, while threads wait in each way that there is: for a descriptor (epoll_wait), for a
 * pipe (read), for each other (futexes, by a condition variable), and for a time (clock_nanosleep). Nothing of the memory may
 * get lost, no thread may be waited for in vain, and no call may be interrupted but epoll_wait, of which signal(7)
 * says that it is.
 *
 *     waiters MIB FORKS END
 *
 * Says "filled" when it has filled its memory, makes FORKS children a second that check what they have inherited, and ends when
 * there is a file END.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, CHILD_STEP = 7, TURN_S = 20 };

static volatile int is_over;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

/* Compresses to about half: every second word is the page's own, the others are drawn. */
static uint64_t word(size_t page, size_t at)
{
	uint64_t x = (page * WORDS + at) * 0x9e3779b97f4a7c15u;
	return at % 2 ? x ^ x >> 29 : page;
}

static void fill(uint64_t *memory, size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		for (size_t at = 0; at < WORDS; at++)
			memory[page * WORDS + at] = word(page, at);
}

static void check(const uint64_t *memory, size_t pages, size_t step, const char *whose)
{
	for (size_t page = 0; page < pages; page += step)
		for (size_t at = 0; at < WORDS; at++)
			if (memory[page * WORDS + at] != word(page, at)) {
				fprintf(stderr, "%s: wrong at page %zu, word %zu\n", whose, page, at);
				_exit(1);
			}
}

static void *wait_for_descriptor(void *unused)
{
	int poll = epoll_create1(0), ends[2];
	if (poll < 0 || pipe(ends))
		fail("epoll_create1");
	struct epoll_event event = {.events = EPOLLIN};
	epoll_ctl(poll, EPOLL_CTL_ADD, ends[0], &event);
	while (!is_over)
		if (epoll_wait(poll, &event, 1, 20) < 0 && errno != EINTR)
			fail("epoll_wait");
	return unused;
}

static void *wait_for_time(void *unused)
{
	struct timespec pause = {.tv_nsec = 15000000};
	while (!is_over)
		if ((errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL)))
			fail("clock_nanosleep");
	return unused;
}

static int pipe_ends[2];

static void *wait_for_pipe(void *unused)
{
	char byte;
	while (read(pipe_ends[0], &byte, 1) == 1)
		;
	if (!is_over)
		fail("read");
	return unused;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned long turn;

static void *take_turns(void *whose)
{
	unsigned long own = (unsigned long)whose;
	pthread_mutex_lock(&lock);
	while (!is_over) {
		struct timespec end;
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec += TURN_S;
		while (turn % 2 != own && !is_over)
			if ((errno = pthread_cond_timedwait(&changed, &lock, &end)))
				fail("a thread was not woken");
		turn++;
		pthread_cond_signal(&changed);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void run_child(const uint64_t *memory, size_t pages)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		check(memory, pages, CHILD_STEP, "a child");
		usleep(30000);
		check(memory, pages, CHILD_STEP + 2, "a child, later");
		_exit(0);
	}
	int status = -1;
	if (child < 0 || waitpid(child, &status, 0) != child || status) {
		fprintf(stderr, "a child ended with %x\n", status);
		_exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fputs("usage: waiters MIB FORKS END\n", stderr);
		return 2;
	}
	size_t pages = strtoul(argv[1], NULL, 10) << 8;
	int forks = atoi(argv[2]);
	uint64_t *memory = aligned_alloc(PAGE, pages * PAGE);
	if (!memory || pipe(pipe_ends))
		fail("memory");
	fill(memory, pages);
	pthread_t threads[5];
	void *(*work[])(void *) = {wait_for_descriptor, wait_for_time, wait_for_pipe, take_turns, take_turns};
	for (size_t i = 0; i < 5; i++)
		if (pthread_create(&threads[i], NULL, work[i], (void *)(i % 2)))
			fail("pthread_create");
	puts("filled");
	fflush(stdout);
	while (access(argv[3], F_OK)) {
		check(memory, pages, 1, "the program");
		if (write(pipe_ends[1], "x", 1) != 1)
			fail("write");
		if (forks)
			run_child(memory, pages);
		usleep(forks ? 1000000 / forks : 20000);
	}
	is_over = 1;
	close(pipe_ends[1]);
	pthread_cond_broadcast(&changed);
	for (size_t i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	check(memory, pages, 1, "the program at its end");
	puts("ok");
	return 0;
}
