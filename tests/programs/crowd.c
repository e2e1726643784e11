/* Threads that fill memory of their own and check it, and end; children made by fork that check what they have
 * inherited and do the same. Nothing of it may get lost, and no thread may be waited for in vain.
 *
 *     crowd THREADS MIB_EACH ROUNDS CHILDREN
 *
 * Compiled statically it loads nothing.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT = 16 << 20, LINE = 64, THREADS_MAX = 64 };

static size_t each;

static unsigned char value(size_t at, size_t salt)
{
	return (at / LINE * 31 + salt) >> 3;
}

static void fill(unsigned char *block, size_t size, size_t salt)
{
	for (size_t i = 0; i < size; i++)
		block[i] = value(i, salt);
}

static void check(const unsigned char *block, size_t size, size_t salt, const char *whose)
{
	for (size_t i = 0; i < size; i++)
		if (block[i] != value(i, salt)) {
			fprintf(stderr, "%s: wrong at %zu\n", whose, i);
			_exit(1);
		}
}

static void *work(void *salt)
{
	unsigned char *block = malloc(each);
	if (!block) {
		perror("malloc");
		_exit(1);
	}
	fill(block, each, (size_t)salt);
	check(block, each, (size_t)salt, "a thread");
	free(block);
	return NULL;
}

static void run_threads(int count)
{
	pthread_t threads[THREADS_MAX];
	for (size_t i = 0; i < (size_t)count; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i)) {
			fputs("pthread_create failed\n", stderr);
			_exit(1);
		}
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void run_child(const unsigned char *kept)
{
	pid_t child = fork();
	if (child == 0) {
		check(kept, KEPT, 99, "a child");
		run_threads(2);
		check(kept, KEPT, 99, "a child at its end");
		_exit(0);
	}
	int status = -1;
	waitpid(child, &status, 0);
	if (status) {
		fprintf(stderr, "a child ended with %x\n", status);
		_exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc < 5 || atoi(argv[1]) > THREADS_MAX) {
		fputs("usage: crowd THREADS MIB_EACH ROUNDS CHILDREN\n", stderr);
		return 2;
	}
	each = strtoul(argv[2], NULL, 10) << 20;
	unsigned char *kept = malloc(KEPT);
	fill(kept, KEPT, 99);
	for (int round = 0; round < atoi(argv[3]); round++) {
		run_threads(atoi(argv[1]));
		for (int i = 0; i < atoi(argv[4]); i++)
			run_child(kept);
	}
	check(kept, KEPT, 99, "the program");
	puts("ok");
	return 0;
}
