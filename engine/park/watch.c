/* The functions by which programs use files. Each does the same as libc's, and is recorded.
 *
 * If libc's function only makes a system call, ours makes the same call. The others forward to libc's own. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* The functions that are forwarded. */
#define FORWARDED(each)                                                                                                      \
	each(open) each(open64) each(openat) each(openat64) each(creat) each(creat64) each(__open_2) each(__open64_2)            \
	each(__openat_2) each(__openat64_2) each(fopen) each(fopen64) each(freopen) each(freopen64) each(faccessat)              \
	each(eaccess) each(euidaccess) each(realpath) each(__realpath_chk) each(canonicalize_file_name) each(opendir)            \
	each(fdopendir) each(readdir) each(readdir64) each(closedir) each(rewinddir) each(seekdir) each(scandir) each(scandir64) each(scandirat) each(scandirat64) each(getdents64) each(getdirentries)     \
	each(getdirentries64) each(fileno) each(dirfd) each(__open) each(__open64) each(_IO_fopen) each(statvfs)                 \
	each(statvfs64) each(fstatvfs) each(fstatvfs64) each(pathconf) each(lchmod) each(lutimes) each(futimesat) each(futimes)  \
	each(tmpfile) each(tmpfile64) each(tempnam) each(tmpnam) each(tmpnam_r) each(mktemp) each(setmntent) each(catopen)       \
	each(clone) each(futimens) each(mkstemp) each(mkstemp64) each(mkostemp)              \
	each(mkostemp64) each(mkstemps) each(mkstemps64) each(mkostemps) each(mkostemps64) each(mkdtemp) each(remove)            \
	each(glob) each(glob64) each(getcwd) each(getwd) each(get_current_dir_name) each(fchmodat) each(utimes) each(utime)      \
	each(utimensat) each(__readlink_chk) each(__readlinkat_chk) each(__getcwd_chk) each(__getwd_chk) each(ftw) each(ftw64)   \
	each(nftw) each(nftw64) each(fts_open) each(fts64_open) each(wordexp)

#define NUMBER(name) number_of_##name,
#define NAME(name) #name,
enum { FORWARDED(NUMBER) count_of_forwarded };
static const char *const forwarded_names[] = {FORWARDED(NAME)};
static void *forwarded[count_of_forwarded];

static void *find_real(int number) {
	if (!forwarded[number])
		forwarded[number] = wafpark_find(forwarded_names[number]);
	return forwarded[number];
}

HIDDEN void wafpark_find_watched(void) {
	for (int i = 0; i < count_of_forwarded; i++)
		find_real(i);
}

