/* Copies between heap and files in every way there is, in several threads, with forks between, and checks
 * every block: buffers that are away are read into and written from while pages of the files are taken.
 *
 *     copies DIR HEAP_MB SECONDS THREADS
 *
 * Each thread has a file in DIR and a part of the heap. A block's content follows from its thread and its
 * name; the names of what each place of file and heap holds are noted apart.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, BLOCKS = 192, THREADS_MAX = 16 };

struct name {
	uint32_t block, version;
};

static const char *dir;
static int slots;
static time_t end;
static long copies[THREADS_MAX];

static void fail(const char *what)
{
	printf("FAIL %s\n", what);
	fflush(stdout);
	_exit(1);
}

static void fill(char *to, int thread, struct name name)
{
	char text[64];
	int len = snprintf(text, sizeof text, "thread %d block %u version %u; ", thread, name.block, name.version);
	for (int at = 0; at < BLOCK; at += len)
		memcpy(to + at, text, len < BLOCK - at ? len : BLOCK - at);
	for (uint32_t page = 0; page < BLOCK / 4096; page++)
		*(uint32_t *)(to + page * 4096) = page;
}

static void check(const char *found, int thread, struct name name, const char *what)
{
	static __thread char expected[BLOCK];
	fill(expected, thread, name);
	if (memcmp(found, expected, BLOCK) != 0)
		fail(what);
}

static void whole(ssize_t done, const char *what)
{
	if (done != BLOCK)
		fail(what);
}

static void in_child(char *heap, struct name *held, struct name *contents, int file, int thread)
{
	char *buffer = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int slot = 0; slot < slots; slot += 7)
		check(heap + (long)slot * BLOCK, thread, held[slot], "heap of a child");
	for (uint32_t block = 0; block < BLOCKS; block += 17) {
		whole(pread(file, buffer, BLOCK, (off_t)block * BLOCK), "pread of a child");
		check(buffer, thread, contents[block], "file of a child");
	}
	_exit(0);
}

static void *copy(void *number)
{
	int thread = (int)(intptr_t)number;
	unsigned seed = thread + 1;
	char path[4096];
	snprintf(path, sizeof path, "%s/copies-%d", dir, thread);
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (file < 0 || ftruncate(file, (off_t)BLOCKS * BLOCK) != 0)
		fail("creating a file");
	int direct = open(path, O_RDWR | O_DIRECT);
	char *map = mmap(NULL, (size_t)BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *heap = mmap(NULL, (size_t)slots * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (direct < 0 || map == MAP_FAILED || heap == MAP_FAILED)
		fail("opening or mapping a file");
	struct name *held = calloc(slots, sizeof *held);
	struct name *contents = calloc(BLOCKS, sizeof *contents);
	for (int slot = 0; slot < slots; slot++) {
		held[slot] = (struct name){slot % BLOCKS, 1000000 + slot};
		fill(heap + (long)slot * BLOCK, thread, held[slot]);
	}
	for (uint32_t block = 0; block < BLOCKS; block++) {
		static __thread char first[BLOCK];
		contents[block] = (struct name){block, 0};
		fill(first, thread, contents[block]);
		whole(pwrite(file, first, BLOCK, (off_t)block * BLOCK), "first write");
	}
	uint32_t made = 2000000;
	while (time(NULL) < end) {
		uint32_t block = rand_r(&seed) % BLOCKS;
		int slot = rand_r(&seed) % slots;
		char *place = heap + (long)slot * BLOCK;
		off_t offset = (off_t)block * BLOCK;
		int way = rand_r(&seed) % 8;
		/* As a rule the place in the heap is not touched before, and may be away. */
		if (rand_r(&seed) % 4 == 0)
			check(place, thread, held[slot], "heap");
		if (rand_r(&seed) % 16 == 0) {
			held[slot] = (struct name){block, ++made};
			fill(place, thread, held[slot]);
		}
		switch (way) {
		case 0:
		case 1:
			whole(pread(file, place, BLOCK, offset), "pread");
			break;
		case 2:
			whole(pread(direct, place, BLOCK, offset), "direct pread");
			break;
		case 3:
		case 4:
			memcpy(place, map + offset, BLOCK);
			break;
		case 5:
			whole(pwrite(file, place, BLOCK, offset), "pwrite");
			break;
		case 6:
			whole(pwrite(direct, place, BLOCK, offset), "direct pwrite");
			break;
		case 7:
			memcpy(map + offset, place, BLOCK);
			if (msync(map + offset, BLOCK, MS_SYNC) != 0)
				fail("msync");
			break;
		}
		if (way < 5)
			held[slot] = contents[block];
		else
			contents[block] = held[slot];
		copies[thread]++;
		if (rand_r(&seed) % 512 == 0) {
			pid_t child = fork();
			if (child == 0)
				in_child(heap, held, contents, file, thread);
			int status;
			if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
				fail("a child");
		}
		if (rand_r(&seed) % 64 == 0) {
			DIR *all = opendir(dir);
			int count = 0;
			while (all && readdir(all))
				count++;
			if (!all || count < 3)
				fail("reading the directory");
			closedir(all);
		}
	}
	return NULL;
}

int main(int count, char **arguments)
{
	if (count != 5)
		return 2;
	int threads = atoi(arguments[4]);
	dir = arguments[1];
	slots = (int)(((long)atoi(arguments[2]) << 20) / BLOCK / threads);
	end = time(NULL) + atoi(arguments[3]);
	pthread_t all[THREADS_MAX];
	for (int thread = 0; thread < threads; thread++)
		pthread_create(&all[thread], NULL, copy, (void *)(intptr_t)thread);
	long sum = 0;
	for (int thread = 0; thread < threads; thread++) {
		pthread_join(all[thread], NULL);
		sum += copies[thread];
	}
	printf("%ld copies\nok\n", sum);
	return 0;
}
