/* Forks children, one after the other, each of which fills so many MiB and checks them. Compiled as a library and preloaded, it has
 * children fill some MiB, and take their time, before anything else of the C library's that is to be done in them.
 *
 *     slow_birth CHILDREN MIB
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 512, EARLY_MIB = 6, SLOW_MS = 150 };

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int is_filled(size_t mib)
{
	size_t words = mib * 256 * WORDS;
	void *at = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *block = at;
	for (size_t i = 0; at != MAP_FAILED && i < words; i++)
		block[i] = i * getpid();
	for (size_t i = 0; at != MAP_FAILED && i < words; i++)
		if (block[i] != i * getpid())
			return 0;
	return at != MAP_FAILED;
}

#ifdef __PIC__
static void child(void)
{
	int64_t end = now_ms() + SLOW_MS;
	if (!is_filled(EARLY_MIB))
		_exit(4);
	while (now_ms() < end)
		;
}

__attribute__((constructor)) static void early(void)
{
	if (getenv("SLOW_BIRTH"))
		pthread_atfork(NULL, NULL, child);
}
#endif

int main(int argc, char **argv)
{
	int children = argc > 2 ? atoi(argv[1]) : 0;
	for (int i = 0; i < children; i++) {
		int status = -1;
		pid_t pid = fork();
		if (pid == 0) {
			/* Its own children are born as well. */
			pid_t grandchild = fork();
			if (grandchild == 0)
				_exit(!is_filled(1));
			int is_right = is_filled(atoi(argv[2]));
			waitpid(grandchild, &status, 0);
			_exit(is_right && status == 0 ? 0 : 3);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
			printf("child %d: %d\n", i, status);
			return 1;
		}
	}
	puts("ok");
	return 0;
}
