/*
 * usher REPORT COMMAND ARGUMENT...
 *
 * Starts a command and waits for it. Writes to REPORT, in KiB, the largest resident set of the command and of all processes for which it
 * has waited, and ends as it did. Until a process calls exec, it has the memory of the process that started it, and the kernel counts that
 * as its own. So a program that Python starts never seems smaller than Python. This program is small enough not to matter.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t child;

/* A signal that would end this process is passed on to the command, which may be in a process group of its own. */
static void forward(int number)
{
	if (child > 0)
		kill(child, number);
}

static int wait_for_child(struct rusage *usage)
{
	int status;
	while (wait4(child, &status, 0, usage) < 0)
		if (errno != EINTR)
			return -1;
	return status;
}

static int write_report(const char *path, const struct rusage *usage)
{
	FILE *report = fopen(path, "w");
	if (!report)
		return -1;
	fprintf(report, "%ld\n", usage->ru_maxrss);
	return fclose(report);
}

int main(int argc, char **argv)
{
	const int ending[] = {SIGINT, SIGTERM, SIGHUP};
	const size_t count = sizeof ending / sizeof *ending;
	struct rusage usage;
	if (argc < 3)
		return 2;
	child = fork();
	if (child == 0) {
		execvp(argv[2], argv + 2);
		fprintf(stderr, "%s: %s\n", argv[2], strerror(errno));
		_exit(127);
	}
	if (child < 0) {
		perror("fork");
		return 126;
	}
	for (size_t n = 0; n < count; n++)
		signal(ending[n], forward);
	const int status = wait_for_child(&usage);
	if (status < 0 || write_report(argv[1], &usage) != 0) {
		perror(argv[1]);
		return 126;
	}
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	signal(WTERMSIG(status), SIG_DFL);
	kill(getpid(), WTERMSIG(status));
	return 128 + WTERMSIG(status);
}
