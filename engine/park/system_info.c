/* Functions of libc that tell a program about users, hosts, other processes and attributes of files. libc reads files for them, but not
 * through functions that we see. Each function here does what libc's does, and records that.
 *
 * All of them take and return whole registers, whatever their types in headers are. So one prototype is enough for all. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <elf.h>
#include <errno.h>

/* The headers that define these also declare the functions below, with other prototypes. So they are defined here again. */
#define AVAILABLE_PAGES 86 /* `_SC_AVPHYS_PAGES` of glibc and musl */
#define HERE (-100) /* `AT_FDCWD` */

typedef long function(long, long, long, long, long, long);
typedef long long_function(long, long, long, long, long, long, long, long);

/* For functions with more arguments than registers hold. The places of the last arguments are passed on, whether the caller has set them or
 * not. */
#define FORWARD_LONG(name, failure, before)                                                                                  \
	EXPORT long_function name;                                                                                               \
	EXPORT long name(long a, long b, long c, long d, long e, long f, long g, long h) {                                       \
		static long_function *real;                                                                                          \
		if (!real)                                                                                                           \
			*(void **)(&real) = wafpark_find(#name);                                                                         \
		before;                                                                                                              \
		return real ? real(a, b, c, d, e, f, g, h) : (failure);                                                              \
	}

#define FORWARD(name, failure, before, after)                                                                                \
	EXPORT function name;                                                                                                    \
	EXPORT long name(long a, long b, long c, long d, long e, long f) {                                                       \
		static function *real;                                                                                               \
		if (!real)                                                                                                           \
			*(void **)(&real) = wafpark_find(#name);                                                                         \
		before;                                                                                                              \
		long result = real ? real(a, b, c, d, e, f) : (failure);                                                             \
		after;                                                                                                               \
		return result;                                                                                                       \
	}

static void note(enum wafpark_kind kind, enum wafpark_blindness why) {
	if (wafpark_watch)
		wafpark_note_word(kind, why, "");
}

#define BLIND(name, failure, why) FORWARD(name, failure, note(WAFPARK_BLIND, why), )
#define NOTE(name, failure, kind) FORWARD(name, failure, note(kind, 0), )

/* ---- users, groups and hosts: information from files and servers */

BLIND(getpwent, 0, WAFPARK_BLIND_USERS)
BLIND(getpwent_r, 5, WAFPARK_BLIND_USERS)
BLIND(getgrent, 0, WAFPARK_BLIND_USERS)
BLIND(getgrent_r, 5, WAFPARK_BLIND_USERS)
BLIND(getgrouplist, -1, WAFPARK_BLIND_USERS)
BLIND(getlogin, 0, WAFPARK_BLIND_USERS)
BLIND(getlogin_r, 5, WAFPARK_BLIND_USERS)
BLIND(cuserid, 0, WAFPARK_BLIND_USERS)
BLIND(getspnam, 0, WAFPARK_BLIND_USERS)
BLIND(getutxent, 0, WAFPARK_BLIND_USERS)
BLIND(getutent, 0, WAFPARK_BLIND_USERS)
BLIND(gethostid, 0, WAFPARK_BLIND_USERS)
BLIND(gethostent, 0, WAFPARK_BLIND_USERS)
BLIND(gethostbyaddr, 0, WAFPARK_BLIND_USERS)
BLIND(gethostbyname_r, 5, WAFPARK_BLIND_USERS)
BLIND(getnetbyname, 0, WAFPARK_BLIND_USERS)
BLIND(getprotobyname, 0, WAFPARK_BLIND_USERS)
BLIND(getprotobynumber, 0, WAFPARK_BLIND_USERS)
BLIND(getservbyname, 0, WAFPARK_BLIND_USERS)
BLIND(getservbyport, 0, WAFPARK_BLIND_USERS)
BLIND(getnetbyaddr, 0, WAFPARK_BLIND_USERS)
BLIND(getprotobyname_r, 5, WAFPARK_BLIND_USERS)
BLIND(getprotobynumber_r, 5, WAFPARK_BLIND_USERS)
BLIND(getprotoent, 0, WAFPARK_BLIND_USERS)
BLIND(getservbyname_r, 5, WAFPARK_BLIND_USERS)
BLIND(getservbyport_r, 5, WAFPARK_BLIND_USERS)
BLIND(getservent, 0, WAFPARK_BLIND_USERS)
BLIND(getspnam_r, 5, WAFPARK_BLIND_USERS)
BLIND(getspent, 0, WAFPARK_BLIND_USERS)
BLIND(getutxid, 0, WAFPARK_BLIND_USERS)
BLIND(getutxline, 0, WAFPARK_BLIND_USERS)
BLIND(getdomainname, -1, WAFPARK_BLIND_USERS)
BLIND(if_nametoindex, 0, WAFPARK_BLIND_USERS)
BLIND(if_indextoname, 0, WAFPARK_BLIND_USERS)
FORWARD_LONG(gethostbyaddr_r, 5, note(WAFPARK_BLIND, WAFPARK_BLIND_USERS))
FORWARD_LONG(gethostbyname2_r, 5, note(WAFPARK_BLIND, WAFPARK_BLIND_USERS))
FORWARD_LONG(getnameinfo, -11, note(WAFPARK_BLIND, WAFPARK_BLIND_USERS))
BLIND(getifaddrs, -1, WAFPARK_BLIND_USERS)
BLIND(if_nameindex, 0, WAFPARK_BLIND_USERS)
BLIND(res_query, -1, WAFPARK_BLIND_USERS)
BLIND(res_search, -1, WAFPARK_BLIND_USERS)
BLIND(res_nquery, -1, WAFPARK_BLIND_USERS)
BLIND(res_nsearch, -1, WAFPARK_BLIND_USERS)
BLIND(__res_query, -1, WAFPARK_BLIND_USERS)
BLIND(__res_search, -1, WAFPARK_BLIND_USERS)
BLIND(__res_nquery, -1, WAFPARK_BLIND_USERS)
BLIND(__res_nsearch, -1, WAFPARK_BLIND_USERS)
BLIND(__res_init, -1, WAFPARK_BLIND_USERS)
BLIND(__res_ninit, -1, WAFPARK_BLIND_USERS)
BLIND(res_querydomain, -1, WAFPARK_BLIND_USERS)
BLIND(res_nquerydomain, -1, WAFPARK_BLIND_USERS)
BLIND(res_send, -1, WAFPARK_BLIND_USERS)
BLIND(res_nsend, -1, WAFPARK_BLIND_USERS)
BLIND(openlog, 0, WAFPARK_BLIND_TALK)

/* ---- memory, queues, terminals and processes that are shared with others */

BLIND(shm_open, -1, WAFPARK_BLIND_SHARED)
BLIND(shm_unlink, -1, WAFPARK_BLIND_SHARED)
BLIND(shmget, -1, WAFPARK_BLIND_SHARED)
BLIND(shmat, -1, WAFPARK_BLIND_SHARED)
BLIND(semget, -1, WAFPARK_BLIND_SHARED)
BLIND(semop, -1, WAFPARK_BLIND_SHARED)
BLIND(sem_open, 0, WAFPARK_BLIND_SHARED)
BLIND(msgget, -1, WAFPARK_BLIND_SHARED)
BLIND(mq_open, -1, WAFPARK_BLIND_SHARED)
BLIND(posix_openpt, -1, WAFPARK_BLIND_SHARED)
BLIND(getpt, -1, WAFPARK_BLIND_SHARED)
BLIND(openpty, -1, WAFPARK_BLIND_SHARED)
BLIND(forkpty, -1, WAFPARK_BLIND_SHARED)
BLIND(ptrace, -1, WAFPARK_BLIND_SHARED)
BLIND(process_vm_readv, -1, WAFPARK_BLIND_SHARED)
BLIND(process_vm_writev, -1, WAFPARK_BLIND_SHARED)

/* ---- files without names, and calls that change the meaning of names */

BLIND(name_to_handle_at, -1, WAFPARK_BLIND_PLACE)
BLIND(open_by_handle_at, -1, WAFPARK_BLIND_PLACE)
BLIND(fanotify_init, -1, WAFPARK_BLIND_PLACE)
BLIND(inotify_init, -1, WAFPARK_BLIND_PLACE)
BLIND(inotify_init1, -1, WAFPARK_BLIND_PLACE)
BLIND(unshare, -1, WAFPARK_BLIND_PLACE)
BLIND(setns, -1, WAFPARK_BLIND_PLACE)
BLIND(chroot, -1, WAFPARK_BLIND_PLACE)
BLIND(pivot_root, -1, WAFPARK_BLIND_PLACE)
BLIND(mount, -1, WAFPARK_BLIND_PLACE)
BLIND(umount, -1, WAFPARK_BLIND_PLACE)
BLIND(umount2, -1, WAFPARK_BLIND_PLACE)
BLIND(swapon, -1, WAFPARK_BLIND_PLACE)
BLIND(swapoff, -1, WAFPARK_BLIND_PLACE)

/* ---- attributes of files: they are not restored with a result, and no fact compares them. A program that finds none is observed completely. */

/* An access list that says the same as the file's mode, of which facts are made. `install` and `cp` set such lists. */
#define PLAIN_ACCESS_LIST 28 /* bytes: user, group, others */

static int is_same(const char *a, const char *b) {
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static int says_more_than_mode(long name, long size) {
	const char *text = (const char *)name;
	return size != PLAIN_ACCESS_LIST || !text || !is_same(text, "system.posix_acl_access");
}

/* Removing an access list may succeed even if there is none. */
static int is_other_attribute(long name) {
	const char *text = (const char *)name;
	return !text || (!is_same(text, "system.posix_acl_access") && !is_same(text, "system.posix_acl_default"));
}

static void note_attributes(long path, int follows, long result) {
	if (wafpark_watch)
		wafpark_note(WAFPARK_LOOK, (int)result < 0 && errno != ENODATA ? -errno : 0, (uint32_t)follows, HERE, (const char *)path);
}

#define ATTRIBUTE_OF_FILE(name, is_found) FORWARD(name, -1, , if (is_found) note(WAFPARK_BLIND, WAFPARK_BLIND_ATTRIBUTES))
#define ATTRIBUTE(name, follows, is_found)                                                                                   \
	FORWARD(name, -1, , note_attributes(a, follows, result); if (is_found) note(WAFPARK_BLIND, WAFPARK_BLIND_ATTRIBUTES))
ATTRIBUTE(getxattr, 1, result >= 0)
ATTRIBUTE(lgetxattr, 0, result >= 0)
ATTRIBUTE_OF_FILE(fgetxattr, result >= 0)
ATTRIBUTE(listxattr, 1, result > 0)
ATTRIBUTE(llistxattr, 0, result > 0)
ATTRIBUTE_OF_FILE(flistxattr, result > 0)
ATTRIBUTE(setxattr, 1, (int)result == 0 && says_more_than_mode(b, d))
ATTRIBUTE(lsetxattr, 0, (int)result == 0 && says_more_than_mode(b, d))
ATTRIBUTE_OF_FILE(fsetxattr, (int)result == 0 && says_more_than_mode(b, d))
ATTRIBUTE(removexattr, 1, (int)result == 0 && is_other_attribute(b))
ATTRIBUTE(lremovexattr, 0, (int)result == 0 && is_other_attribute(b))
ATTRIBUTE_OF_FILE(fremovexattr, (int)result == 0 && is_other_attribute(b))

/* ---- how long the process runs, and how busy the machine is */

NOTE(clock, -1, WAFPARK_MEASURE)
NOTE(clock_getres, -1, WAFPARK_MEASURE)
NOTE(timespec_getres, 0, WAFPARK_MEASURE)
NOTE(times, -1, WAFPARK_MEASURE)
NOTE(getrusage, -1, WAFPARK_MEASURE)
NOTE(sysinfo, -1, WAFPARK_MEASURE)
NOTE(getloadavg, -1, WAFPARK_MEASURE)
NOTE(get_avphys_pages, -1, WAFPARK_MEASURE)
FORWARD(sysconf, -1, if ((int)a == AVAILABLE_PAGES) note(WAFPARK_MEASURE, 0), )

/* ---- random values: process numbers, and randomness from the kernel or the processor */

NOTE(getppid, SYSTEM(SYS_getppid), WAFPARK_NUMBER)
NOTE(gettid, SYSTEM(SYS_gettid), WAFPARK_NUMBER)
NOTE(getsid, -1, WAFPARK_NUMBER)
NOTE(getpgid, -1, WAFPARK_NUMBER)
NOTE(getpgrp, -1, WAFPARK_NUMBER)
FORWARD(getauxval, 0, if (a == AT_RANDOM) note(WAFPARK_RANDOM, 0), )
NOTE(_ZNSt13random_device9_M_getvalEv, 0, WAFPARK_RANDOM)
NOTE(_ZNSt13random_device16_M_getval_pretr1Ev, 0, WAFPARK_RANDOM)
