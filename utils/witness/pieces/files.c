/* Files, by functions of the C library. */
#define _GNU_SOURCE
#include "action.h"
#include "steps.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <iconv.h>
#include <langinfo.h>
#include <libintl.h>
#include <limits.h>
#include <locale.h>
#include <mntent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <nl_types.h>
#include <pthread.h>
#include <pwd.h>
#include <resolv.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/swap.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <syslog.h>
#include <time.h>
#include <utime.h>
#include <wordexp.h>

/* Reads one line of an open file, if there is one. */
static void skim(FILE *file) {
	if (file) {
		fgets(room, 99, file);
		fclose(file);
	}
}

static void shut(FILE *file) {
	if (file)
		fclose(file);
}

static void list_all(DIR *list) {
	while (list && readdir(list))
		;
	if (list)
		closedir(list);
}

static void write_and_close(int file) {
	if (file >= 0 && write(file, "new\n", 4) == 4)
		close(file);
}

/* ---- opening */

ACTION(do_open, FILE) { read_and_close(open(path, O_RDONLY)); }
ACTION(do_open64, FILE) { read_and_close(open64(path, O_RDONLY | O_CLOEXEC)); }
ACTION(do_open_both, FILE) { read_and_close(open(path, O_RDWR)); }
ACTION(do_open_nofollow, FILE) { read_and_close(open(path, O_RDONLY | O_NOFOLLOW)); }
ACTION(do_open_folder, FOLDER) { read_and_close(open(path, O_RDONLY | O_DIRECTORY)); }
ACTION(do_open_new, NEW) { write_and_close(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644)); }
ACTION(do_open_exclusive, NEW) { write_and_close(open(path, O_WRONLY | O_CREAT | O_EXCL, 0644)); }
ACTION(do_open_append, NEW) { write_and_close(open(path, O_WRONLY | O_CREAT | O_APPEND, 0644)); }
ACTION(do_open_keep, NEW) { read_and_close(open(path, O_RDWR | O_CREAT, 0644)); }
ACTION(do_creat, NEW) { write_and_close(creat(path, 0600)); }

ACTION(do_openat, FOLDER_FILE) { AT(O_RDONLY | O_DIRECTORY, read_and_close(openat(at, path, O_RDONLY))); }
ACTION(do_openat_path, FOLDER_FILE) { AT(O_PATH | O_DIRECTORY, read_and_close(openat64(at, path, O_RDONLY))); }
ACTION(do_openat_new, FOLDER_NEW) { AT(O_PATH, write_and_close(openat(at, path, O_WRONLY | O_CREAT, 0644))); }
ACTION(do_openat_here, FILE) { read_and_close(openat(AT_FDCWD, path, O_RDONLY)); }

ACTION(do_openat_of_dup, FOLDER_FILE) {
	int at = open(folder, O_RDONLY | O_DIRECTORY), other = fcntl(at, F_DUPFD, 100);
	close(at);
	read_and_close(openat(other, path, O_RDONLY));
	close(other);
}
ACTION(do_openat_of_dirfd, FOLDER_FILE) {
	DIR *list = opendir(folder);
	if (list) {
		read_and_close(openat(dirfd(list), path, O_RDONLY));
		closedir(list);
	}
}

ACTION(do_fopen, FILE) {
	FILE *file = fopen(path, "r");
	if (file) {
		while (fread(room, 1, sizeof room, file) > 0)
			;
		fclose(file);
	}
}
ACTION(do_fopen_both, FILE) { skim(fopen64(path, "r+e")); }
ACTION(do_fopen_write, NEW) {
	FILE *file = fopen(path, "w");
	if (file) {
		fputs("new\n", file);
		fclose(file);
	}
}
ACTION(do_fopen_exclusive, NEW) { shut(fopen(path, "wxe")); }
ACTION(do_fopen_append, NEW) {
	FILE *file = fopen(path, "a+");
	if (file) {
		fgets(room, 99, file);
		fputs("new\n", file);
		fclose(file);
	}
}
ACTION(do_fopen_map, FILE) { skim(fopen(path, "rm")); }
ACTION(do_fopen_charset, FILE) { shut(fopen(path, "r,ccs=ISO-8859-1")); }
ACTION(do_freopen, FILE_NEW) { FILE *file = fopen(other, "w"); skim(file ? freopen(path, "r", file) : NULL); }
ACTION(do_freopen_mode, FILE) {
	FILE *file = fopen(path, "r+");
	/* the same file with another mode: libc opens /proc/self/fd/N */
	shut(file ? freopen(NULL, "r", file) : NULL);
}
ACTION(do_fdopen, FILE) { skim(fdopen(open(path, O_RDONLY), "r")); }
ACTION(do_tmpfile, NONE) { shut(tmpfile()); }