/* Finds libc's own `name`. If there is none, the caller fails. */
#define REAL(result, name, parameters, failure)                                                                              \
	result(*real) parameters = (result(*) parameters)(uintptr_t)find_real(number_of_##name);                                      \
	if (!real) {                                                                                                             \
		errno = ENOSYS;                                                                                                      \
		return failure;                                                                                                      \
	}

/* The result of a function of libc in the form of a system call's. */
static long result_of(int failed) {
	return failed ? -errno : 0;
}

static long set_errno(long result) {
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

/* ---- opening */

static mode_t mode_of(int flags, va_list *list) {
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(*list, mode_t) : 0;
}

/* A file that is opened with O_CREAT alone is made if it is not there, and kept if it is. So we look whether it is there, right before it is
 * opened. For a new file, O_EXCL is added to the flags that are recorded. */
static uint32_t flags_to_note(int folder, const char *path, int flags) {
	const int makes = O_CREAT, others = O_EXCL | O_TRUNC;
	const int may_be_new = wafpark_watch && path && (flags & makes) && !(flags & others);
	const int is_new = may_be_new && SYSTEM(SYS_faccessat, folder, path, F_OK) == -ENOENT;
	return (uint32_t)(is_new ? flags | O_EXCL : flags);
}

/* The identity of an open file. 0 if the file is only written to, or has no name: then it is the command's own. */
static uint64_t identity_of(int file, uint32_t flags) {
	const int is_own = (flags & O_ACCMODE) == O_WRONLY || (flags & O_TMPFILE) == O_TMPFILE;
	return wafpark_watch && file >= 0 && !is_own ? wafpark_identity_of_file(file) : 0;
}

static void note_open(int file, uint32_t flags, int folder, const char *path) {
	const int error = errno;
	struct stat status;
	if (file >= 0 && (flags & O_PATH)) {
		/* Through such a descriptor, a program can get the status, read a link, and open the file again. */
		wafpark_note_found(WAFPARK_LOOK, 0, !(flags & O_NOFOLLOW), folder, path, wafpark_identity_of_file(file));
		if ((flags & O_NOFOLLOW) && SYSTEM(SYS_newfstatat, file, "", &status, AT_EMPTY_PATH) == 0 && S_ISLNK(status.st_mode))
			wafpark_note(WAFPARK_LINK, 0, 0, folder, path);
	} else
		wafpark_note_found(WAFPARK_OPEN, result_of(file < 0), flags, folder, path, identity_of(file, flags));
	errno = error;
}

#define OPEN(name)                                                                                                           \
	EXPORT int name(const char *path, int flags, ...) {                                                                      \
		va_list list;                                                                                                        \
		va_start(list, flags);                                                                                               \
		mode_t mode = mode_of(flags, &list);                                                                                 \
		va_end(list);                                                                                                        \
		REAL(int, name, (const char *, int, ...), -1)                                                                        \
		const uint32_t noted_flags = flags_to_note(AT_FDCWD, path, flags);                                                               \
		int file = real(path, flags, mode);                                                                                  \
		if (wafpark_watch)                                                                                                   \
			note_open(file, noted_flags, AT_FDCWD, path);                                                                           \
		return file;                                                                                                         \
	}
OPEN(open)
OPEN(open64)
int __open(const char *path, int flags, ...);
int __open64(const char *path, int flags, ...);
OPEN(__open)
OPEN(__open64)

#define OPENAT(name)                                                                                                         \
	EXPORT int name(int folder, const char *path, int flags, ...) {                                                          \
		va_list list;                                                                                                        \
		va_start(list, flags);                                                                                               \
		mode_t mode = mode_of(flags, &list);                                                                                 \
		va_end(list);                                                                                                        \
		REAL(int, name, (int, const char *, int, ...), -1)                                                                   \
		const uint32_t noted_flags = flags_to_note(folder, path, flags);                                                                 \
		int file = real(folder, path, flags, mode);                                                                          \
		if (wafpark_watch)                                                                                                   \
			note_open(file, noted_flags, folder, path);                                                                             \
		return file;                                                                                                         \
	}
OPENAT(openat)
OPENAT(openat64)

/* A function of a path that returns int and makes one record. */
#define PATH(kind, detail, folder, name, parameters, arguments)                                                              \
	EXPORT int name parameters;                                                                                              \
	EXPORT int name parameters {                                                                                             \
		REAL(int, name, parameters, -1)                                                                                      \
		if ((kind) == WAFPARK_REMOVE && wafpark_keeps_file(path))                                                                 \
			return 0;                                                                                                        \
		int result = real arguments;                                                                                         \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(kind, result_of(result < 0), (uint32_t)(detail), folder, path);                                       \
		return result;                                                                                                       \
	}

#define CHECKED_OPEN(folder, name, parameters, arguments)                                                                    \
	EXPORT int name parameters;                                                                                              \
	EXPORT int name parameters {                                                                                             \
		REAL(int, name, parameters, -1)                                                                                      \
		int file = real arguments;                                                                                           \
		if (wafpark_watch)                                                                                                   \
			note_open(file, (uint32_t)flags, folder, path);                                                                  \
		return file;                                                                                                         \
	}

#define CREATES (O_WRONLY | O_CREAT | O_TRUNC)
#define FRESH (O_RDWR | O_CREAT | O_EXCL)
PATH(WAFPARK_OPEN, CREATES, AT_FDCWD, creat, (const char *path, mode_t mode), (path, mode))
PATH(WAFPARK_OPEN, CREATES, AT_FDCWD, creat64, (const char *path, mode_t mode), (path, mode))
CHECKED_OPEN(AT_FDCWD, __open_2, (const char *path, int flags), (path, flags))
CHECKED_OPEN(AT_FDCWD, __open64_2, (const char *path, int flags), (path, flags))
CHECKED_OPEN(folder, __openat_2, (int folder, const char *path, int flags), (folder, path, flags))
CHECKED_OPEN(folder, __openat64_2, (int folder, const char *path, int flags), (folder, path, flags))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkstemp, (char *path), (path))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkstemp64, (char *path), (path))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkostemp, (char *path, int flags), (path, flags))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkostemp64, (char *path, int flags), (path, flags))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkstemps, (char *path, int suffix), (path, suffix))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkstemps64, (char *path, int suffix), (path, suffix))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkostemps, (char *path, int suffix, int flags), (path, suffix, flags))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkostemps64, (char *path, int suffix, int flags), (path, suffix, flags))
PATH(WAFPARK_FIND, 0, folder, faccessat, (int folder, const char *path, int mode, int flags), (folder, path, mode, flags))
/* Where the kernel need not be asked, libc uses the file's mode. */
PATH(WAFPARK_LOOK, 1, AT_FDCWD, eaccess, (const char *path, int mode), (path, mode))
PATH(WAFPARK_LOOK, 1, AT_FDCWD, euidaccess, (const char *path, int mode), (path, mode))
PATH(WAFPARK_REMOVE, 0, AT_FDCWD, remove, (const char *path), (path))
/* A change of a file's attributes is recorded as if the file were written. */
PATH(WAFPARK_OPEN, O_WRONLY, folder, fchmodat, (int folder, const char *path, mode_t mode, int flags), (folder, path, mode, flags))
struct timeval;
struct timespec;
struct utimbuf;
PATH(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, utimes, (const char *path, const struct timeval times[2]), (path, times))
PATH(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, utime, (const char *path, const struct utimbuf *times), (path, times))
PATH(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, lutimes, (const char *path, const struct timeval times[2]), (path, times))
PATH(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, lchmod, (const char *path, mode_t mode), (path, mode))

/* An open file is changed. If it was opened for writing, that has already been recorded. */
static void note_change(long result, int file) {
	const int error = errno;
	const long flags = SYSTEM(SYS_fcntl, file, F_GETFL);
	if (wafpark_watch && flags >= 0 && ((flags & O_PATH) || (flags & O_ACCMODE) == O_RDONLY))
		wafpark_note_file(WAFPARK_OPEN, result, O_WRONLY, file);
	errno = error;
}

#define CHANGE(name, parameters, arguments)                                                                                  \
	EXPORT int name parameters {                                                                                             \
		REAL(int, name, parameters, -1)                                                                                      \
		int result = real arguments;                                                                                         \
		note_change(result_of(result < 0), file);                                                                              \
		return result;                                                                                                       \
	}
CHANGE(futimens, (int file, const struct timespec times[2]), (file, times))
CHANGE(futimes, (int file, const struct timeval times[2]), (file, times))

EXPORT int fchmod(int file, mode_t mode) {
	long result = SYSTEM(SYS_fchmod, file, mode);
	note_change(result, file);
	return (int)set_errno(result);
}

