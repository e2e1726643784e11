/* In a network namespace of its own another user listens by the name of pleat's socket, while root's program there executes
 * programs, fills memory and forks: `impostor MIB`. Prints how many packets were said to the impostor. */
#define _GNU_SOURCE
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, PAGE = 4096 };

/* Until `end` is closed; answers over `out` when it listens, and what it has heard. */
static void listen_as_nobody(const char *name, int end, int out)
{
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0), heard = 0;
	struct sockaddr_un own = {.sun_family = AF_UNIX};
	strncpy(own.sun_path + 1, name, sizeof own.sun_path - 2);
	socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
	if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY) || bind(s, (void *)&own, len) || listen(s, 64)) {
		perror("impostor");
		_exit(1);
	}
	write(out, &heard, sizeof heard);
	for (;;) {
		struct pollfd p[2] = {{s, POLLIN, 0}, {end, POLLIN, 0}};
		poll(p, 2, -1);
		int peer;
		while ((peer = accept(s, NULL, NULL)) >= 0) {
			char packet[4096];
			heard += recv(peer, packet, sizeof packet, 0) > 0;
			close(peer);
		}
		if (p[1].revents)
			break;
	}
	write(out, &heard, sizeof heard);
	_exit(0);
}

static void child(char **argv, const unsigned char *block, size_t size)
{
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t i = 0; i < size; i++)
			if (block[i] != (unsigned char)(i / 64))
				_exit(2);
		if (size)
			_exit(0);
		execl("/proc/self/exe", argv[0], NULL);
		_exit(3);
	}
	int status;
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status) {
		printf("a child ended with %x\n", status);
		exit(4);
	}
}

int main(int argc, char **argv)
{
	const char *name = getenv("PLEAT_SOCKET");
	if (argc < 2)
		return 0;
	if (!name || unshare(CLONE_NEWNET)) {
		perror("unshare");
		return 1;
	}
	int end[2], out[2], heard;
	if (pipe(end) || pipe(out))
		return 1;
	pid_t impostor = fork();
	if (impostor == 0) {
		close(end[1]);
		listen_as_nobody(name, end[0], out[1]);
	}
	close(end[0]), close(out[1]);
	if (read(out[0], &heard, sizeof heard) != sizeof heard)
		return 1;
	for (int i = 0; i < 3; i++)
		child(argv, NULL, 0);
	size_t size = strtoul(argv[1], NULL, 10) << 20;
	unsigned char *block = malloc(size);
	for (size_t i = 0; i < size; i++)
		block[i] = i / 64;
	for (int i = 0; i < 3; i++)
		child(argv, block, size);
	close(end[1]);
	if (read(out[0], &heard, sizeof heard) != sizeof heard)
		return 1;
	waitpid(impostor, NULL, 0);
	printf("heard %d\n", heard);
	return 0;
}
