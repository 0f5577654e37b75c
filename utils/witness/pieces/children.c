/* Starts programs in all ways. */
#define _GNU_SOURCE
#include "action.h"
#include "steps.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

extern char **environ;

static char *cut[] = {"PATH=" ROOT "/bin:/usr/bin:/bin", "WITNESS=cut", NULL}, *nothing[] = {NULL};

char **environment_of(enum environment environment) {
	return environment == WHOLE ? environ : environment == CUT ? cut : nothing;
}

static const char *base(const char *path) {
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* "program argument", each in quotes */
static char *line_of(char *const *argv) {
	static char line[3000];
	size_t size = 0;
	for (; *argv; argv++)
		size += (size_t)snprintf(line + size, sizeof line - size, "'%s' ", *argv);
	return line;
}

ACTION(start_execve, START) { IN_FORK(fork(), execve(argv[0], argv, environment_of(environment))) }
ACTION(start_vfork, START) { IN_FORK(vfork(), execve(argv[0], argv, environment_of(environment))) }
ACTION(start_execv, START) { IN_FORK(fork(), environ = environment_of(environment); execv(argv[0], argv)) }
ACTION(start_execvp, START) { IN_FORK(fork(), execvp(base(argv[0]), argv)) }
ACTION(start_execvp_path, START) { IN_FORK(fork(), execvp(argv[0], argv)) }
ACTION(start_execvpe, START) { IN_FORK(fork(), execvpe(base(argv[0]), argv, environment_of(environment))) }
ACTION(start_execl, START) { IN_FORK(fork(), execl(argv[0], argv[0], argv[1], argv[1] ? argv[2] : NULL, (char *)NULL)) }
ACTION(start_execlp, START) { IN_FORK(vfork(), execlp(base(argv[0]), argv[0], argv[1], argv[1] ? argv[2] : NULL, (char *)NULL)) }
ACTION(start_execle, START) {
	IN_FORK(fork(), execle(argv[0], argv[0], argv[1], argv[1] ? argv[2] : NULL, (char *)NULL, environment_of(environment)))
}
ACTION(start_putenv, START) { IN_FORK(fork(), unsetenv("LD_PRELOAD"); putenv("WITNESS=put"); execv(argv[0], argv)) }
ACTION(start_clearenv, START) { IN_FORK(fork(), clearenv(); execv(argv[0], argv)) }
ACTION(start_fexecve, START) {
	int file = open(argv[0], O_RDONLY | (environment == EMPTY ? 0 : O_CLOEXEC));
	IN_FORK(fork(), fexecve(file, argv, environment_of(environment)))
	close(file);
}
ACTION(start_fexecve_path, START) {
	int file = open(argv[0], O_PATH);
	IN_FORK(fork(), fexecve(file, argv, environment_of(environment)))
	close(file);
}
int execveat(int, const char *, char *const *, char *const *, int);
ACTION(start_execveat, START) {
	int folder = open(ROOT, O_PATH);
	IN_FORK(fork(), execveat(argv[0][0] == '/' ? folder : AT_FDCWD, argv[0], argv, environment_of(environment), 0))
	close(folder);
}
ACTION(start_execveat_empty, START) {
	int file = open(argv[0], O_PATH);
	IN_FORK(fork(), execveat(file, "", argv, environment_of(environment), AT_EMPTY_PATH))
	close(file);
}
ACTION(start_execveat_below, START) {
	int folder = open(ROOT "/bin", O_PATH);
	IN_FORK(vfork(), execveat(folder, base(argv[0]), argv, environment_of(environment), 0))
	close(folder);
}
ACTION(start_by_descriptor, START) {
	char name[60];
	int file = open(argv[0], O_RDONLY);
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	IN_FORK(fork(), execve(name, argv, environment_of(environment)))
	close(file);
}
ACTION(start_copy_in_memory, START) {
	ssize_t size;
	int from = open(argv[0], O_RDONLY), to = memfd_create("copy", 0);
	while ((size = read(from, room, sizeof room)) > 0)
		if (write(to, room, (size_t)size) != size)
			break;
	IN_FORK(fork(), fexecve(to, argv, environment_of(environment)))
	close(from);
	close(to);
}
ACTION(start_refused_then, START) {
	IN_FORK(fork(), execve("/absent/program", argv, environ); execve(ROOT "/yard/a.txt", argv, environ);
	        execve(argv[0], argv, environment_of(environment)))
}
ACTION(start_in_place, START) { execve(argv[0], argv, environment_of(environment)); }
ACTION(start_twice, START) {
	IN_FORK(fork(), execve(argv[0], argv, environment_of(environment)))
	child = vfork();
	if (child == 0) {
		execve(argv[0], argv, environ);
		_exit(98);
	}
	wait_for(child);
}

/* ---- spawn */

static void spawn_with(char *const *argv, enum environment environment, posix_spawn_file_actions_t *actions) {
	pid_t child;
	if (posix_spawn(&child, argv[0], actions, NULL, argv, environment_of(environment)) == 0)
		wait_for(child);
	if (actions)
		posix_spawn_file_actions_destroy(actions);
}
ACTION(start_spawn, START) { spawn_with(argv, environment, NULL); }
ACTION(start_spawnp, START) {
	pid_t child;
	if (posix_spawnp(&child, base(argv[0]), NULL, NULL, argv, environment_of(environment)) == 0)
		wait_for(child);
}
ACTION(start_spawn_actions, START) {
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "a.txt", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 7, "spawned.txt", O_WRONLY | O_CREAT, 0644);
	posix_spawn_file_actions_adddup2(&actions, 7, 8);
	posix_spawn_file_actions_addclose(&actions, 8);
	spawn_with(argv, environment, &actions);
}
ACTION(start_spawn_chdir, START) {
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addchdir_np(&actions, "dir");
	posix_spawn_file_actions_addopen(&actions, 0, "c.txt", O_RDONLY, 0);
	spawn_with(argv, environment, &actions);
}
ACTION(start_spawn_fchdir, START) {
	posix_spawn_file_actions_t actions;
	int folder = open("dir", O_RDONLY | O_DIRECTORY);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addfchdir_np(&actions, folder);
	posix_spawn_file_actions_addopen(&actions, 0, "c.txt", O_RDONLY, 0);
	spawn_with(argv, environment, &actions);
	close(folder);
}
ACTION(start_spawn_refused, START) {
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "absent.txt", O_RDONLY, 0);
	spawn_with(argv, environment, &actions);
}
typedef int pidfd_spawn_function(int *, const char *, void *, void *, char *const *, char *const *);
extern int pidfd_spawn(int *, const char *, void *, void *, char *const *, char *const *) __attribute__((weak));
ACTION(start_pidfd_spawn, START) {
	int child;
	if (pidfd_spawn && pidfd_spawn(&child, argv[0], NULL, NULL, argv, environment_of(environment)) == 0)
		waitid((idtype_t)3 /* P_PIDFD */, (id_t)child, NULL, WEXITED);
}

