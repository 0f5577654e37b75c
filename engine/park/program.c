/* Finds out what the kernel will start for a path, from its first bytes, like the kernel itself.
 *
 * A program is observed by this library if it has a loader, which loads the library, and by the second witness if it has none. A program
 * for another kind of processor, or one that cannot be read, is not observed. It must not find our variables either: the loader of
 * another kind of processor would complain about them on standard error. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>

#define HEAD 256 /* the kernel reads no more of a script's first line */
#define SCRIPTS 5 /* an interpreter may be a script itself; the kernel gives up after this many */
#define PARTS 8 /* how many of a program's headers are read at once */

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

/* A file that will be executed, and its beginning. */
struct program {
	int file;
	uint64_t identity;
	long size;
	int changes_user; /* or the group */
	union {
		ElfW(Ehdr) elf;
		char bytes[HEAD];
	} head;
};

/* Opens only plain files: a pipe would block. */
static int open_program(int folder, const char *path, struct program *program) {
	struct stat status;
	if (SYSTEM(SYS_newfstatat, folder, path, &status, 0) < 0 || !S_ISREG(status.st_mode))
		return 0;
	program->identity = wafpark_identity(status.st_dev, status.st_ino);
	program->changes_user = !!(status.st_mode & (S_ISUID | S_ISGID));
	program->file = (int)SYSTEM(SYS_openat, folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	if (program->file < 0)
		return 0;
	program->size = SYSTEM(SYS_pread64, program->file, program->head.bytes, HEAD, 0);
	return 1;
}

/* What loads a program, if anything does. */
enum loading { LOADED, STATIC, NOT_KNOWN };

/* The loader is named in the program's own headers. The loader itself has none. */
static enum loading find_loading(const struct program *program) {
	const ElfW(Ehdr) *elf = &program->head.elf;
	ElfW(Phdr) parts[PARTS];
	if (program->size < (long)sizeof *elf || elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_machine != MACHINE ||
	    elf->e_phentsize != sizeof *parts)
		return NOT_KNOWN;
	for (unsigned i = 0; i < elf->e_phnum; i++) {
		const uint64_t place = elf->e_phoff + i * sizeof *parts;
		if (i % PARTS == 0 && SYSTEM(SYS_pread64, program->file, parts, sizeof parts, place) < (long)sizeof *parts)
			return NOT_KNOWN;
		if (parts[i % PARTS].p_type == PT_INTERP)
			return LOADED;
	}
	const int has_capabilities = SYSTEM(SYS_fgetxattr, program->file, "security.capability", NULL, 0) > 0;
	/* A traced program would not get the rights that its file gives it. */
	return program->changes_user || has_capabilities ? NOT_KNOWN : STATIC;
}

static int is_elf(const struct program *program) {
	const char *bytes = program->head.bytes;
	return program->size > SELFMAG && bytes[0] == ELFMAG0 && bytes[1] == ELFMAG1 && bytes[2] == ELFMAG2 && bytes[3] == ELFMAG3;
}

/* The interpreter of a script, with a zero byte at its end. NULL if it cannot be found out. */
static const char *find_interpreter(struct program *program) {
	char *at = program->head.bytes, *end = at + program->size;
	/* libc lets a shell execute text without such a line, if the caller searches along PATH. */
	if (program->size < 3 || at[0] != '#' || at[1] != '!')
		return "/bin/sh";
	at += 2;
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	char *path = at;
	while (at < end && *at && *at != ' ' && *at != '\t' && *at != '\n')
		at++;
	if (at == end || at == path)
		return NULL;
	*at = 0;
	return path;
}

/* Records the interpreters on the way. */
static uint64_t inspect(int folder, const char *path, int depth, int *is_static) {
	struct program program;
	if (!open_program(folder, path, &program))
		return 0;
	uint64_t found = 0;
	if (is_elf(&program)) {
		const enum loading loading = find_loading(&program);
		found = loading == NOT_KNOWN ? 0 : program.identity;
		*is_static = loading == STATIC;
	} else if (depth < SCRIPTS) {
		const char *interpreter = find_interpreter(&program);
		if (interpreter) {
			wafpark_note(WAFPARK_LOAD, 0, 0, AT_FDCWD, interpreter);
			found = inspect(AT_FDCWD, interpreter, depth + 1, is_static);
		}
	}
	SYSTEM(SYS_close, program.file);
	return found;
}

/* Our own wrapper is linked statically, so it is not observed. It must still learn that it runs inside an observed command: otherwise it would
 * ask for the result of a command that waits for the wrapper. */
HIDDEN int wafpark_is_wrapper(int folder, const char *path) {
	char link[40], real[4096];
	const int file = (int)SYSTEM(SYS_openat, folder, path, O_PATH | O_CLOEXEC, 0);
	if (file < 0)
		return 0;
	const long size = SYSTEM(SYS_readlinkat, AT_FDCWD, wafpark_path_of_file(file, link), real, sizeof real);
	SYSTEM(SYS_close, file);
	static const char name[] = "/wafcc";
	const long length = sizeof name - 1;
	if (size < length)
		return 0;
	for (long i = 0; i < length; i++)
		if (real[size - length + i] != name[i])
			return 0;
	return 1;
}

HIDDEN uint64_t wafpark_inspect(int folder, const char *path, int *is_static) {
	*is_static = 0;
	return path ? inspect(folder, path, 0, is_static) : 0;
}