EXPORT int fchown(int file, uid_t user, gid_t group) {
	long result = SYSTEM(SYS_fchown, file, user, group);
	note_change(result, file);
	return (int)set_errno(result);
}

static int is_empty(const char *path) {
	return !path || !path[0];
}

/* Without a path, the open file is changed. */
#define CHANGE_AT(name, parameters, arguments)                                                                               \
	EXPORT int name parameters {                                                                                             \
		REAL(int, name, parameters, -1)                                                                                      \
		int result = real arguments;                                                                                         \
		if (is_empty(path))                                                                                                  \
			note_change(result_of(result < 0), folder);                                                                        \
		else if (wafpark_watch)                                                                                              \
			wafpark_note(WAFPARK_OPEN, result_of(result < 0), O_WRONLY, folder, path);                                         \
		return result;                                                                                                       \
	}
CHANGE_AT(utimensat, (int folder, const char *path, const struct timespec times[2], int flags), (folder, path, times, flags))
CHANGE_AT(futimesat, (int folder, const char *path, const struct timeval times[2]), (folder, path, times))

static int flags_of(const char *mode) {
	int flags = *mode == 'r' ? O_RDONLY : *mode == 'w' ? CREATES : O_WRONLY | O_CREAT | O_APPEND;
	for (; *mode; mode++) {
		if (*mode == '+')
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		if (*mode == 'x')
			flags |= O_EXCL;
	}
	return flags;
}

/* The descriptor of a stream. */
static int file_of(FILE *stream) {
	int (*real)(FILE *) = (int (*)(FILE *))(uintptr_t)find_real(number_of_fileno);
	return stream && real ? real(stream) : -1;
}

static void note_stream(FILE *stream, uint32_t flags, const char *path) {
	const int error = errno;
	wafpark_note_found(WAFPARK_OPEN, result_of(!stream), flags, AT_FDCWD, path, identity_of(file_of(stream), flags));
	errno = error;
}

#define FOPEN(name)                                                                                                          \
	EXPORT FILE *name(const char *path, const char *mode) {                                                                  \
		REAL(FILE *, name, (const char *, const char *), NULL)                                                               \
		wafpark_see_obstacle(WAFPARK_FILES);                                                                                 \
		const uint32_t noted_flags = flags_to_note(AT_FDCWD, path, flags_of(mode));                                                      \
		FILE *file = real(path, mode);                                                                                       \
		if (wafpark_watch)                                                                                                   \
			note_stream(file, noted_flags, path);                                                                                   \
		return file;                                                                                                         \
	}
FOPEN(fopen)
FOPEN(fopen64)
FILE *_IO_fopen(const char *path, const char *mode);
FOPEN(_IO_fopen)

#define FREOPEN(name)                                                                                                        \
	EXPORT FILE *name(const char *path, const char *mode, FILE *old) {                                                       \
		REAL(FILE *, name, (const char *, const char *, FILE *), NULL)                                                       \
		if (wafpark_watch && !path)                                                                                          \
			wafpark_note_file(WAFPARK_OPEN, 0, (uint32_t)flags_of(mode), file_of(old));                                      \
		FILE *file = real(path, mode, old);                                                                                  \
		if (wafpark_watch && path)                                                                                           \
			note_stream(file, (uint32_t)flags_of(mode), path);                                                               \
		return file;                                                                                                         \
	}
FREOPEN(freopen)
FREOPEN(freopen64)

/* ---- looking */

/* Without a path, the status of an open file is read, which is not recorded. */
static int finish_stat(long result, int folder, const char *path, int flags, uint64_t identity) {
	if (wafpark_watch && path && result != -EFAULT && path[0])
		wafpark_note_found(WAFPARK_LOOK, result, !(flags & AT_SYMLINK_NOFOLLOW), folder, path, identity);
	return (int)set_errno(result);
}

static int read_status(int folder, const char *path, void *status, int flags) {
	const struct stat *found = status;
	const long result = SYSTEM(SYS_newfstatat, folder, path, status, flags);
	return finish_stat(result, folder, path, flags, result ? 0 : wafpark_identity(found->st_dev, found->st_ino));
}