/* ---- shells */

ACTION(start_system, START) {
	char **kept = environ;
	environ = environment == CUT ? cut : environ;
	if (system(line_of(argv)) < 0)
		_exit(97);
	environ = kept;
}
ACTION(start_system_two, START) {
	char line[4000];
	snprintf(line, sizeof line, "cat a.txt >/dev/null; cd dir && %s", line_of(argv));
	if (system(line) < 0)
		_exit(97);
}
ACTION(start_popen, START) {
	FILE *pipe = popen(line_of(argv), environment == EMPTY ? "re" : "r");
	while (pipe && fgets(room, 200, pipe))
		;
	if (pipe)
		pclose(pipe);
}
ACTION(start_env, START) {
	char *line[] = {"/usr/bin/env", "-i", argv[0], argv[1], argv[1] ? argv[2] : NULL, NULL};
	IN_FORK(fork(), execv(line[0], line))
}
ACTION(start_by_loader, START) {
	char *line[] = {"/lib64/ld-linux-x86-64.so.2", argv[0], argv[1], argv[1] ? argv[2] : NULL, NULL};
	IN_FORK(fork(), execve(line[0], line, environment_of(environment)))
}
ACTION(start_by_loader_and_preload, START) {
	char *line[] = {"/lib64/ld-linux-x86-64.so.2", "--library-path", "lib", argv[0], argv[1], argv[1] ? argv[2] : NULL, NULL};
	IN_FORK(fork(), execve(line[0], line, environment_of(environment)))
}
ACTION(start_with_library_path, START) { IN_FORK(fork(), setenv("LD_LIBRARY_PATH", "lib", 1); execv(argv[0], argv)) }
ACTION(start_with_preload, START) { IN_FORK(fork(), setenv("LD_PRELOAD", "lib/libpart.so", 1); execv(argv[0], argv)) }
ACTION(start_with_audit, START) { IN_FORK(fork(), setenv("LD_AUDIT", "lib/libpart.so", 1); execv(argv[0], argv)) }

/* ---- clone */

