/* slow MILLISECONDS PROGRAM ARGS...: runs a program whose first thread rests so long after each message that it sends,
 * as it might on a machine with other work to do. Its other threads and its children run as always. The status is the
 * program's. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(125);
}

int main(int count, char **words) {
    if (count < 3) {
        fprintf(stderr, "usage: slow MILLISECONDS PROGRAM ARGS...\n");
        return 125;
    }
    useconds_t rest = atoi(words[1]) * 1000;
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0))
            die("ptrace");
        execvp(words[2], words + 2);
        die(words[2]);
    }
    int status, is_entry = 1, signal = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        die("waitpid");
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    for (;;) {
        if (ptrace(PTRACE_SYSCALL, child, 0, signal) && errno != ESRCH)
            die("ptrace");
        if (waitpid(child, &status, 0) != child)
            die("waitpid");
        if (WIFEXITED(status))
            return WEXITSTATUS(status);
        if (WIFSIGNALED(status))
            return 128 + WTERMSIG(status);
        signal = 0;
        if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
            signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
            continue;
        }
        struct user_regs_struct registers;
        if (!is_entry && ptrace(PTRACE_GETREGS, child, 0, &registers) == 0 &&
            (registers.orig_rax == SYS_sendmsg || registers.orig_rax == SYS_sendto))
            usleep(rest);
        is_entry = !is_entry;
    }
}