EXPORT int stat(const char *path, struct stat *status) {
	return read_status(AT_FDCWD, path, status, 0);
}
EXPORT int stat64(const char *path, struct stat64 *status) {
	return read_status(AT_FDCWD, path, status, 0);
}
EXPORT int lstat(const char *path, struct stat *status) {
	return read_status(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
EXPORT int lstat64(const char *path, struct stat64 *status) {
	return read_status(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
EXPORT int fstatat(int folder, const char *path, struct stat *status, int flags) {
	return read_status(folder, path, status, flags);
}
EXPORT int fstatat64(int folder, const char *path, struct stat64 *status, int flags) {
	return read_status(folder, path, status, flags);
}

/* Programs that were linked with glibc before 2.33 call these. On these processors there is only one version. */
#define OLD_STAT(name, flags)                                                                                                \
	EXPORT int name(int version, const char *path, void *status);                                                            \
	EXPORT int name(int version, const char *path, void *status) {                                                           \
		(void)version;                                                                                                       \
		return read_status(AT_FDCWD, path, status, flags);                                                                          \
	}
OLD_STAT(__xstat, 0)
OLD_STAT(__xstat64, 0)
OLD_STAT(__lxstat, AT_SYMLINK_NOFOLLOW)
OLD_STAT(__lxstat64, AT_SYMLINK_NOFOLLOW)

#define OLD_STATAT(name)                                                                                                     \
	EXPORT int name(int version, int folder, const char *path, void *status, int flags);                                     \
	EXPORT int name(int version, int folder, const char *path, void *status, int flags) {                                    \
		(void)version;                                                                                                       \
		return read_status(folder, path, status, flags);                                                                            \
	}
OLD_STATAT(__fxstatat)
OLD_STATAT(__fxstatat64)

EXPORT int statx(int folder, const char *path, int flags, unsigned mask, struct statx *status) {
	const long result = SYSTEM(SYS_statx, folder, path, flags, mask, status);
	uint64_t identity = 0;
	if (result == 0 && (status->stx_mask & STATX_INO)) {
		const uint64_t major = status->stx_dev_major, minor = status->stx_dev_minor;
		identity = wafpark_identity((minor & 0xff) | (major & 0xfff) << 8 | (minor & ~(uint64_t)0xff) << 12, status->stx_ino);
	}
	return finish_stat(result, folder, path, flags, identity);
}

EXPORT int access(const char *path, int mode) {
	/* Makes the call that libc would make: a system may refuse one of them and not the other. */
#ifdef SYS_access
	long result = SYSTEM(SYS_access, path, mode);
#else
	long result = SYSTEM(SYS_faccessat, AT_FDCWD, path, mode);
#endif
	if (wafpark_watch)
		wafpark_note(WAFPARK_FIND, result, 0, AT_FDCWD, path);
	return (int)set_errno(result);
}

/* A target that was cut off gets no digest. */
static void note_link(long result, int folder, const char *path, const char *text, size_t room) {
	const int is_whole = result > 0 && (size_t)result < room;
	wafpark_note_found(WAFPARK_LINK, result, 0, folder, path, is_whole ? wafpark_digest(text, (uint64_t)result) : 0);
}

static long read_link(int folder, const char *path, char *buffer, size_t size) {
	long result = SYSTEM(SYS_readlinkat, folder, path, buffer, size);
	if (wafpark_watch && path && result != -EFAULT && path[0])
		note_link(result, folder, path, buffer, size);
	return set_errno(result);
}

EXPORT ssize_t readlink(const char *path, char *buffer, size_t size) {
	return read_link(AT_FDCWD, path, buffer, size);
}
EXPORT ssize_t readlinkat(int folder, const char *path, char *buffer, size_t size) {
	return read_link(folder, path, buffer, size);
}

EXPORT ssize_t __readlink_chk(const char *path, char *buffer, size_t size, size_t room);
EXPORT ssize_t __readlink_chk(const char *path, char *buffer, size_t size, size_t room) {
	REAL(ssize_t, __readlink_chk, (const char *, char *, size_t, size_t), -1)
	ssize_t result = real(path, buffer, size, room);
	if (wafpark_watch && path && path[0])
		note_link(result < 0 ? -errno : result, AT_FDCWD, path, buffer, size);
	return result;
}
EXPORT ssize_t __readlinkat_chk(int folder, const char *path, char *buffer, size_t size, size_t room);
EXPORT ssize_t __readlinkat_chk(int folder, const char *path, char *buffer, size_t size, size_t room) {
	REAL(ssize_t, __readlinkat_chk, (int, const char *, char *, size_t, size_t), -1)
	ssize_t result = real(folder, path, buffer, size, room);
	if (wafpark_watch && path && path[0])
		note_link(result < 0 ? -errno : result, folder, path, buffer, size);
	return result;
}

static void note_resolved(const char *result, const char *path) {
	uint64_t size = 0;
	while (result && result[size])
		size++;
	wafpark_note_found(WAFPARK_RESOLVE, result_of(!result), 0, AT_FDCWD, path, result ? wafpark_digest(result, size) : 0);
}

EXPORT char *realpath(const char *path, char *resolved) {
	REAL(char *, realpath, (const char *, char *), NULL)
	char *result = real(path, resolved);
	if (wafpark_watch)
		note_resolved(result, path);
	return result;
}
EXPORT char *__realpath_chk(const char *path, char *resolved, size_t size);
EXPORT char *__realpath_chk(const char *path, char *resolved, size_t size) {
	REAL(char *, __realpath_chk, (const char *, char *, size_t), NULL)
	char *result = real(path, resolved, size);
	if (wafpark_watch)
		note_resolved(result, path);
	return result;
}
EXPORT char *canonicalize_file_name(const char *path) {
	REAL(char *, canonicalize_file_name, (const char *), NULL)
	char *result = real(path);
	if (wafpark_watch)
		note_resolved(result, path);
	return result;
}

/* ---- listing */

static uint64_t identity_of_folder(DIR *folder) {
	int (*file_of)(DIR *) = (int (*)(DIR *))(uintptr_t)find_real(number_of_dirfd);
	return file_of ? wafpark_identity_of_file(file_of(folder)) : 0;
}

/* The folders that are being read, and the digests of the names so far. */
static struct reading {
	DIR *folder;
	uint64_t names;
} readings[32];
enum { READINGS = sizeof readings / sizeof *readings };
#define NO_NAMES 0xcbf29ce484222325u /* FNV-1a */

/* A folder for which there is no place is one that was not read to its end. */
static void begin_reading(DIR *folder) {
	for (int i = 0; folder && i < READINGS; i++) {
		DIR *none = NULL;
		if (__atomic_compare_exchange_n(&readings[i].folder, &none, folder, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			readings[i].names = NO_NAMES;
			return;
		}
	}
}

static struct reading *find_reading(DIR *folder) {
	for (int i = 0; i < READINGS; i++)
		if (__atomic_load_n(&readings[i].folder, __ATOMIC_ACQUIRE) == folder)
			return &readings[i];
	return NULL;
}

static void add_name(struct reading *reading, const char *name) {
	if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])))
		return;
	for (const char *at = name;; at++) {
		reading->names = (reading->names ^ (unsigned char)*at) * 0x100000001b3u;
		if (!*at)
			return;
	}
}

static char *put_hexadecimal(char *to, uint64_t number) {
	for (int shift = 60; shift >= 0; shift -= 4)
		*to++ = "0123456789abcdef"[number >> shift & 15];
	return to;
}

static void note_listed(DIR *folder, uint64_t names) {
	char text[40];
	char *end = put_hexadecimal(text, identity_of_folder(folder));
	*end++ = ' ';
	*put_hexadecimal(end, names) = 0;
	wafpark_note_word(WAFPARK_LISTED, 0, text);
}

/* A name of a crate, as far as the name tells that. */
static int is_crate(const char *name) {
	const char *end = wafpark_after(name, "lib"), *dot = NULL;
	for (; end && *end; end++)
		if (*end == '.')
			dot = end + 1;
	if (!dot)
		return 0;
	static const char *const endings[] = {"rlib", "rmeta", "so"};
	for (int i = 0; i < 3; i++) {
		const char *rest = wafpark_after(dot, endings[i]);
		if (rest && !*rest)
			return 1;
	}
	return 0;
}

static void note_crate(DIR *folder, const char *name) {
	char text[20 + 256];
	char *end = put_hexadecimal(text, identity_of_folder(folder));
	*end++ = ' ';
	while (*name && end < text + sizeof text - 1)
		*end++ = *name++;
	*end = 0;
	wafpark_note_word(WAFPARK_CRATE, 0, text);
}

static void end_reading(struct reading *reading, DIR *folder, int is_complete) {
	const int error = errno;
	if (is_complete)
		note_listed(folder, reading->names);
	__atomic_store_n(&reading->folder, NULL, __ATOMIC_RELEASE);
	errno = error;
}

EXPORT DIR *opendir(const char *path) {
	REAL(DIR *, opendir, (const char *), NULL)
	DIR *result = real(path);
	if (wafpark_watch) {
		wafpark_note_found(WAFPARK_LIST, result_of(!result), 0, AT_FDCWD, path, result ? identity_of_folder(result) : 0);
		begin_reading(result);
	}
	return result;
}

EXPORT DIR *fdopendir(int file) {
	REAL(DIR *, fdopendir, (int), NULL)
	DIR *result = real(file);
	if (wafpark_watch) {
		wafpark_note_file(WAFPARK_LIST, result_of(!result), 0, file);
		begin_reading(result);
	}
	return result;
}

#define READDIR(name, entry)                                                                                                 \
	EXPORT struct entry *name(DIR *folder) {                                                                                 \
		REAL(struct entry *, name, (DIR *), NULL)                                                                            \
		struct reading *reading = wafpark_watch ? find_reading(folder) : NULL;                                               \
		if (!reading)                                                                                                        \
			return real(folder);                                                                                             \
		const int error = errno;                                                                                             \
		errno = 0;                                                                                                           \
		struct entry *result = real(folder);                                                                                 \
		if (result && wafpark_finds_crates && is_crate(result->d_name))                                                      \
			note_crate(folder, result->d_name);                                                                              \
		if (result)                                                                                                          \
			add_name(reading, result->d_name);                                                                               \
		else                                                                                                                 \
			end_reading(reading, folder, errno == 0);                                                                        \
		if (!errno)                                                                                                          \
			errno = error;                                                                                                   \
		return result;                                                                                                       \
	}
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

EXPORT int closedir(DIR *folder) {
	REAL(int, closedir, (DIR *), -1)
	struct reading *reading = wafpark_watch ? find_reading(folder) : NULL;
	if (reading)
		end_reading(reading, folder, 0);
	return real(folder);
}

/* What is read from now on was not added up. */
EXPORT void rewinddir(DIR *folder) {
	REAL(void, rewinddir, (DIR *), )
	if (wafpark_watch)
		note_listed(folder, 0);
	real(folder);
}
EXPORT void seekdir(DIR *folder, long place) {
	REAL(void, seekdir, (DIR *, long), )
	if (wafpark_watch)
		note_listed(folder, 0);
	real(folder, place);
}

EXPORT ssize_t getdents64(int file, void *buffer, size_t size) {
	REAL(ssize_t, getdents64, (int, void *, size_t), -1)
	ssize_t result = real(file, buffer, size);
	if (wafpark_watch)
		wafpark_note_file(WAFPARK_LIST, result_of(result < 0), 0, file);
	return result;
}

#define GETDIRENTRIES(name, offset)                                                                                          \
	EXPORT ssize_t name(int file, char *buffer, size_t size, offset *base) {                                                 \
		REAL(ssize_t, name, (int, char *, size_t, offset *), -1)                                                             \
		ssize_t result = real(file, buffer, size, base);                                                                     \
		if (wafpark_watch)                                                                                                   \
			wafpark_note_file(WAFPARK_LIST, result_of(result < 0), 0, file);                                                   \
		return result;                                                                                                       \
	}
GETDIRENTRIES(getdirentries, off_t)
GETDIRENTRIES(getdirentries64, off64_t)

PATH(WAFPARK_LIST, 0, folder, scandirat,
     (int folder, const char *path, struct dirent ***names, int (*choose)(const struct dirent *),
      int (*order)(const struct dirent **, const struct dirent **)),
     (folder, path, names, choose, order))
PATH(WAFPARK_LIST, 0, folder, scandirat64,
     (int folder, const char *path, struct dirent64 ***names, int (*choose)(const struct dirent64 *),
      int (*order)(const struct dirent64 **, const struct dirent64 **)),
     (folder, path, names, choose, order))

PATH(WAFPARK_LIST, 0, AT_FDCWD, scandir,
     (const char *path, struct dirent ***names, int (*choose)(const struct dirent *),
      int (*order)(const struct dirent **, const struct dirent **)),
     (path, names, choose, order))
PATH(WAFPARK_LIST, 0, AT_FDCWD, scandir64,
     (const char *path, struct dirent64 ***names, int (*choose)(const struct dirent64 *),
      int (*order)(const struct dirent64 **, const struct dirent64 **)),
     (path, names, choose, order))

#define GLOB(name, type)                                                                                                     \
	EXPORT int name(const char *pattern, int flags, int (*failed)(const char *, int), type *found) {                         \
		REAL(int, name, (const char *, int, int (*)(const char *, int), type *), GLOB_NOSYS)                                 \
		if (wafpark_watch)                                                                                                   \
			wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_WALK, "");                                                        \
		return real(pattern, flags, failed, found);                                                                          \
	}
