/* Files, by system calls that a program makes without the C library's functions. */
#define _GNU_SOURCE
#include "action.h"
#include "steps.h"

#include <linux/openat2.h>
#include <stdlib.h>
#include <stdint.h>
#include <sys/syscall.h>

ACTION(call_open, FILE) { read_and_close(syscall(SYS_open, path, O_RDONLY, 0)); }
ACTION(call_openat, FILE) { read_and_close(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0)); }
ACTION(call_openat2, FILE) {
	struct open_how how = {.flags = O_RDONLY};
	read_and_close(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
}
ACTION(call_creat, NEW) { read_and_close(syscall(SYS_creat, path, 0644)); }
ACTION(call_stat, FILE) { syscall(SYS_stat, path, &status); }
ACTION(call_lstat, FILE) { syscall(SYS_lstat, path, &status); }
ACTION(call_newfstatat, FILE) { syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0); }
ACTION(call_statx, FILE) { struct statx found; syscall(SYS_statx, AT_FDCWD, path, 0, STATX_ALL, &found); }
ACTION(call_access, FILE) { syscall(SYS_access, path, R_OK); }
ACTION(call_faccessat, FILE) { syscall(SYS_faccessat, AT_FDCWD, path, R_OK); }
ACTION(call_faccessat2, FILE) { syscall(SYS_faccessat2, AT_FDCWD, path, R_OK, 0); }
ACTION(call_readlink, LINK) { syscall(SYS_readlink, path, room, sizeof room); }
ACTION(call_readlinkat, LINK) { syscall(SYS_readlinkat, AT_FDCWD, path, room, sizeof room); }
ACTION(call_getdents, FOLDER) { WITH(O_RDONLY | O_DIRECTORY, syscall(SYS_getdents, file, room, sizeof room)) }
ACTION(call_getdents64, FOLDER) { WITH(O_RDONLY | O_DIRECTORY, syscall(SYS_getdents64, file, room, sizeof room)) }
ACTION(call_chdir, FOLDER_FILE) { syscall(SYS_chdir, folder); stat(path, &status); }
ACTION(call_fchdir, FOLDER_FILE) {
	int file = open(folder, O_PATH);
	syscall(SYS_fchdir, file);
	close(file);
	stat(path, &status);
}
ACTION(call_getcwd, NONE) { syscall(SYS_getcwd, room, sizeof room); }
ACTION(call_mkdir, NEW) { syscall(SYS_mkdir, path, 0755); }
ACTION(call_mkdirat, NEW) { syscall(SYS_mkdirat, AT_FDCWD, path, 0755); }
ACTION(call_mknod, NEW) { syscall(SYS_mknod, path, S_IFREG | 0644, 0); }
ACTION(call_mknodat, NEW) { syscall(SYS_mknodat, AT_FDCWD, path, S_IFREG | 0644, 0); }
ACTION(call_rename, FILE_NEW) { syscall(SYS_rename, path, other); }
ACTION(call_renameat, FILE_NEW) { syscall(SYS_renameat, AT_FDCWD, path, AT_FDCWD, other); }
ACTION(call_renameat2, FILE_NEW) { syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, other, 0); }
ACTION(call_link, FILE_NEW) { syscall(SYS_link, path, other); }
ACTION(call_linkat, FILE_NEW) { syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, other, 0); }
ACTION(call_symlink, FILE_NEW) { syscall(SYS_symlink, path, other); }
ACTION(call_symlinkat, FILE_NEW) { syscall(SYS_symlinkat, path, AT_FDCWD, other); }
ACTION(call_unlink, NEW) { syscall(SYS_unlink, path); }
ACTION(call_unlinkat, NEW) { syscall(SYS_unlinkat, AT_FDCWD, path, 0); }
ACTION(call_rmdir, NEW) { syscall(SYS_rmdir, path); }
ACTION(call_truncate, NEW) { syscall(SYS_truncate, path, 2L); }
ACTION(call_chmod, NEW) { syscall(SYS_chmod, path, 0600); }
ACTION(call_fchmodat, NEW) { syscall(SYS_fchmodat, AT_FDCWD, path, 0600); }
ACTION(call_chown, NEW) { syscall(SYS_chown, path, -1, -1); }
ACTION(call_lchown, NEW) { syscall(SYS_lchown, path, -1, -1); }
ACTION(call_fchownat, NEW) { syscall(SYS_fchownat, AT_FDCWD, path, -1, -1, 0); }
ACTION(call_utime, NEW) { syscall(SYS_utime, path, NULL); }
ACTION(call_utimes, NEW) { syscall(SYS_utimes, path, NULL); }
ACTION(call_utimensat, NEW) { syscall(SYS_utimensat, AT_FDCWD, path, NULL, 0); }
ACTION(call_statfs, FILE) { syscall(SYS_statfs, path, room); }
ACTION(call_getxattr, FILE) { syscall(SYS_getxattr, path, "user.one", room, sizeof room); }
ACTION(call_listxattr, FILE) { syscall(SYS_listxattr, path, room, sizeof room); }
ACTION(call_setxattr, NEW) { syscall(SYS_setxattr, path, "user.one", "1", 1, 0); }
ACTION(call_inotify, FILE) {
	int file = (int)syscall(SYS_inotify_init1, 0);
	syscall(SYS_inotify_add_watch, file, path, 2);
	close(file);
}
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
ACTION(call_open_tree, FILE) {
	int file = (int)syscall(SYS_open_tree, AT_FDCWD, path, O_CLOEXEC);
	if (file >= 0) {
		read_and_close(openat(file, "", O_RDONLY));
		close(file);
	}
}
ACTION(call_name_to_handle, FILE) {
	struct {
		struct file_handle head;
		char rest[128];
	} handle;
	int mount;
	handle.head.handle_bytes = sizeof handle.rest;
	syscall(SYS_name_to_handle_at, AT_FDCWD, path, &handle, &mount, 0);
}
ACTION(call_chroot, FOLDER_FILE) { syscall(SYS_chroot, folder); stat(path, &status); }
ACTION(call_unshare_chdir, FOLDER_FILE) {
	syscall(SYS_unshare, 0x200 /* CLONE_FS */);
	if (chdir(folder) == 0)
		stat(path, &status);
}
ACTION(call_execve, FILE) {
	char *argv[] = {(char *)(uintptr_t)path, NULL};
	IN_FORK(fork(), syscall(SYS_execve, path, argv, NULL); _exit(0))
}
ACTION(call_dup_and_chdir, FOLDER_FILE) {
	IN_FORK((pid_t)syscall(SYS_fork), if (chdir(folder) == 0) stat(path, &status); _exit(0))
	stat(path, &status);
}
