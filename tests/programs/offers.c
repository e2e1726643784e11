/* Offers the supervisor what is no conversation of its own, for so many seconds: `offers KIND SECONDS`, of KINDS kinds. Its memory is
 * large enough for it to be wanted. Prints a line when it has not been harmed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* `pleat_wire::injected::Injected` */
struct injected { uint64_t mark[2]; char name[64]; uint64_t name_length, image[2], area, beacon, state, is_to_offer, offer; };

enum { BYTES = 3 << 20, PAUSE_US = 1000, KINDS = 11 };

static pid_t helper;

static int pair_of(int kind)
{
	int ends[2];
	if (socketpair(AF_UNIX, kind, 0, ends))
		exit(2);
	return ends[1];
}

/* An end of a connection that another process has made. */
static int pair_of_others(void)
{
	int way[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, way))
		exit(2);
	char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	helper = fork();
	if (helper == 0) {
		int fd = pair_of(SOCK_SEQPACKET);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
		sendmsg(way[1], &m, 0);
		pause();
		_exit(0);
	}
	int fd = -1;
	if (recvmsg(way[0], &m, 0) == 1)
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

static int listening(void)
{
	int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	struct sockaddr_un none = {.sun_family = AF_UNIX};
	if (bind(s, (void *)&none, sizeof(sa_family_t)) || listen(s, 5))
		exit(2);
	return s;
}

/* Something is said into it that no agent says. */
static int spoken(size_t len)
{
	int ends[2], on = 1;
	static char nonsense[9000] = "nonsense";
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
		exit(2);
	setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	send(ends[0], nonsense, len, 0);
	return ends[1];
}

static int of_kind(int kind)
{
	switch (kind) {
	case 0: return open("/dev/null", O_RDWR);
	case 1: return pair_of(SOCK_STREAM);
	case 2: return pair_of(SOCK_SEQPACKET);
	case 3: return pair_of_others();
	case 4: return listening();
	case 5: return spoken(8);
	case 6: return spoken(9000);
	case 7: return socket(AF_INET, SOCK_STREAM, 0);
	case 8: return 4000;
	default: return pair_of(SOCK_SEQPACKET);
	}
}

int main(int argc, char **argv)
{
	volatile struct injected *given = dlsym(RTLD_DEFAULT, "pleat_given");
	if (!given || argc < 3) {
		fprintf(stderr, "usage: offers KIND SECONDS, with the library\n");
		return 1;
	}
	int kind = atoi(argv[1]) % KINDS;
	uint64_t fd = of_kind(kind), thread = kind == 9 ? 1 : getpid();
	uint64_t word = kind == 10 ? ~0ULL >> 1 : thread | (fd + 1) << 32;
	/* Before it is wanted: else its own agent may be there first. */
	given->offer = word;
	unsigned char *block = malloc(BYTES);
	memset(block, 7, BYTES);
	for (time_t end = time(NULL) + atoi(argv[2]); time(NULL) < end; usleep(PAUSE_US))
		given->offer = word;
	given->offer = 0;
	if (helper)
		kill(helper, SIGKILL), waitpid(helper, NULL, 0);
	for (size_t i = 0; i < BYTES; i++)
		if (block[i] != 7)
			return 3;
	printf("offered %d\n", kind);
	return 0;
}
