/* Fills so many MiB of the main thread's stack from the top down, as deep recursion does, and checks what is in it:
 *
 *     main_stack MIB [fork]
 *
 * A signal handler runs on that stack now and then, a child is forked that checks it, too, if wanted, and the program's
 * arguments are read by way of /proc at the end, as ps does.
 */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 8000 };

static volatile sig_atomic_t ticks;

static void tick(int signal)
{
	volatile char deep[20000];
	memset((char *)deep, signal, sizeof deep);
	ticks += deep[0] == signal;
}

/* Each call has a frame of its own; what it finds wrong is counted on the way back. */
static long descend(long depth, int forks)
{
	volatile uint64_t frame[WORDS];
	for (int i = 0; i < WORDS; i++)
		frame[i] = (uint64_t)depth * 31 + i / 8;
	long wrong = 0;
	if (depth > 0)
		wrong = descend(depth - 1, forks);
	int is_child = depth == 0 && forks && fork() == 0;
	for (int i = 0; i < WORDS; i++)
		wrong += frame[i] != (uint64_t)depth * 31 + i / 8;
	if (is_child)
		wrong += 1 << 30;
	return wrong;
}

static int has_arguments(char **argv)
{
	char text[4096] = "";
	FILE *file = fopen("/proc/self/cmdline", "r");
	size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
	if (file)
		fclose(file);
	return got > strlen(argv[0]) && !strcmp(text, argv[0]);
}

int main(int argc, char **argv)
{
	long depth = argc > 1 ? (atol(argv[1]) << 20) / (WORDS * 8) : 0;
	if (depth <= 0)
		return 2;
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } };
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	int forks = argc > 2 && !strcmp(argv[2], "fork");
	long wrong = descend(depth, forks);
	if (wrong >= 1 << 30)
		_exit(wrong != 1 << 30);
	int status = 0;
	if (forks && wait(&status) < 0)
		return 2;
	printf("%ld wrong, child %d, arguments %d\n", wrong, status, has_arguments(argv));
	return wrong || status || !ticks;
}