GLOB(glob, glob_t)
GLOB(glob64, glob64_t)

/* Functions with which libc walks through folders. Their arguments differ, but all are in registers. */
#define WALK(name)                                                                                                           \
	EXPORT void *name(void *a, void *b, void *c, void *d);                                                                   \
	EXPORT void *name(void *a, void *b, void *c, void *d) {                                                                  \
		REAL(void *, name, (void *, void *, void *, void *), NULL)                                                           \
		if (wafpark_watch)                                                                                                   \
			wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_WALK, "");                                                        \
		return real(a, b, c, d);                                                                                             \
	}
WALK(ftw)
WALK(ftw64)
WALK(nftw)
WALK(nftw64)
WALK(fts_open)
WALK(fts64_open)
WALK(wordexp)

/* ---- folders */

EXPORT int chdir(const char *path) {
	return (int)set_errno(wafpark_enter(path));
}

EXPORT int fchdir(int file) {
	long result = SYSTEM(SYS_fchdir, file);
	if (wafpark_watch)
		wafpark_note_file(WAFPARK_ENTER, result, 0, file);
	return (int)set_errno(result);
}

static void note_folder_counts(void) {
	wafpark_see_obstacle(WAFPARK_PROCESS);
	if (wafpark_watch)
		wafpark_note_word(WAFPARK_LOCATE, 0, "");
}

