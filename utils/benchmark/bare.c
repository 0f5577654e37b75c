/*
 * bare JOBS FILE: run the commands of a file, one per line, JOBS at once.
 *
 * It does only what every build system must do: start a command, wait for one. So it shows how fast commands can be
 * dispatched when each is started anew. Words are separated by blanks; there are no quotes.
 */
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 64

extern char **environ;

/* end with a message: the action, its object and the error */
static void
fail(const char *what, const char *name, int error)
{
	fprintf(stderr, "bare: %s %s: %s\n", what, name, strerror(error));
	exit(2);
}

/* the whole file, with a zero at its end */
static char *
read_file(const char *path)
{
	struct stat info;
	FILE *f = fopen(path, "r");
	char *text;

	if (!f || fstat(fileno(f), &info))
		fail("read", path, errno);
	text = malloc((size_t)info.st_size + 1);
	if (!text)
		fail("read", path, errno);
	text[fread(text, 1, (size_t)info.st_size, f)] = 0;
	fclose(f);
	return text;
}

/* the words of a line, cut in place */
static int
split(char *line, char *words[WORDS])
{
	int count = 0;
	char *rest = line, *word;

	while (count < WORDS - 1 && (word = strtok_r(rest, " \t", &rest)))
		words[count++] = word;
	words[count] = NULL;
	return count;
}

/* the path of a program; PATH is searched only when the name is not the same as last time */
static const char *
find(const char *name)
{
	static char path[PATH_MAX], known[NAME_MAX + 1];
	const char *folder = getenv("PATH");

	if (strchr(name, '/'))
		return name;
	if (!strcmp(name, known))
		return path;
	while (folder && *folder) {
		size_t length = strcspn(folder, ":");
		int size = snprintf(path, sizeof(path), "%.*s/%s", (int)length, folder, name);

		if (size > 0 && (size_t)size < sizeof(path) && !access(path, X_OK)) {
			snprintf(known, sizeof(known), "%s", name);
			return path;
		}
		folder += length + (folder[length] == ':');
	}
	fail("find", name, ENOENT);
	return NULL;
}

/* wait for one command; true if it failed */
static int
await_one(void)
{
	int status;

	while (waitpid(-1, &status, 0) < 0)
		if (errno != EINTR)
			fail("wait for", "a command", errno);
	return status != 0;
}

int
main(int argc, char *argv[])
{
	int jobs = argc == 3 ? atoi(argv[1]) : 0, running = 0, failed = 0;
	char *words[WORDS], *rest, *line;

	if (jobs < 1) {
		fprintf(stderr, "usage: bare JOBS FILE\n");
		return 2;
	}
	rest = read_file(argv[2]);
	while ((line = strtok_r(rest, "\n", &rest))) {
		pid_t pid;
		int error;

		if (!split(line, words))
			continue;
		if (running == jobs) {
			failed += await_one();
			running--;
		}
		/* this way to start a command copies nothing of this process */
		error = posix_spawn(&pid, find(words[0]), NULL, NULL, words, environ);
		if (error)
			fail("start", words[0], error);
		running++;
	}
	for (; running; running--)
		failed += await_one();
	return failed != 0;
}