/* ---- by other names of the same functions */

int __open(const char *, int, ...), __open64(const char *, int, ...), __open_2(const char *, int), __open64_2(const char *, int);
int __openat_2(int, const char *, int);
FILE *_IO_fopen(const char *, const char *);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
char *__realpath_chk(const char *, char *, size_t);
int __statfs(const char *, struct statfs *);
ACTION(do_open_alias, FILE) { read_and_close(__open(path, O_RDONLY)); }
ACTION(do_open64_alias, FILE) { read_and_close(__open64(path, O_RDONLY)); }
ACTION(do_open_fortified, FILE) { read_and_close(__open_2(path, O_RDONLY)); }
ACTION(do_open64_fortified, FILE) { read_and_close(__open64_2(path, O_RDONLY)); }
ACTION(do_openat_fortified, FILE) { read_and_close(__openat_2(AT_FDCWD, path, O_RDONLY)); }
ACTION(do_fopen_alias, FILE) { shut(_IO_fopen(path, "r")); }
ACTION(do_readlink_fortified, LINK) { __readlink_chk(path, room, 4096, sizeof room); }
ACTION(do_realpath_fortified, FILE) { __realpath_chk(path, room, sizeof room); }
ACTION(do_statfs_alias, FILE) { struct statfs found; __statfs(path, &found); }

/* ---- files that libc reads for a purpose */

ACTION(do_setmntent, FILE) { FILE *file = setmntent(path, "r"); if (file) endmntent(file); }
ACTION(do_catopen, FILE) {
	nl_catd messages = catopen(path, NL_CAT_LOCALE);
	if (messages != (nl_catd)-1)
		catclose(messages);
}
ACTION(do_gettext, FOLDER) {
	setlocale(LC_ALL, "C.UTF-8");
	setenv("LANGUAGE", "de", 1);
	bindtextdomain("part", path);
	dgettext("part", "text");
}
ACTION(do_locpath, FOLDER) { setenv("LOCPATH", path, 1); setlocale(LC_ALL, "xx_YY.UTF-8"); }
ACTION(do_gconv_path, FOLDER) {
	setenv("GCONV_PATH", path, 1);
	iconv_t conversion = iconv_open("WITNESS", "UTF-8");
	if (conversion != (iconv_t)-1)
		iconv_close(conversion);
}
ACTION(do_tzset, FILE) {
	snprintf(room, sizeof room, ":%s%s", path[0] == '/' ? "" : ROOT "/yard/", path);
	setenv("TZ", room, 1);
	tzset();
}
ACTION(do_res_init, NONE) { res_init(); }
ACTION(do_services, NONE) { getservbyname("http", "tcp"); }
ACTION(do_hostid, NONE) { gethostid(); }
ACTION(do_loadavg, NONE) { double found[1]; getloadavg(found, 1); }
ACTION(do_syslog, NONE) { syslog(LOG_DEBUG, "witness of nothing"); }
ACTION(do_sem_open, NONE) { sem_open("/witness-of-nothing", 0); }
ACTION(do_tmpnam, NONE) { tmpnam(room); }
ACTION(do_openpty, NONE) { close(posix_openpt(O_RDWR | O_NOCTTY)); }

/* ---- names that lead elsewhere */

static char *name_of(const char *form, int file) {
	static char name[80];
	snprintf(name, sizeof name, form, file);
	return name;
}