EXPORT char *getcwd(char *buffer, size_t size) {
	REAL(char *, getcwd, (char *, size_t), NULL)
	note_folder_counts();
	return real(buffer, size);
}
EXPORT char *__getcwd_chk(char *buffer, size_t size, size_t room);
EXPORT char *__getcwd_chk(char *buffer, size_t size, size_t room) {
	REAL(char *, __getcwd_chk, (char *, size_t, size_t), NULL)
	note_folder_counts();
	return real(buffer, size, room);
}
EXPORT char *__getwd_chk(char *buffer, size_t room);
EXPORT char *__getwd_chk(char *buffer, size_t room) {
	REAL(char *, __getwd_chk, (char *, size_t), NULL)
	note_folder_counts();
	return real(buffer, room);
}
/* libc returns PWD if it leads to the current folder. */
EXPORT char *get_current_dir_name(void) {
	REAL(char *, get_current_dir_name, (void), NULL)
	struct stat status;
	const char *pwd = wafpark_find_value("PWD");
	note_folder_counts();
	if (wafpark_watch && pwd) {
		const int error = errno;
		wafpark_note_word(WAFPARK_ASK, 0, "PWD");
		stat(".", &status);
		stat(pwd, &status);
		errno = error;
	}
	return real();
}
EXPORT char *getwd(char *buffer);
EXPORT char *getwd(char *buffer) {
	REAL(char *, getwd, (char *), NULL)
	note_folder_counts();
	return real(buffer);
}

/* ---- making, moving, removing */

#define CALL(kind, detail, folder, name, parameters, ...)                                                                    \
	EXPORT int name parameters {                                                                                             \
		if ((kind) == WAFPARK_REMOVE && wafpark_keeps_file(path))                                                                 \
			return 0;                                                                                                        \
		long result = SYSTEM(__VA_ARGS__);                                                                                   \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(kind, result, detail, folder, path);                                                                \
		return (int)set_errno(result);                                                                                          \
	}
CALL(WAFPARK_REMOVE, 0, AT_FDCWD, unlink, (const char *path), SYS_unlinkat, AT_FDCWD, path, 0)
CALL(WAFPARK_REMOVE, 0, folder, unlinkat, (int folder, const char *path, int flags), SYS_unlinkat, folder, path, flags)
CALL(WAFPARK_REMOVE, 0, AT_FDCWD, rmdir, (const char *path), SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)
CALL(WAFPARK_MAKE, 1, AT_FDCWD, mkdir, (const char *path, mode_t mode), SYS_mkdirat, AT_FDCWD, path, mode)
CALL(WAFPARK_MAKE, 1, folder, mkdirat, (int folder, const char *path, mode_t mode), SYS_mkdirat, folder, path, mode)
CALL(WAFPARK_MAKE, 0, AT_FDCWD, symlink, (const char *target, const char *path), SYS_symlinkat, target, AT_FDCWD, path)
CALL(WAFPARK_MAKE, 0, folder, symlinkat, (const char *target, int folder, const char *path), SYS_symlinkat, target, folder, path)
CALL(WAFPARK_MAKE, 0, AT_FDCWD, mknod, (const char *path, mode_t mode, dev_t device), SYS_mknodat, AT_FDCWD, path, mode, device)
CALL(WAFPARK_MAKE, 0, folder, mknodat, (int folder, const char *path, mode_t mode, dev_t device), SYS_mknodat, folder, path, mode, device)
CALL(WAFPARK_MAKE, 0, folder, mkfifoat, (int folder, const char *path, mode_t mode), SYS_mknodat, folder, path, mode | S_IFIFO, 0)
CALL(WAFPARK_MAKE, 0, AT_FDCWD, mkfifo, (const char *path, mode_t mode), SYS_mknodat, AT_FDCWD, path, mode | S_IFIFO, 0)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, truncate, (const char *path, off_t size), SYS_truncate, path, size)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, truncate64, (const char *path, off64_t size), SYS_truncate, path, size)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, chmod, (const char *path, mode_t mode), SYS_fchmodat, AT_FDCWD, path, mode)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, chown, (const char *path, uid_t user, gid_t group), SYS_fchownat, AT_FDCWD, path, user, group, 0)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, lchown, (const char *path, uid_t user, gid_t group), SYS_fchownat, AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW)
CALL(WAFPARK_OPEN, O_WRONLY, folder, fchownat, (int folder, const char *path, uid_t user, gid_t group, int flags), SYS_fchownat, folder, path, user, group, flags)

