/* Fills memory, moves into namespaces of its own, and back into the network it came from; forks in each, and executes itself.
 *
 *     emigrant MIB
 *
 * Every process looks at all that it has inherited, writes to some of it, and prints a line that says where it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096, ROUNDS = 20 };

static unsigned char *block;
static size_t size;

static unsigned char value(size_t at)
{
	return (at / LINE * 37 + at / PAGE) >> 2;
}

static void fill(void)
{
	block = malloc(size);
	if (!block)
		exit(2);
	for (size_t i = 0; i < size; i++)
		block[i] = value(i);
}

static void look(const char *where)
{
	for (size_t i = 0; i < size; i++)
		if (block[i] != value(i)) {
			printf("%s: byte %zu is wrong\n", where, i);
			exit(3);
		}
}

static void check(const char *where)
{
	look(where);
	printf("%s\n", where);
	fflush(stdout);
}

/* In a child, and in a child of that. */
static void fork_twice(const char *where, int depth)
{
	pid_t child = fork();
	if (child < 0) {
		perror("fork");
		exit(4);
	}
	if (child == 0) {
		check(where);
		for (size_t i = 0; i < size; i += 3 * PAGE)
			block[i] ^= 0;
		if (depth)
			fork_twice(where, depth - 1);
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	if (status) {
		printf("%s: a child ended with %x\n", where, status);
		exit(5);
	}
}

int main(int argc, char **argv)
{
	size = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 0;
	fill();
	if (argc > 2) {
		for (int round = 0; round < ROUNDS; round++)
			look("executed");
		check("executed");
		return 0;
	}
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	/* Whatever has one of pleat's by this number is not ours. */
	close_range(3 + (home == 3), ~0U, 0);
	if (home < 0 || unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWCGROUP)) {
		perror("unshare");
		return 1;
	}
	check("abroad");
	fork_twice("child abroad", 1);
	if (setns(home, CLONE_NEWNET)) {
		perror("setns");
		return 1;
	}
	check("back");
	fork_twice("child back", 0);
	if (unshare(CLONE_NEWNET)) {
		perror("unshare");
		return 1;
	}
	execl("/proc/self/exe", argv[0], argv[1], "again", NULL);
	perror("exec");
	return 1;
}