static void reopen(const char *path, int flags, const char *form) {
	WITH(flags, read_and_close(open(name_of(form, file), O_RDONLY)))
}
ACTION(do_reopen_by_proc, FILE) { reopen(path, O_RDONLY, "/proc/self/fd/%d"); }
ACTION(do_reopen_by_dev, FILE) { reopen(path, O_RDONLY, "/dev/fd/%d"); }
ACTION(do_reopen_path, FILE) { reopen(path, O_PATH, "/proc/self/fd/%d"); }
ACTION(do_reopen_path_by_dev, FILE) { reopen(path, O_PATH | O_CLOEXEC, "/dev/fd/%d"); }
ACTION(do_reopen_by_task, FILE) { reopen(path, O_PATH, "/proc/thread-self/fd/%d"); }
ACTION(do_reopen_written, FILE) { reopen(path, O_WRONLY, "/proc/self/fd/%d"); }
ACTION(do_reopen_by_number, FILE) {
	char form[80];
	snprintf(form, sizeof form, "/proc/%d/fd/%%d", (int)getpid());
	reopen(path, O_PATH, form);
}
ACTION(do_reopen_stdin, FILE) {
	int file = open(path, O_PATH);
	if (file >= 0) {
		int kept = dup(0);
		dup2(file, 0);
		read_and_close(open("/dev/stdin", O_RDONLY));
		dup2(kept, 0);
		close(kept);
		close(file);
	}
}
static char *below(const char *form, int at, const char *path) {
	snprintf(room, sizeof room, form, at, path);
	return room;
}
ACTION(do_open_below_descriptor, FOLDER_FILE) {
	AT(O_PATH | O_DIRECTORY, if (at >= 0) read_and_close(open(below("/proc/self/fd/%d/%s", at, path), O_RDONLY)));
}
ACTION(do_stat_below_descriptor, FOLDER_FILE) {
	AT(O_PATH | O_DIRECTORY, if (at >= 0) stat(below("/dev/fd/%d/%s", at, path), &status));
}
ACTION(do_open_below_cwd, FILE) {
	snprintf(room, sizeof room, "/proc/self/cwd/%s", path[0] == '/' ? "a.txt" : path);
	read_and_close(open(room, O_RDONLY));
}
ACTION(do_open_below_root, FILE) {
	char here[PATH_MAX];
	if (path[0] != '/' && getcwd(here, sizeof here)) {
		snprintf(room, sizeof room, "/proc/self/root%s/%s", here, path);
		read_and_close(open(room, O_RDONLY));
	}
}
ACTION(do_stat_descriptor, FILE) { WITH(O_PATH, stat(name_of("/proc/self/fd/%d", file), &status)) }
ACTION(do_chmod_descriptor, NEW) { WITH(O_PATH, chmod(name_of("/proc/self/fd/%d", file), 0640)) }
ACTION(do_open_own_program, NONE) { read_and_close(open("/proc/self/exe", O_RDONLY)); }
ACTION(do_link_of_own_program, NONE) { readlink("/proc/self/exe", room, sizeof room); }
ACTION(do_link_of_cwd, NONE) { readlink("/proc/self/cwd", room, sizeof room); }
ACTION(do_realpath_of_cwd, NONE) { if (realpath("/proc/self/cwd", room)) stat(room, &status); }
ACTION(do_list_descriptors, NONE) { list_all(opendir("/proc/self/fd")); }
ACTION(do_list_by_descriptor, FOLDER) {
	int file = open(path, O_PATH | O_DIRECTORY);
	list_all(file < 0 ? NULL : opendir(name_of("/proc/self/fd/%d", file)));
	close(file);
}
ACTION(do_chdir_by_descriptor, FOLDER_FILE) {
	int file = open(folder, O_PATH | O_DIRECTORY);
	if (file >= 0 && chdir(name_of("/proc/self/fd/%d", file)) == 0)
		read_and_close(open(path, O_RDONLY));
}

/* ---- looking */