/* Programs that were linked with glibc before 2.33 call these. */
EXPORT int __xmknod(int version, const char *path, mode_t mode, dev_t *device);
EXPORT int __xmknod(int version, const char *path, mode_t mode, dev_t *device) {
	(void)version;
	return mknod(path, mode, *device);
}
EXPORT int __xmknodat(int version, int folder, const char *path, mode_t mode, dev_t *device);
EXPORT int __xmknodat(int version, int folder, const char *path, mode_t mode, dev_t *device) {
	(void)version;
	return mknodat(folder, path, mode, *device);
}

EXPORT char *mkdtemp(char *path) {
	REAL(char *, mkdtemp, (char *), NULL)
	char *result = real(path);
	if (wafpark_watch)
		wafpark_note(WAFPARK_MAKE, result_of(!result), 1, AT_FDCWD, path);
	return result;
}

static int move(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
	if (wafpark_keeps_file(from))
		return 0;
	long result = SYSTEM(SYS_renameat2, from_folder, from, to_folder, to, flags);
	if (wafpark_watch)
		wafpark_note_two(WAFPARK_RENAME, result, from_folder, from, to_folder, to);
	return (int)set_errno(result);
}

EXPORT int rename(const char *from, const char *to) {
	return move(AT_FDCWD, from, AT_FDCWD, to, 0);
}
EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to) {
	return move(from_folder, from, to_folder, to, 0);
}
EXPORT int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
	return move(from_folder, from, to_folder, to, flags);
}

/* A second name for a file is recorded as if one file were read and the other written. */
static int add_link(int from_folder, const char *from, int to_folder, const char *to, int flags) {
	long result = SYSTEM(SYS_linkat, from_folder, from, to_folder, to, flags);
	if (wafpark_watch && from && from[0]) {
		wafpark_note(WAFPARK_OPEN, result, O_RDONLY, from_folder, from);
		wafpark_note(WAFPARK_OPEN, result, O_WRONLY | O_CREAT | O_EXCL, to_folder, to);
	} else if (wafpark_watch)
		wafpark_note(WAFPARK_OPEN, result, O_WRONLY | O_CREAT | O_EXCL, to_folder, to);
	return (int)set_errno(result);
}

EXPORT int link(const char *from, const char *to) {
	return add_link(AT_FDCWD, from, AT_FDCWD, to, 0);
}
EXPORT int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
	return add_link(from_folder, from, to_folder, to, flags);
}

/* ---- the state of a file system: its free space is different each time */

struct statfs;
struct statfs64;
struct statvfs;
struct statvfs64;

/* libselinux asks at its start whether the kernel has a file system for it below /sys. */
static int is_below_sys(const char *path) {
	return path[0] == '/' && path[1] == 's' && path[2] == 'y' && path[3] == 's' && path[4] == '/';
}

static void note_system(long result, const char *path) {
	if (!wafpark_watch || result == -EFAULT)
		return;
	wafpark_note(WAFPARK_LOOK, result, 1, AT_FDCWD, path);
	if (result >= 0 && !is_below_sys(path))
		wafpark_note_word(WAFPARK_TIME, 0, "");
}

#define STATFS(name, type)                                                                                                   \
	EXPORT int name(const char *path, struct type *found);                                                                   \
	EXPORT int name(const char *path, struct type *found) {                                                                  \
		long result = SYSTEM(SYS_statfs, path, found);                                                                       \
		note_system(result, path);                                                                                           \
		return (int)set_errno(result);                                                                                          \
	}
STATFS(statfs, statfs)
STATFS(statfs64, statfs64)
STATFS(__statfs, statfs)

#define STATVFS(name, type)                                                                                                  \
	EXPORT int name(const char *restrict path, struct type *restrict found);                                                 \
	EXPORT int name(const char *restrict path, struct type *restrict found) {                                                \
		REAL(int, name, (const char *, struct type *), -1)                                                                   \
		int result = real(path, found);                                                                                      \
		note_system(result_of(result < 0), path);                                                                              \
		return result;                                                                                                       \
	}
STATVFS(statvfs, statvfs)
STATVFS(statvfs64, statvfs64)

/* `grep -r` asks for the kind of file system of each folder. So this is recorded as a measurement only. */
#define FSTATFS(name, type)                                                                                                  \
	EXPORT int name(int file, struct type *found);                                                                           \
	EXPORT int name(int file, struct type *found) {                                                                          \
		if (wafpark_watch)                                                                                                   \
			wafpark_note_word(WAFPARK_MEASURE, 0, "");                                                                       \
		return (int)set_errno(SYSTEM(SYS_fstatfs, file, found));                                                                \
	}
FSTATFS(fstatfs, statfs)
FSTATFS(fstatfs64, statfs64)

