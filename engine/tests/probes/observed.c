/* Does what its first argument says, so that tests can check whether that is recorded. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void *look_often(void *name) {
	char path[64];
	struct stat status;
	for (int i = 0; i < 500; i++) {
		snprintf(path, sizeof path, "/absent/%s/%d", (char *)name, i);
		stat(path, &status);
	}
	return NULL;
}

static void run_threads(void) {
	pthread_t threads[4];
	static char names[4][2] = {"a", "b", "c", "d"};
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, look_often, names[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void wait_well(pid_t child) {
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		exit(9);
}

/* Each way to execute `program`, with "access" and a path of its own. */
static void execute_all(char *program) {
	pid_t child;
	char *argv[] = {program, "access", "/absent/vfork", NULL};
	char *bare[] = {"PATH=/usr/bin:/bin", NULL};
	if (!(child = vfork())) {
		execv(program, argv);
		_exit(8);
	}
	wait_well(child);
	argv[2] = "/absent/fork";
	if (!(child = fork())) {
		execve(program, argv, bare);
		_exit(8);
	}
	wait_well(child);
	if (!(child = fork())) {
		execl(program, program, "access", "/absent/execl", (char *)NULL);
		_exit(8);
	}
	wait_well(child);
	argv[2] = "/absent/spawn";
	if (posix_spawn(&child, program, NULL, NULL, argv, bare))
		exit(7);
	wait_well(child);
	argv[2] = "/absent/spawnp";
	if (posix_spawnp(&child, program, NULL, NULL, argv, environ))
		exit(7);
	wait_well(child);
	char *lost[] = {"nothing-of-this-name", NULL};
	if (!(child = fork())) {
		execvp(lost[0], lost);
		_exit(errno == ENOENT ? 0 : 8);
	}
	wait_well(child);
	if (posix_spawnp(&child, lost[0], NULL, NULL, lost, environ) != ENOENT)
		exit(6);
	char line[4096];
	snprintf(line, sizeof line, "'%s' access /absent/system", program);
	if (system(line))
		exit(5);
	snprintf(line, sizeof line, "'%s' access /absent/popen", program);
	FILE *pipe = popen(line, "r");
	if (!pipe || pclose(pipe))
		exit(4);
}

static void show_environment(void) {
	for (char **entry = environ; *entry; entry++)
		puts(*entry);
}

static void use_folders(void) {
	struct stat status;
	if (mkdir("in", 0777) || chdir("in") || stat("below", &status) == 0)
		exit(3);
	int folder = open("..", O_RDONLY | O_DIRECTORY);
	fstatat(folder, "by-number", &status, 0);
	openat(folder, "not-by-number", O_RDONLY);
	if (fchdir(folder))
		exit(3);
	stat("above", &status);
	closedir(opendir("in"));
	closedir(fdopendir(folder));
	pid_t child = fork();
	if (!child) {
		stat("in-a-fork", &status);
		_exit(chdir("in") || stat("deep-in-a-fork", &status) == 0);
	}
	wait_well(child);
}

static void write_files(void) {
	char template[] = "kept-XXXXXX";
	int file = mkstemp(template);
	if (file < 0 || rename(template, "kept") || symlink("kept", "link") || link("kept", "second"))
		exit(3);
	fclose(fopen("new", "wx"));
	fclose(fopen("new", "a+"));
	unlink("second");
	remove("new");
	truncate("kept", 3);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	char buffer[4096];
	if (!strcmp(what, "access"))
		access(argv[2], F_OK);
	else if (!strcmp(what, "threads"))
		run_threads();
	else if (!strcmp(what, "execute"))
		execute_all(argv[0]);
	else if (!strcmp(what, "run"))
		return execv(argv[2], argv + 2);
	else if (!strcmp(what, "environment"))
		show_environment();
	else if (!strcmp(what, "folders"))
		use_folders();
	else if (!strcmp(what, "files"))
		write_files();
	else if (!strcmp(what, "many"))
		for (long i = 0; i < 400000; i++)
			access("/absent/and/of/a/long/enough/name", F_OK);
	else if (!strcmp(what, "closed")) {
		for (int i = 3; i < 256; i++)
			close(i);
		access("/absent/closed", F_OK);
	} else if (!strcmp(what, "monotonic")) {
		struct timespec now;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} else if (!strcmp(what, "time")) {
		struct timeval now;
		time_t seconds = time(NULL);
		gettimeofday(&now, NULL);
		if (labs(now.tv_sec - seconds) > 1)
			return 3;
	} else if (!strcmp(what, "date")) {
		time_t seconds = 86400;
		if (localtime(&seconds)->tm_year != 70)
			return 3;
	} else if (!strcmp(what, "random"))
		return getrandom(buffer, 8, 0) != 8;
	else if (!strcmp(what, "urandom"))
		return !fopen("/dev/urandom", "r");
	else if (!strcmp(what, "raw"))
		syscall(SYS_mknodat, AT_FDCWD, "/absent/raw", 0600, 0);
	else if (!strcmp(what, "numbered"))
		syscall(SYS_openat, AT_FDCWD, "/absent/numbered", O_RDONLY);
	else if (!strcmp(what, "walk"))
		nftw("/absent/walk", (void *)main, 4, 0);
	else if (!strcmp(what, "hardened")) {
		ssize_t __readlink_chk(const char *, char *, size_t, size_t);
		__readlink_chk("/absent/hardened", buffer, 10, sizeof buffer);
		char *__getcwd_chk(char *, size_t, size_t);
		return !__getcwd_chk(buffer, sizeof buffer, sizeof buffer);
	} else if (!strcmp(what, "library")) {
		void *library = dlopen(argv[2], RTLD_NOW);
		return !library;
	} else if (!strcmp(what, "linger")) {
		if (!fork()) {
			access("/absent/linger", F_OK);
			close(1);
			close(2);
			/* until the test closes the other end */
			return read(0, buffer, 1) != 0;
		}
		/* the child's access must be recorded before this process ends */
		for (;;) {
			int file = open(argv[2], O_RDONLY);
			if (file >= 0)
				break;
		}
	} else if (!strcmp(what, "errno")) {
		errno = 77;
		free(realpath("/", NULL));
		access("/", F_OK);
		return errno != 77;
	}
	return 0;
}