ACTION(do_stat, FILE) { stat(path, &status); }
ACTION(do_stat_often, FILE) {
	for (int i = 0; i < 5; i++)
		stat(path, &status);
}
ACTION(do_lstat, FILE) { lstat(path, &status); }
ACTION(do_fstatat, FOLDER_FILE) { AT(O_RDONLY, fstatat(at, path, &status, 0)); }
ACTION(do_fstatat_nofollow, FOLDER_FILE) { AT(O_PATH, fstatat(at, path, &status, AT_SYMLINK_NOFOLLOW)); }
ACTION(do_statx, FILE) { struct statx found; statx(AT_FDCWD, path, 0, STATX_ALL, &found); }
ACTION(do_statx_at, FOLDER_FILE) {
	struct statx found;
	AT(O_PATH, statx(at, path, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &found));
}
int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);
ACTION(do_xstat, FILE) { __xstat(1, path, &status); }
ACTION(do_lxstat, FILE) { __lxstat(1, path, &status); }
ACTION(do_fxstatat, FILE) { __fxstatat(1, AT_FDCWD, path, &status, 0); }
ACTION(do_stat_open_path, FILE) {
	int file = open(path, O_PATH);
	fstat(file, &status);
	fstatat(file, "", &status, AT_EMPTY_PATH);
	close(file);
}
ACTION(do_stat_link_itself, LINK) {
	int file = open(path, O_PATH | O_NOFOLLOW);
	if (file >= 0) {
		fstatat(file, "", &status, AT_EMPTY_PATH);
		readlinkat(file, "", room, sizeof room);
		close(file);
	}
}
ACTION(do_access, FILE) { access(path, R_OK); }
ACTION(do_access_there, FILE) { access(path, F_OK); }
ACTION(do_faccessat, FOLDER_FILE) { AT(O_RDONLY, faccessat(at, path, X_OK, 0)); }
ACTION(do_faccessat_nofollow, FILE) { faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW | AT_EACCESS); }
ACTION(do_euidaccess, FILE) { euidaccess(path, R_OK); }
ACTION(do_eaccess, FILE) { eaccess(path, W_OK); }
ACTION(do_readlink, LINK) { readlink(path, room, sizeof room); }
ACTION(do_readlinkat, FOLDER_FILE) { AT(O_RDONLY, readlinkat(at, path, room, sizeof room)); }
ACTION(do_realpath, FILE) { free(realpath(path, NULL)); }
ACTION(do_canonicalize, FILE) { free(canonicalize_file_name(path)); }
ACTION(do_statfs, FILE) { struct statfs found; statfs(path, &found); }
ACTION(do_statvfs, FILE) { struct statvfs found; statvfs(path, &found); }
ACTION(do_pathconf, FILE) {
	pathconf(path, _PC_LINK_MAX);
	pathconf(path, _PC_NAME_MAX);
	pathconf(path, _PC_2_SYMLINKS);
}
ACTION(do_getxattr, FILE) { getxattr(path, "user.one", room, sizeof room); }
ACTION(do_lgetxattr, LINK) { lgetxattr(path, "security.one", room, sizeof room); }
ACTION(do_listxattr, FILE) { listxattr(path, room, sizeof room); }
ACTION(do_llistxattr, LINK) { llistxattr(path, room, sizeof room); }
ACTION(do_setxattr, NEW) { setxattr(path, "user.one", "1", 1, 0); }
ACTION(do_lsetxattr, NEW) { lsetxattr(path, "user.one", "2", 1, 0); }
ACTION(do_removexattr, NEW) { removexattr(path, "user.one"); }
ACTION(do_file_handle, FILE) {
	struct {
		struct file_handle head;
		char rest[128];
	} handle;
	int mount;
	handle.head.handle_bytes = sizeof handle.rest;
	if (name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0) == 0) {
		int at = open(".", O_RDONLY);
		read_and_close(open_by_handle_at(at, &handle.head, O_RDONLY));
		close(at);
	}
}
ACTION(do_inotify, FILE) {
	int file = inotify_init1(IN_CLOEXEC);
	inotify_add_watch(file, path, IN_MODIFY);
	close(file);
}
ACTION(do_users, NONE) { getpwnam("nobody"); }
ACTION(do_ftok, FILE) { ftok(path, 1); }

/* ---- listing */

