/* Executes itself in every way that the C library knows, each time with an environment that lacks the agent:
 *
 *     environments LIBRARY AGENT
 *
 * LIBRARY is one that the program preloads itself. Each child looks whether AGENT (a part of its path) and LIBRARY are
 * loaded, and whether its environment is the one that it was given. Prints "ok" and the number of ways.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char self[4096], preload[4200];
static int ways;

static int is_loaded(const char *part)
{
	char line[4096];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		found |= strstr(line, part) != NULL;
	if (maps)
		fclose(maps);
	return found;
}

/* check AGENT LIBRARY COUNT: what a child finds; LIBRARY is "-" if none was preloaded. */
static int check(char **argv)
{
	int count = 0, is_preloaded = strcmp(argv[3], "-") != 0;
	while (environ[count])
		count++;
	const char *found = getenv("LD_PRELOAD");
	int is_same = is_preloaded ? found && !strcmp(found, argv[3]) : !found;
	if (is_loaded(argv[2]) && (!is_preloaded || is_loaded(argv[3])) && is_same && count == atoi(argv[4]))
		return 0;
	printf("agent %d, LD_PRELOAD %s, %d variables instead of %s\n", is_loaded(argv[2]), found, count, argv[4]);
	return 1;
}

static void expect(const char *way, pid_t child)
{
	int status = -1;
	if (child < 0 || waitpid(child, &status, 0) < 0 || status) {
		printf("%s: %d\n", way, status);
		exit(1);
	}
	ways++;
}

/* A child that is forked, and one whose memory is this process's. */
#define FORKED(way, call) do { \
	pid_t child = fork(); \
	if (!child) { call; perror(way); _exit(1); } \
	expect(way, child); \
} while (0)
#define VFORKED(way, call) do { \
	pid_t child = vfork(); \
	if (!child) { call; _exit(errno == ENOENT ? 3 : 1); } \
	expect(way, child); \
} while (0)

static char **variables(int count)
{
	char **made = malloc((count + 1) * sizeof *made);
	for (int i = 0; i < count; i++)
		if (asprintf(&made[i], "V%d=%d", i, i) < 0)
			exit(2);
	made[count] = NULL;
	return made;
}

int main(int argc, char **argv)
{
	if (argc > 4)
		return check(argv);
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (argc < 3 || len < 0)
		return 2;
	char *library = argv[1], *agent = argv[2];
	snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
	char *none[] = { NULL }, *own[] = { "A=1", preload, "B=2", NULL };
	char *with_none[] = { self, "check", agent, "-", "0", NULL };
	char *with_own[] = { self, "check", agent, library, "3", NULL };
	fflush(stdout);
	FORKED("execve", execve(self, with_own, own));
	FORKED("execve without environment", execve(self, with_none, none));
	FORKED("execv", environ = own; execv(self, with_own));
	FORKED("execvp", clearenv(); execvp(self, with_none));
	FORKED("execvpe", execvpe(self, with_own, own));
	FORKED("execl", environ = own; execl(self, self, "check", agent, library, "3", (char *)NULL));
	FORKED("execle", execle(self, self, "check", agent, library, "3", (char *)NULL, own));
	FORKED("execlp", environ = own; execlp(self, self, "check", agent, library, "3", (char *)NULL));
	int file = open(self, O_RDONLY | O_CLOEXEC);
	FORKED("fexecve", fexecve(file, with_own, own));
	FORKED("execveat", execveat(file, "", with_own, own, AT_EMPTY_PATH));
	VFORKED("vfork", execve(self, with_own, own));
	int status;
	pid_t child = vfork();
	if (!child) {
		execve("/nonexistent", with_own, own);
		_exit(errno == ENOENT ? 3 : 1);
	}
	if (waitpid(child, &status, 0) < 0 || status != 3 << 8)
		return printf("an exec that fails: %d\n", status), 1;
	/* Environments of several sizes, for each of which the room is made in another way. */
	for (int count = 100; count <= 10000; count *= 10) {
		char number[20];
		snprintf(number, sizeof number, "%d", count);
		char *with_many[] = { self, "check", agent, "-", number, NULL };
		char **many = variables(count);
		FORKED("many variables", execve(self, with_many, many));
		child = -1;
		if (posix_spawn(&child, self, NULL, NULL, with_many, many))
			child = -1;
		expect("posix_spawn with many variables", child);
	}
	child = -1;
	if (posix_spawnp(&child, self, NULL, NULL, with_own, own))
		child = -1;
	expect("posix_spawnp", child);
	/* What the C library executes by itself. */
	char *command;
	if (asprintf(&command, "%s check %s %s 3", self, agent, library) < 0)
		return 2;
	environ = own;
	/* The shell adds a variable of its own. */
	char *counted;
	if (asprintf(&counted, "unset PWD OLDPWD SHLVL _; exec %s", command) < 0)
		return 2;
	if (system(counted))
		return printf("system\n"), 1;
	ways++;
	FILE *pipe = popen(counted, "r");
	if (!pipe || pclose(pipe))
		return printf("popen\n"), 1;
	ways++;
	printf("ok %d\n", ways);
	return 0;
}