struct wish {
	char *const *argv;
	char **env;
};
static int execute_wish(void *data) {
	struct wish *wish = data;
	execve(wish->argv[0], wish->argv, wish->env);
	_exit(96);
}
static void start_clone_with(char *const *argv, enum environment environment, int flags) {
	static char stack[1 << 16] __attribute__((aligned(16)));
	struct wish wish = {argv, environment_of(environment)};
	wait_for(clone(execute_wish, stack + sizeof stack, flags, &wish));
}
ACTION(start_clone, START) { start_clone_with(argv, environment, SIGCHLD); }
ACTION(start_clone_memory, START) { start_clone_with(argv, environment, SIGCHLD | CLONE_VM | CLONE_VFORK); }
ACTION(start_clone_shared, START) { start_clone_with(argv, environment, SIGCHLD | CLONE_FS | CLONE_FILES); }
ACTION(start_clone_without_signal, START) { start_clone_with(argv, environment, 0); }
ACTION(start_clone_parent, START) {
	/* the grandchild's parent is not the process that made it */
	pid_t child = fork();
	if (child == 0) {
		start_clone_with(argv, environment, SIGCHLD | CLONE_PARENT);
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
}
static int enter_folder(void *folder) { _exit(chdir(folder)); }
ACTION(do_clone_chdir, FOLDER_FILE) {
	/* the child shares its current folder with its parent */
	static char stack[1 << 16] __attribute__((aligned(16)));
	wait_for(clone(enter_folder, stack + sizeof stack, SIGCHLD | CLONE_FS, (void *)(uintptr_t)folder));
	stat(path, &status);
}
ACTION(do_unshare_chdir, FOLDER_FILE) { if (unshare(CLONE_FS) == 0 && chdir(folder) == 0) stat(path, &status); }
ACTION(start_numbered_anew, START) {
	/* as root only: the child is process 1 of a PID namespace of its own */
	if (fork() == 0) {
		if (unshare(CLONE_NEWPID) == 0) {
			IN_FORK(fork(), execve(argv[0], argv, environment_of(environment)))
		}
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
}
ACTION(start_fork_alias, START) { IN_FORK(_Fork(), execve(argv[0], argv, environment_of(environment))) }
ACTION(start_closed, START) {
	/* the child has no standard descriptors, so its files get their numbers */
	IN_FORK(fork(), close(0); close(1); close(2); execve(argv[0], argv, environment_of(environment)))
}
ACTION(start_session, START) { IN_FORK(fork(), setsid(); execve(argv[0], argv, environment_of(environment))) }
static void *start_in_this(void *data) {
	struct wish *wish = data;
	pid_t child;
	if (posix_spawn(&child, wish->argv[0], NULL, NULL, wish->argv, wish->env) == 0)
		wait_for(child);
	return NULL;
}
ACTION(start_in_thread, START) {
	pthread_t thread;
	struct wish wish = {argv, environment_of(environment)};
	if (pthread_create(&thread, NULL, start_in_this, &wish) == 0)
		pthread_join(thread, NULL);
}
ACTION(start_fork_in_thread, START) {
	pthread_t thread;
	struct wish wish = {argv, environment_of(environment)};
	IN_FORK(fork(), if (pthread_create(&thread, NULL, start_in_this, &wish) == 0) pthread_join(thread, NULL); _exit(0))
}
static void *become_in_thread(void *data) {
	struct wish *wish = data;
	execve(wish->argv[0], wish->argv, wish->env);
	return NULL;
}
ACTION(start_execve_in_thread, START) {
	/* the program takes the place, and the number, of the whole process */
	pthread_t thread;
	struct wish wish = {argv, environment_of(environment)};
	IN_FORK(fork(), if (pthread_create(&thread, NULL, become_in_thread, &wish) == 0) pthread_join(thread, NULL); _exit(0))
}
ACTION(start_clone3, START) {
	struct clone_args wish = {.exit_signal = SIGCHLD};
	IN_FORK((pid_t)syscall(SYS_clone3, &wish, sizeof wish), execve(argv[0], argv, environment_of(environment)))
}
ACTION(start_fork_call, START) { IN_FORK((pid_t)syscall(SYS_fork), execve(argv[0], argv, environment_of(environment))) }
ACTION(start_clone_call, START) {
	IN_FORK((pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL), execve(argv[0], argv, environment_of(environment)))
}
ACTION(start_execve_call, START) { IN_FORK(fork(), syscall(SYS_execve, argv[0], argv, environment_of(environment))) }
ACTION(start_execveat_call, START) {
	IN_FORK(fork(), syscall(SYS_execveat, AT_FDCWD, argv[0], argv, environment_of(environment), 0))
}
ACTION(start_inherit, START) {
	/* the child has an open file, and its standard input */
	int file = open("b.txt", O_RDONLY), kept = dup(0);
	dup2(file, 0);
	IN_FORK(fork(), execve(argv[0], argv, environment_of(environment)))
	dup2(kept, 0);
	close(kept);
	close(file);
}
ACTION(start_and_leave, START) {
	/* the parent ends first */
	pid_t child = fork();
	if (child == 0) {
		if (fork() == 0) {
			usleep(2000);
			execve(argv[0], argv, environment_of(environment));
		}
		_exit(0);
	}
	wait_for(child);
}
ACTION(start_in_folder, START) {
	IN_FORK(fork(), chdir("dir") == 0 ? execve(argv[0], argv, environment_of(environment)) : 0)
}
ACTION(start_changed, START) {
	/* a copy of the program, which is removed while it runs */
	char line[3000];
	snprintf(line, sizeof line, "cp %s copied && chmod 755 copied", argv[0]);
	if (system(line) == 0) {
		char *again[] = {"./copied", argv[1], argv[1] ? argv[2] : NULL, NULL};
		IN_FORK(fork(), execve(again[0], again, environment_of(environment)))
		unlink("copied");
	}
}