ACTION(do_opendir, FOLDER) { list_all(opendir(path)); }
ACTION(do_fdopendir, FOLDER) {
	int file = open(path, O_RDONLY | O_DIRECTORY);
	DIR *list = file < 0 ? NULL : fdopendir(file);
	list_all(list);
}
ACTION(do_readdir_and_stat, FOLDER) {
	DIR *list = opendir(path);
	struct dirent *entry;
	while (list && (entry = readdir(list)))
		fstatat(dirfd(list), entry->d_name, &status, 0);
	if (list)
		closedir(list);
}
static int choose(const struct dirent *entry) { return entry->d_name[0] != '.'; }
static void free_names(struct dirent **names, int count) {
	for (int i = 0; i < count; i++)
		free(names[i]);
	if (count >= 0)
		free(names);
}
ACTION(do_scandir, FOLDER) { struct dirent **names; free_names(names, scandir(path, &names, choose, alphasort)); }
ACTION(do_scandirat, FOLDER_FILE) {
	struct dirent **names;
	AT(O_RDONLY | O_DIRECTORY, free_names(names, scandirat(at, path, &names, NULL, NULL)));
}
ACTION(do_scandirat_here, FOLDER) {
	struct dirent **names;
	free_names(names, scandirat(AT_FDCWD, path, &names, NULL, alphasort));
}
ACTION(do_getdents, FOLDER) {
	int file = open(path, O_RDONLY | O_DIRECTORY);
	while (file >= 0 && getdents64(file, room, sizeof room) > 0)
		;
	close(file);
}
ssize_t getdirentries(int, char *, size_t, off_t *);
ACTION(do_getdirentries, FOLDER) {
	off_t at = 0;
	int file = open(path, O_RDONLY | O_DIRECTORY);
	while (file >= 0 && getdirentries(file, room, sizeof room, &at) > 0)
		;
	close(file);
}
ACTION(do_glob, FOLDER) {
	glob_t found;
	snprintf(room, sizeof room, "%s/*.txt", path);
	if (glob(room, 0, NULL, &found) == 0)
		globfree(&found);
}
ACTION(do_wordexp, FOLDER) {
	wordexp_t found;
	snprintf(room, sizeof room, "%s/*", path);
	if (wordexp(room, &found, 0) == 0)
		wordfree(&found);
}
static int visit(const char *path, const struct stat *found, int kind) { return !path || !found || kind < 0; }
static int visit_more(const char *path, const struct stat *found, int kind, struct FTW *at) {
	return !path || !found || !at || kind < 0;
}
ACTION(do_ftw, FOLDER) { ftw(path, visit, 8); }
ACTION(do_nftw, FOLDER) { nftw(path, visit_more, 8, FTW_PHYS); }
ACTION(do_nftw_chdir, FOLDER) { nftw64(path, (void *)visit_more, 8, FTW_PHYS | FTW_CHDIR); }
ACTION(do_fts, FOLDER) {
	char *names[] = {(char *)(uintptr_t)path, NULL};
	FTS *walk = fts_open(names, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	while (walk && fts_read(walk))
		;
	if (walk)
		fts_close(walk);
}

/* ---- folders */

ACTION(do_chdir, FOLDER) { if (chdir(path) == 0) stat("a.txt", &status); }
ACTION(do_chdir_and_open, FOLDER_FILE) { if (chdir(folder) == 0) read_and_close(open(path, O_RDONLY)); }
ACTION(do_fchdir, FOLDER_FILE) {
	int file = open(folder, O_PATH | O_DIRECTORY);
	if (file >= 0 && fchdir(file) == 0)
		read_and_close(open(path, O_RDONLY));
	close(file);
}
ACTION(do_chdir_and_back, FOLDER_FILE) {
	int here = open(".", O_RDONLY | O_DIRECTORY);
	if (chdir(folder) == 0)
		stat(path, &status);
	if (fchdir(here) == 0)
		stat(path, &status);
	close(here);
}
ACTION(do_chroot_same, FILE) { if (chroot("/") == 0) stat(path, &status); }
ACTION(do_chroot, FOLDER_FILE) {
	/* as root only */
	if (chroot(folder) == 0) {
		read_and_close(open("/c.txt", O_RDONLY));
		stat("/absent", &status);
	}
	stat(path, &status);
}
ACTION(do_bind_mount, FILE_NEW) {
	/* as root only; it ends with the process */
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return;
	if (mount(path, other, NULL, MS_BIND, NULL) == 0)
		read_and_close(open(other, O_RDONLY));
}
ACTION(do_mount_absent, FILE) { mount(path, "absent", NULL, MS_BIND, NULL); }
ACTION(do_umount_absent, NONE) { umount2("absent", MNT_EXPIRE); }
ACTION(do_swapon, NEW) { swapon(path, 0); }
ACTION(do_getcwd, NONE) { if (getcwd(room, sizeof room)) stat(room, &status); }
ACTION(do_current_dir_name, NONE) { free(get_current_dir_name()); }

/* ---- making, moving, removing */

ACTION(do_rename, FILE_NEW) { rename(path, other); }
ACTION(do_renameat, FOLDER_FILE_NEW) { AT(O_PATH, renameat(at, path, AT_FDCWD, other)); }
ACTION(do_exchange, FILE_NEW) { renameat2(AT_FDCWD, path, AT_FDCWD, other, RENAME_EXCHANGE); }
ACTION(do_rename_new, FILE_NEW) { renameat2(AT_FDCWD, path, AT_FDCWD, other, RENAME_NOREPLACE); }
ACTION(do_link, FILE_NEW) { link(path, other); }
ACTION(do_link_and_read, FILE_NEW) { if (link(path, other) == 0) read_and_close(open(other, O_RDONLY)); }
ACTION(do_linkat, FOLDER_FILE_NEW) { AT(O_PATH, linkat(at, path, AT_FDCWD, other, AT_SYMLINK_FOLLOW)); }
ACTION(do_symlink, FILE_NEW) { symlink(path, other); }
ACTION(do_symlink_and_read, FILE_NEW) { if (symlink(path, other) == 0) read_and_close(open(other, O_RDONLY)); }
ACTION(do_symlinkat, FOLDER_NEW) { AT(O_PATH, symlinkat("../a.txt", at, path)); }
ACTION(do_turn_link, FILE_NEW) {
	symlink("b.txt", other);
	read_and_close(open(other, O_RDONLY));
	unlink(other);
	symlink(path, other);
	read_and_close(open(other, O_RDONLY));
}
ACTION(do_turn_link_by_rename, FILE_NEW) {
	symlink("a.txt", other);
	read_and_close(open(other, O_RDONLY));
	symlink(path, "fresh-link");
	rename("fresh-link", other);
	read_and_close(open(other, O_RDONLY));
	stat(other, &status);
}
ACTION(do_unlink, NEW) { unlink(path); }
ACTION(do_unlinkat, FOLDER_NEW) { AT(O_PATH, unlinkat(at, path, 0)); }
ACTION(do_remove, NEW) { remove(path); }
ACTION(do_mkdir, NEW) { mkdir(path, 0755); }
ACTION(do_mkdirat, FOLDER_NEW) { AT(O_PATH, mkdirat(at, path, 0755)); }
ACTION(do_mkdir_and_rmdir, NEW) { if (mkdir(path, 0755) == 0) rmdir(path); }
ACTION(do_mknod, NEW) { mknod(path, S_IFREG | 0644, 0); }
ACTION(do_mknodat, FOLDER_NEW) { AT(O_PATH, if (mknodat(at, path, S_IFIFO | 0644, 0) == 0) unlinkat(at, path, 0)); }
/* A FIFO must be removed before an action opens it, and blocks. */
ACTION(do_mkfifo, NEW) { if (mkfifo(path, 0644) == 0) unlink(path); }
ACTION(do_mkfifoat, FOLDER_NEW) { AT(O_PATH, if (mkfifoat(at, path, 0644) == 0) unlinkat(at, path, 0)); }
ACTION(do_truncate, NEW) { truncate(path, 3); }
ACTION(do_chmod, NEW) { chmod(path, 0644); }
ACTION(do_fchmodat, FOLDER_NEW) { AT(O_PATH, fchmodat(at, path, 0600, 0)); }
ACTION(do_fchmodat_nofollow, NEW) { fchmodat(AT_FDCWD, path, 0600, AT_SYMLINK_NOFOLLOW); }
ACTION(do_lchmod, NEW) { lchmod(path, 0600); }
ACTION(do_chown, NEW) { chown(path, (uid_t)-1, (gid_t)-1); }
ACTION(do_lchown, NEW) { lchown(path, (uid_t)-1, (gid_t)-1); }
ACTION(do_fchownat, FOLDER_NEW) { AT(O_PATH, fchownat(at, path, (uid_t)-1, (gid_t)-1, 0)); }
ACTION(do_utime, NEW) { utime(path, NULL); }
ACTION(do_utimes, NEW) { utimes(path, NULL); }
ACTION(do_lutimes, NEW) { lutimes(path, NULL); }
ACTION(do_futimesat, FOLDER_NEW) { AT(O_PATH, futimesat(at, path, NULL)); }
ACTION(do_utimensat, FOLDER_NEW) { AT(O_PATH, utimensat(at, path, NULL, AT_SYMLINK_NOFOLLOW)); }

static char *pattern(const char *folder, const char *suffix) {
	snprintf(room, sizeof room, "%s/tXXXXXX%s", folder, suffix);
	return room;
}
ACTION(do_mkstemp, FOLDER) { write_and_close(mkstemp(pattern(path, ""))); }
ACTION(do_mkostemp, FOLDER) { write_and_close(mkostemp64(pattern(path, ""), O_CLOEXEC)); }
ACTION(do_mkstemps, FOLDER) { write_and_close(mkstemps(pattern(path, ".c"), 2)); }
ACTION(do_mkostemps, FOLDER) { write_and_close(mkostemps(pattern(path, ".c"), 2, O_APPEND)); }
ACTION(do_mkdtemp, FOLDER) { mkdtemp(pattern(path, "")); }
char *mktemp(char *);
ACTION(do_mktemp, FOLDER) { write_and_close(open(mktemp(pattern(path, "")), O_CREAT | O_EXCL | O_WRONLY, 0600)); }
ACTION(do_tempnam, FOLDER) { free(tempnam(path, "t")); }
ACTION(do_tmpfile_linked, FOLDER_NEW) {
	int file = open(folder, O_TMPFILE | O_RDWR, 0644);
	if (file >= 0) {
		linkat(AT_FDCWD, name_of("/proc/self/fd/%d", file), AT_FDCWD, path, AT_SYMLINK_FOLLOW);
		linkat(file, "", AT_FDCWD, path, AT_EMPTY_PATH);
		close(file);
	}
}
ACTION(do_tmpfile_linked_at, FOLDER_NEW) {
	int file = open(folder, O_TMPFILE | O_WRONLY, 0644), at = open(folder, O_PATH);
	if (file >= 0) {
		linkat(AT_FDCWD, name_of("/proc/self/fd/%d", file), at, path, AT_SYMLINK_FOLLOW);
		close(file);
	}
	close(at);
}

/* ---- what is done with open files */

ACTION(do_map, FILE) {
	int file = open(path, O_RDONLY);
	char *place = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
	close(file);
	if (place != MAP_FAILED) {
		room[0] = place[0];
		munmap(place, 4096);
	}
}
#define BETWEEN(target, call)                                                                                                \
	int from = open(path, O_RDONLY), to = target;                                                                            \
	call;                                                                                                                    \
	close(from);                                                                                                             \
	close(to)
ACTION(do_sendfile, FILE_NEW) { BETWEEN(open(other, O_WRONLY | O_CREAT | O_TRUNC, 0644), sendfile(to, from, NULL, 100)); }
ACTION(do_copy_file_range, FILE_NEW) { BETWEEN(creat(other, 0644), copy_file_range(from, NULL, to, NULL, 100, 0)); }
ACTION(do_splice, FILE_NEW) {
	int ends[2];
	if (pipe(ends) < 0)
		return;
	BETWEEN(creat(other, 0644), if (splice(from, NULL, ends[1], NULL, 4, 0) > 0) splice(ends[0], NULL, to, NULL, 4, 0));
	close(ends[0]);
	close(ends[1]);
}
ACTION(do_lock, FILE) {
	int file = open(path, O_RDONLY);
	flock(file, LOCK_SH);
	read_and_close(file);
}
ACTION(do_pass_descriptor, FILE) {
	int ends[2], file = open(path, O_RDONLY);
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	if (file < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
		return;
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &file, sizeof file);
	sendmsg(ends[0], &message, 0);
	close(file);
	recvmsg(ends[1], &message, 0);
	memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
	read_and_close(file);
	close(ends[0]);
	close(ends[1]);
}
static void with_socket(const char *path, int (*call)(int, const struct sockaddr *, socklen_t)) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%.90s", path);
	int file = socket(AF_UNIX, SOCK_STREAM, 0);
	call(file, (void *)&address, sizeof address);
	close(file);
}
ACTION(do_bind, NEW) { with_socket(path, bind); }
ACTION(do_connect, FILE) { with_socket(path, connect); }
ACTION(do_shm_open, NONE) { int file = shm_open("/witness-of-nothing", O_RDONLY, 0); if (file >= 0) close(file); }

