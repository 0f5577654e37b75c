/* The parts of random programs. Each action is a function that accesses files, or starts a program, in one way.
 *
 * `ACTION(name, ROLE)` declares one. Its role says which arguments it takes, and so which ones are drawn for it; the tool
 * reads these lines. Whatever fails, the program goes on. */
#ifndef ACTION_H
#define ACTION_H

enum environment { WHOLE, CUT, EMPTY };
char **environment_of(enum environment environment);

#define ACTION(name, role)                                                                                                   \
	void name TAKES_##role;                                                                                                  \
	void name TAKES_##role

#define TAKES_NONE (void)
#define TAKES_FILE (const char *path)
#define TAKES_NEW (const char *path)
#define TAKES_FOLDER (const char *path)
#define TAKES_LIBRARY (const char *path)
#define TAKES_LINK (const char *path)
#define TAKES_FILE_NEW (const char *path, const char *other)
#define TAKES_FOLDER_FILE (const char *folder, const char *path)
#define TAKES_FOLDER_NEW (const char *folder, const char *path)
#define TAKES_FOLDER_FILE_NEW (const char *folder, const char *path, const char *other)
#define TAKES_START (char *const *argv, enum environment environment)

#endif
