/* System calls by the program's own instructions. Programs that need none are linked without this file, because the engine reads which
 * instructions a program has. */
#define _GNU_SOURCE
#include "action.h"
#include "steps.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifdef __x86_64__
static long own(long number, long a, long b, long c, long d) {
	long result;
	register long fourth __asm__("r10") = d;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
	return result;
}
#define OWN(number, a, b, c, d) own(number, (long)(a), (long)(b), (long)(c), (long)(d))

ACTION(own_open, FILE) { read_and_close(OWN(SYS_open, path, O_RDONLY, 0, 0)); }
ACTION(own_openat, FILE) { read_and_close(OWN(SYS_openat, AT_FDCWD, path, O_RDONLY, 0)); }
ACTION(own_stat, FILE) { OWN(SYS_stat, path, &status, 0, 0); }
ACTION(own_access, FILE) { OWN(SYS_access, path, R_OK, 0, 0); }
ACTION(own_readlink, LINK) { OWN(SYS_readlink, path, room, sizeof room, 0); }
ACTION(own_chdir, FOLDER_FILE) { OWN(SYS_chdir, folder, 0, 0, 0); stat(path, &status); }
ACTION(own_creat, NEW) { read_and_close(OWN(SYS_creat, path, 0644, 0, 0)); }
ACTION(own_unlink, NEW) { OWN(SYS_unlink, path, 0, 0, 0); }

/* The system calls of 32-bit programs, which every program can make. Their arguments must lie below 4 GiB. */
static int old(int number, int a, int b, int c) {
	int result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
	return result;
}
static int lower(const char *path) {
	char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	return low == MAP_FAILED ? 0 : (int)(uintptr_t)strcpy(low, path);
}
ACTION(old_open, FILE) { read_and_close(old(5, lower(path), O_RDONLY, 0)); }
ACTION(old_stat, FILE) { old(195, lower(path), lower("") + 1024, 0); }
ACTION(old_access, FILE) { old(33, lower(path), R_OK, 0); }
ACTION(old_chdir, FOLDER_FILE) { old(12, lower(folder), 0, 0); stat(path, &status); }
ACTION(old_mkdir, NEW) { old(39, lower(path), 0755, 0); }

ACTION(start_execve_own, START) {
	IN_FORK(fork(), OWN(SYS_execve, argv[0], argv, environment_of(environment), 0); _exit(99))
}
#endif