/* ---- libraries */

ACTION(do_dlopen, LIBRARY) {
	void *library = dlopen(path, RTLD_NOW);
	if (library && dlsym(library, "part"))
		dlclose(library);
}
ACTION(do_dlopen_lazy, LIBRARY) { dlopen(path, RTLD_LAZY | RTLD_GLOBAL); }
ACTION(do_dlopen_noload, LIBRARY) { dlopen(path, RTLD_NOW | RTLD_NOLOAD); }
ACTION(do_dlopen_by_name, NONE) { dlopen("libutil.so.1", RTLD_NOW); }
ACTION(do_dlopen_absent, NONE) { dlopen("libabsent-of-all.so", RTLD_NOW); }
ACTION(do_dlmopen, LIBRARY) { dlmopen(LM_ID_NEWLM, path, RTLD_NOW); }

/* ---- threads and forks */

static void *read_in_thread(void *path) {
	struct stat found;
	char some[100];
	stat(path, &found);
	int file = open(path, O_RDONLY);
	if (file >= 0 && read(file, some, sizeof some) >= 0)
		close(file);
	return NULL;
}
ACTION(do_thread, FILE) {
	pthread_t thread;
	if (pthread_create(&thread, NULL, read_in_thread, (void *)(uintptr_t)path) == 0)
		pthread_join(thread, NULL);
}
ACTION(do_threads, FILE_NEW) {
	pthread_t threads[2];
	pthread_create(&threads[0], NULL, read_in_thread, (void *)(uintptr_t)path);
	pthread_create(&threads[1], NULL, read_in_thread, (void *)(uintptr_t)other);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
}
ACTION(do_thread_fork, FOLDER_FILE) {
	pthread_t thread;
	IN_FORK(fork(), if (chdir(folder) == 0 && pthread_create(&thread, NULL, read_in_thread, (void *)(uintptr_t)path) == 0)
	                        pthread_join(thread, NULL); _exit(0))
}
ACTION(do_fork_read, FILE) { IN_FORK(fork(), read_all(open(path, O_RDONLY)); _exit(0)) }
ACTION(do_fork_exit, FILE) { IN_FORK(fork(), lstat(path, &status); exit(0)) }
ACTION(do_fork_chdir, FOLDER_FILE) {
	IN_FORK(fork(), if (chdir(folder) == 0) read_all(open(path, O_RDONLY)); _exit(0))
	stat(path, &status);
}
ACTION(do_vfork_read, FILE) {
	pid_t child = vfork();
	if (child == 0) {
		int file = open(path, O_RDONLY | O_CLOEXEC);
		if (file >= 0)
			close(file);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}
ACTION(do_vfork_chdir, FOLDER_FILE) {
	IN_FORK(vfork(), if (chdir(folder) == 0) stat(path, &status); _exit(0))
	stat(path, &status);
}
ACTION(do_fork_twice, FILE) {
	pid_t child = fork();
	if (child == 0) {
		child = fork();
		if (child == 0) {
			stat(path, &status);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}
ACTION(do_fork_inherit, FILE) {
	int file = open(path, O_RDONLY);
	IN_FORK(fork(), if (file >= 0) read_all(open(name_of("/proc/self/fd/%d", file), O_RDONLY)); _exit(0))
	close(file);
}
