/* Has a library that is loaded here mapped a second time, as data: as its loader would do it, but not executable, with memory of
 * its own around that holds only ones and its own number. Then it fills so many MiB, and looks whether that memory is as it was.
 * Ends with 0 if it is, and all that was filled.
 *
 *     reads_library NAME MIB
 *
 * NAME: part of the library's name.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SPAN = 16 << 20, PAGE = 4096, WORDS = 512 };

static const char *wanted;
static char path[4096];

static int find(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size, (void)unused;
	if (!strstr(info->dlpi_name, wanted))
		return 0;
	snprintf(path, sizeof path, "%s", info->dlpi_name);
	return 1;
}

/* What a library that waits for its agent would say, were it here. */
static uint64_t ones(void)
{
	return 1 | (uint64_t)getpid() << 32;
}

static void fill(uint64_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof *from; i++)
		from[i] = ones();
}

/* Maps the file's segments to `base` on, each writable. */
static void map_as_data(char *base, int file)
{
	Elf64_Ehdr head;
	if (pread(file, &head, sizeof head, 0) != sizeof head)
		exit(2);
	for (int i = 0; i < head.e_phnum; i++) {
		Elf64_Phdr part;
		if (pread(file, &part, sizeof part, head.e_phoff + i * sizeof part) != sizeof part)
			exit(2);
		size_t lead = part.p_vaddr % PAGE;
		if (part.p_type != PT_LOAD || !part.p_filesz)
			continue;
		int how = MAP_PRIVATE | MAP_FIXED;
		void *at = base + part.p_vaddr - lead;
		if (mmap(at, part.p_filesz + lead, PROT_READ | PROT_WRITE, how, file, part.p_offset - lead) != at)
			exit(2);
	}
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	wanted = argv[1];
	int is_loaded = dl_iterate_phdr(find, NULL);
	uint64_t *held = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *before = malloc(SPAN);
	if (held == MAP_FAILED || !before)
		return 2;
	fill(held, SPAN);
	if (is_loaded) {
		int file = open(path, O_RDONLY);
		if (file < 0)
			return 2;
		/* One whole, and of another the first page only. */
		map_as_data((char *)held, file);
		if (mmap((char *)held + SPAN / 2, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
			return 2;
	}
	memcpy(before, held, SPAN);
	size_t pages = strtoul(argv[2], NULL, 10) * 256;
	uint64_t *block = malloc(pages * PAGE);
	for (size_t i = 0; block && i < pages * WORDS; i++)
		block[i] = i / WORDS;
	for (size_t i = 0; block && i < pages * WORDS; i++)
		if (block[i] != i / WORDS)
			return 3;
	if (memcmp(before, held, SPAN)) {
		puts("memory was written to that is nobody else's");
		return 4;
	}
	puts("ok");
	return 0;
}
