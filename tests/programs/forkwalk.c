/* forkwalk MEGABYTES: small objects, then a forked child reads them all once, at random, while its parent
 * only waits: what a server does that saves its memory from a forked child. Prints what they add up to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OBJECT_BYTES = 112, OBJECTS_PER_MB = (1 << 20) / 128 };

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: forkwalk MEGABYTES\n");
        return 2;
    }
    /* A power of two, so that the generator below visits each object once. */
    unsigned objects = 1;
    while (objects * 2 <= (unsigned)atoi(argv[1]) * OBJECTS_PER_MB)
        objects *= 2;
    char **all = malloc(objects * sizeof *all);
    for (unsigned k = 0; k < objects; k++) {
        all[k] = malloc(OBJECT_BYTES);
        snprintf(all[k], OBJECT_BYTES, "value:%u:%u:%u", k, k * 2654435761u, k * 40503u);
    }
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return 1;
    }
    if (child == 0) {
        unsigned long sum = 0;
        unsigned at = 1;
        for (unsigned k = 0; k < objects; k++) {
            at = (at * 1664525u + 1013904223u) & (objects - 1);
            sum += (unsigned char)all[at][5] + (unsigned char)all[at][8];
        }
        printf("%lu\n", sum);
        return 0;
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status);
}