#define FSTATVFS(name, type)                                                                                                 \
	EXPORT int name(int file, struct type *found);                                                                           \
	EXPORT int name(int file, struct type *found) {                                                                          \
		REAL(int, name, (int, struct type *), -1)                                                                            \
		if (wafpark_watch)                                                                                                   \
			wafpark_note_word(WAFPARK_TIME, 0, "");                                                                          \
		return real(file, found);                                                                                            \
	}
FSTATVFS(fstatvfs, statvfs)
FSTATVFS(fstatvfs64, statvfs64)

/* Some of these values depend on the kind of file system. */
EXPORT long pathconf(const char *path, int name) {
	REAL(long, pathconf, (const char *, int), -1)
	if (wafpark_watch && (name == _PC_LINK_MAX || name == _PC_2_SYMLINKS || name == _PC_FILESIZEBITS))
		wafpark_note_word(WAFPARK_MEASURE, 0, "");
	if (wafpark_watch)
		wafpark_note(WAFPARK_LOOK, SYSTEM(SYS_faccessat, AT_FDCWD, path, F_OK), 1, AT_FDCWD, path);
	return real(path, name);
}

/* A key made of a file's device and inode. */
EXPORT int ftok(const char *path, int project);
EXPORT int ftok(const char *path, int project) {
	struct stat status;
	if (stat(path, &status) < 0)
		return -1;
	return (int)((uint32_t)(status.st_ino & 0xffff) | (uint32_t)(status.st_dev & 0xff) << 16 | ((uint32_t)project & 0xff) << 24);
}

/* ---- random names: libc tries some until one is free */

#define TEMPORARY_FILE(name)                                                                                                 \
	EXPORT FILE *name(void) {                                                                                                \
		REAL(FILE *, name, (void), NULL)                                                                                     \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(WAFPARK_FIND, 0, 0, AT_FDCWD, "/tmp");                                                              \
		return real();                                                                                                       \
	}
TEMPORARY_FILE(tmpfile)
TEMPORARY_FILE(tmpfile64)

/* libc looks whether this folder exists. */
static void note_folder(const char *folder) {
	struct stat status;
	if (wafpark_watch && folder && *folder)
		stat(folder, &status);
}

#define TEMPORARY_NAME(name, parameters, arguments, folders)                                                                 \
	EXPORT char *name parameters {                                                                                           \
		REAL(char *, name, parameters, NULL)                                                                                 \
		if (wafpark_watch) {                                                                                                 \
			wafpark_note_word(WAFPARK_RANDOM, 0, "");                                                                        \
			wafpark_note_word(WAFPARK_ASK, 0, "TMPDIR");                                                                     \
		}                                                                                                                    \
		folders;                                                                                                             \
		char *result = real arguments;                                                                                       \
		if (wafpark_watch && result && *result)                                                                              \
			wafpark_note(WAFPARK_FIND, -ENOENT, 0, AT_FDCWD, result);                                                        \
		return result;                                                                                                       \
	}
TEMPORARY_NAME(tempnam, (const char *folder, const char *start), (folder, start),
               (note_folder(wafpark_find_value("TMPDIR")), note_folder(folder), note_folder("/tmp")))
TEMPORARY_NAME(tmpnam, (char place[L_tmpnam]), (place), note_folder("/tmp"))
TEMPORARY_NAME(tmpnam_r, (char place[L_tmpnam]), (place), note_folder("/tmp"))

/* If libc finds no free name, it sets the first character of the last one to zero. */
EXPORT char *mktemp(char *path) {
	REAL(char *, mktemp, (char *), NULL)
	const char first = path[0];
	if (wafpark_watch)
		wafpark_note_word(WAFPARK_RANDOM, 0, "");
	char *result = real(path);
	if (wafpark_watch && first) {
		const char left = path[0];
		path[0] = first;
		wafpark_note(WAFPARK_FIND, left ? -ENOENT : -errno, 0, AT_FDCWD, path);
		path[0] = left;
	}
	return result;
}

/* ---- what libc opens by itself */

EXPORT FILE *setmntent(const char *path, const char *mode);
EXPORT FILE *setmntent(const char *path, const char *mode) {
	REAL(FILE *, setmntent, (const char *, const char *), NULL)
	FILE *file = real(path, mode);
	if (wafpark_watch)
		note_stream(file, (uint32_t)flags_of(mode), path);
	return file;
}

/* libc searches for a name without a slash along NLSPATH. */
EXPORT void *catopen(const char *name, int flags);
EXPORT void *catopen(const char *name, int flags) {
	REAL(void *, catopen, (const char *, int), (void *)-1)
	int is_path = 0;
	for (const char *c = name; c && *c; c++)
		is_path |= *c == '/';
	if (wafpark_watch && is_path)
		wafpark_note(WAFPARK_OPEN, SYSTEM(SYS_faccessat, AT_FDCWD, name, R_OK), O_RDONLY, AT_FDCWD, name);
	else if (wafpark_watch)
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_WALK, "");
	return real(name, flags);
}

/* If a child shares its current folder with this process, its chdir changes ours. */
EXPORT int clone(int (*function)(void *), void *stack, int flags, void *argument, ...) {
	REAL(int, clone, (int (*)(void *), void *, int, void *, ...), -1)
	va_list list;
	va_start(list, argument);
	void *parent = va_arg(list, void *), *tls = va_arg(list, void *), *child = va_arg(list, void *);
	va_end(list);
	if (wafpark_watch && (flags & CLONE_FS) && !(flags & CLONE_THREAD))
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_PLACE, "");
	if (wafpark_watch)
		wafpark_leave_guard();
	return real(function, stack, flags, argument, parent, tls, child);
}
